//! What does the management listener tell?

use std::convert::Infallible;
use std::sync::Arc;

use http::header::{ALLOW, CACHE_CONTROL, CONTENT_TYPE, WWW_AUTHENTICATE};
use http::{HeaderValue, Method, Request, Response, StatusCode};
use hyper::body::Incoming;
use paddler_core::forward::Body;

use crate::api::{self, Reply};
use crate::control::Control;
use crate::front::Desk;

/// `/metrics` for Prometheus; `/healthz`: the program is alive; `/readyz`: it can serve and is not about to stop; `/api/`: see
/// [`api`]. `local`: the listener is reached from this machine alone.
pub(crate) async fn answer(
    control: Arc<Control>,
    request: Request<Incoming>,
    local: bool,
) -> Result<Response<Body>, Infallible> {
    if let Some(route) = api::agents::Route::of(request.uri().path()) {
        return Ok(api::agents::answer(&control, route, request, local).await);
    }
    let (request, body) = request.into_parts();
    if request.uri.path().starts_with(api::PREFIX) {
        let (status, content_type, body) = match api::answer(&control, &request, body, local).await {
            Reply::Json(status, answer) => (status, "application/json", format!("{answer}\n").into()),
            Reply::Text(content_type, text) => (StatusCode::OK, content_type, text.into()),
            Reply::Events(body) => (StatusCode::OK, "text/event-stream", body),
        };
        return Ok(response(request.uri.path(), status, content_type, body));
    }
    let router = control.router.clone();
    let (status, content_type, text) = match (&request.method, request.uri.path()) {
        (&Method::GET | &Method::HEAD, "/metrics") => figures(control.desk.clone()).await,
        (&Method::GET | &Method::HEAD, "/healthz") => (StatusCode::OK, "text/plain", "alive\n".to_owned()),
        (&Method::GET | &Method::HEAD, "/readyz") if router.is_ready() => {
            (StatusCode::OK, "text/plain", "ready\n".to_owned())
        }
        (&Method::GET | &Method::HEAD, "/readyz") => {
            let text = "not ready: no upstream is able to serve, or the program is stopping\n";
            (StatusCode::SERVICE_UNAVAILABLE, "text/plain", text.to_owned())
        }
        (_, "/metrics" | "/healthz" | "/readyz") => (
            StatusCode::METHOD_NOT_ALLOWED,
            "text/plain",
            "only GET\n".to_owned(),
        ),
        _ => (
            StatusCode::NOT_FOUND,
            "text/plain",
            format!("here are /metrics, /healthz, /readyz, {}\n", api::paths()),
        ),
    };
    Ok(response(request.uri.path(), status, content_type, text.into()))
}

async fn figures(desk: Desk) -> (StatusCode, &'static str, String) {
    // A page about thousands of upstreams takes tens of milliseconds, in which no stream must stand still.
    match tokio::task::spawn_blocking(move || desk.metrics_page()).await {
        Ok(page) => (StatusCode::OK, "text/plain; version=0.0.4", page),
        Err(error) => (
            StatusCode::INTERNAL_SERVER_ERROR,
            "text/plain",
            format!("{error}\n"),
        ),
    }
}

pub(crate) fn response(
    path: &str,
    status: StatusCode,
    content_type: &'static str,
    body: Body,
) -> Response<Body> {
    let mut response = Response::new(body);
    *response.status_mut() = status;
    let headers = response.headers_mut();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static(content_type));
    headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
    match status {
        StatusCode::UNAUTHORIZED => {
            headers.insert(WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"));
        }
        StatusCode::METHOD_NOT_ALLOWED => {
            // Names of methods may stand in a header.
            headers.extend(HeaderValue::try_from(api::methods(path)).map(|methods| (ALLOW, methods)));
        }
        _ => {}
    }
    response
}
