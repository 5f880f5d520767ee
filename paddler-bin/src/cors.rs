//! Which web pages may ask the management listener?
//!
//! Those whose origin is allowed. A browser asks first (preflight), and shows a page what is answered only where the answer says
//! that it may see it. Pages of other origins are seen to by [`api`](crate::api).

use std::sync::Arc;

use http::header::{
    ACCESS_CONTROL_ALLOW_HEADERS, ACCESS_CONTROL_ALLOW_METHODS, ACCESS_CONTROL_ALLOW_ORIGIN,
    ACCESS_CONTROL_MAX_AGE, ACCESS_CONTROL_REQUEST_METHOD, ORIGIN, VARY,
};
use http::{HeaderMap, HeaderValue, Method, Request, Response, StatusCode};
use paddler_core::forward::Body;

use crate::api::Reach;
use crate::control::Control;
use crate::management;

/// Answers a request to the management listener, whoever it is from. `reach`: how it is reached.
pub(crate) async fn answer(
    control: Arc<Control>,
    mut request: Request<Body>,
    reach: Reach,
) -> Response<Body> {
    let origins = &control.doors().origins;
    let origin = request.headers().get(ORIGIN).cloned();
    let allowed = origin.clone().filter(|origin| is_of(origins, origin));
    let asks_first =
        request.method() == Method::OPTIONS && request.headers().contains_key(ACCESS_CONTROL_REQUEST_METHOD);
    let mut response = match (&allowed, asks_first && origin.is_some()) {
        (Some(_), true) => preflight(),
        (None, true) => {
            let mut response =
                Response::new(Body::from("this page is not of management_origins\n".to_owned()));
            *response.status_mut() = StatusCode::FORBIDDEN;
            response
        }
        (allowed, false) => {
            if allowed.is_some() {
                // It is as good as a program.
                request.headers_mut().remove(ORIGIN);
                request.headers_mut().remove("sec-fetch-site");
            }
            management::answer(control.clone(), request, reach).await
        }
    };
    if let Some(origin) = allowed {
        response.headers_mut().insert(ACCESS_CONTROL_ALLOW_ORIGIN, origin);
    }
    if !origins.is_empty() {
        response
            .headers_mut()
            .append(VARY, HeaderValue::from_static("Origin"));
    }
    response
}

fn is_of(origins: &[String], origin: &HeaderValue) -> bool {
    origins
        .iter()
        .any(|allowed| allowed.as_bytes().eq_ignore_ascii_case(origin.as_bytes()))
}

fn preflight() -> Response<Body> {
    let mut response = Response::new(Body::empty());
    *response.status_mut() = StatusCode::NO_CONTENT;
    let headers: &mut HeaderMap = response.headers_mut();
    let mut say = |name, value| headers.insert(name, HeaderValue::from_static(value));
    say(
        ACCESS_CONTROL_ALLOW_METHODS,
        "GET, HEAD, POST, PUT, DELETE, OPTIONS",
    );
    say(
        ACCESS_CONTROL_ALLOW_HEADERS,
        "Accept, Authorization, Content-Type, Last-Event-ID",
    );
    say(ACCESS_CONTROL_MAX_AGE, "3600");
    response
}
