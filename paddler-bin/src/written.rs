//! What does a config file say, and where?
//!
//! A config knows only what its settings come to. Where they stand is read here once more, for what is told about them.

use std::io::ErrorKind;
use std::path::{Path, PathBuf};

use paddler_core::config::{Config, Kind, NamedFile, Place, Value};

/// A config file as it is written.
#[derive(Debug)]
pub(crate) struct Written {
    name: String,
    folder: PathBuf,
    value: Option<Value>,
}

/// A line about a file, and its place.
pub(crate) type Told = (Option<Place>, String);

/// A file that is not there, and a line about it.
pub(crate) type Missing<'c> = (NamedFile<&'c PathBuf>, Told);

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

    /// What it says under this path, such as `queue.max_wait` or `upstreams[0].tls.ca`.
    fn find(&self, path: &str) -> Option<&Value> {
        let keys = path.split(['.', '[']);
        keys.fold(self.value.as_ref(), |value, key| {
            match (&value?.kind, key.strip_suffix(']')) {
                (Kind::List(all), Some(number)) => all.get(number.parse::<usize>().ok()?),
                _ => value?.get(key),
            }
        })
    }

    /// Whether it says something under this path.
    pub(crate) fn says(&self, path: &str) -> bool {
        self.find(path).is_some()
    }

    /// The files of this config that it names, and not a flag, and that are not there.
    pub(crate) fn missing<'c>(&self, config: &'c Config) -> Vec<Missing<'c>> {
        let missing = |named: NamedFile<&'c PathBuf>| {
            let value = self.find(&named.setting)?;
            let is_ours = matches!(&value.kind, Kind::String(file) if self.folder.join(file) == *named.path);
            let looked = named.path.metadata();
            let is_gone = looked.is_err_and(|error| error.kind() == ErrorKind::NotFound);
            (is_ours && is_gone).then(|| {
                let (name, setting, shown) = (&self.name, &named.setting, named.path.display());
                let at = value.place.map(|place| format!("{place}: ")).unwrap_or_default();
                let line = format!(
                    "{name}:{at}{setting}: {shown} is not there (a relative path is looked for beside this file)"
                );
                let place = value.place;
                (named, (place, line))
            })
        };
        config.files().into_iter().filter_map(missing).collect()
    }
}
