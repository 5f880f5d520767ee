//! How is an upstream written, and is it there once?

use std::collections::HashMap;
use std::collections::hash_map::Entry;

use serde_json::json;

use super::UpstreamConfig;
use super::fill::{file, step};
use crate::config::fault::Faults;
use crate::config::read::{At, Fields};
use crate::config::value::{Kind, quoted};
use crate::source::{Endpoint, Plan};
use crate::upstream::address::{Address, is_host, is_of_paddler, parse, parse_page, service_domain};
use crate::upstream::{
    Abilities, Capability, Engine, HostHeader, Http2, ModelEntry, Models, Protocol, Tls, Traffic, UpstreamId,
    UpstreamSpec, UpstreamTimeouts,
};

pub(super) const ENGINES: [(&str, Engine); 10] = [
    ("auto", Engine::Auto),
    ("llamacpp", Engine::Llamacpp),
    ("vllm", Engine::Vllm),
    ("sglang", Engine::Sglang),
    ("trtllm", Engine::Trtllm),
    ("triton", Engine::Triton),
    ("ollama", Engine::Ollama),
    ("openai", Engine::Openai),
    ("anthropic", Engine::Anthropic),
    ("paddler", Engine::Paddler),
];

pub(super) const TRAFFIC: [(&str, Traffic); 3] = [
    ("all", Traffic::All),
    ("named", Traffic::Named),
    ("fallback", Traffic::Fallback),
];

pub(super) const HTTP2: [(&str, Http2); 3] = [
    ("auto", Http2::Auto),
    ("never", Http2::Never),
    ("always", Http2::Always),
];

pub(super) const HOSTS: [(&str, HostHeader); 2] =
    [("rewrite", HostHeader::Rewrite), ("keep", HostHeader::Keep)];

/// What stands before a URL whose host is a name for several.
pub(super) const DNS: &str = "dns+";

/// All that can be read; the others have their faults.
pub(super) fn upstreams(at: &At<'_>, faults: &mut Faults) -> Vec<UpstreamConfig> {
    let mut seen = Seen::default();
    let list = at.list(faults).unwrap_or_default();
    list.iter()
        .enumerate()
        .filter_map(|(index, at)| upstream(at, index, &mut seen, faults))
        .collect()
}

/// Which upstream of the list had an id or an address first.
#[derive(Default)]
pub(super) struct Seen {
    ids: HashMap<UpstreamId, usize>,
    addresses: HashMap<Address, usize>,
}

pub(super) fn upstream(
    at: &At<'_>,
    index: usize,
    seen: &mut Seen,
    faults: &mut Faults,
) -> Option<UpstreamConfig> {
    if let Kind::String(url) = &at.value.kind {
        let mend = format!("write {{url: {url}}}");
        at.fault_mend(faults, format!("{} alone is not an upstream", quoted(url)), mend);
        return None;
    }
    let mut fields = at.fields(faults)?;
    let id_at = fields.take("id", faults);
    let url_at = fields.need("url", faults);
    let (mut dns, mut of_paddler) = (false, false);
    if let Some(at) = &url_at {
        at.takes(faults, || {
            let what = "Such as http://10.0.0.3:8080, https://gpu-3.lan, https://api.example.com/openai/v1, paddler://fleet-b:8080 or dns+http://engines:8000.";
            json!({"type": "string", "minLength": 1, "description": what})
        });
    }
    let address = url_at.as_ref().and_then(|at| match &at.value.kind {
        Kind::String(text) => {
            let url = text.strip_prefix(DNS);
            dns = url.is_some();
            of_paddler = is_of_paddler(url.unwrap_or(text));
            let parsed = parse(url.unwrap_or(text));
            at.parsed(
                faults,
                parsed.map_err(|invalid| (invalid.problem, invalid.mend.to_owned())),
            )
        }
        _ => at.wrong(faults, "a url such as http://host:port"),
    });
    if let (Some(at), Some(address)) = (&url_at, &address) {
        service(at, address, dns, faults);
    }
    if let Some(at) = id_at.as_ref().filter(|_| dns) {
        let problem = "those behind a name are called by their addresses";
        at.fault_mend(faults, problem, "leave `id` out, and tell them by `labels`");
    }
    let id = id(id_at.as_ref(), url_at.as_ref(), address.as_ref(), faults);

    // Counted as two, one upstream would get twice its share, and its limit would be broken.
    if let (Some(address), Some(at)) = (&address, &url_at) {
        once(
            &mut seen.addresses,
            address.place(),
            index,
            at,
            "this address",
            faults,
        );
    }
    // An id that is made of the address is there twice where the address is, which was said.
    if let (Some(id), Some(at)) = (&id, id_at.as_ref().or(url_at.as_ref())) {
        let by_address = id_at.is_none()
            && address
                .as_ref()
                .is_some_and(|address| seen.addresses[&address.place()] != index);
        if !by_address {
            once(
                &mut seen.ids,
                id.clone(),
                index,
                at,
                &format!("the id {id:?}"),
                faults,
            );
        }
    }
    let protocol = protocol(&mut fields, address.as_ref(), faults);
    let settings = settings(&mut fields, (protocol, of_paddler, dns), faults);
    fields.end(faults);

    let spec = UpstreamSpec::new(id?.as_str(), address?.to_string()).ok()?;
    let mut upstream = settings(spec);
    upstream.number = Some(index);
    upstream.dns = dns;
    Some(upstream)
}

