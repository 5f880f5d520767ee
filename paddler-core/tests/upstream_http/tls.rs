//! Is an upstream over TLS who it should be, does it know who we are, and is what is wrong said clearly?

use std::error::Error as _;
#[cfg(feature = "http2")]
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;
#[cfg(feature = "http2")]
use std::sync::atomic::AtomicBool;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

use http::{Request, Version};
use http_body_util::BodyExt as _;
use paddler_core::forward::{Body, BoxError};
#[cfg(feature = "http2")]
use paddler_core::upstream::http::{Dial, Io};
use paddler_core::upstream::http::{HttpOptions, HttpUpstream, Tcp, check_tls};
use paddler_core::upstream::{CallError, Http2, Sent, Tls, Upstream as _, UpstreamSpec};
use rcgen::{CertificateParams, CertifiedIssuer, IsCa, KeyPair};
use rustls::RootCertStore;
use rustls::crypto::ring;
use rustls::server::WebPkiClientVerifier;
use rustls_pki_types::PrivateKeyDer;
use rustls_pki_types::pem::PemObject as _;
use tokio::net::TcpStream;
#[cfg(feature = "http2")]
use tokio::task::JoinSet;
use tokio_rustls::TlsAcceptor;

use super::net::soon;
use super::server::{Log, Server, speak_http1};

/// Whoever is asked who signed a certificate.
pub(crate) struct Ca(CertifiedIssuer<'static, KeyPair>);

/// A certificate and its key, as PEM.
pub(crate) struct Pair {
    certificate: String,
    key: String,
}

impl Ca {
    fn new() -> Self {
        Self::named("ca")
    }

    pub(crate) fn named(name: &str) -> Self {
        let mut params = CertificateParams::new(Vec::<String>::new()).unwrap();
        params.distinguished_name.push(rcgen::DnType::CommonName, name);
        params.is_ca = IsCa::Ca(rcgen::BasicConstraints::Unconstrained);
        Self(CertifiedIssuer::self_signed(params, KeyPair::generate().unwrap()).unwrap())
    }

    pub(crate) fn sign(&self, name: &str, change: impl FnOnce(&mut CertificateParams)) -> Pair {
        let mut params = CertificateParams::new([name.to_owned()]).unwrap();
        change(&mut params);
        let key = KeyPair::generate().unwrap();
        Pair {
            certificate: params.signed_by(&key, &self.0).unwrap().pem(),
            key: key.serialize_pem(),
        }
    }

    pub(crate) fn pem(&self) -> String {
        self.0.pem()
    }

    fn roots(&self) -> Arc<RootCertStore> {
        let mut roots = RootCertStore::empty();
        roots.add(self.0.der().clone()).unwrap();
        Arc::new(roots)
    }
}

/// Files that are gone with the test.
pub(crate) struct Folder(PathBuf);

impl Folder {
    pub(crate) fn new() -> Self {
        static NUMBER: AtomicUsize = AtomicUsize::new(0);
        let number = NUMBER.fetch_add(1, Relaxed);
        let folder =
            Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("tls-{}-{number}", std::process::id()));
        std::fs::create_dir_all(&folder).unwrap();
        Self(folder)
    }

    pub(crate) fn file(&self, name: &str, text: &str) -> Option<PathBuf> {
        let file = self.0.join(name);
        std::fs::write(&file, text).unwrap();
        Some(file)
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        drop(std::fs::remove_dir_all(&self.0));
    }
}

