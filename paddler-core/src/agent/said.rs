//! What does an agent say, and how is it written?
//!
//! A JSON object a line. The first one of a stream says what the upstream is, and each one how it is, or that nothing is new:
//!
//! ```text
//! {"version":1,"instance":"a1","beat_ms":1000,"upstream":{"url":"http://10.0.0.3:8080"},"report":{"health":"ready"},"age_ms":2}
//! {"report":{"health":"ready","slots_total":4,"slots_busy":1},"age_ms":3}
//! {"failure":{"kind":"unreachable","message":"/health: connection refused"}}
//! {}
//! {"bye":true}
//! ```
//!
//! `instance` is another one for each start of an agent, so that its own new stream is told from another agent with its id; `name`
//! is what people call it. `upstream` is in the words of a config file, and its `id`, if it has one, that of the path. A report is as records have it.
//! What else stands there is passed over, so that a newer agent can say more.

use std::time::Duration;

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value as Json, json};

use super::beat::Beat;
use crate::config::{UpstreamConfig, Value};
use crate::source::paddler::{Behind, bounded};
use crate::source::short;
use crate::status::{Failure, FailureKind, Report};
use crate::upstream::{HostHeader, Http2, Models, UpstreamId, UpstreamSpec};

/// The version of what is said here.
const VERSION: u32 = 1;

/// The longest name, or instance, in bytes.
const LONGEST_NAME: usize = 256;

/// One message.
#[derive(Debug)]
pub(super) struct Said {
    pub(super) hello: Option<Hello>,
    pub(super) word: Word,
}

/// What the upstream is, of which an agent speaks.
#[derive(Debug)]
pub(super) struct Hello {
    pub(super) spec: UpstreamSpec,
    pub(super) name: Option<String>,
    pub(super) instance: Option<String>,
    pub(super) beat: Beat,
}

/// How it is.
#[derive(Debug)]
pub(super) enum Word {
    /// As it was.
    Alive,
    Report {
        report: Box<Report>,
        /// How long ago it was asked.
        age: Duration,
    },
    Failed(Failure),
    /// The agent ends, and wants no more requests sent there.
    Bye,
}

#[derive(Debug, Default, Serialize, Deserialize)]
#[serde(default)]
struct Line {
    #[serde(skip_serializing_if = "Option::is_none")]
    version: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    name: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    instance: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    beat_ms: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    upstream: Option<Json>,
    #[serde(skip_serializing_if = "Option::is_none")]
    report: Option<Report>,
    /// What is behind it, where it is a router: it rides along on the report.
    #[serde(skip_serializing_if = "Option::is_none")]
    routers: Option<Behind>,
    #[serde(skip_serializing_if = "Option::is_none")]
    age_ms: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    failure: Option<FailureLine>,
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    bye: bool,
}

#[derive(Debug, Serialize, Deserialize)]
struct FailureLine {
    kind: String,
    message: String,
}

/// Reads a message of the agent with this id. `most_names`: how many models and adapters it may name.
pub(super) fn read(message: &[u8], id: &UpstreamId, most_names: usize) -> Result<Said, String> {
    let line: Line = serde_json::from_slice(message).map_err(|error| error.to_string())?;
    let hello = match (line.upstream, line.version) {
        (None, _) => None,
        (Some(upstream), Some(VERSION)) => Some(Hello {
            spec: spec(upstream, id)?,
            name: name(line.name)?,
            instance: name(line.instance).map_err(|why| format!("`instance`: {why}"))?,
            beat: line
                .beat_ms
                .map_or_else(Beat::unknown, |beat| Beat::said(Duration::from_millis(beat))),
        }),
        (Some(_), version) => {
            let found = version.map_or("none".to_owned(), |version| version.to_string());
            return Err(format!("`version`: {VERSION} is understood here, not {found}"));
        }
    };
    let word = match (line.report, line.failure) {
        _ if line.bye => Word::Bye,
        (Some(mut report), _) => {
            check(&report, most_names)?;
            report = bounded(report);
            if let Some(routers) = line.routers {
                report.extensions.insert(routers.bounded());
            }
            Word::Report {
                report: Box::new(report),
                age: Duration::from_millis(line.age_ms.unwrap_or(0)),
            }
        }
        (None, Some(failure)) => {
            let kind: FailureKind = failure
                .kind
                .parse()
                .map_err(|error| format!("`failure.kind`: {error}"))?;
            Word::Failed(Failure::new(kind, short(&failure.message)))
        }
        (None, None) => Word::Alive,
    };
    let named = hello.as_ref().and_then(|hello| hello.spec.models.as_ref());
    names_fit(named, most_names)?;
    Ok(Said { hello, word })
}

