//! Which roots does this machine trust?
//!
//! They are the same for each upstream that names none of its own, and some 200 KiB: all share one copy. They are read for an
//! upstream's first connection, as files are, but once a minute at most: after a start many connect at once. Where not all could
//! be read just then, those from before stay in force; where there are none, the part counts for that minute, and no upstream
//! keeps it.

use std::io::{self, ErrorKind};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use rustls::RootCertStore;
use tokio::time::Instant;

use crate::upstream::http::OutOfFiles;

/// For so long what was read counts for others too.
const READ_FOR: Duration = Duration::from_secs(60);

/// What was found of them.
#[derive(Debug)]
pub(super) struct Found {
    pub(super) roots: RootCertStore,
    /// Why some are missing that may be found another time.
    pub(super) failed: Vec<io::Error>,
}

/// Roots to trust.
#[derive(Debug, Clone)]
pub(super) struct Roots {
    pub(super) store: Arc<RootCertStore>,
    /// Not all could be read, so they are not to be kept.
    pub(super) partial: bool,
}

/// Roots that were read, and when.
#[derive(Debug)]
pub(super) struct Shared(Mutex<Option<(Instant, Roots)>>);

/// Those of this machine.
pub(super) static OF_THIS_MACHINE: Shared = Shared::new();

impl Shared {
    pub(super) const fn new() -> Self {
        Self(Mutex::new(None))
    }

    /// Reads them, or takes those that were read a moment ago. Read anew and found to be the same, they are no second copy.
    pub(super) fn get(&self, now: Instant, read: impl FnOnce() -> Found) -> io::Result<Roots> {
        let mut shared = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((at, roots)) = &*shared
            && now.saturating_duration_since(*at) < READ_FOR
        {
            return Ok(roots.clone());
        }
        let found = read();
        let before = shared
            .as_ref()
            .map(|(_, roots)| roots)
            .filter(|roots| !roots.partial);
        let roots = match (before, found.failed.is_empty()) {
            (Some(before), false) => before.clone(),
            (Some(before), true) if before.store.roots == found.roots.roots => before.clone(),
            _ => found.whatever_it_is()?,
        };
        *shared = Some((now, roots.clone()));
        Ok(roots)
    }
}

impl Found {
    /// What was found, if that is anything.
    fn whatever_it_is(self) -> io::Result<Roots> {
        if let Some(ours) = self.failed.iter().find_map(OutOfFiles::of) {
            return Err(ours);
        }
        let text = match self.failed.first() {
            Some(error) if self.roots.is_empty() => {
                format!("the root certificates of this machine cannot be read: {error}")
            }
            None if self.roots.is_empty() => {
                "this machine has no root certificates: install them (ca-certificates), or name the CA in `tls.ca`".into()
            }
            error => {
                if let Some(error) = error {
                    tracing::warn!(%error, "not all root certificates of this machine can be read: whom the others speak for is not trusted until they can be");
                }
                return Ok(Roots {
                    store: Arc::new(self.roots),
                    partial: error.is_some(),
                });
            }
        };
        Err(io::Error::other(text))
    }
}

/// Reads those of this machine.
pub(super) fn find() -> Found {
    let found = rustls_native_certs::load_native_certs();
    let mut failed = Vec::new();
    for error in found.errors {
        tracing::debug!(%error, "a root certificate of this machine cannot be read");
        if let rustls_native_certs::ErrorKind::Io { inner, .. } = error.kind
            && !is_so_again(&inner)
        {
            failed.push(inner);
        }
    }
    let mut roots = RootCertStore::empty();
    roots.add_parsable_certificates(found.certs);
    Found { roots, failed }
}

