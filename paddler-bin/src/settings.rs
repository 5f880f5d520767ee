//! What do file, environment and flags add up to?

use std::io::ErrorKind;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use paddler_core::config::{
    AccessLog, AgentAccess, Config, ConfigFaults, LogTarget, Mode, Registry, UpstreamConfig, Value,
};
use paddler_core::forward::{Keys, RouterOptions};
use paddler_core::manage::Decisions;
use paddler_core::observe::Telemetries;
use paddler_core::observe::export::Exports;
use serde_json::{Map, Value as Json};

use crate::args::{Serve, variable};
use crate::secrets::{Secrets, Specs};
use crate::written::{Told, Written};
use crate::{Failure, files, secrets};

/// The config in force: the file's, with flags and environment over it; and the file as it is written.
fn config(mode: Mode, serve: &Serve) -> Result<(Config, Option<Written>), Failure> {
    let (config, written) = match &serve.config {
        Some(file) => {
            let text = text(file, "the config")?;
            let (config, faults) = read(file, &text, mode);
            if let Some(faults) = faults {
                return Err(faults.into());
            }
            (config, Some(Written::new(file, &text)))
        }
        None => (Config::default_for(mode), None),
    };
    about_no_upstream(serve)?;
    if let (Some(file), false, of_file @ 1..) = (
        &serve.config,
        upstreams(&serve.upstream).is_empty(),
        config.upstreams.len(),
    ) {
        let file = file.display();
        let plural = if of_file == 1 { "" } else { "s" };
        tracing::warn!("--upstream (PADDLER_UPSTREAM) replaces the {of_file} upstream{plural} of {file}");
    }
    let flags = flags(serve);
    if let Some(covered) = written.as_ref().and_then(|written| covered(written, &flags)) {
        tracing::info!("flags come before these settings of the file, which do not count: {covered}");
    }
    let flags = Value::from_json(&flags)?;
    let mut config = config.overlay(&flags, "", &Registry::new()).map_err(by_flag)?;
    let says_listen =
        serve.listen.is_some() || written.as_ref().is_some_and(|written| written.says("listen"));
    if let (false, Some(listen)) = (says_listen, serve.default_listen) {
        config.listen = listen;
    }
    if !upstreams(&serve.upstream).is_empty() {
        config.upstreams_file = None;
    }
    let expects_agents = serve.expects_agents
        || serve.agents.is_some()
        || serve.agent_key_file.is_some()
        || written.as_ref().is_some_and(|written| written.says("agents"));
    let may_come = config.agents.access != AgentAccess::Off && config.management.is_some();
    let are_named = !config.upstreams.is_empty() || config.upstreams_file.is_some();
    let are_expected = expects_agents && may_come;
    if !(are_named || are_expected) {
        let hint = "there is no upstream: name one with --upstream http://host:port, or in a file with --config FILE; \
                    or let them come by their agents, with --agents auto";
        return Err(hint.into());
    }
    not_itself(&config)?;
    Ok((config, written))
}

/// The settings of a file that flags cover, each with its flag. Upstreams are told by how many they are.
fn covered(written: &Written, flags: &Json) -> Option<String> {
    let by_flag = |path: &str| flags.pointer(&format!("/{}", path.replace('.', "/"))).is_some();
    let covered: Vec<_> = FLAGS
        .iter()
        .filter(|(path, _)| *path != "upstreams" && by_flag(path) && written.says(path))
        .map(|(path, flag)| format!("{path} ({flag}, {})", variable(flag)))
        .collect();
    (!covered.is_empty()).then(|| covered.join(", "))
}

/// A router that is its own upstream would send each request round until nothing is left.
pub(crate) fn not_itself(config: &Config) -> Result<(), Failure> {
    let here = config.listen;
    let is_here = |ip: IpAddr| {
        ip == here.ip()
            || (ip.is_unspecified() && here.ip().is_loopback())
            || (here.ip().is_unspecified() && (ip.is_loopback() || ip.is_unspecified()))
    };
    let itself = config.upstreams.iter().find(|upstream| {
        let Ok((host, port)) = upstream.spec.host_and_port() else {
            return false;
        };
        let same_port = here.port() != 0 && port == here.port();
        let same_host = match host.parse::<IpAddr>() {
            Ok(ip) => is_here(ip),
            Err(_) => {
                host.eq_ignore_ascii_case("localhost")
                    && (is_here(Ipv4Addr::LOCALHOST.into()) || is_here(Ipv6Addr::LOCALHOST.into()))
            }
        };
        same_port && same_host
    });
    match itself {
        None => Ok(()),
        Some(UpstreamConfig { spec, .. }) => Err(format!(
            "the upstream {} ({}) is this router itself, which listens on {here}: \
             name the engine's address, or listen on another port with --listen",
            spec.id, spec.url
        )
        .into()),
    }
}