fn server_config(pair: &Pair, clients: Option<&Ca>, alpn: &[&str]) -> Arc<rustls::ServerConfig> {
    let provider = Arc::new(ring::default_provider());
    let builder = rustls::ServerConfig::builder_with_provider(provider.clone());
    let builder = builder.with_safe_default_protocol_versions().unwrap();
    let builder = match clients {
        None => builder.with_no_client_auth(),
        Some(ca) => {
            let verifier = WebPkiClientVerifier::builder_with_provider(ca.roots(), provider);
            builder.with_client_cert_verifier(verifier.build().unwrap())
        }
    };
    let chain = rustls_pki_types::CertificateDer::pem_slice_iter(pair.certificate.as_bytes());
    let key = PrivateKeyDer::from_pem_slice(pair.key.as_bytes()).unwrap();
    let mut config = builder
        .with_single_cert(chain.map(Result::unwrap).collect(), key)
        .unwrap();
    config.alpn_protocols = alpn.iter().map(|name| name.as_bytes().to_vec()).collect();
    Arc::new(config)
}

pub(crate) async fn accept(io: TcpStream, config: Arc<rustls::ServerConfig>, log: Log) {
    let Ok(io) = TlsAcceptor::from(config).accept(io).await else {
        return;
    };
    #[cfg(feature = "http2")]
    if io.get_ref().1.alpn_protocol() == Some(b"h2") {
        return super::server::speak_http2(io, log).await;
    }
    speak_http1(io, log).await;
}

/// A server that shows this, wants to know who its clients are, and offers these protocols.
pub(crate) async fn server(pair: &Pair, clients: Option<&Ca>, alpn: &[&str]) -> Server {
    let server = Server::start().await;
    *server.tls.lock().unwrap() = Some(server_config(pair, clients, alpn));
    server
}

fn upstream(server: &Server, tls: Tls, change: impl FnOnce(&mut UpstreamSpec)) -> HttpUpstream {
    let mut spec = UpstreamSpec::new("engine", format!("https://{}", server.addr)).unwrap();
    spec.protocol.tls = tls;
    change(&mut spec);
    let mut options = HttpOptions::default();
    options.max_idle = 0;
    HttpUpstream::over(Arc::new(Tcp), &spec, options).unwrap()
}

async fn get(upstream: &HttpUpstream) -> Result<Version, BoxError> {
    let response = soon(upstream.call(Request::get("/").body(Body::empty()).unwrap())).await?;
    let version = response.version();
    assert_eq!(soon(response.into_body().collect()).await?.to_bytes(), "words");
    Ok(version)
}

/// Why it was not sent.
async fn refused(upstream: &HttpUpstream) -> String {
    let error = get(upstream).await.unwrap_err();
    let error = error.downcast_ref::<CallError>().unwrap();
    let why = error.source().unwrap().to_string();
    assert_eq!(error.sent(), Sent::No, "{why}");
    assert!(why.contains("https://127.0.0.1:"), "which upstream: {why}");
    why
}

/// Believes those of this CA.
fn trusting(ca: Option<PathBuf>) -> Tls {
    let mut tls = Tls::default();
    tls.ca = ca;
    tls
}

#[tokio::test]
async fn a_certificate_of_the_ca_that_is_named_is_trusted_and_no_other() {
    // A CA that was renewed has the name of the one before.
    let (folder, ca, renewed, other) = (Folder::new(), Ca::new(), Ca::new(), Ca::named("other"));
    let server = server(&ca.sign("127.0.0.1", |_| {}), None, &[]).await;
    assert_eq!(
        get(&upstream(
            &server,
            trusting(folder.file("ca.pem", &ca.pem())),
            |_| {}
        ))
        .await
        .unwrap(),
        Version::HTTP_11
    );
    for (ca, words) in [(&other, "not trusted"), (&renewed, "renewed")] {
        let why = refused(&upstream(
            &server,
            trusting(folder.file("ca.pem", &ca.pem())),
            |_| {},
        ))
        .await;
        assert!(why.contains(words) && why.contains("`tls.ca`"), "{why}");
    }
    assert_eq!(server.seen().len(), 1, "nothing was sent");
}

