//! What does a config file say, and where: which settings, and which files?
//!
//! A config knows only what its settings come to. Where they stand is read here once more, for what is told about them.

use std::io::ErrorKind;
use std::path::{Path, PathBuf};

use paddler_core::config::{Key, Kind, Place, Value};

/// A config file as it is written.
#[derive(Debug)]
pub(crate) struct Written {
    name: String,
    folder: PathBuf,
    value: Option<Value>,
}

/// A line about a file, and its place.
pub(crate) type Told = (Option<Place>, String);

/// A file that a setting names.
struct Named<'v> {
    setting: String,
    place: Option<Place>,
    file: &'v str,
}

impl Written {
    /// The text of this file. One that is no YAML says nothing.
    pub(crate) fn new(file: &Path, text: &str) -> Self {
        let name = file.display().to_string();
        Self {
            value: Value::from_yaml(text, &name).ok(),
            folder: file.parent().unwrap_or(Path::new("")).to_owned(),
            name,
        }
    }

    /// Whether it says something under this path, such as `queue.max_wait`.
    pub(crate) fn says(&self, path: &str) -> bool {
        let mut value = self.value.as_ref();
        for key in path.split('.') {
            value = value.and_then(|value| value.get(key));
        }
        value.is_some()
    }

    /// The files that it names and that are not there, each with a line about it. `wanted`: only these.
    pub(crate) fn missing(&self, wanted: impl Fn(&Path) -> bool) -> Vec<(PathBuf, Told)> {
        let mut missing = Vec::new();
        for Named { setting, place, file } in self.files() {
            let file = self.folder.join(file);
            let is_gone = || {
                file.metadata()
                    .is_err_and(|error| error.kind() == ErrorKind::NotFound)
            };
            if wanted(&file) && is_gone() {
                let (name, shown) = (&self.name, file.display());
                let at = place.map(|place| format!("{place}: ")).unwrap_or_default();
                let line = format!(
                    "{name}:{at}{setting}: {shown} is not there (a relative path is looked for beside this file)"
                );
                missing.push((file, (place, line)));
            }
        }
        missing
    }

    fn files(&self) -> Vec<Named<'_>> {
        let mut all = Vec::new();
        let Some(root) = &self.value else { return all };
        take(root, "", &["api_key_file", "management_key_file"], &mut all);
        if let Some(tls) = root.get("tls") {
            take(tls, "tls.", &["certificate", "key", "client_ca"], &mut all);
        }
        let upstreams = match root.get("upstreams").map(|upstreams| &upstreams.kind) {
            Some(Kind::List(upstreams)) => &upstreams[..],
            _ => &[],
        };
        for (index, upstream) in upstreams.iter().enumerate() {
            take(
                upstream,
                &format!("upstreams[{index}]."),
                &["api_key_file"],
                &mut all,
            );
            if let Some(tls) = upstream.get("tls") {
                let prefix = format!("upstreams[{index}].tls.");
                take(tls, &prefix, &["ca", "certificate", "key"], &mut all);
            }
        }
        all
    }
}

/// The files that a map names under these keys.
fn take<'v>(map: &'v Value, prefix: &str, keys: &[&str], into: &mut Vec<Named<'v>>) {
    let Kind::Map(pairs) = &map.kind else { return };
    let named = |(key, value): &'v (Key, Value)| match &value.kind {
        Kind::String(file) if !file.is_empty() && keys.contains(&&*key.text) => Some(Named {
            setting: format!("{prefix}{}", key.text),
            place: value.place,
            file,
        }),
        _ => None,
    };
    into.extend(pairs.iter().filter_map(named));
}
