//! How does an answer go on to the client?

use std::sync::Arc;
use std::time::Duration;

use http::{Response, StatusCode};

use super::{Arrival, Passage};
use crate::forward::attempt::Answered;
use crate::forward::body::Body;
use crate::forward::metered::Bill;
use crate::forward::relay::{self, Relay};
use crate::forward::renamed::renamed;
use crate::forward::rights::InUse;
use crate::forward::upgrade;
use crate::forward::waiting::Owed;
use crate::request::Dialect;

impl Passage<'_> {
    pub(super) fn tunnel(
        &self,
        answered: Answered,
        asked: Option<upgrade::Asked>,
        in_use: Option<InUse>,
        arrival: &mut Arrival,
    ) -> Response<Body> {
        let Answered { response, lease, .. } = answered;
        let idle: Duration = self.options.timeouts.tunnel_idle;
        let tunnel = upgrade::Tunnel {
            lease,
            idle,
            metrics: self.inner.metrics.clone(),
            in_flight: arrival.hand_over(),
            story: arrival.tell(StatusCode::SWITCHING_PROTOCOLS),
            _in_use: in_use,
        };
        match asked {
            Some(asked) => asked.tunnel(response, tunnel),
            None => response,
        }
    }

    pub(super) fn relay(
        &self,
        (answered, rename): (Answered, Option<Arc<str>>),
        owed: Option<Owed>,
        in_use: Option<InUse>,
        arrival: &mut Arrival,
    ) -> Response<Body> {
        let Answered {
            response,
            lease,
            sent,
            stages,
            hurried,
        } = answered;
        let (mut head, mut body) = response.into_parts();
        if let Some(name) = rename {
            let key = match self.route.dialect {
                Dialect::Triton => "model_name",
                _ => "model",
            };
            body = renamed(body, &mut head.headers, (key, &name));
        }
        let asked = (self.method, self.path);
        let told = (head.status.is_success(), &head.headers);
        let request = relay::Request {
            learner: self.inner.owners.learn(asked, told),
            lease,
            bill: Bill {
                place: owed,
                client: in_use,
                clock: self.inner.clock,
                wrong: head.status.is_client_error(),
            },
            sent,
            stages,
            hurried,
            span: arrival.span.clone(),
            dialect: self.route.dialect,
            story: arrival.tell(head.status),
            metrics: self.inner.metrics.clone(),
            in_flight: arrival.hand_over(),
        };
        let relay = Relay::new(body, &head.headers, request);
        Response::from_parts(head, relay.into_body(self.at_once))
    }
}
