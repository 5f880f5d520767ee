//! How is a client's connection encrypted, and how does a new certificate come into force?
//!
//! The files are read at the start, and again when somebody says so; connections that are open keep what they began with.
//! What cannot be read leaves the certificate before in force.

mod plain;

use std::error::Error;
use std::fmt;
use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use arc_swap::ArcSwap;
use rustls::crypto::ring::{self, Ticketer};
use rustls::server::{Acceptor, WebPkiClientVerifier};
use rustls::{RootCertStore, ServerConfig};
use rustls_pki_types::CertificateDer;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::sync::Semaphore;
use tokio::time::timeout;
use tokio_rustls::LazyConfigAcceptor;

use super::server::places;
use crate::config::{ClientCertificates, ListenerTls};
use crate::pem;
use plain::NoPlain;
pub(super) use plain::is_plain;

/// How long a handshake holds its place: longer than most round trips. What costs is done when the client's first word is
/// read.
const HELD: Duration = Duration::from_secs(1);

/// TLS with clients. Clones share the certificate in force.
#[derive(Clone)]
pub struct Tls(Arc<Inner>);

struct Inner {
    settings: ListenerTls,
    config: ArcSwap<ServerConfig>,
    handshakes: Semaphore,
}

/// A file of certificates or keys that cannot be used.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct TlsError {
    /// The file.
    pub file: PathBuf,
    /// What is wrong with it and, where that helps, how it is mended.
    pub problem: String,
}

impl fmt::Display for TlsError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.file.display(), self.problem)
    }
}

impl Error for TlsError {}

impl Tls {
    /// Reads the files.
    ///
    /// # Errors
    /// When one of them is missing, holds nothing of what it should, or the key is that of another certificate.
    pub fn open(settings: ListenerTls) -> Result<Self, TlsError> {
        let config = read(&settings)?;
        Ok(Self(Arc::new(Inner {
            config: ArcSwap::from_pointee(config),
            handshakes: Semaphore::new(places(settings.handshakes)),
            settings,
        })))
    }

    /// Reads the files again. Connections that come from now on get what they hold now.
    ///
    /// # Errors
    /// As [`open`](Self::open); what was in force stays so.
    pub fn reload(&self) -> Result<(), TlsError> {
        self.0.config.store(Arc::new(read(&self.0.settings)?));
        Ok(())
    }

    /// Puts what `other` has read into force here: the certificate, and who may show theirs.
    pub fn adopt(&self, other: &Self) {
        self.0.config.store(other.0.config.load_full());
    }

    /// Agrees with a client on how to speak, within the time that is set for it. True: on HTTP/2. One that speaks plain HTTP is
    /// told so.
    ///
    /// # Errors
    /// When they do not agree, or the client is too slow.
    pub async fn accept<I>(
        &self,
        io: I,
    ) -> io::Result<(impl AsyncRead + AsyncWrite + Send + Unpin + use<I>, bool)>
    where
        I: AsyncRead + AsyncWrite + Send + Unpin,
    {
        let Inner {
            settings,
            config,
            handshakes,
        } = &*self.0;
        let limit = settings.handshake_timeout;
        let handshake = async {
            // Who has not said a word takes no place of those who have.
            let mut first = pin!(LazyConfigAcceptor::new(Acceptor::default(), NoPlain::new(io)));
            let said = match first.as_mut().await {
                Ok(said) => said,
                Err(error) => {
                    if let Some(io) = first.take_io().filter(|_| is_plain(&error)) {
                        plain::answer(io).await?;
                    }
                    return Err(error);
                }
            };
            let place = handshakes.acquire().await.map_err(io::Error::other)?;
            let mut stream = pin!(said.into_stream(config.load_full()));
            // Who then falls silent keeps it from the others only for a while.
            match timeout(HELD, stream.as_mut()).await {
                Ok(stream) => stream,
                Err(_) => {
                    drop(place);
                    stream.await
                }
            }
        };
        let stream = timeout(limit, handshake).await.map_err(|_| late(limit))??;
        let http2 = stream.get_ref().1.alpn_protocol() == Some(b"h2");
        Ok((stream, http2))
    }
}

fn late(limit: Duration) -> io::Error {
    let message = format!("the TLS handshake took longer than {limit:?}");
    io::Error::new(io::ErrorKind::TimedOut, message)
}

/// They are one if they share what is in force.
impl PartialEq for Tls {
    fn eq(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }
}

impl Eq for Tls {}

impl fmt::Debug for Tls {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Tls").field(&self.0.settings).finish()
    }
}

fn read(settings: &ListenerTls) -> Result<ServerConfig, TlsError> {
    let ListenerTls { certificate, key, .. } = settings;
    let chain = certificates(
        certificate,
        "its certificate and those between it and the root (`tls.certificate`)",
    )?;
    let secret = pem::private_key(File::open(key), "the key of the certificate (`tls.key`)")
        .map_err(|problem| fault(key, problem.to_string()))?;
    let provider = Arc::new(ring::default_provider());
    let builder = ServerConfig::builder_with_provider(provider.clone())
        .with_safe_default_protocol_versions()
        .map_err(|error| fault(certificate, error.to_string()))?;
    let builder = match &settings.client_ca {
        None => builder.with_no_client_auth(),
        Some(file) => {
            let mut roots = RootCertStore::empty();
            for root in certificates(
                file,
                "those by which clients' certificates are signed (`tls.client_ca`)",
            )? {
                roots.add(root).map_err(|error| fault(file, error.to_string()))?;
            }
            let verifier = WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider);
            let verifier = match settings.client_certificates {
                ClientCertificates::Required => verifier,
                ClientCertificates::Optional => verifier.allow_unauthenticated(),
            };
            builder
                .with_client_cert_verifier(verifier.build().map_err(|error| fault(file, error.to_string()))?)
        }
    };
    let mut config = builder.with_single_cert(chain, secret).map_err(|error| {
        let certificate = certificate.display();
        let problem = match error {
            rustls::Error::InconsistentKeys(_) => format!(
                "it is the key of another certificate than {certificate}: name the one that that was made with in `tls.key`"
            ),
            error => format!("it does not go with {certificate}: {error}"),
        };
        fault(key, problem)
    })?;
    // What a client needs to resume its session it keeps itself: rustls' own store has room for a hundred or so. Another
    // certificate comes with other keys, so nothing is resumed that was agreed upon under the one before. Where clients have
    // certificates, those are not looked at again in a session that is resumed: so that is not made easier there.
    if settings.client_ca.is_none() {
        config.ticketer = Ticketer::new().map_err(|error| fault(certificate, error.to_string()))?;
    }
    config.alpn_protocols = PROTOCOLS.iter().map(|name| name.as_bytes().to_vec()).collect();
    Ok(config)
}

/// What is spoken, the liked best first.
#[cfg(feature = "http2")]
const PROTOCOLS: &[&str] = &["h2", "http/1.1"];
#[cfg(not(feature = "http2"))]
const PROTOCOLS: &[&str] = &["http/1.1"];

fn certificates(file: &Path, which: &str) -> Result<Vec<CertificateDer<'static>>, TlsError> {
    pem::certificates(File::open(file), which).map_err(|problem| fault(file, problem.to_string()))
}

fn fault(file: &Path, problem: String) -> TlsError {
    TlsError {
        file: file.to_owned(),
        problem,
    }
}
