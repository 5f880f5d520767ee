//! How does an upstream prove who it is, and how do we?
//!
//! Who it is, is always verified. The files that are named are read at the first connection, and again when they have
//! changed: a certificate that is renewed needs no restart. One that cannot be read while it is replaced leaves the one
//! before in force. Where this process has no file descriptor left to read one, that is held against no upstream.

mod roots;
#[cfg(test)]
mod tests;
mod words;

use std::fs::{self, File};
use std::io;
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::SystemTime;

use rustls::ClientConfig;
use rustls::RootCertStore;
use rustls::client::WebPkiServerVerifier;
use rustls::crypto::ring;
use rustls_pki_types::{CertificateDer, ServerName};
use tokio::time::Instant;
use tokio_rustls::TlsConnector;

use super::dial::Io;
use super::files::OutOfFiles;
use crate::pem;
use crate::upstream::{InvalidUrl, Tls, UpstreamId};

use roots::Roots;
pub(super) use words::refused_us;

/// What is offered to speak, the liked best first.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Offer {
    Http1,
    #[cfg(feature = "http2")]
    Either,
    #[cfg(feature = "http2")]
    Http2,
}

impl Offer {
    fn protocols(self) -> Vec<Vec<u8>> {
        let names: &[&str] = match self {
            Self::Http1 => &["http/1.1"],
            #[cfg(feature = "http2")]
            Self::Either => &["h2", "http/1.1"],
            #[cfg(feature = "http2")]
            Self::Http2 => &["h2"],
        };
        names.iter().map(|name| name.as_bytes().to_vec()).collect()
    }
}

/// TLS with one upstream.
#[derive(Debug)]
pub(super) struct TlsClient {
    /// With whom, for the log.
    upstream: UpstreamId,
    name: ServerName<'static>,
    tls: Tls,
    offer: Offer,
    disk: Disk,
    loaded: Mutex<Option<Loaded>>,
}

/// Where all that is read.
#[derive(Debug, Clone, Copy)]
struct Disk {
    open: fn(&Path) -> io::Result<File>,
    roots: fn() -> roots::Found,
    /// The roots that all upstreams share.
    shared: &'static roots::Shared,
}

impl Disk {
    const OF_THIS_MACHINE: Self = Self {
        open: |file| File::open(file),
        roots: roots::find,
        shared: &roots::OF_THIS_MACHINE,
    };
}

#[derive(Debug, Clone)]
struct Loaded {
    /// How the files were when they were read, or found not to be readable.
    stamps: Vec<Stamp>,
    config: Arc<ClientConfig>,
}

/// What tells a file from the one that was there before.
type Stamp = Option<(SystemTime, u64)>;

impl TlsClient {
    /// `host`: that of the URL, as a resolver takes it. `offer`: what is offered to speak, unless a connection needs another.
    pub(super) fn new(
        upstream: &UpstreamId,
        host: &str,
        tls: &Tls,
        offer: Offer,
    ) -> Result<Self, InvalidUrl> {
        let name = tls.server_name.as_deref().unwrap_or(host);
        let name = name.trim_start_matches('[').trim_end_matches([']', '.']);
        let name = ServerName::try_from(name.to_owned()).map_err(|_| InvalidUrl {
            problem: format!("no certificate can be for {name:?}"),
            mend: "name what its certificate is for in `tls.server_name`",
        })?;
        Ok(Self {
            upstream: upstream.clone(),
            name,
            tls: tls.clone(),
            offer,
            disk: Disk::OF_THIS_MACHINE,
            loaded: Mutex::new(None),
        })
    }

    /// Speaks TLS over a connection. True: HTTP/2 was agreed upon.
    pub(super) async fn connect(
        self: &Arc<Self>,
        io: Box<dyn Io>,
        offer: Offer,
    ) -> io::Result<(Box<dyn Io>, bool)> {
        let client = self.clone();
        // It may wait for a disk.
        let config = tokio::task::spawn_blocking(move || client.config())
            .await
            .map_err(io::Error::other)?;
        let mut config = config?;
        if offer != self.offer {
            Arc::make_mut(&mut config).alpn_protocols = offer.protocols();
        }
        let stream = TlsConnector::from(config)
            .connect(self.name.clone(), io)
            .await
            .map_err(words::explain)?;
        let http2 = stream.get_ref().1.alpn_protocol() == Some(b"h2");
        Ok((Box::new(stream), http2))
    }

