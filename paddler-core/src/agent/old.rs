//! What do agents of Paddler 1.x say?
//!
//! Each message is a whole status, in one of two shapes: that of 1.2.1-rc1 (`idle_slots_count`, `processing_slots_count`) and that of
//! the main branch of July 2025 (`slots_idle`, `slots_processing`, flags for each kind of error). They say how many slots of
//! llama.cpp work, and nothing of models, unless they were built with the model-aware routing of pull request 79.

use std::net::SocketAddr;
use std::time::Duration;

use serde::Deserialize;

use super::beat::Beat;
use super::said::{Hello, Said, Word, name};
use crate::source::short;
use crate::status::{Health, Report, Signal};
use crate::upstream::{Engine, ModelEntry, Models, UpstreamSpec};

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct StatusUpdate {
    agent_name: Option<String>,
    error: Option<String>,
    external_llamacpp_addr: Option<String>,
    is_authorized: Option<bool>,
    is_connect_error: Option<bool>,
    is_decode_error: Option<bool>,
    is_deserialize_error: Option<bool>,
    is_request_error: Option<bool>,
    is_slots_endpoint_enabled: Option<bool>,
    is_unexpected_response_status: Option<bool>,
    model: Option<String>,
    #[serde(alias = "idle_slots_count")]
    slots_idle: Option<u32>,
    #[serde(alias = "processing_slots_count")]
    slots_processing: Option<u32>,
}

/// Reads a status. The upstream has the name of its address, which stays when the agent is started again under another id.
pub(super) fn read(message: &[u8]) -> Result<Said, String> {
    let status: StatusUpdate = serde_json::from_slice(message).map_err(|error| error.to_string())?;
    let address = status.external_llamacpp_addr.as_deref();
    let address = address.ok_or("`external_llamacpp_addr` is missing: nobody could be called there")?;
    let parsed: SocketAddr = address.parse().map_err(|_| {
        let shown = address.chars().take(64).collect::<String>();
        format!("`external_llamacpp_addr`: {shown:?} is not an address with a port")
    })?;
    if parsed.ip().is_unspecified() || parsed.port() == 0 {
        return Err(format!(
            "`external_llamacpp_addr`: nobody can be called at {parsed}"
        ));
    }
    let spec = UpstreamSpec::new(parsed.to_string(), format!("http://{parsed}"));
    let mut spec = spec.map_err(|error| error.to_string())?;
    spec.engine = Engine::Llamacpp;
    Ok(Said {
        hello: Some(Hello {
            spec,
            name: name(status.agent_name.clone())?,
            instance: None,
            beat: Beat::unknown(),
        }),
        word: Word::Report {
            report: Box::new(status.report()),
            // It says so as soon as it has asked.
            age: Duration::ZERO,
        },
    })
}

impl StatusUpdate {
    fn report(&self) -> Report {
        let mut report = Report::new();
        let model = self.model.as_ref().filter(|model| !model.is_empty());
        report.models = model.map(|model| Models::Listed(vec![ModelEntry::new(&**model)]));
        if self.is_authorized == Some(false) {
            // It is up, and clients may have the key.
            report.degrade(
                Signal::Slots,
                "/slots",
                "401: the agent has no key: start it with --llamacpp-api-key",
            );
        } else if self.is_slots_endpoint_enabled == Some(false) {
            report.degrade(Signal::Slots, "/slots", "501: start llama-server with --slots");
        } else if let Some(error) = self.error() {
            report.health = Some(Health::Failing);
            report.degrade(Signal::Health, "/slots", error);
        } else {
            report.health = Some(Health::Ready);
            let (idle, busy) = (self.slots_idle, self.slots_processing);
            match idle
                .zip(busy)
                .map(|(idle, busy)| (idle.saturating_add(busy), busy))
            {
                Some((total @ 1.., busy)) => {
                    report.slots_total = Some(total);
                    report.slots_busy = Some(busy);
                }
                _ => report.degrade(Signal::Slots, "/slots", "the agent saw no slot"),
            }
        }
        report
    }

