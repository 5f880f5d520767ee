//! How is a router asked what goes on there?

use std::error::Error;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::{Method, Request, StatusCode};
use http_body_util::{BodyExt as _, Limited};
use paddler_core::Clock;
use paddler_core::forward::Body;
use paddler_core::upstream::http::{HttpConnect, UpstreamKey};
use paddler_core::upstream::{Connect as _, Upstream, UpstreamId, UpstreamSpec};
use serde_json::Value;
use tokio::time::timeout;

use super::look::{FAMILIES, Look};
use crate::Failure;

/// How long a router may take to answer: one of thousands of upstreams takes some tenths of a second.
const PATIENCE: Duration = Duration::from_secs(10);

/// The largest answer, in bytes: of ten thousand upstreams it is some megabytes.
const LARGEST: usize = 64 << 20;

/// A management listener.
#[derive(Debug, Clone)]
pub(crate) struct Management {
    upstream: Arc<dyn Upstream>,
    pub(super) clock: Clock,
    pub(super) url: String,
}

impl Management {
    /// At this address, as URL or HOST:PORT, with the key of this file.
    pub(crate) fn at(address: &str, key_file: Option<&Path>) -> Result<Self, Failure> {
        if address == "off" {
            return Err(
                "--management (PADDLER_MANAGEMENT) is off: say where the router's management listener is"
                    .into(),
            );
        }
        let url = if address.contains("://") {
            address.trim_end_matches('/').to_owned()
        } else {
            format!("http://{address}")
        };
        let mut spec = UpstreamSpec::new("management", url.clone())?;
        if let Some(file) = key_file {
            let named = UpstreamId::new("management")?;
            spec.extensions.insert(UpstreamKey::read(file, &named)?);
        }
        let upstream = HttpConnect::default().connect(&spec);
        let upstream = upstream.map_err(|why| format!("{address} (--management) is no address: {why}"))?;
        let clock = Clock::new();
        Ok(Self { upstream, clock, url })
    }

    /// How everything is now.
    pub(crate) async fn look(&self) -> Result<Look, Failure> {
        let names: Vec<_> = FAMILIES.iter().map(|name| format!("name={name}")).collect();
        let figures = format!("/metrics?{}", names.join("&"));
        let (upstreams, queue, figures) = tokio::try_join!(
            self.ask(Method::GET, "/api/v1/upstreams"),
            self.ask(Method::GET, "/api/v1/queue"),
            self.ask(Method::GET, &figures),
        )?;
        Look::read(&upstreams, &queue, &figures, self.clock.now()).map_err(|why| {
            format!(
                "{} does not tell what a router of this version tells: {why}",
                self.url
            )
            .into()
        })
    }

    /// Takes an upstream out of every pick, or lets it back in.
    pub(crate) async fn drain(&self, id: &str, draining: bool) -> Result<(), Failure> {
        let what = if draining { "drain" } else { "undrain" };
        let path = format!("/api/v1/upstreams/{}/{what}", escaped(id));
        self.ask(Method::POST, &path).await.map(|_| ())
    }

    async fn ask(&self, method: Method, path: &str) -> Result<Bytes, Failure> {
        let request = Request::builder().method(method).uri(path).body(Body::empty())?;
        let whole = async {
            let response = self.upstream.call(request).await?;
            let status = response.status();
            let body = Limited::new(response.into_body(), LARGEST).collect().await?;
            Ok::<_, Failure>((status, body.to_bytes()))
        };
        let (status, body) = timeout(PATIENCE, whole)
            .await
            .map_err(|_| format!("{} does not answer within {PATIENCE:?}", self.url))?
            .map_err(|why| format!("{} cannot be asked: {}", self.url, causes(&*why)))?;
        if status.is_success() {
            return Ok(body);
        }
        Err(self.refusal(status, &body).into())
    }

    fn refusal(&self, status: StatusCode, body: &[u8]) -> String {
        let said: Option<Value> = serde_json::from_slice(body).ok();
        let said = said.as_ref().and_then(|said| said["error"].as_str());
        let why = said.unwrap_or("it does not say why");
        match status {
            StatusCode::UNAUTHORIZED => format!("{}: {why} (--key-file)", self.url),
            _ => format!("{}: {status}: {why}", self.url),
        }
    }
}

/// An id as a part of a path.
fn escaped(id: &str) -> String {
    let one = |byte: u8| match byte {
        b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'-' | b'_' => char::from(byte).to_string(),
        other => format!("%{other:02X}"),
    };
    id.bytes().map(one).collect()
}

/// What went wrong, with what was behind it.
fn causes(error: &(dyn Error + 'static)) -> String {
    let mut all = error.to_string();
    let mut behind = error.source();
    while let Some(cause) = behind {
        let said = cause.to_string();
        if !all.contains(&said) {
            all = format!("{all}: {said}");
        }
        behind = cause.source();
    }
    all
}

#[cfg(test)]
mod tests {
    use paddler_core::request::path::decode_part;

    use super::*;

    #[test]
    fn an_id_comes_through_a_path_unchanged() {
        for id in [
            "gpu-1",
            "10.0.0.3:8080",
            "s/low",
            "..",
            "50%",
            "m\u{fc}nchen",
            "?#",
        ] {
            assert_eq!(decode_part(&escaped(id)), id);
            assert!(!escaped(id).contains(['/', '.', '?', '#']), "{id}");
        }
    }

    #[test]
    fn an_address_may_leave_out_its_scheme() {
        assert_eq!(
            Management::at("127.0.0.1:8081", None).unwrap().url,
            "http://127.0.0.1:8081"
        );
        assert_eq!(Management::at("https://a:1/", None).unwrap().url, "https://a:1");
        for wrong in ["off", "ftp://a", "http://", "a b"] {
            let why = Management::at(wrong, None).map(|_| ()).unwrap_err().to_string();
            assert!(why.contains("--management"), "{why}");
        }
    }
}
