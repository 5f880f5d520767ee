//! An engine that takes its time, answers with its name, and notes what it began.

use std::convert::Infallible;

use bytes::Bytes;
use http::{Request, Response, StatusCode};
use http_body_util::Full;
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::time::sleep;

use super::world::{Notes, WORK, listen};

pub(crate) async fn run(name: &'static str, notes: Notes) -> turmoil::Result {
    let listener = listen().await?;
    loop {
        let (stream, _) = listener.accept().await?;
        let notes = notes.clone();
        let service = service_fn(move |request| answer(name, notes.clone(), request));
        let connection = http1::Builder::new()
            .timer(TokioTimer::new())
            .serve_connection(TokioIo::new(stream), service);
        // That it breaks is what these tests are about.
        tokio::spawn(async move { drop(connection.await) });
    }
}

async fn answer(
    name: &'static str,
    notes: Notes,
    request: Request<Incoming>,
) -> Result<Response<Full<Bytes>>, Infallible> {
    let (status, text) = match request.uri().path() {
        "/health" => (StatusCode::OK, "{}".to_owned()),
        "/v1/models" => (
            StatusCode::OK,
            r#"{"object":"list","data":[{"id":"m"}]}"#.to_owned(),
        ),
        "/v1/chat/completions" => {
            let id = request.headers().get("x-request-id");
            notes.add(name, id.and_then(|id| id.to_str().ok()).unwrap_or_default());
            sleep(WORK).await;
            (StatusCode::OK, format!(r#"{{"from":"{name}"}}"#))
        }
        _ => (StatusCode::NOT_FOUND, "{}".to_owned()),
    };
    let mut response = Response::new(Full::from(text));
    *response.status_mut() = status;
    Ok(response)
}