#[tokio::test]
async fn a_name_that_the_certificate_is_not_for_is_refused_unless_it_is_named() {
    let (folder, ca) = (Folder::new(), Ca::new());
    let server = server(&ca.sign("gpu-1.lan", |_| {}), None, &[]).await;
    let mut tls = trusting(folder.file("ca.pem", &ca.pem()));
    let why = refused(&upstream(&server, tls.clone(), |_| {})).await;
    for part in ["gpu-1.lan", "not for 127.0.0.1", "tls.server_name"] {
        assert!(why.contains(part), "{why}");
    }
    tls.server_name = Some("gpu-1.lan".into());
    get(&upstream(&server, tls, |_| {})).await.unwrap();
}

#[tokio::test]
async fn a_certificate_whose_time_is_not_now_is_refused() {
    let (folder, ca) = (Folder::new(), Ca::new());
    for (from, to, words) in [(1990, 1991, "has expired"), (4000, 4001, "not valid yet")] {
        let pair = ca.sign("127.0.0.1", |params| {
            params.not_before = rcgen::date_time_ymd(from, 1, 1);
            params.not_after = rcgen::date_time_ymd(to, 1, 1);
        });
        let server = server(&pair, None, &[]).await;
        let tls = trusting(folder.file("ca.pem", &ca.pem()));
        let why = refused(&upstream(&server, tls, |_| {})).await;
        assert!(why.contains(words), "{why}");
    }
}

#[tokio::test]
async fn a_self_signed_certificate_is_trusted_where_it_is_named_and_is_no_ca() {
    let folder = Folder::new();
    for (is_ca, trusted) in [(false, true), (true, false)] {
        let mut params = CertificateParams::new(["127.0.0.1".to_owned()]).unwrap();
        if is_ca {
            params.is_ca = IsCa::Ca(rcgen::BasicConstraints::Unconstrained);
        }
        let key = KeyPair::generate().unwrap();
        let pair = Pair {
            certificate: params.self_signed(&key).unwrap().pem(),
            key: key.serialize_pem(),
        };
        let server = server(&pair, None, &[]).await;
        let tls = trusting(folder.file("ca.pem", &pair.certificate));
        let upstream = upstream(&server, tls, |_| {});
        if trusted {
            get(&upstream).await.unwrap();
        } else {
            let why = refused(&upstream).await;
            assert!(why.contains("CA:FALSE"), "{why}");
        }
    }
}

#[tokio::test]
async fn an_upstream_that_wants_to_know_who_we_are_is_shown_our_certificate() {
    let (folder, ca, clients) = (Folder::new(), Ca::new(), Ca::new());
    let http2: &[&[&str]] = if cfg!(feature = "http2") {
        &[&[], &["h2"]]
    } else {
        &[&[]]
    };
    for alpn in http2 {
        let server = server(&ca.sign("127.0.0.1", |_| {}), Some(&clients), alpn).await;
        let tls = trusting(folder.file("ca.pem", &ca.pem()));
        let showing = |pair: &Pair| {
            let mut tls = tls.clone();
            tls.certificate = folder.file("own.pem", &pair.certificate);
            tls.key = folder.file("own.key", &pair.key);
            tls
        };
        let why = refused(&upstream(&server, tls.clone(), |_| {})).await;
        assert!(
            why.contains("wants a certificate of ours") && why.contains("tls.certificate"),
            "{why}"
        );
        let why = refused(&upstream(&server, showing(&ca.sign("router", |_| {})), |_| {})).await;
        assert!(why.contains("does not accept our certificate"), "{why}");
        get(&upstream(
            &server,
            showing(&clients.sign("router", |_| {})),
            |_| {},
        ))
        .await
        .unwrap();
        assert_eq!(server.seen().len(), 1, "nothing else was read");
    }
}

