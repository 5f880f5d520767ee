//! Has a file changed, and is whoever writes it done?
//!
//! Files are read at every look: that sees what an editor does that puts another file in the place, and what Kubernetes does
//! that turns a link to another folder, and it takes a file that was only touched for what it is. They are small.

use std::collections::BTreeMap;
use std::fs;
use std::hash::{DefaultHasher, Hasher as _};
use std::io::{self, ErrorKind, Read as _};
use std::os::unix::fs::FileTypeExt as _;
use std::path::{Path, PathBuf};

/// The largest file that is read, in bytes: 16 MiB, four times the longest config and a hundred thousand keys.
const LARGEST: u64 = 16 << 20;

/// What stands in each of some files; nothing in one that is not there.
pub(crate) type Contents = BTreeMap<PathBuf, Option<u64>>;

/// Looks into these files.
pub(crate) fn look(files: impl IntoIterator<Item = PathBuf>) -> Contents {
    files
        .into_iter()
        .map(|file| {
            let content = content(&file);
            (file, content)
        })
        .collect()
}

fn content(file: &Path) -> Option<u64> {
    // A pipe can be read once, and was.
    if !fs::metadata(file).ok()?.is_file() {
        return Some(0);
    }
    let mut hasher = DefaultHasher::new();
    match read(file) {
        Ok(bytes) => hasher.write(&bytes),
        // Whatever it holds, it is not read.
        Err(error) if error.kind() == ErrorKind::FileTooLarge => hasher.write_u64(LARGEST),
        Err(_) => return None,
    }
    Some(hasher.finish())
}

/// Whether it is what another program writes into.
pub(crate) fn is_pipe(file: &Path) -> bool {
    fs::metadata(file).is_ok_and(|file| file.file_type().is_fifo())
}

/// What a file holds, unless that is more than any config or list of keys: a mistaken path must not take all memory.
pub(crate) fn read(file: &Path) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    fs::File::open(file)?.take(LARGEST + 1).read_to_end(&mut bytes)?;
    if bytes.len() as u64 > LARGEST {
        let message = "it is larger than 16 MiB, which no such file is";
        return Err(io::Error::new(ErrorKind::FileTooLarge, message));
    }
    Ok(bytes)
}

/// Tells when files have come to rest after a change.
#[derive(Debug)]
pub(crate) struct Watched {
    /// What was last acted on.
    known: Contents,
    /// What was seen at the last look.
    seen: Contents,
}

impl Watched {
    pub(crate) fn new(known: Contents) -> Self {
        Self {
            seen: known.clone(),
            known,
        }
    }

    pub(crate) fn files(&self) -> impl Iterator<Item = PathBuf> + use<> {
        self.known.keys().cloned().collect::<Vec<_>>().into_iter()
    }

    /// Whether there is something new that was there at the last look already: half of a file is not to be read.
    pub(crate) fn is_due(&mut self, now: Contents) -> bool {
        let at_rest = now == self.seen;
        self.seen = now;
        at_rest && self.seen != self.known
    }

    /// What stood in the files `before` has been acted on. `files`: those that are to be watched from now on.
    pub(crate) fn acted_on(&mut self, before: &Contents, files: impl IntoIterator<Item = PathBuf>) {
        let content = |file: &PathBuf| before.get(file).copied().unwrap_or_else(|| content(file));
        *self = Self::new(
            files
                .into_iter()
                .map(|file| (file.clone(), content(&file)))
                .collect(),
        );
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn contents(of: &[(&str, Option<u64>)]) -> Contents {
        of.iter().map(|(file, content)| (file.into(), *content)).collect()
    }

    #[test]
    fn a_change_is_acted_on_once_it_is_at_rest() {
        let [old, half, new] = [1, 2, 3].map(|content| contents(&[("a", Some(content))]));
        let mut watched = Watched::new(old.clone());
        assert!(!watched.is_due(old.clone()));
        assert!(!watched.is_due(half), "it may still be written");
        assert!(!watched.is_due(new.clone()), "it is still being written");
        assert!(watched.is_due(new.clone()));
        watched.acted_on(&new, watched.files());
        assert!(!watched.is_due(new), "once is enough");
        assert!(!watched.is_due(old.clone()));
        assert!(watched.is_due(old), "and back again is a change, too");
    }

    #[test]
    fn a_file_that_comes_or_goes_has_changed() {
        let (there, gone) = (contents(&[("a", Some(1))]), contents(&[("a", None)]));
        let mut watched = Watched::new(gone.clone());
        assert!(!watched.is_due(there.clone()) && watched.is_due(there.clone()));
        watched.acted_on(&there, watched.files());
        assert!(!watched.is_due(gone.clone()) && watched.is_due(gone));
    }
}