fn spec(upstream: Json, id: &UpstreamId) -> Result<UpstreamSpec, String> {
    let read = Value::from_json(&upstream).and_then(|value| UpstreamConfig::from_value(&value, "upstream"));
    let upstream_config = read.map_err(|faults| faults.to_string())?;
    let tls = &upstream_config.spec.protocol.tls;
    let files = [&upstream_config.api_key_file, &tls.ca, &tls.certificate, &tls.key];
    // Who is told of is not polled: where its metrics stand is its agent's business.
    let elsewhere = upstream_config.spec.metrics_url.is_some();
    if files.iter().any(|file| file.is_some()) || upstream_config.dns || elsewhere {
        let message = "`upstream`: files, dns+ names and metrics_url are for the config of the balancer";
        return Err(message.to_owned());
    }
    let mut spec = upstream_config.spec;
    if upstream.get("id").is_some() && spec.id != *id {
        return Err(format!(
            "`upstream.id` is {}, and the path is that of {id}",
            spec.id
        ));
    }
    spec.id = id.clone();
    Ok(spec)
}

pub(super) fn name(name: Option<String>) -> Result<Option<String>, String> {
    match name {
        Some(name) if name.len() > LONGEST_NAME => {
            Err(format!("the name is longer than {LONGEST_NAME} bytes"))
        }
        name => Ok(name.filter(|name| !name.is_empty())),
    }
}

/// What no engine says is not gone by.
fn check(report: &Report, most_names: usize) -> Result<(), String> {
    if report
        .kv_cache_usage
        .is_some_and(|usage| !(0.0..=1.0).contains(&usage))
    {
        return Err("`report.kv_cache_usage` is out of range: 0 to 1".to_owned());
    }
    let adapters = report.adapters.iter();
    let adapters: usize = adapters.map(|all| all.running.len() + all.waiting.len()).sum();
    let loaded = report.loaded_adapters.as_ref().map_or(0, Vec::len);
    let with_room: usize = report.rooms.iter().map(|room| 1 + room.models.len()).sum();
    let most = [adapters, loaded, report.degraded.len(), with_room]
        .into_iter()
        .max();
    if most > Some(most_names) {
        return Err(format!("`report` has more than {most_names} names"));
    }
    names_fit(report.models.as_ref(), most_names)
}

pub(super) fn names_fit(models: Option<&Models>, most: usize) -> Result<(), String> {
    let Some(Models::Listed(models)) = models else {
        return Ok(());
    };
    let names: usize = models.iter().map(|model| 1 + model.aliases.len()).sum();
    if names > most {
        return Err(format!("it has {names} names of models, and {most} are taken"));
    }
    Ok(())
}

/// Writes what an agent says first.
pub(super) fn hello(
    spec: &UpstreamSpec,
    (name, instance): (Option<&str>, &str),
    beat: Duration,
    word: Word,
) -> Vec<u8> {
    write(Line {
        version: Some(VERSION),
        name: name.map(str::to_owned),
        instance: Some(instance.to_owned()),
        beat_ms: Some(millis(beat)),
        upstream: Some(words(spec)),
        ..line(word)
    })
}

/// Writes what it says then.
pub(super) fn next(word: Word) -> Vec<u8> {
    write(line(word))
}

fn line(word: Word) -> Line {
    let mut line = Line::default();
    match word {
        Word::Alive => {}
        Word::Report { report, age } => {
            line.routers = report.extensions.get::<Behind>().cloned();
            line.report = Some(*report);
            line.age_ms = Some(millis(age));
        }
        Word::Failed(failure) => {
            line.failure = Some(FailureLine {
                kind: failure.kind.as_str().to_owned(),
                message: failure.message,
            });
        }
        Word::Bye => line.bye = true,
    }
    line
}

fn write(line: Line) -> Vec<u8> {
    // Nothing in it can fail to be written.
    let mut bytes = serde_json::to_vec(&line).unwrap_or_default();
    bytes.push(b'\n');
    bytes
}

fn millis(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}

/// An upstream in the words of a config file, but for what is of one machine: files.
fn words(spec: &UpstreamSpec) -> Json {
    let mut said = Map::new();
    let mut say = |key: &str, value: Option<Json>| said.extend(value.map(|value| (key.to_owned(), value)));
    say("id", Some(json!(spec.id)));
    say("url", Some(json!(spec.url)));
    say("engine", Some(json!(spec.engine)));
    say("labels", (!spec.labels.is_empty()).then(|| json!(spec.labels)));
    say("models", spec.models.as_ref().map(model_words));
    let can = spec.abilities.can.iter().filter(|(_, can)| **can);
    let can: Vec<_> = can.map(|(one, _)| one.as_str()).collect();
    say("capabilities", (!can.is_empty()).then(|| json!(can)));
    say("context", spec.abilities.context.map(Json::from));
    say("max_in_flight", spec.limits.max_in_flight.map(Json::from));
    say("max_sequences", spec.limits.max_sequences.map(Json::from));
    say(
        "http2",
        (spec.protocol.http2 != Http2::Auto).then(|| json!(spec.protocol.http2)),
    );
    say(
        "host",
        (spec.protocol.host != HostHeader::Rewrite).then(|| json!(spec.protocol.host)),
    );
    let server_name = &spec.protocol.tls.server_name;
    say(
        "tls",
        server_name.as_ref().map(|name| json!({"server_name": name})),
    );
    let timeouts = &spec.timeouts;
    let steps = [
        ("connect", timeouts.connect),
        ("first_byte", timeouts.first_byte),
        ("idle", timeouts.idle),
    ];
    let steps = steps.into_iter().filter_map(|(name, time)| {
        let time = format!("{}ms", millis(time?));
        Some((name.to_owned(), Json::from(time)))
    });
    let steps: Map<String, Json> = steps.collect();
    say("timeouts", (!steps.is_empty()).then_some(Json::Object(steps)));
    said.into()
}