    /// Why the agent does not know how it is.
    fn error(&self) -> Option<String> {
        let kinds = [
            (self.is_connect_error, "no connection"),
            (self.is_request_error, "the request failed"),
            (self.is_unexpected_response_status, "an unexpected status"),
            (self.is_decode_error, "the answer broke off"),
            (self.is_deserialize_error, "the answer cannot be read"),
        ];
        let kind = kinds.into_iter().find(|(is_so, _)| *is_so == Some(true));
        match (&self.error, kind) {
            (None, None) => None,
            (error, kind) => {
                let kind = kind.map_or("the agent has an error", |(_, kind)| kind);
                let text = error.as_deref().map(short).unwrap_or_default();
                Some(if text.is_empty() {
                    kind.to_owned()
                } else {
                    format!("{kind}: {text}")
                })
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn report(text: &str) -> Report {
        let said = read(text.as_bytes()).unwrap();
        let Word::Report { report, .. } = said.word else {
            panic!()
        };
        *report
    }

    #[test]
    fn both_shapes_say_the_same() {
        let rc1 = r#"{"agent_name":"gpu","error":null,"external_llamacpp_addr":"10.0.0.3:8080","idle_slots_count":3,
            "is_authorized":true,"is_slots_endpoint_enabled":true,"processing_slots_count":1,
            "slots":[{"id":0,"is_processing":true}]}"#;
        let july = r#"{"agent_name":"gpu","error":null,"external_llamacpp_addr":"10.0.0.3:8080","is_authorized":true,
            "is_connect_error":false,"is_decode_error":false,"is_deserialize_error":false,"is_request_error":false,
            "is_slots_endpoint_enabled":true,"is_unexpected_response_status":false,"slots_idle":3,"slots_processing":1}"#;
        for text in [rc1, july] {
            let said = read(text.as_bytes()).unwrap();
            let hello = said.hello.unwrap();
            assert_eq!(
                (hello.spec.id.as_str(), hello.name.as_deref()),
                ("10.0.0.3:8080", Some("gpu"))
            );
            assert_eq!(hello.spec.url, "http://10.0.0.3:8080");
            let report = report(text);
            assert_eq!(report.health, Some(Health::Ready));
            assert_eq!(
                (report.slots_total, report.slots_busy, report.models),
                (Some(4), Some(1), None)
            );
        }
    }

    #[test]
    fn each_error_is_what_it_is() {
        let of = |more: &str| {
            report(&format!(
                r#"{{"external_llamacpp_addr":"[::1]:8080","slots_idle":0,"slots_processing":0{more}}}"#
            ))
        };
        let down = of(r#","error":"refused","is_connect_error":true"#);
        assert_eq!((down.health, down.slots_total), (Some(Health::Failing), None));
        assert_eq!(down.degraded[0].found, "no connection: refused");
        let flagged = of(r#","is_deserialize_error":true"#);
        assert_eq!(
            (flagged.health, &*flagged.degraded[0].found),
            (Some(Health::Failing), "the answer cannot be read")
        );
        for (more, found) in [
            (r#","is_authorized":false,"error":"401""#, "401"),
            (r#","is_slots_endpoint_enabled":false"#, "501"),
        ] {
            let report = of(more);
            assert_eq!((report.health, report.slots_total), (None, None), "it may serve");
            assert!(report.degraded[0].found.starts_with(found), "{report:?}");
        }
        let none = of("");
        assert_eq!(
            (none.health, none.slots_total),
            (Some(Health::Ready), None),
            "no slot is not known slots"
        );
        assert_eq!(none.degraded.len(), 1);
        assert!(of(r#","model":"llama""#).models.is_some() && of(r#","model":"""#).models.is_none());
        for (text, part) in [
            ("{}", "is missing"),
            (r#"{"external_llamacpp_addr":"gpu:8080"}"#, "not an address"),
            (
                r#"{"external_llamacpp_addr":"0.0.0.0:8080"}"#,
                "nobody can be called",
            ),
            (r#"{"slots_idle":-1}"#, "invalid value"),
        ] {
            let error = read(text.as_bytes()).unwrap_err();
            assert!(error.contains(part), "{error}");
        }
    }
}
