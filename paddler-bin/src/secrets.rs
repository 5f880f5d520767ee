//! What do the files hold that a config names: keys and certificates?

use std::path::{Path, PathBuf};

use paddler_core::config::{Config, FilePurpose, NamedFile, UpstreamConfig};
use paddler_core::forward::{InvalidKeys, Keys, Tls};
use paddler_core::observe::export::Otlp;
use paddler_core::upstream::UpstreamSpec;
use paddler_core::upstream::http::check_tls;

use crate::settings::{self, text};

/// The upstreams of a config, each with its key.
#[derive(Debug, Clone, Default)]
pub(crate) struct Specs {
    pub(crate) single: Vec<UpstreamSpec>,
    /// Those of the file that lists more of them.
    pub(crate) file: Vec<UpstreamSpec>,
    /// Those whose host is a name for several.
    pub(crate) dns: Vec<UpstreamSpec>,
}

/// What a config comes to with the files that it names.
#[derive(Debug)]
pub(crate) struct Secrets {
    pub(crate) specs: Specs,
    /// The keys that clients may present, if the config wants any.
    pub(crate) keys: Option<Keys>,
    /// The keys that the management API wants, if it wants any.
    pub(crate) management: Option<Keys>,
    /// The keys that agents may present, if they have some of their own.
    pub(crate) agents: Option<Keys>,
    /// What connections from clients are encrypted by.
    pub(crate) tls: Option<Tls>,
}

impl Specs {
    /// Those that are one each, wherever they stand.
    pub(crate) fn fixed(&self) -> impl Iterator<Item = &UpstreamSpec> {
        self.single.iter().chain(&self.file)
    }
}

/// Reads the files that a config names, but for what some that are `missing` are for, which was said already. All that is
/// wrong with them is said at once.
pub(crate) fn read(config: &Config, missing: &[NamedFile<&PathBuf>]) -> Result<Secrets, Vec<String>> {
    let is_there = |file: &PathBuf| missing.iter().all(|missing| missing.path != file);
    let is_whole = |purpose| missing.iter().all(|missing| missing.purpose != purpose);
    let mut faults = Vec::new();
    let (mut single, mut dns) = (Vec::new(), Vec::new());
    for (at, upstream) in config.upstreams.iter().enumerate() {
        if !is_whole(FilePurpose::UpstreamKey(at)) || !is_whole(FilePurpose::UpstreamTls(at)) {
            continue;
        }
        match spec(upstream) {
            Ok(spec) if upstream.dns => dns.push(spec),
            Ok(spec) => single.push(spec),
            Err(fault) => faults.push(fault),
        }
    }
    let mut keys = |file: &Option<PathBuf>, what, read: ReadKeys| {
        let file = file.as_ref().filter(|file| is_there(file));
        let keys = file.map(|file| keys(file, what, read)).transpose();
        keys.unwrap_or_else(|fault| {
            faults.push(fault);
            None
        })
    };
    let clients = keys(&config.api_key_file, "the keys of clients", Keys::read_named);
    let management = keys(
        &config.management_key_file,
        "the keys of the management API",
        |text, _| Keys::read_lines(text),
    );
    let agents = keys(&config.agents.key_file, "the keys of agents", |text, _| {
        Keys::read_lines(text)
    });
    // One without a file is faulty, which was said.
    let tls = config.tls.as_ref().filter(|tls| {
        let needed = [&tls.certificate, &tls.key];
        is_whole(FilePurpose::ListenerTls) && needed.iter().all(|file| !file.as_os_str().is_empty())
    });
    let tls = tls.cloned();
    let tls = tls.map(Tls::open).transpose().unwrap_or_else(|error| {
        faults.push(error.to_string());
        None
    });
    let otlp = config.telemetry.otlp.as_ref();
    let headers = otlp.and_then(|otlp| otlp.headers_file.as_ref());
    if let Some(file) = headers.filter(|file| is_there(file)) {
        faults.extend(Otlp::read_headers(file).err().map(|error| error.to_string()));
    }
    if !faults.is_empty() {
        return Err(faults);
    }
    Ok(Secrets {
        specs: Specs {
            single,
            file: Vec::new(),
            dns,
        },
        keys: clients,
        management,
        agents,
        tls,
    })
}

/// The upstreams of the file that lists more of them, unless it is `missing`, which was said already. The files that it names go
/// to those that are watched.
pub(crate) fn of_list(
    config: &Config,
    missing: &[NamedFile<&PathBuf>],
    watched: &mut Vec<PathBuf>,
) -> Result<Specs, Vec<String>> {
    let is_missing = |missing: &NamedFile<_>| missing.purpose == FilePurpose::Upstreams;
    if missing.iter().any(is_missing) {
        return Ok(Specs::default());
    }
    let listed = settings::list(config).map_err(|fault| vec![fault.to_string()])?;
    let Some(listed) = listed else {
        return Ok(Specs::default());
    };
    watched.extend(files(&listed));
    Ok(read(&listed, &[])?.specs)
}

/// The files that a config names and that are watched. What they hold is as much in force as the config itself. Not watched
/// is the TLS with upstreams: whoever connects to one looks himself whether its files have changed.
pub(crate) fn files(config: &Config) -> Vec<PathBuf> {
    let watched = |named: &NamedFile<_>| !matches!(named.purpose, FilePurpose::UpstreamTls(_));
    let named = config.files().into_iter().filter(watched);
    named.map(|named| named.path.clone()).collect()
}

fn spec(upstream: &UpstreamConfig) -> Result<UpstreamSpec, String> {
    let spec = &upstream.spec;
    if spec.speaks_tls() {
        check_tls(&spec.protocol.tls).map_err(|fault| format!("the upstream {}: {fault}", spec.id))?;
    }
    upstream.with_key(None)
}

/// Reads keys from a text, with the name of its file.
type ReadKeys = fn(&str, &str) -> Result<Keys, InvalidKeys>;

fn keys(file: &Path, what: &str, read: ReadKeys) -> Result<Keys, String> {
    let text = text(file, what).map_err(|error| match file.exists() {
        true => error,
        false => format!("{error}; make it, one key a line"),
    })?;
    read(&text, &file.display().to_string()).map_err(|error| match error {
        // Each with the name of the file, and its place in it.
        InvalidKeys::Faults(faults) => faults.to_string(),
        error => format!("{} ({what}): {error}", file.display()),
    })
}
