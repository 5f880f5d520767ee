//! Which roots does this machine trust?
//!
//! They are the same for each upstream that names none of its own, and some 200 KiB: all share one copy. They are read for an
//! upstream's first connection, as files are, but once a minute at most: after a start many connect at once.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use rustls::RootCertStore;
use tokio::time::Instant;

/// For so long what was read counts for others too.
const READ_FOR: Duration = Duration::from_secs(60);

/// Roots that were read, and when.
#[derive(Debug)]
pub(super) struct Shared(Mutex<Option<(Instant, Arc<RootCertStore>)>>);

/// Those of this machine.
pub(super) static OF_THIS_MACHINE: Shared = Shared::new();

impl Shared {
    const fn new() -> Self {
        Self(Mutex::new(None))
    }

    /// Reads them, or takes those that were read a moment ago. Read anew and found to be the same, they are no second copy.
    pub(super) fn get(
        &self,
        now: Instant,
        read: impl FnOnce() -> Result<RootCertStore, String>,
    ) -> Result<Arc<RootCertStore>, String> {
        let mut shared = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((at, roots)) = &*shared
            && now.saturating_duration_since(*at) < READ_FOR
        {
            return Ok(roots.clone());
        }
        let new = read()?;
        let roots = match shared.take() {
            Some((_, before)) if before.roots == new.roots => before,
            _ => Arc::new(new),
        };
        *shared = Some((now, roots.clone()));
        Ok(roots)
    }
}

/// Reads those of this machine.
pub(super) fn read() -> Result<RootCertStore, String> {
    let found = rustls_native_certs::load_native_certs();
    for error in found.errors {
        tracing::debug!(%error, "a root certificate of this machine cannot be read");
    }
    let mut roots = RootCertStore::empty();
    roots.add_parsable_certificates(found.certs);
    if roots.is_empty() {
        return Err("this machine has no root certificates: install them (ca-certificates), or name the CA in `tls.ca`".into());
    }
    Ok(roots)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn roots(names: &[&str]) -> RootCertStore {
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
        let read_at = |seconds, found: Result<&RootCertStore, &str>| {
            let found = found.cloned().map_err(str::to_owned);
            shared.get(start + Duration::from_secs(seconds), move || found)
        };
        // What cannot be read is not kept.
        assert_eq!(read_at(0, Err("none")).unwrap_err(), "none");
        let first = read_at(1, Ok(&one)).unwrap();
        assert!(Arc::ptr_eq(&first, &read_at(60, Err("not read again")).unwrap()));
        assert!(Arc::ptr_eq(&first, &read_at(61, Ok(&one)).unwrap()), "the same");
        assert!(read_at(121, Err("gone")).is_err());
        let new = read_at(122, Ok(&other)).unwrap();
        assert_eq!(new.roots, other.roots);
        assert!(Arc::ptr_eq(&new, &read_at(123, Err("not read again")).unwrap()));
    }

    #[test]
    fn upstreams_without_a_ca_have_the_same_roots() {
        let tls = crate::upstream::Tls::default();
        let (one, other) = (
            super::super::roots(&tls).unwrap(),
            super::super::roots(&tls).unwrap(),
        );
        assert!(Arc::ptr_eq(&one, &other));
    }
}
