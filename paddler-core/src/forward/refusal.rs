//! How is a request refused?
//!
//! With the status that says who can mend it, a stable word in `x-paddler-reason`, and an error body of the dialect that
//! the client speaks, so that its own library raises its own error.

use std::borrow::Cow;
use std::time::Duration;

use http::header::{CONNECTION, CONTENT_TYPE, RETRY_AFTER};
use http::{HeaderName, HeaderValue, Response, StatusCode};
use serde_json::{Value, json};

use super::body::Body;
use crate::Moment;
use crate::request::{Dialect, UnreadableRequest};
use crate::schedule::{Ask, Class, Ending, FilterError, NodeId};
use crate::status::Snapshot;
use crate::upstream::UpstreamId;

/// What OpenAI's clients go by before anything else.
const X_SHOULD_RETRY: HeaderName = HeaderName::from_static("x-should-retry");

/// The same as `Retry-After`, in milliseconds: what OpenAI's clients read first.
const RETRY_AFTER_MS: HeaderName = HeaderName::from_static("retry-after-ms");

pub(super) const REASON: HeaderName = HeaderName::from_static("x-paddler-reason");

/// The reasons that a router has for any request: whoever hears one of these does well to send it nothing for a while. All
/// others are about the request, its model or its key, and the next may be served. The [module](super) has all of them.
pub(super) const OF_THE_ROUTER: [&str; 3] = ["buffers_full", "no_upstream", "stopping"];

/// Whether an answer that came with this reason says how the router is that gave it.
pub(super) fn is_of_the_router(reason: &HeaderValue) -> bool {
    OF_THE_ROUTER.iter().any(|word| reason == word)
}

/// A request that is answered here with an error.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Refusal {
    /// The status.
    pub status: StatusCode,
    /// A stable word: why.
    pub reason: Cow<'static, str>,
    /// What happened and how to mend it, for a person.
    pub message: String,
    /// When to try again.
    pub retry_after: Option<Duration>,
    /// Whether the same request may do better another time: what `x-should-retry` says. A request that is wrong will not,
    /// and one that may have been worked on is for the client to judge, not for its library.
    pub should_retry: bool,
    /// Whether the connection is of no use any more: part of the request was not read.
    pub close: bool,
    /// The node of the tree that found nobody, if one did.
    pub node: Option<NodeId>,
    /// What the host's filter or cost said in that node, where it is one that could not judge.
    pub error: Option<FilterError>,
}

/// The model that is asked for, and what that stands for, for a person.
pub(super) fn named(model: Option<&str>, asked: Option<&str>) -> Option<String> {
    let model = model?;
    Some(match asked {
        Some(asked) => format!("{asked:?} (which is {model:?} here)"),
        None => format!("{model:?}"),
    })
}

/// The node that found nobody, for a person.
fn node(ending: &Ending) -> String {
    let number = ending.node.get();
    match &ending.title {
        Some(title) => format!("node {number} of the tree, `{title}`"),
        None => format!("node {number} of the tree"),
    }
}

impl Refusal {
    /// A refusal of a host's own, to be told as the router tells its: what [`into_response`](Self::into_response) makes of it.
    /// The `reason` is a word such as those of [`forward`](super). The same request may do better another time where the status
    /// is 408, 429 or 503.
    ///
    /// ```
    /// use std::time::Duration;
    ///
    /// use http::StatusCode;
    /// use paddler_core::forward::Refusal;
    /// use paddler_core::request::Dialect;
    ///
    /// let refusal = Refusal::new(StatusCode::TOO_MANY_REQUESTS, "too_many_streams", "come again")
    ///     .retry_after(Duration::from_secs(2));
    /// let response = refusal.into_response(Dialect::Openai);
    /// assert_eq!(response.headers()["x-paddler-reason"], "too_many_streams");
    /// assert_eq!(response.headers()["retry-after"], "2");
    /// assert_eq!(response.headers()["x-should-retry"], "true");
    /// ```
    pub fn new(status: StatusCode, reason: impl Into<Cow<'static, str>>, message: impl Into<String>) -> Self {
        Self {
            status,
            reason: reason.into(),
            message: message.into(),
            retry_after: None,
            should_retry: matches!(status.as_u16(), 408 | 429 | 503),
            close: false,
            node: None,
            error: None,
        }
    }

    pub(super) fn bad_request(reason: &'static str, message: impl Into<String>) -> Self {
        Self::new(StatusCode::BAD_REQUEST, reason, message)
    }

    /// Says when to try again: in whole seconds, rounded up, and in milliseconds.
    #[must_use]
    pub fn retry_after(mut self, after: Duration) -> Self {
        self.retry_after = Some(after);
        self
    }

    /// Says whether it may do better another time, where the status does not.
    #[must_use]
    pub(super) fn should_retry(mut self, again: bool) -> Self {
        self.should_retry = again;
        self
    }