fn model_words(models: &Models) -> Json {
    match models {
        Models::Any => "any".into(),
        Models::Listed(models) => json!(models),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::status::{Adapters, Health, Signal};
    use crate::upstream::{Engine, ModelEntry};

    fn id() -> UpstreamId {
        UpstreamId::new("gpu-1").unwrap()
    }

    #[test]
    fn what_is_written_is_read_again() {
        let mut spec = UpstreamSpec::new("gpu-1", "https://10.0.0.3:8443")
            .unwrap()
            .label("zone", "a");
        spec.engine = Engine::Vllm;
        let adapter = ModelEntry::adapter("sql", "llama");
        spec.models = Some(Models::Listed(vec![ModelEntry::new("llama"), adapter]));
        spec.limits.max_in_flight = Some(8);
        spec.protocol.http2 = Http2::Always;
        spec.protocol.tls.server_name = Some("gpu-1.lan".to_owned());
        spec.timeouts.idle = Some(Duration::from_millis(1500));
        let mut report = Report::new();
        report.health = Some(Health::Loading);
        report.kv_cache_usage = Some(0.25);
        report.adapters = Some(Adapters {
            max: Some(2),
            running: vec!["sql".into()],
            waiting: Vec::new(),
        });
        report.models = spec.models.clone();
        report.degrade(Signal::Waiting, "vllm:num_requests_waiting", "missing");
        report.extensions.insert(Behind::of("far", []));
        let written = serde_json::to_value(&report).unwrap();
        let word = Word::Report {
            report: Box::new(report),
            age: Duration::from_millis(7),
        };
        let bytes = hello(&spec, (Some("Gpu one"), "a1"), Duration::from_secs(1), word);
        let said = read(&bytes, &id(), 16).unwrap();
        let greeting = said.hello.unwrap();
        assert!(greeting.spec.same_as(&spec), "{:?}", greeting.spec);
        assert_eq!(
            (greeting.name.as_deref(), greeting.beat.usual()),
            (Some("Gpu one"), Some(Duration::from_secs(1)))
        );
        assert_eq!(greeting.instance.as_deref(), Some("a1"));
        let Word::Report { report, age } = said.word else {
            panic!()
        };
        assert!(report.extensions.get::<Behind>().unwrap().leads_to("far"));
        assert_eq!(
            (serde_json::to_value(&report).unwrap(), age.as_millis()),
            (written, 7)
        );

        let failure = Failure::new(FailureKind::Unreachable, "refused");
        let said = read(&next(Word::Failed(failure.clone())), &id(), 16).unwrap();
        assert!(matches!(said.word, Word::Failed(read) if read == failure) && said.hello.is_none());
        assert!(matches!(
            read(&next(Word::Bye), &id(), 16).unwrap().word,
            Word::Bye
        ));
        assert_eq!(next(Word::Alive), b"{}\n");
    }

    #[test]
    fn what_cannot_be_is_told() {
        let says = |text: &str| read(text.as_bytes(), &id(), 2).unwrap_err();
        for (text, part) in [
            (r#"{"report":{"health":"fine"}}"#, "unknown variant `fine`"),
            (r#"{"report":{"kv_cache_usage":45}}"#, "out of range"),
            (
                r#"{"report":{"models":{"listed":[{"id":"a"},{"id":"b","aliases":["c"]}]}}}"#,
                "3 names of models",
            ),
            (r#"{"failure":{"kind":"tired","message":""}}"#, "failure.kind"),
            (
                r#"{"upstream":{"url":"http://a"}}"#,
                "`version`: 1 is understood here, not none",
            ),
            (r#"{"version":1,"upstream":{"url":"ftp://a"}}"#, "ftp://a"),
            (
                r#"{"version":1,"upstream":{"url":"http://a","api_key_file":"/etc/passwd"}}"#,
                "config of the balancer",
            ),
            (
                r#"{"version":1,"upstream":{"id":"gpu-2","url":"http://a"}}"#,
                "the path is that of gpu-1",
            ),
        ] {
            assert!(says(text).contains(part), "{text}: {}", says(text));
        }
        assert!(matches!(
            read(br#"{"more":1}"#, &id(), 2).unwrap().word,
            Word::Alive
        ));
    }
}