#[tokio::test]
async fn a_file_that_is_replaced_is_read_again_and_one_that_is_broken_changes_nothing() {
    let (folder, before, after) = (Folder::new(), Ca::new(), Ca::new());
    let server = server(&before.sign("127.0.0.1", |_| {}), None, &[]).await;
    let tls = trusting(folder.file("ca.pem", &before.pem()));
    let upstream = upstream(&server, tls, |_| {});
    get(&upstream).await.unwrap();
    folder.file("ca.pem", "half of a fi");
    get(&upstream).await.unwrap();
    *server.tls.lock().unwrap() = Some(server_config(&after.sign("127.0.0.1", |_| {}), None, &[]));
    refused(&upstream).await;
    // Longer, so that it is seen even where time is coarse.
    folder.file("ca.pem", &format!("# renewed\n{}", after.pem()));
    get(&upstream).await.unwrap();
}

#[tokio::test]
async fn files_that_cannot_be_used_are_named() {
    let (folder, ca) = (Folder::new(), Ca::new());
    let (own, other) = (ca.sign("router", |_| {}), ca.sign("router", |_| {}));
    let with_key = |key| {
        let mut tls = trusting(folder.file("ca.pem", &ca.pem()));
        tls.certificate = folder.file("own.pem", &own.certificate);
        tls.key = key;
        tls
    };
    for (name, tls) in [
        ("missing.pem", trusting(Some(folder.0.join("missing.pem")))),
        ("empty.pem", trusting(folder.file("empty.pem", ""))),
        ("other.key", with_key(folder.file("other.key", &other.key))),
        ("no.key", with_key(folder.file("no.key", &own.certificate))),
    ] {
        let fault = check_tls(&tls).unwrap_err();
        assert!(fault.contains(name), "{fault}");
    }
    let upstream = HttpUpstream::over(
        Arc::new(Tcp),
        &{
            let mut spec = UpstreamSpec::new("engine", "https://127.0.0.1:9").unwrap();
            spec.protocol.tls.server_name = Some("no name".into());
            spec
        },
        HttpOptions::default(),
    );
    assert!(upstream.unwrap_err().to_string().contains("tls.server_name"));
}

#[tokio::test]
async fn an_upstream_in_clear_is_told_from_one_over_tls() {
    let folder = Folder::new();
    let server = Server::start().await;
    let tls = trusting(folder.file("ca.pem", &Ca::new().pem()));
    let why = refused(&upstream(&server, tls, |_| {})).await;
    assert!(why.contains("TLS") && why.contains("http"), "{why}");
}

#[tokio::test]
async fn an_upstream_over_tls_is_told_from_one_in_clear() {
    let pair = Ca::new().sign("localhost", |_| {});
    let acceptor = TlsAcceptor::from(server_config(&pair, None, &[]));
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            // It says by an alert that this is no TLS.
            drop(acceptor.accept(stream).await);
        }
    });
    let upstream = HttpUpstream::new(&url, &Default::default(), HttpOptions::default()).unwrap();
    let error = upstream.call(Request::new(Body::empty())).await.unwrap_err();
    let why = format!("{error}: {:?}", error.source().map(ToString::to_string));
    assert!(why.contains("write https:// in its url"), "{why}");
}

#[cfg(feature = "http2")]
#[tokio::test]
async fn http2_is_agreed_upon_where_the_upstream_offers_it_and_it_is_wanted() {
    let (folder, ca) = (Folder::new(), Ca::new());
    let pair = ca.sign("127.0.0.1", |_| {});
    let tls = trusting(folder.file("ca.pem", &ca.pem()));
    let both: &[&str] = &["h2", "http/1.1"];
    for (offered, wanted, spoken) in [
        (both, Http2::Auto, Some(Version::HTTP_2)),
        (both, Http2::Never, Some(Version::HTTP_11)),
        (both, Http2::Always, Some(Version::HTTP_2)),
        (&["http/1.1"], Http2::Auto, Some(Version::HTTP_11)),
        (&[], Http2::Auto, Some(Version::HTTP_11)),
        (&["http/1.1"], Http2::Always, None),
    ] {
        let server = server(&pair, None, offered).await;
        let upstream = upstream(&server, tls.clone(), |spec| spec.protocol.http2 = wanted);
        match spoken {
            Some(version) => assert_eq!(get(&upstream).await.unwrap(), version),
            None => assert!(refused(&upstream).await.contains("`http2`")),
        }
        // The host is in the URI there, and nowhere twice.
        if let Some(Version::HTTP_2) = spoken {
            let seen = server.seen().remove(0);
            assert_eq!(seen.uri().to_string(), format!("https://{}/", server.addr));
            assert!(!seen.headers().contains_key("host"));
        }
    }
}