/// Whether an error comes of how the machine is, whenever it is looked at: such a file is none of its roots.
fn is_so_again(error: &io::Error) -> bool {
    use ErrorKind::{IsADirectory, NotADirectory, NotFound, PermissionDenied};
    matches!(
        error.kind(),
        IsADirectory | NotADirectory | NotFound | PermissionDenied
    )
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    pub(in super::super) fn roots(names: &[&str]) -> RootCertStore {
        let mut roots = RootCertStore::empty();
        for name in names {
            let mut params = rcgen::CertificateParams::new(Vec::<String>::new()).unwrap();
            params.distinguished_name.push(rcgen::DnType::CommonName, *name);
            let key = rcgen::KeyPair::generate().unwrap();
            roots
                .add(params.self_signed(&key).unwrap().der().clone())
                .unwrap();
        }
        roots
    }

    #[test]
    fn all_share_one_copy_of_what_the_machine_has() {
        let shared = Shared::new();
        let start = Instant::now();
        let (one, other) = (roots(&["a", "b"]), roots(&["c"]));
        let read_at = |seconds, found: Option<&RootCertStore>| {
            let roots = found.cloned().unwrap_or_else(RootCertStore::empty);
            let found = Found {
                roots,
                failed: vec![],
            };
            let read = shared.get(start + Duration::from_secs(seconds), || found);
            read.map(|roots| {
                assert!(!roots.partial);
                roots.store
            })
        };
        // That there are none is not kept.
        let none = read_at(0, None).unwrap_err();
        assert!(none.to_string().contains("ca-certificates"), "{none}");
        let first = read_at(1, Some(&one)).unwrap();
        assert!(Arc::ptr_eq(&first, &read_at(60, None).unwrap()), "not read again");
        assert!(Arc::ptr_eq(&first, &read_at(61, Some(&one)).unwrap()), "the same");
        assert!(read_at(121, None).is_err());
        let new = read_at(122, Some(&other)).unwrap();
        assert_eq!(new.roots, other.roots);
        assert!(Arc::ptr_eq(&new, &read_at(123, None).unwrap()), "not read again");
    }

    #[test]
    fn a_part_of_them_counts_for_a_minute_where_there_are_none_from_before() {
        let shared = Shared::new();
        let start = Instant::now();
        let (all, some, none) = (roots(&["a", "b"]), roots(&["a"]), RootCertStore::empty());
        let read_at = |seconds, roots: &RootCertStore, failed: &[i32]| {
            let failed = failed.iter().map(|code| io::Error::from_raw_os_error(*code));
            let (roots, failed) = (roots.clone(), failed.collect());
            shared.get(start + Duration::from_secs(seconds), || Found { roots, failed })
        };
        // An error of the disk.
        let error = read_at(0, &none, &[5]).unwrap_err();
        assert!(error.to_string().contains("cannot be read"), "{error}");
        let part = read_at(1, &some, &[5]).unwrap();
        assert_eq!((&part.store.roots, part.partial), (&some.roots, true));
        let again = read_at(60, &all, &[]).unwrap();
        assert!(
            Arc::ptr_eq(&part.store, &again.store) && again.partial,
            "not read again"
        );
        let another = read_at(61, &some, &[5]).unwrap();
        assert!(!Arc::ptr_eq(&part.store, &another.store) && another.partial);
        let whole = read_at(121, &all, &[]).unwrap();
        assert_eq!((&whole.store.roots, whole.partial), (&all.roots, false));
        // What was whole stays in force, whatever is found instead; for another minute, too.
        for (seconds, found, failed) in [(181, &some, 5), (241, &none, 5), (301, &all, 24)] {
            for seconds in [seconds, seconds + 59] {
                let roots = read_at(seconds, found, &[failed]).unwrap();
                assert!(Arc::ptr_eq(&roots.store, &whole.store) && !roots.partial);
            }
        }
    }

    #[cfg(unix)]
    #[test]
    fn where_no_file_descriptor_was_left_a_part_is_for_nobody() {
        let (shared, start) = (Shared::new(), Instant::now());
        for failed in [&[24][..], &[5, 23]] {
            for found in [roots(&["a"]), RootCertStore::empty()] {
                let failed = failed.iter().map(|code| io::Error::from_raw_os_error(*code));
                let failed = failed.collect();
                let read = shared.get(start, || Found { roots: found, failed });
                assert!(OutOfFiles::is(&read.unwrap_err()));
            }
        }
        let found = || Found {
            roots: roots(&["a"]),
            failed: vec![],
        };
        assert!(!shared.get(start, found).unwrap().partial);
    }

    #[test]
    fn what_is_so_whenever_it_is_read_keeps_nothing_back() {
        let is_so_again = |kind: ErrorKind| is_so_again(&kind.into());
        assert!(is_so_again(ErrorKind::PermissionDenied) && is_so_again(ErrorKind::NotFound));
        assert!(!is_so_again(ErrorKind::OutOfMemory) && !is_so_again(ErrorKind::Interrupted));
        assert!(!super::is_so_again(&io::Error::from_raw_os_error(24)));
    }
}