/// A flag about upstreams of the command line, where there are none, would say nothing, and nobody would know.
fn about_no_upstream(serve: &Serve) -> Result<(), Failure> {
    let (engine, key) = (serve.engine.is_some(), serve.upstream_api_key_file.is_some());
    let flag = match (serve.upstream.is_empty(), engine, key) {
        (true, true, _) => ("--engine", "engine"),
        (true, false, true) => ("--upstream-api-key-file", "api_key_file"),
        _ => return Ok(()),
    };
    let (flag, key) = flag;
    let variable = variable(flag);
    Err(format!(
        "{flag} ({variable}) is about the upstreams of --upstream, and there is none; \
         in a file, write `{key}` beside the url of each upstream"
    )
    .into())
}

/// Which flag says what a config file says under this path.
const FLAGS: [(&str, &str); 16] = [
    ("listen", "--listen"),
    ("management", "--management"),
    ("api_key_file", "--api-key-file"),
    ("management_key_file", "--management-key-file"),
    ("management_origins", "--management-origin"),
    ("agents.access", "--agents"),
    ("agents.key_file", "--agent-key-file"),
    ("queue.max_requests", "--max-requests"),
    ("queue.max_wait", "--max-wait"),
    ("poll.interval", "--poll-interval"),
    ("shutdown.grace", "--grace"),
    ("admin_paths", "--open-admin-paths"),
    ("statsd.address", "--statsd-addr"),
    ("statsd.prefix", "--statsd-prefix"),
    ("statsd.interval", "--statsd-reporting-interval"),
    ("upstreams", "--upstream"),
];

/// The faults in the words of the command line.
fn by_flag(mut faults: ConfigFaults) -> ConfigFaults {
    for fault in &mut faults.faults {
        let path = fault.path.clone();
        let (whole, number) = match path
            .split_once('[')
            .and_then(|(list, rest)| Some((list, rest.split_once(']')?)))
        {
            Some((list, (index, _))) => (list, index.parse::<usize>().ok()),
            None => (path.as_str(), None),
        };
        if let Some((_, flag)) = FLAGS.iter().find(|(path, _)| *path == whole) {
            let number = number
                .map(|index| format!(", number {}", index + 1))
                .unwrap_or_default();
            fault.path = format!("{flag} ({}){number}", variable(flag));
        }
    }
    faults
}

/// What the flags say, in the words of a config file: so there is one place that reads and checks each setting.
fn flags(serve: &Serve) -> Json {
    let mut said = Json::Object(Map::new());
    let mut say = |pointer: [&str; 2], value: Option<Json>| {
        if let Some(value) = value {
            match pointer {
                [key, ""] => said[key] = value,
                [section, key] => said[section][key] = value,
            }
        }
    };
    let text = |text: &Option<String>| text.clone().map(Json::from);
    let path = |path: &Option<PathBuf>| path.as_ref().map(|path| Json::from(path.to_string_lossy()));
    let upstreams = upstreams(&serve.upstream);
    if !upstreams.is_empty() {
        say(
            ["upstreams", ""],
            Some(upstreams.iter().map(|text| upstream(text, serve)).collect()),
        );
    }
    say(["listen", ""], text(&serve.listen));
    say(["management", ""], text(&serve.management));
    say(["api_key_file", ""], path(&serve.api_key_file));
    say(["management_key_file", ""], path(&serve.management_key_file));
    let origins = &serve.management_origin;
    say(
        ["management_origins", ""],
        (!origins.is_empty()).then(|| origins.iter().map(|origin| Json::from(origin.as_str())).collect()),
    );
    let access = serve.agents.map(|agents| Json::from(agents.word()));
    say(["agents", "access"], access);
    say(["agents", "key_file"], path(&serve.agent_key_file));
    say(["queue", "max_requests"], serve.max_requests.map(Json::from));
    say(["queue", "max_wait"], text(&serve.max_wait));
    say(["poll", "interval"], text(&serve.poll_interval));
    say(["shutdown", "grace"], text(&serve.grace));
    say(["statsd", "address"], text(&serve.statsd_addr));
    say(["statsd", "prefix"], text(&serve.statsd_prefix));
    say(
        ["statsd", "interval"],
        serve
            .statsd_reporting_interval
            .as_deref()
            .map(|text| millis(text).into()),
    );
    say(
        ["admin_paths", ""],
        serve.open_admin_paths.then(|| Json::from("open")),
    );
    said
}