/// Dials the first at once, and the others once so many of them are there.
#[cfg(feature = "http2")]
#[derive(Debug)]
struct Together {
    first: AtomicBool,
    others: tokio::sync::Barrier,
}

#[cfg(feature = "http2")]
#[async_trait::async_trait]
impl Dial for Together {
    async fn dial(&self, address: SocketAddr) -> std::io::Result<Box<dyn Io>> {
        if self.first.swap(true, Relaxed) {
            self.others.wait().await;
        }
        Tcp.dial(address).await
    }
}

#[cfg(feature = "http2")]
#[tokio::test]
async fn who_waits_for_http2_and_finds_http1_opens_connections_together() {
    let (folder, ca) = (Folder::new(), Ca::new());
    let server = server(&ca.sign("127.0.0.1", |_| {}), None, &["http/1.1"]).await;
    let mut spec = UpstreamSpec::new("engine", format!("https://{}", server.addr)).unwrap();
    spec.protocol.tls = trusting(folder.file("ca.pem", &ca.pem()));
    let mut options = HttpOptions::default();
    options.max_idle = 0;
    let dial = Together {
        first: AtomicBool::new(false),
        others: tokio::sync::Barrier::new(4),
    };
    let upstream = HttpUpstream::over(Arc::new(dial), &spec, options).unwrap();
    let upstream = Arc::new(upstream);
    let mut calls = JoinSet::new();
    for _ in 0..5 {
        let upstream = upstream.clone();
        calls.spawn(async move { get(&upstream).await.unwrap() });
    }
    assert_eq!(soon(calls.join_all()).await, [Version::HTTP_11; 5]);
}

#[cfg(feature = "http2")]
#[tokio::test]
async fn an_upgrade_goes_over_http1_where_else_http2_is_spoken() {
    let (folder, ca) = (Folder::new(), Ca::new());
    let server = server(&ca.sign("127.0.0.1", |_| {}), None, &["h2", "http/1.1"]).await;
    let tls = trusting(folder.file("ca.pem", &ca.pem()));
    let upstream = upstream(&server, tls, |_| {});
    assert_eq!(get(&upstream).await.unwrap(), Version::HTTP_2);
    let request = Request::get("/")
        .header("connection", "upgrade")
        .header("upgrade", "echo");
    let response = soon(upstream.call(request.body(Body::empty()).unwrap()))
        .await
        .unwrap();
    assert_eq!(
        (response.status().as_u16(), response.version()),
        (101, Version::HTTP_11)
    );
    assert_eq!(get(&upstream).await.unwrap(), Version::HTTP_2);
    assert_eq!(server.connections(), 2);
}

#[tokio::test]
async fn a_thousand_calls_one_after_the_other_take_one_handshake() {
    let (folder, ca) = (Folder::new(), Ca::new());
    let server = server(&ca.sign("127.0.0.1", |_| {}), None, &["http/1.1"]).await;
    let mut spec = UpstreamSpec::new("engine", format!("https://{}", server.addr)).unwrap();
    spec.protocol.tls.ca = folder.file("ca.pem", &ca.0.pem());
    let upstream = HttpUpstream::over(Arc::new(Tcp), &spec, HttpOptions::default()).unwrap();
    for _ in 0..1_000 {
        get(&upstream).await.unwrap();
    }
    assert_eq!(server.connections(), 1);
}
