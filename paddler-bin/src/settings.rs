//! What do file, environment and flags add up to?

use std::fs;
use std::path::{Path, PathBuf};

use paddler_core::config::{Config, Mode, Registry, UpstreamConfig, Value};
use paddler_core::forward::Keys;
use paddler_core::upstream::UpstreamSpec;
use paddler_core::upstream::http::UpstreamKey;
use serde_json::{Map, Value as Json};

use crate::Failure;
use crate::args::Serve;

/// The config in force: the file's, with flags and environment over it.
pub(crate) fn config(mode: Mode, serve: &Serve) -> Result<Config, Failure> {
    let config = match &serve.config {
        Some(file) => read(file, mode)?,
        None => Config::default_for(mode),
    };
    let flags = Value::from_json(&flags(serve))?;
    let config = config.overlay(&flags, "command line", &Registry::new())?;
    if config.upstreams.is_empty() {
        let hint = "there is no upstream: name one with --upstream http://host:port, or in a file with --config FILE";
        return Err(hint.into());
    }
    Ok(config)
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
    if !serve.upstream.is_empty() {
        say(["upstreams", ""], Some(serve.upstream.iter().map(|text| upstream(text, serve)).collect()));
    }
    say(["listen", ""], text(&serve.listen));
    say(["management", ""], text(&serve.management));
    say(["api_key_file", ""], path(&serve.api_key_file));
    say(["queue", "max_requests"], serve.max_requests.map(Json::from));
    say(["queue", "max_wait"], text(&serve.max_wait));
    say(["poll", "interval"], text(&serve.poll_interval));
    say(["shutdown", "grace"], text(&serve.grace));
    say(["admin_paths", ""], serve.open_admin_paths.then(|| Json::from("open")));
    said
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

/// Reads a config file.
pub(crate) fn read(file: &Path, mode: Mode) -> Result<Config, Failure> {
    let name = file.display().to_string();
    let text = text(file)?;
    Ok(Config::read(&text, &name, mode, &Registry::new())?)
}

fn text(file: &Path) -> Result<String, Failure> {
    fs::read_to_string(file).map_err(|error| format!("{} cannot be read: {error}", file.display()).into())
}

/// The specs of a config, each with its key.
pub(crate) fn specs(config: &Config) -> Result<Vec<UpstreamSpec>, Failure> {
    let with_key = |upstream: &UpstreamConfig| {
        let mut spec = upstream.spec.clone();
        if let Some(file) = &upstream.api_key_file {
            let invalid = || format!("{} holds no key: one line of visible characters", file.display());
            let key = text(file)?;
            spec.extensions.insert(UpstreamKey::new(key.trim()).ok_or_else(invalid)?);
        }
        Ok(spec)
    };
    config.upstreams.iter().map(with_key).collect()
}

/// The keys that clients may present, if the config wants any.
pub(crate) fn keys(config: &Config) -> Result<Option<Keys>, Failure> {
    let Some(file) = &config.api_key_file else { return Ok(None) };
    let keys = Keys::read(&text(file)?).map_err(|error| format!("{}: {error}", file.display()))?;
    Ok(Some(keys))
}