/// Where its metrics stand, in the form in which they are compared.
fn metrics_url(at: &At<'_>, engine: Engine, dns: bool, faults: &mut Faults) -> Option<String> {
    if dns {
        let problem = "one page of metrics cannot tell of each of those behind a name";
        at.fault_mend(
            faults,
            problem,
            "leave it out, or write an upstream for each of them",
        );
    } else if !Plan::of(engine).asks(0).any(Endpoint::is_metrics) {
        at.fault_mend(
            faults,
            "no metrics are read of this kind of engine",
            "leave it out",
        );
    }
    let text = at.text(faults)?;
    let page = parse_page(text).map_err(|invalid| (invalid.problem, invalid.mend.to_owned()));
    at.parsed(faults, page)
        .map(|(address, path)| format!("{address}{path}"))
}

/// What is said of a name that only SRV records know.
fn service(at: &At<'_>, address: &Address, dns: bool, faults: &mut Faults) {
    let (host, port) = address.target();
    if service_domain(host).is_none() {
        return;
    }
    if !dns {
        let problem = format!("{host} is the name of a service, which may stand for several");
        at.fault_mend(faults, problem, "write dns+ before the url");
    } else if matches!(&at.value.kind, Kind::String(url) if url.trim_end_matches('/').ends_with(&format!(":{port}")))
    {
        let problem = "the ports of a service stand in its SRV records";
        at.fault_mend(faults, problem, format!("leave :{port} out"));
    }
}

fn once<K: std::hash::Hash + Eq>(
    seen: &mut HashMap<K, usize>,
    key: K,
    index: usize,
    at: &At<'_>,
    what: &str,
    faults: &mut Faults,
) {
    match seen.entry(key) {
        Entry::Vacant(free) => {
            free.insert(index);
        }
        Entry::Occupied(first) => {
            let problem = format!("upstreams[{}] has {what} already", first.get());
            at.fault_mend(
                faults,
                problem,
                "one upstream that is named twice is one: keep one of them",
            );
        }
    }
}

/// The id that is given, or else the address.
fn id(
    id: Option<&At<'_>>,
    url: Option<&At<'_>>,
    address: Option<&Address>,
    faults: &mut Faults,
) -> Option<UpstreamId> {
    let (at, text) = match id {
        Some(at) => (at, at.text(faults)?.to_string()),
        None => (url?, address?.authority()),
    };
    let id = UpstreamId::new(text).map_err(|error| error.to_string());
    match id {
        Ok(id) => Some(id),
        Err(problem) => {
            at.fault(faults, problem);
            None
        }
    }
}