/// A time as flags of Paddler 1.x have it: without a unit it is in milliseconds.
fn millis(text: &str) -> String {
    let bare = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    if bare {
        format!("{text}ms")
    } else {
        text.to_owned()
    }
}

/// What stands between the commas. A comma at the end, as lists that are put together have it, is none more.
fn upstreams(said: &[String]) -> Vec<&str> {
    let all: Vec<_> = said.iter().map(|text| text.trim()).collect();
    let named: Vec<_> = all.iter().copied().filter(|text| !text.is_empty()).collect();
    if named.is_empty() { all } else { named }
}

/// An upstream from the command line: a URL, or an id and a URL.
fn upstream(text: &str, serve: &Serve) -> Json {
    let mut said = Map::new();
    match text.split_once('=') {
        Some((id, url)) if !id.contains("://") => {
            said.insert("id".into(), id.into());
            said.insert("url".into(), url.into());
        }
        _ => {
            said.insert("url".into(), text.into());
        }
    }
    if let Some(engine) = serve.engine {
        said.insert("engine".into(), engine.word().into());
    }
    if let Some(file) = &serve.upstream_api_key_file {
        said.insert("api_key_file".into(), file.to_string_lossy().into());
    }
    said.into()
}

/// A config file as it is written, without what flags say and its own files hold.
pub(crate) fn of_file(file: &Path, mode: Mode) -> Result<Config, Failure> {
    let text = text(file, "the config")?;
    match read(file, &text, mode) {
        (config, None) => Ok(config),
        (_, Some(faults)) => Err(faults.into()),
    }
}

/// Reads a config file as far as it goes, and what is wrong with it. Files that it names are looked for beside it.
pub(crate) fn read(file: &Path, text: &str, mode: Mode) -> (Config, Option<ConfigFaults>) {
    let name = file.display().to_string();
    let (mut config, faults) = Config::read_partly(text, &name, mode, &Registry::new());
    beside(&mut config, file);
    (config, faults)
}

/// The upstreams of the file that lists more of them, as a config that says nothing else. Files that it names are looked for
/// beside it.
pub(crate) fn list(config: &Config) -> Result<Option<Config>, Failure> {
    let Some(file) = &config.upstreams_file else {
        return Ok(None);
    };
    let text = text(file, "the list of upstreams")?;
    let mut listed = Config::default();
    listed.listen = config.listen;
    listed.upstreams = UpstreamConfig::read_list(&text, &file.display().to_string())?;
    beside(&mut listed, file);
    not_itself(&listed)?;
    Ok(Some(listed))
}

/// Files that a file names are looked for beside it.
fn beside(config: &mut Config, file: &Path) {
    let folder = file.parent().unwrap_or(Path::new(""));
    for named in config.files_mut() {
        *named.path = folder.join(&*named.path);
    }
    if let Some(log) = &mut config.decisions.log {
        *log = folder.join(&*log);
    }
    if let Some(AccessLog {
        file: LogTarget::File(path),
        ..
    }) = &mut config.telemetry.access_log
    {
        *path = folder.join(&*path);
    }
}

/// Whether it is the text of a file of clients' keys and of no config; then it has been checked.
pub(crate) fn keys_of(file: &Path, text: &str) -> Result<bool, Failure> {
    let mut lines = text.lines().map(str::trim);
    let first = lines.find(|line| !line.is_empty() && !line.starts_with('#') && *line != "---");
    // A config is a map, too, and may be written in braces.
    let has_keys = || Value::from_yaml(text, "").is_ok_and(|value| value.get("keys").is_some());
    let is_keys = first.is_some_and(|line| Keys::is_list(line) && (!line.starts_with('{') || has_keys()));
    if is_keys {
        Keys::read_named(text, &file.display().to_string())?;
    }
    Ok(is_keys)
}

