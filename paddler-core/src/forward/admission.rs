//! Is this request for us, and may it be asked?

use std::net::IpAddr;
use std::sync::Arc;

use http::header::{ACCESS_CONTROL_REQUEST_METHOD, HOST, ORIGIN};
use http::request::Parts;
use http::uri::Authority;
use http::{Method, StatusCode, Version};

use super::headers::{announces_bytes, presented_key};
use super::options::RouterOptions;
use super::refusal::Refusal;
use super::rights::Client;
use crate::config::AdminPaths;
use crate::request::{RequestClass, Route};

/// Judges what can be judged before the body is read. Says who asks, if that is asked for.
pub(super) fn admit(
    parts: &Parts,
    path: &str,
    route: &Route,
    options: &RouterOptions,
) -> Result<Option<Arc<Client>>, Refusal> {
    check_target(parts, options)?;
    check_method(&parts.method)?;
    if announces_bytes(&parts.headers) {
        check_body(&parts.method)?;
    }
    let client = check_key(parts, path, route, options)?;
    match route.class {
        RequestClass::Admin if options.admin == AdminPaths::Closed => {
            let message = format!("{path} shows or changes the inside of an engine, and is closed here");
            Err(Refusal::new(StatusCode::FORBIDDEN, "admin_path", message).closing())
        }
        _ => Ok(client),
    }
}

/// A method is what it is in capital letters, and engines disagree on others: one that was not seen to be a POST here could be
/// one there.
fn check_method(method: &Method) -> Result<(), Refusal> {
    if method.as_str().bytes().any(|byte| byte.is_ascii_lowercase()) {
        let message = format!("{method:?} is not a method: write it in capital letters");
        return Err(Refusal::bad_request("bad_method", message).closing());
    }
    Ok(())
}

/// Engines do not read a body where they expect none. On a connection that is kept they would take it for the next request,
/// which nobody has judged.
pub(super) fn check_body(method: &Method) -> Result<(), Refusal> {
    if matches!(
        *method,
        Method::POST | Method::PUT | Method::PATCH | Method::DELETE
    ) {
        return Ok(());
    }
    let message = format!("a {method} with a body cannot be passed on: send it without one");
    Err(Refusal::bad_request("unexpected_body", message).closing())
}

/// Only this server's own paths are served.
fn check_target(parts: &Parts, options: &RouterOptions) -> Result<(), Refusal> {
    if parts.method == Method::CONNECT {
        let message = "this is not a forward proxy: CONNECT is not served";
        return Err(Refusal::new(StatusCode::METHOD_NOT_ALLOWED, "connect", message).closing());
    }
    // In HTTP/2, which a host may serve us by, the authority is what `Host` is here.
    let target = parts.uri.host().filter(|_| parts.version < Version::HTTP_2);
    if let Some(host) = target.filter(|host| !is_ours(host, options)) {
        let message = format!("this is not a forward proxy: {host:?} is not served here");
        return Err(foreign_host(message));
    }
    check_name(parts, options)
}

/// A web page that anybody wrote may have its own name lead to this machine's loopback (DNS rebinding). Where nothing else
/// says who may ask, that name gives it away.
fn check_name(parts: &Parts, options: &RouterOptions) -> Result<(), Refusal> {
    if !options.own_names_only || options.keys.is_some() {
        return Ok(());
    }
    let header = parts.headers.get(HOST);
    let named = header.and_then(|value| Authority::try_from(value.as_bytes()).ok());
    let named = named.as_ref().or(parts.uri.authority()).map(Authority::host);
    let Some(host) = named.filter(|host| !is_ours(host, options)) else {
        return Ok(());
    };
    let message =
        format!("{host:?} is not a name of this router: ask for localhost, or add it to server_names");
    Err(foreign_host(message))
}

fn is_ours(host: &str, options: &RouterOptions) -> bool {
    let bare = host.trim_start_matches('[').trim_end_matches(']');
    bare.eq_ignore_ascii_case("localhost")
        || bare.parse().is_ok_and(|address: IpAddr| address.is_loopback())
        || options
            .server_names
            .iter()
            .any(|name| name.eq_ignore_ascii_case(host))
}

fn foreign_host(message: String) -> Refusal {
    Refusal::new(StatusCode::MISDIRECTED_REQUEST, "foreign_host", message).closing()
}

/// Whether this path is the inside of an engine by any other method than OPTIONS.
fn is_admin(path: &str) -> bool {
    Route::of("GET", path).is_ok_and(|route| route.class == RequestClass::Admin)
}

fn check_key(
    parts: &Parts,
    path: &str,
    route: &Route,
    options: &RouterOptions,
) -> Result<Option<Arc<Client>>, Refusal> {
    let Some(keys) = &options.keys else {
        return Ok(None);
    };
    // Who asks for the health has no key, and a browser sends none when it asks what it may send.
    let is_health = route.class == RequestClass::Local && path.ends_with("/health");
    let is_preflight = parts.method == Method::OPTIONS
        && [ORIGIN, ACCESS_CONTROL_REQUEST_METHOD]
            .iter()
            .all(|name| parts.headers.contains_key(name))
        && !is_admin(path);
    if is_health || is_preflight {
        return Ok(None);
    }
    let presented = presented_key(&parts.headers);
    let message = match presented {
        Some(key) => match keys.client(key) {
            Some(client) => return Ok(Some(client)),
            None => "the API key is not known here",
        },
        None => "an API key is needed: send it as Authorization: Bearer KEY",
    };
    Err(Refusal::new(StatusCode::UNAUTHORIZED, "api_key", message).closing())
}
