//! What does the management listener tell?

use std::sync::Arc;

use bytes::Bytes;
use http::header::{
    ALLOW, CACHE_CONTROL, CONTENT_TYPE, RETRY_AFTER, WWW_AUTHENTICATE, X_CONTENT_TYPE_OPTIONS,
};
use http::request::Parts;
use http::{HeaderValue, Method, Request, Response, StatusCode};
use paddler_core::forward::Body;

use crate::api::{self, Reach, Reply};
use crate::control::Control;
use crate::front::Desk;
use crate::page;

/// How many seconds to wait before the API is asked again that has no place left.
const ASK_AGAIN: HeaderValue = HeaderValue::from_static("5");

/// `/metrics` for Prometheus, or of it `?name=FAMILY&name=...`; `/healthz`: the program is alive; `/readyz`: somebody was heard to be
/// able to serve, and it is not about to stop; `/api/`: see [`api`]; `/`: see [`page`].
pub(crate) async fn answer(control: Arc<Control>, request: Request<Body>, reach: Reach) -> Response<Body> {
    let (request, body) = request.into_parts();
    if api::has(request.uri.path()) {
        return of_api(&request, api::answer(&control, &request, body, reach).await);
    }
    if let Some((content_type, text)) = page::file(request.uri.path())
        && (request.method == Method::GET || request.method == Method::HEAD)
    {
        let mut response = response(
            request.uri.path(),
            StatusCode::OK,
            content_type,
            Bytes::from_static(text.as_bytes()).into(),
        );
        page::guard(response.headers_mut());
        return response;
    }
    let router = control.router.clone();
    let (status, content_type, text) = match (&request.method, request.uri.path()) {
        (&Method::GET | &Method::HEAD, "/metrics") => {
            figures(control.desk.clone(), request.uri.query()).await
        }
        (&Method::GET | &Method::HEAD, "/healthz") => (StatusCode::OK, "text/plain", "alive\n".to_owned()),
        (&Method::GET | &Method::HEAD, "/readyz") => match router.unready() {
            None => (StatusCode::OK, "text/plain", "ready\n".to_owned()),
            Some(why) => (why.status, "text/plain", format!("not ready: {}\n", why.message)),
        },
        (_, path) if matches!(path, "/metrics" | "/healthz" | "/readyz") || page::file(path).is_some() => (
            StatusCode::METHOD_NOT_ALLOWED,
            "text/plain",
            "only GET\n".to_owned(),
        ),
        _ => (
            StatusCode::NOT_FOUND,
            "text/plain",
            format!("here are /, /metrics, /healthz, /readyz, {}\n", api::paths()),
        ),
    };
    response(request.uri.path(), status, content_type, text.into())
}

/// The API's answer to this request.
fn of_api(request: &Parts, reply: Reply) -> Response<Body> {
    let (status, content_type, body) = match reply {
        Reply::Json(status, answer) => (status, "application/json", format!("{answer}\n").into()),
        Reply::Text(content_type, text) => (StatusCode::OK, content_type, text.into()),
        Reply::Events(body) => (StatusCode::OK, "text/event-stream", body),
    };
    let mut response = response(request.uri.path(), status, content_type, body);
    let headers = response.headers_mut();
    if status == StatusCode::SERVICE_UNAVAILABLE {
        headers.insert(RETRY_AFTER, ASK_AGAIN);
    }
    if content_type == "text/event-stream" {
        // Or nginx would wait until it has enough to pass on.
        headers.insert("x-accel-buffering", HeaderValue::from_static("no"));
    }
    response
}

/// How many families may be named: each line is held against each of them.
const MOST_FAMILIES: usize = 64;

/// All figures, or those of the families that are named behind the `?`.
async fn figures(desk: Desk, query: Option<&str>) -> (StatusCode, &'static str, String) {
    let pairs = query.unwrap_or_default().split('&');
    let names: Vec<_> = pairs
        .filter_map(|pair| pair.strip_prefix("name="))
        .map(str::to_owned)
        .collect();
    if names.len() > MOST_FAMILIES {
        let text = format!("at most {MOST_FAMILIES} families by name: leave the names out for all of them\n");
        return (StatusCode::BAD_REQUEST, "text/plain", text);
    }
    let page = move || {
        let page = desk.metrics_of(&names);
        if names.is_empty() {
            page
        } else {
            only(&page, &names)
        }
    };
    // A page about thousands of upstreams takes tens of milliseconds, in which no stream must stand still.
    match tokio::task::spawn_blocking(page).await {
        Ok(page) if page.is_empty() => (
            StatusCode::NOT_FOUND,
            "text/plain",
            "no family is called so: without ?name=, all are told\n".to_owned(),
        ),
        Ok(page) => (StatusCode::OK, "text/plain; version=0.0.4", page),
        Err(error) => (
            StatusCode::INTERNAL_SERVER_ERROR,
            "text/plain",
            format!("{error}\n"),
        ),
    }
}

/// The lines of a page that are about these families.
fn only(page: &str, names: &[String]) -> String {
    let is_wanted = |line: &&str| {
        let line = line.trim_start_matches("# HELP ").trim_start_matches("# TYPE ");
        let name = line.split(['{', ' ']).next().unwrap_or_default();
        let parts = ["_bucket", "_sum", "_count"].map(|part| name.strip_suffix(part));
        names
            .iter()
            .any(|wanted| name == wanted || parts.contains(&Some(wanted)))
    };
    page.split_inclusive('\n').filter(is_wanted).collect()
}

fn response(path: &str, status: StatusCode, content_type: &'static str, body: Body) -> Response<Body> {
    let mut response = Response::new(body);
    *response.status_mut() = status;
    let headers = response.headers_mut();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static(content_type));
    headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
    // Names that others have chosen are in it: it is what it says, and nothing that a browser takes it for.
    headers.insert(X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn families_are_asked_for_by_name() {
        let page = "# HELP a_total All.\n# TYPE a_total counter\na_total{x=\"a b\"} 1\na_total_of 2\n\
                    # TYPE t_seconds histogram\nt_seconds_bucket{le=\"1\"} 1\nt_seconds_sum 1\nt_seconds_count 1\n";
        let only = |names: &[&str]| {
            only(
                page,
                &names.iter().map(|&name| name.to_owned()).collect::<Vec<_>>(),
            )
        };
        assert_eq!(
            only(&["a_total"]),
            "# HELP a_total All.\n# TYPE a_total counter\na_total{x=\"a b\"} 1\n"
        );
        assert_eq!(only(&["t_seconds", "a_total_of"]).lines().count(), 5);
        assert_eq!(only(&["t"]), "");
    }
}
