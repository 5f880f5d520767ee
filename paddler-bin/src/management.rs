//! What does the management listener tell?

use std::convert::Infallible;

use http::header::CONTENT_TYPE;
use http::{HeaderValue, Method, Request, Response, StatusCode};
use paddler_core::forward::{Body, Router};

/// `/metrics` for Prometheus; `/healthz`: the program is alive; `/readyz`: it can serve and is not about to stop.
pub(crate) async fn answer<B>(router: Router, request: Request<B>) -> Result<Response<Body>, Infallible> {
    let (status, content_type, text) = match (request.method(), request.uri().path()) {
        (&Method::GET | &Method::HEAD, "/metrics") => {
            // A page about thousands of upstreams takes tens of milliseconds, in which no stream must stand still.
            match tokio::task::spawn_blocking(move || router.metrics_page()).await {
                Ok(page) => (StatusCode::OK, "text/plain; version=0.0.4", page),
                Err(error) => (
                    StatusCode::INTERNAL_SERVER_ERROR,
                    "text/plain",
                    format!("{error}\n"),
                ),
            }
        }
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
            "here are /metrics, /healthz and /readyz\n".to_owned(),
        ),
    };
    let mut response = Response::new(Body::from(text));
    *response.status_mut() = status;
    response
        .headers_mut()
        .insert(CONTENT_TYPE, HeaderValue::from_static(content_type));
    Ok(response)
}