    #[must_use]
    pub(super) fn closing(mut self) -> Self {
        self.close = true;
        self
    }

    /// Says it in the log, for whoever looks for a request by its id.
    pub(super) fn say(&self) {
        let (status, reason) = (self.status.as_u16(), &self.reason);
        tracing::debug!(status, %reason, error = self.message, "refused");
    }

    /// What an end of the walk over this snapshot means for the client. Where everybody whom the request may go to has asked to
    /// be left alone for a while, it is to come again when the first of them wants work; `otherwise` is when to come again
    /// where nothing says it better, and that helps.
    ///
    /// ```
    /// use std::time::Duration;
    /// use paddler_core::Moment;
    /// use paddler_core::forward::Refusal;
    /// use paddler_core::request::Facts;
    /// use paddler_core::schedule::{Ask, Scratch, trees};
    /// use paddler_core::status::StatusBoard;
    ///
    /// let snapshot = StatusBoard::new(trees::balancer()).publish(Moment::ZERO);
    /// let facts = Facts::new();
    /// let ask = Ask::new(&facts, Moment::ZERO, 1);
    /// let ending = snapshot.reserve(&ask, &mut Scratch::default(), &mut ()).unwrap_err();
    /// let refusal = Refusal::of_walk(&ending, &snapshot, &ask, Duration::from_secs(2));
    /// assert_eq!((refusal.status.as_u16(), &*refusal.reason), (503, "no_upstream"));
    /// assert_eq!(refusal.node, Some(ending.node));
    /// assert!(refusal.message.starts_with("no upstream can serve now"), "no model was asked for");
    /// ```
    #[must_use]
    pub fn of_walk(ending: &Ending, snapshot: &Snapshot, ask: &Ask<'_>, otherwise: Duration) -> Self {
        let model = ask.facts.model;
        let named = named(model, ask.facts.asked);
        let asked = (model, ask.facts.reaches_all());
        Self::of_pause(ending, snapshot, (asked, ask.only), ask.now)
            .unwrap_or_else(|| Self::of_ending(ending, named.as_deref(), otherwise))
            .with_length(ask.facts.least_tokens, snapshot)
    }

    /// The part of it that says that all have asked to be left alone, by the model, whether that serves it instead of its own, and the names
    /// that the request is bound to.
    pub(super) fn of_pause(
        ending: &Ending,
        snapshot: &Snapshot,
        (model, only): ((Option<&str>, bool), Option<&[UpstreamId]>),
        now: Moment,
    ) -> Option<Self> {
        // What nobody could ever serve is told so also while all are paused.
        if ending.class != Class::Later {
            return None;
        }
        let until = snapshot.first_back(model, only, |_| None, now)?;
        let message = "every upstream that could serve this has asked to be left alone for a while";
        let refusal = Self::new(StatusCode::TOO_MANY_REQUESTS, "upstreams_busy", message);
        Some(refusal.retry_after(until.since(now)))
    }

    /// The part of it that says what the tree found wanting. `model`: as it is [`named`]. `after`: when to come again, where that
    /// helps.
    pub(super) fn of_ending(ending: &Ending, model: Option<&str>, after: Duration) -> Self {
        use crate::schedule::Reason;
        let reason = Cow::Owned(ending.reason.as_str().to_owned());
        // Who names no model hears of none.
        let the_model =
            |before: &str| model.map_or(String::new(), |model| format!("{before} the model {model}"));
        let refusal = match (&ending.reason, ending.class) {
            (Reason::ModelNotFound, _) => Self::new(
                StatusCode::NOT_FOUND,
                reason,
                format!("no upstream serves{}", the_model("")),
            ),
            (Reason::NotCapable, _) => {
                let message = format!("no upstream{} can do such work", the_model(" with"));
                Self::new(StatusCode::NOT_FOUND, reason, message)
            }
            (Reason::ContextLengthExceeded, _) => {
                let message = format!(
                    "the prompt is longer than the context of every upstream{}",
                    the_model(" with")
                );
                Self::bad_request("context_length_exceeded", message)
            }
            (Reason::Draining, _) => {
                let message = format!("every upstream{} is drained by its operator", the_model(" for"));
                Self::new(StatusCode::SERVICE_UNAVAILABLE, reason, message).retry_after(after)
            }
            (Reason::FilterFailed, _) => {
                let error = ending.error.as_ref();
                let error = error.map(|error| format!(": {error}")).unwrap_or_default();
                let comma = if ending.title.is_some() { "," } else { "" };
                let message = format!("{}{comma} could not judge{error}", node(ending));
                Self::new(StatusCode::INTERNAL_SERVER_ERROR, reason, message)
            }
            // A filter of the host's, of which nobody else knows what it asks for.
            (Reason::Filtered, _) => {
                let message = format!("no upstream{} passes {}", the_model(" for"), node(ending));
                Self::new(StatusCode::TOO_MANY_REQUESTS, reason, message).retry_after(after)
            }
            (_, Class::Shed) => {
                let message = format!("the request was shed: every upstream is busy ({reason})");
                Self::new(StatusCode::TOO_MANY_REQUESTS, reason, message).retry_after(after)
            }
            (kind, _) if kind.is_contention() => {
                let message = format!("every upstream{} is busy ({reason})", the_model(" for"));
                Self::new(StatusCode::TOO_MANY_REQUESTS, reason, message).retry_after(after)
            }
            _ => {
                let message = format!("no upstream can serve{} now ({reason})", the_model(""));
                Self::new(StatusCode::SERVICE_UNAVAILABLE, reason, message).retry_after(after)
            }
        };
        Self {
            node: (ending.reason != Reason::Contended).then_some(ending.node),
            error: ending.error.clone(),
            ..refusal
        }
    }