/// Reads everything else, and gives back what puts it on the spec.
fn settings(
    fields: &mut Fields<'_>,
    (protocol, of_paddler, dns): (Protocol, bool, bool),
    faults: &mut Faults,
) -> impl FnOnce(UpstreamSpec) -> UpstreamConfig + use<> {
    let engine = fields.take("engine", faults);
    let word = engine.as_ref().and_then(|at| at.word(faults, &ENGINES));
    if let (true, Some(at), Some(word)) = (of_paddler, &engine, word)
        && !matches!(word, Engine::Paddler | Engine::Auto)
    {
        let problem = "the url says that another Paddler listens there";
        at.fault_mend(faults, problem, "leave `engine` out, or write http:// in the url");
    }
    let engine = if of_paddler {
        Engine::Paddler
    } else {
        word.unwrap_or_default()
    };
    let at = fields.take("metrics_url", faults);
    let metrics_url = at.and_then(|at| metrics_url(&at, engine, dns, faults));
    let labels = fields.take("labels", faults).and_then(|at| at.pairs(faults));
    let mut named = Vec::new();
    for (name, at) in labels.into_iter().flatten() {
        if name.text.is_empty() {
            at.fault(faults, "a label needs a name");
        } else if let Some(value) = at.text(faults) {
            named.push((name.text.clone(), value.to_string()));
        }
    }
    let models = fields.take("models", faults).and_then(|at| models(&at, faults));
    let abilities = abilities(fields, faults);
    let traffic = fields
        .take("traffic", faults)
        .and_then(|at| at.word(faults, &TRAFFIC));
    let mut limit = |name| {
        let at = fields.take(name, faults)?;
        at.whole(faults, 1..=i64::from(u32::MAX))
    };
    let max_in_flight = limit("max_in_flight");
    let max_sequences = limit("max_sequences");
    let api_key_file = file(fields, "api_key_file", faults);
    let at = fields.take("timeouts", faults);
    let timeouts = at.and_then(|at| timeouts(&at, faults)).unwrap_or_default();
    move |mut spec| {
        spec.protocol = protocol;
        spec.engine = engine;
        spec.metrics_url = metrics_url;
        spec.labels = named.into_iter().collect();
        spec.models = models;
        spec.abilities = abilities;
        spec.traffic = traffic.unwrap_or_default();
        spec.limits.max_in_flight = max_in_flight;
        spec.limits.max_sequences = max_sequences;
        spec.timeouts = timeouts;
        UpstreamConfig {
            spec,
            api_key_file,
            dns: false,
            number: None,
        }
    }
}

/// What it can do, and how long a prompt may be.
pub(in crate::config) fn abilities(fields: &mut Fields<'_>, faults: &mut Faults) -> Abilities {
    let words: Vec<_> = Capability::ALL.iter().map(|one| (one.as_str(), *one)).collect();
    let listed = fields
        .take("capabilities", faults)
        .and_then(|at| at.some_list(faults));
    let listed = listed.map(|list| Abilities::only(list.iter().filter_map(|at| at.word(faults, &words))));
    let mut abilities = listed.unwrap_or_default();
    let context = fields.take("context", faults);
    abilities.context = context.and_then(|at| at.whole(faults, 1..=i64::from(u32::MAX - 1)));
    abilities
}

/// What is spoken there, beyond what the URL says.
fn protocol(fields: &mut Fields<'_>, address: Option<&Address>, faults: &mut Faults) -> Protocol {
    let http2 = fields
        .take("http2", faults)
        .and_then(|at| at.word(faults, &HTTP2));
    let host = fields.take("host", faults).and_then(|at| at.word(faults, &HOSTS));
    let tls_at = fields.take("tls", faults);
    if let (Some(at), Some(address)) = (&tls_at, address)
        && !address.tls()
    {
        let problem = "`tls` says how it is known over https, and the url has http";
        at.fault_mend(faults, problem, "write https:// in the url, or leave `tls` out");
    }
    Protocol {
        http2: http2.unwrap_or_default(),
        host: host.unwrap_or_default(),
        tls: tls_at.and_then(|at| tls(&at, faults)).unwrap_or_default(),
    }
}