    /// What is in force: what the files say, or said before they could not be read.
    fn config(&self) -> io::Result<Arc<ClientConfig>> {
        let mut loaded = self.loaded.lock().unwrap_or_else(PoisonError::into_inner);
        let stamps = self.stamps();
        if let Some(loaded) = &*loaded
            && loaded.stamps == stamps
        {
            return Ok(loaded.config.clone());
        }
        let config = match (read(&self.tls, &self.disk), &*loaded) {
            (Ok((mut config, partial)), before) => {
                config.alpn_protocols = self.offer.protocols();
                if partial {
                    return Ok(Arc::new(config));
                }
                if before.is_some() {
                    tracing::info!(upstream = %self.upstream, "the certificates have changed and were read again");
                }
                Arc::new(config)
            }
            // They are read once there is a file descriptor again.
            (Err(problem), Some(before)) if OutOfFiles::is(&problem) => return Ok(before.config.clone()),
            (Err(problem), Some(before)) => {
                tracing::warn!(upstream = %self.upstream, %problem, "the certificates have changed and cannot be read; those before stay in force");
                before.config.clone()
            }
            (Err(problem), None) => return Err(problem),
        };
        *loaded = Some(Loaded {
            stamps,
            config: config.clone(),
        });
        Ok(config)
    }

    fn stamps(&self) -> Vec<Stamp> {
        let stamp = |file: &Path| {
            let file = fs::metadata(file).ok()?;
            Some((file.modified().ok()?, file.len()))
        };
        let Tls {
            ca, certificate, key, ..
        } = &self.tls;
        [ca, certificate, key]
            .into_iter()
            .flatten()
            .map(|file| stamp(file))
            .collect()
    }
}

/// Whether the files can be read that are named, as they are at the first connection.
///
/// # Errors
/// Which file, what is wrong with it and what to do.
pub fn check_tls(tls: &Tls) -> Result<(), String> {
    let read = read(tls, &Disk::OF_THIS_MACHINE);
    read.map(drop).map_err(|problem| problem.to_string())
}

/// What the files say. True: some of it could not be read now, so it is not to be kept.
fn read(tls: &Tls, disk: &Disk) -> io::Result<(ClientConfig, bool)> {
    let provider = Arc::new(ring::default_provider());
    let Roots { store, partial } = roots(tls, disk)?;
    let verifier = WebPkiServerVerifier::builder_with_provider(store, provider.clone());
    let verifier = verifier.build().map_err(io::Error::other)?;
    let builder = ClientConfig::builder_with_provider(provider).with_safe_default_protocol_versions();
    let builder = builder.map_err(io::Error::other)?.with_webpki_verifier(verifier);
    let (Some(certificate), Some(key)) = (&tls.certificate, &tls.key) else {
        return Ok((builder.with_no_client_auth(), partial));
    };
    let chain = certificates(certificate, "our certificate", disk)?;
    let secret = pem::private_key((disk.open)(key), "the key of our certificate");
    let secret = secret.map_err(|problem| unusable(key, "our private key", &problem))?;
    let config = builder.with_client_auth_cert(chain, secret).map_err(|error| {
        let [certificate, key] = [certificate, key].map(|file| file.display());
        io::Error::other(format!(
            "{certificate} and {key} (our certificate and its key) do not go together: {error}"
        ))
    })?;
    Ok((config, partial))
}

fn roots(tls: &Tls, disk: &Disk) -> io::Result<Roots> {
    let Some(file) = &tls.ca else {
        return disk.shared.get(Instant::now(), disk.roots);
    };
    let mut store = RootCertStore::empty();
    for certificate in certificates(file, "the CA", disk)? {
        let wrong = |error| format!("{} (the CA) holds no usable certificate: {error}", file.display());
        store
            .add(certificate)
            .map_err(|error| io::Error::other(wrong(error)))?;
    }
    Ok(Roots {
        store: Arc::new(store),
        partial: false,
    })
}

/// What a PEM file holds, at least one.
fn certificates(file: &Path, what: &str, disk: &Disk) -> io::Result<Vec<CertificateDer<'static>>> {
    pem::certificates((disk.open)(file), what).map_err(|problem| unusable(file, what, &problem))
}

fn unusable(file: &Path, what: &str, problem: &pem::Unusable) -> io::Error {
    let ours = problem.unread().and_then(OutOfFiles::of);
    ours.unwrap_or_else(|| io::Error::other(format!("{} ({what}): {problem}", file.display())))
}