    /// Says how long the prompt is at least, and how long one may be, where it is too long.
    #[must_use]
    pub(super) fn with_length(mut self, least: u32, snapshot: &Snapshot) -> Self {
        if self.reason == "context_length_exceeded" {
            let longest = snapshot.iter().filter_map(|(_, entry)| entry.context()).max();
            let longest = longest.unwrap_or_default();
            self.message = format!(
                "{}: it has at least {least} tokens, by a low estimate, and the longest context here has {longest}",
                self.message
            );
        }
        self
    }

    /// What a client is told whose request cannot be read.
    #[must_use]
    pub fn of_unreadable(unreadable: &UnreadableRequest) -> Self {
        match unreadable {
            UnreadableRequest::Path(error) => Self::bad_request("bad_path", error.to_string()),
            UnreadableRequest::Body(error) => Self::bad_request("malformed_body", error.to_string()),
            UnreadableRequest::Model(error) => {
                Self::new(StatusCode::NOT_FOUND, "model_not_found", error.to_string())
            }
        }
    }

    /// The error as the dialect tells it.
    pub(super) fn body(&self, dialect: Dialect) -> Value {
        let Self { message, reason, .. } = self;
        match dialect {
            Dialect::Anthropic => {
                json!({"type": "error", "error": {"type": self.anthropic_type(), "message": message}})
            }
            Dialect::Llamacpp => {
                json!({"error": {"code": self.status.as_u16(), "message": message, "type": self.llamacpp_type()}})
            }
            Dialect::Ollama | Dialect::Triton => json!({"error": message}),
            Dialect::Openai => {
                json!({"error": {"message": message, "type": self.openai_type(), "param": null, "code": reason}})
            }
        }
    }

    fn openai_type(&self) -> &'static str {
        match self.status.as_u16() {
            401 => "authentication_error",
            403 => "permission_error",
            429 => "rate_limit_error",
            500.. => "server_error",
            _ => "invalid_request_error",
        }
    }

    fn anthropic_type(&self) -> &'static str {
        match self.status.as_u16() {
            401 => "authentication_error",
            403 => "permission_error",
            404 => "not_found_error",
            413 => "request_too_large",
            429 => "rate_limit_error",
            503 => "overloaded_error",
            500.. => "api_error",
            _ => "invalid_request_error",
        }
    }

    fn llamacpp_type(&self) -> &'static str {
        match self.status.as_u16() {
            401 => "authentication_error",
            403 => "permission_error",
            404 => "not_found_error",
            429 | 503 => "unavailable_error",
            500.. => "server_error",
            _ => "invalid_request_error",
        }
    }

    /// The response, in the form of this dialect.
    pub fn into_response(self, dialect: Dialect) -> Response<Body> {
        let mut response = Response::new(Body::from(self.body(dialect).to_string()));
        *response.status_mut() = self.status;
        let headers = response.headers_mut();
        headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
        // A reason from a tree may be any text; what cannot stand in a header is said in the body alone.
        let reason = HeaderValue::from_str(&self.reason)
            .ok()
            .filter(|_| self.reason.is_ascii());
        headers.insert(REASON, reason.unwrap_or(HeaderValue::from_static("rejected")));
        let again = if self.should_retry { "true" } else { "false" };
        headers.insert(X_SHOULD_RETRY, HeaderValue::from_static(again));
        if let Some(after) = self.retry_after {
            let millis = u64::try_from(after.as_millis()).unwrap_or(u64::MAX);
            headers.insert(RETRY_AFTER_MS, HeaderValue::from(millis.max(1)));
            let seconds = after.as_millis().div_ceil(1000).max(1);
            headers.insert(
                RETRY_AFTER,
                HeaderValue::from(u64::try_from(seconds).unwrap_or(u64::MAX)),
            );
        }
        if self.close {
            headers.insert(CONNECTION, HeaderValue::from_static("close"));
        }
        response
    }
}