fn tls(at: &At<'_>, faults: &mut Faults) -> Option<Tls> {
    let mut fields = at.fields(faults)?;
    for (one, other) in [("certificate", "key"), ("key", "certificate")] {
        if fields.has(one) && !fields.has(other) {
            let problem = format!("`{one}` stands without `{other}`");
            at.fault_mend(faults, problem, "both are needed to show who we are");
        }
    }
    if let Some(at) = fields.take_faulty("verify") {
        let mend = "name the CA in `ca`, and what the certificate is for in `server_name`";
        at.fault_mend(faults, "who an upstream is, is always verified", mend);
    }
    let server_name = fields.take("server_name", faults).and_then(|at| {
        let name = at.text(faults)?;
        if !is_host(name) {
            at.fault(
                faults,
                format!("{} is neither a name nor an address", quoted(name)),
            );
            return None;
        }
        Some(name.to_owned())
    });
    let mut named = |name| file(&mut fields, name, faults);
    let tls = Tls {
        ca: named("ca"),
        certificate: named("certificate"),
        key: named("key"),
        server_name,
    };
    fields.end(faults);
    Some(tls)
}

fn timeouts(at: &At<'_>, faults: &mut Faults) -> Option<UpstreamTimeouts> {
    let mut fields = at.fields(faults)?;
    let timeouts = UpstreamTimeouts {
        connect: step(&mut fields, "connect", faults),
        first_byte: step(&mut fields, "first_byte", faults),
        idle: step(&mut fields, "idle", faults),
    };
    fields.end(faults);
    Some(timeouts)
}

/// `any`, or a list of names and of `{id, aliases, parent}`.
pub(in crate::config) fn models(at: &At<'_>, faults: &mut Faults) -> Option<Models> {
    at.takes_word(faults, "any");
    match &at.value.kind {
        Kind::String(any) if any == "any" => return Some(Models::Any),
        Kind::String(name) => {
            let mend = format!("write [{name}], or any");
            at.fault_mend(faults, "any or a list of models should stand here", mend);
            return None;
        }
        _ => {}
    }
    let list = at.some_list(faults)?;
    let mut seen = HashMap::new();
    let mut entries = Vec::with_capacity(list.len());
    for (index, at) in list.iter().enumerate() {
        let Some(entry) = model(at, faults) else {
            continue;
        };
        for name in entry.aliases.iter().chain([&entry.id]) {
            if seen.insert(name.clone(), index).is_some() {
                at.fault_mend(
                    faults,
                    format!("the model {name:?} is listed twice"),
                    "keep one of them",
                );
            }
        }
        entries.push(entry);
    }
    Some(Models::Listed(entries))
}

fn model(at: &At<'_>, faults: &mut Faults) -> Option<ModelEntry> {
    if faults.notes() {
        at.text(faults);
    } else if !matches!(at.value.kind, Kind::Map(_)) {
        return at.text(faults).map(ModelEntry::new);
    }
    let mut fields = at.fields(faults)?;
    let id = fields.need("id", faults).and_then(|at| at.text(faults));
    let mut entry = ModelEntry::new(id.unwrap_or_default());
    let aliases = fields.take("aliases", faults).and_then(|at| at.list(faults));
    for at in aliases.into_iter().flatten() {
        entry.aliases.extend(at.text(faults).map(Into::into));
    }
    let parent = fields.take("parent", faults).and_then(|at| {
        let parent = at.text(faults)?;
        if Some(parent) == id {
            at.fault(faults, "a model is not its own base");
            return None;
        }
        Some(parent)
    });
    entry.parent = parent.map(Into::into);
    fields.end(faults);
    id.map(|_| entry)
}