/// How many keys are in a text that has one a line, and nothing else: no config looks so.
pub(crate) fn plain_keys(text: &str) -> Option<usize> {
    let lines = text.lines().map(str::trim);
    let lines: Vec<_> = lines
        .filter(|line| !line.is_empty() && !line.starts_with('#'))
        .collect();
    let is_key = |line: &&str| {
        let starts = !line.starts_with(['{', '[', '-', '"', '\'', '&', '*', '!', '%']);
        starts && !line.contains(':') && line.bytes().all(|byte| byte.is_ascii_graphic())
    };
    (!lines.is_empty() && lines.iter().all(is_key)).then_some(lines.len())
}

/// The text of a file, without the mark that some editors put before the first line.
pub(crate) fn text(file: &Path, what: &str) -> Result<String, String> {
    let unreadable =
        |why: &dyn std::fmt::Display| format!("{} ({what}) cannot be read: {why}", file.display());
    let bytes = files::read(file).map_err(|error| match error.kind() {
        ErrorKind::NotFound => unreadable(&"there is no such file"),
        ErrorKind::PermissionDenied => unreadable(&"who runs this may not read it"),
        _ => unreadable(&error),
    })?;
    let mut text =
        String::from_utf8(bytes).map_err(|_| unreadable(&"it is not text in UTF-8: save it as UTF-8"))?;
    if text.starts_with('\u{feff}') {
        text.remove(0);
    }
    Ok(text)
}

/// How the router behaves, by a config and the keys of its file, and who is told what becomes of requests.
pub(crate) fn router_options(
    config: &Config,
    keys: Option<Keys>,
    (decisions, exports): (&Arc<Decisions>, &Exports),
) -> RouterOptions {
    let mut options = config.router_options();
    if keys.is_none() && !config.listen.ip().is_loopback() {
        tracing::warn!(
            "without --api-key-file, whoever reaches {} may send requests",
            config.listen
        );
    }
    options.keys = keys.map(|keys| Arc::new(keys) as _);
    // Where nothing is kept, requests are not to pay for it.
    let is_kept = config.decisions.keep > 0 || decisions.tape().is_some();
    options.telemetry = Telemetries::of([is_kept.then(|| decisions.clone() as _), exports.telemetry()]);
    options
}

/// What is wrong with a config and with what its files hold, each with its place if it has one, in the order of the config.
pub(crate) fn lines(mut told: Vec<Told>) -> String {
    told.sort_by_key(|(place, _)| (place.is_none(), *place));
    let lines: Vec<_> = told.into_iter().map(|(_, line)| line).collect();
    lines.join("\n")
}

/// A config with all that its files hold, read and checked.
pub(crate) struct Loaded {
    pub(crate) config: Config,
    pub(crate) secrets: Secrets,
    /// The files that were read besides the config's own, to be watched.
    pub(crate) files: Vec<PathBuf>,
}

/// What is wrong with a config, and the files that it names, if one got so far.
pub(crate) struct Faulty {
    pub(crate) why: Failure,
    pub(crate) files: Vec<PathBuf>,
}

/// Reads and checks everything, and changes nothing.
pub(crate) fn load(mode: Mode, serve: &Serve) -> Result<Loaded, Faulty> {
    let unread = |why| Faulty {
        why,
        files: Vec::new(),
    };
    let (config, written) = config(mode, serve).map_err(unread)?;
    let missing = written.map(|written| written.missing(&config));
    let (missing, mut told): (Vec<_>, Vec<_>) = missing.unwrap_or_default().into_iter().unzip();
    let mut files = secrets::files(&config);
    let read = secrets::read(&config, &missing);
    let of_list = secrets::of_list(&config, &missing, &mut files);
    match (read, of_list) {
        (Ok(mut secrets), Ok(Specs { single, dns, .. })) if told.is_empty() => {
            secrets.specs.file = single;
            // Of two with one name the later one counts, and the config's word comes first.
            let own = std::mem::replace(&mut secrets.specs.dns, dns);
            secrets.specs.dns.extend(own);
            return Ok(Loaded {
                config,
                secrets,
                files,
            });
        }
        (read, of_list) => {
            let faults = [read.err(), of_list.err()].into_iter().flatten().flatten();
            told.extend(faults.map(|line| (None, line)));
        }
    }
    let why = lines(told).into();
    Err(Faulty { why, files })
}
