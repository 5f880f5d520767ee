//! Does a client over TLS get what one without it gets, and does a new certificate come into force?

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::time::Duration;

use bytes::Bytes;
use http::{Request, StatusCode, Version};
use http_body_util::{BodyExt as _, Full};
use hyper_util::rt::{TokioExecutor, TokioIo};
use paddler_core::config::{ClientCertificates, ListenerTls};
use paddler_core::forward::{Served, Tls};
use rcgen::{CertificateParams, CertifiedIssuer, IsCa, KeyPair};
use rustls::crypto::ring;
use rustls::{ClientConfig, HandshakeKind, RootCertStore};
use rustls_pki_types::pem::PemObject as _;
use rustls_pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;

use super::client::{CHAT, HANG, chat, eventually, stream};
use super::world::{Setup, World, engine, of, quick, slow};

/// Who signs certificates.
struct Ca(CertifiedIssuer<'static, KeyPair>);

impl Ca {
    fn new() -> Self {
        let mut params = CertificateParams::new(Vec::<String>::new()).unwrap();
        params.is_ca = IsCa::Ca(rcgen::BasicConstraints::Unconstrained);
        Self(CertifiedIssuer::self_signed(params, KeyPair::generate().unwrap()).unwrap())
    }

    /// A certificate and its key, as PEM.
    fn sign(&self, name: &str) -> (String, String) {
        let params = CertificateParams::new([name.to_owned()]).unwrap();
        let key = KeyPair::generate().unwrap();
        (
            params.signed_by(&key, &self.0).unwrap().pem(),
            key.serialize_pem(),
        )
    }
}

/// Files that are gone with the test.
struct Folder(PathBuf);

impl Folder {
    fn new() -> Self {
        static NUMBER: AtomicUsize = AtomicUsize::new(0);
        let name = format!("listener-{}-{}", std::process::id(), NUMBER.fetch_add(1, Relaxed));
        let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join(name);
        std::fs::create_dir_all(&folder).unwrap();
        Self(folder)
    }

    fn put(&self, name: &str, text: &str) -> PathBuf {
        let file = self.0.join(name);
        std::fs::write(&file, text).unwrap();
        file
    }

    /// A listener's certificate and key.
    fn settings(&self, (certificate, key): &(String, String)) -> ListenerTls {
        ListenerTls::new(self.put("tls.crt", certificate), self.put("tls.key", key))
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        drop(std::fs::remove_dir_all(&self.0));
    }
}

/// A client that trusts this CA, perhaps with a certificate of its own.
fn trusting(ca: &Ca, own: Option<&(String, String)>, alpn: &[&str]) -> TlsConnector {
    let mut roots = RootCertStore::empty();
    roots.add(ca.0.der().clone()).unwrap();
    let builder = ClientConfig::builder_with_provider(Arc::new(ring::default_provider()))
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_root_certificates(roots);
    let mut config = match own {
        None => builder.with_no_client_auth(),
        Some((certificate, key)) => {
            let chain = vec![CertificateDer::from_pem_slice(certificate.as_bytes()).unwrap()];
            let key = PrivateKeyDer::from_pem_slice(key.as_bytes()).unwrap();
            builder.with_client_auth_cert(chain, key).unwrap()
        }
    };
    config.alpn_protocols = alpn.iter().map(|name| name.as_bytes().to_vec()).collect();
    TlsConnector::from(Arc::new(config))
}

async fn connect(addr: SocketAddr, connector: &TlsConnector) -> std::io::Result<TlsStream<TcpStream>> {
    let tcp = TcpStream::connect(addr).await?;
    connector
        .connect(ServerName::try_from("localhost").unwrap(), tcp)
        .await
}

/// The answer to a request over HTTP/1.1 that ends its connection, or why there is none.
async fn ask(addr: SocketAddr, connector: &TlsConnector) -> std::io::Result<String> {
    let mut stream = connect(addr, connector).await?;
    stream
        .write_all(b"GET /health HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n")
        .await?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer).await?;
    Ok(answer)
}

/// Agrees with a client in memory, and tells whether it resumed a session. It gets a byte, so it has all that it may keep.
async fn resumes(tls: &Tls, connector: &TlsConnector) -> bool {
    let (client, server) = tokio::io::duplex(1 << 16);
    let name = ServerName::try_from("localhost").unwrap();
    let (client, server) = tokio::join!(connector.connect(name, client), tls.accept(server));
    let (mut client, (mut server, _)) = (client.unwrap(), server.unwrap());
    server.write_all(b"1").await.unwrap();
    server.flush().await.unwrap();
    assert_eq!(client.read_u8().await.unwrap(), b'1');
    client.get_ref().1.handshake_kind() == Some(HandshakeKind::Resumed)
}

async fn world(settings: ListenerTls) -> (World, paddler_engine::Engine, Tls) {
    let engine = engine(quick()).await;
    let tls = Tls::open(settings).unwrap();
    let setup = Setup::new().with(|setup| setup.serve.tls = Some(tls.clone()));
    (setup.start([of("a", &engine)]).await, engine, tls)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn both_protocols_are_agreed_upon() {
    let (ca, folder) = (Ca::new(), Folder::new());
    let (world, _engine, _) = world(folder.settings(&ca.sign("localhost"))).await;
    for (alpn, agreed) in [
        (&["h2", "http/1.1"][..], Some(&b"h2"[..])),
        (&["http/1.1"], Some(b"http/1.1")),
        (&[], None),
    ] {
        let stream = connect(world.addr, &trusting(&ca, None, alpn)).await.unwrap();
        assert_eq!(stream.get_ref().1.alpn_protocol(), agreed);
        let io = TokioIo::new(stream);
        let body = Full::new(Bytes::from(chat(4).to_string()));
        let request = Request::post(format!("https://localhost{CHAT}")).header("host", "localhost");
        let request = request.body(body).unwrap();
        let response = if agreed == Some(b"h2") {
            let (mut send, connection) = hyper::client::conn::http2::handshake(TokioExecutor::new(), io)
                .await
                .unwrap();
            tokio::spawn(connection);
            send.send_request(request).await.unwrap()
        } else {
            let (mut send, connection) = hyper::client::conn::http1::handshake(io).await.unwrap();
            tokio::spawn(connection);
            send.send_request(request).await.unwrap()
        };
        let spoken = if agreed == Some(b"h2") {
            Version::HTTP_2
        } else {
            Version::HTTP_11
        };
        assert_eq!((response.status(), response.version()), (StatusCode::OK, spoken));
        assert!(
            !response
                .into_body()
                .collect()
                .await
                .unwrap()
                .to_bytes()
                .is_empty()
        );
    }
    // Nothing is agreed upon with who speaks neither.
    assert!(connect(world.addr, &trusting(&ca, None, &["h3"])).await.is_err());
    world.quiet().await;
}

#[tokio::test]
async fn a_client_resumes_its_session_however_many_others_have_come() {
    let (ca, folder) = (Ca::new(), Folder::new());
    let tls = Tls::open(folder.settings(&ca.sign("localhost"))).unwrap();
    let client = trusting(&ca, None, &[]);
    assert!(!resumes(&tls, &client).await);
    for _ in 0..300 {
        assert!(!resumes(&tls, &trusting(&ca, None, &[])).await);
    }
    assert!(resumes(&tls, &client).await);
    // What was agreed upon before counts for nothing once the files were read anew.
    tls.reload().unwrap();
    assert!(!resumes(&tls, &client).await);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_new_certificate_comes_into_force_and_a_bad_one_does_not() {
    let (old, new, folder) = (Ca::new(), Ca::new(), Folder::new());
    let pair = old.sign("localhost");
    let (world, _engine, tls) = world(folder.settings(&pair)).await;
    let (by_old, by_new) = (trusting(&old, None, &[]), trusting(&new, None, &[]));
    let mut open = connect(world.addr, &by_old).await.unwrap();
    assert!(ask(world.addr, &by_new).await.is_err());

    // The key of another certificate, none at all, and nothing.
    let stranger = new.sign("localhost");
    for (certificate, key) in [
        (&pair.0, &stranger.1),
        (&pair.0, &pair.0),
        (&String::new(), &pair.1),
    ] {
        folder.settings(&(certificate.clone(), key.clone()));
        let error = tls.reload().unwrap_err().to_string();
        assert!(error.contains("tls.") && !error.contains("BEGIN"), "{error}");
        assert!(
            ask(world.addr, &by_old)
                .await
                .unwrap()
                .starts_with("HTTP/1.1 200")
        );
    }
    folder.settings(&stranger);
    tls.reload().unwrap();
    assert!(
        ask(world.addr, &by_new)
            .await
            .unwrap()
            .starts_with("HTTP/1.1 200")
    );
    assert!(ask(world.addr, &by_old).await.is_err());
    // A host that has read other files puts them into force the same way.
    let elsewhere = Folder::new();
    tls.adopt(&Tls::open(elsewhere.settings(&pair)).unwrap());
    assert!(
        ask(world.addr, &by_old)
            .await
            .unwrap()
            .starts_with("HTTP/1.1 200")
    );
    // What was open goes on.
    open.write_all(b"GET /health HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n")
        .await
        .unwrap();
    let mut answer = String::new();
    open.read_to_string(&mut answer).await.unwrap();
    assert!(answer.starts_with("HTTP/1.1 200"));
}

#[test]
fn files_that_cannot_be_used_are_named() {
    let (ca, folder) = (Ca::new(), Folder::new());
    let pair = ca.sign("localhost");
    let opened = |settings: ListenerTls| Tls::open(settings).map(drop).unwrap_err();
    let mut settings = folder.settings(&pair);
    settings.certificate = folder.0.join("nowhere.crt");
    assert_eq!(opened(settings.clone()).file, folder.0.join("nowhere.crt"));
    settings = folder.settings(&pair);
    settings.key = folder.put("other.key", "no key");
    let error = opened(settings.clone());
    assert!(
        error.file.ends_with("other.key") && error.problem.contains("private key"),
        "{error}"
    );
    settings.key = folder.put("other.key", &ca.sign("localhost").1);
    let error = opened(settings.clone()).to_string();
    assert!(
        error.contains("other.key: it is the key of another certificate than") && error.contains("tls.crt"),
        "{error}"
    );
    settings.key = "no/such/key".into();
    let error = opened(settings.clone()).to_string();
    assert!(
        error.starts_with("no/such/key: there is no such file; ") && error.contains("`tls.key`"),
        "{error}"
    );
    settings = folder.settings(&pair);
    settings.client_ca = Some(folder.put("clients.crt", "nobody"));
    assert!(
        opened(settings)
            .to_string()
            .contains("clients.crt: it holds no certificate")
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn clients_show_who_they_are_where_they_have_to() {
    let (ca, clients, others, folder) = (Ca::new(), Ca::new(), Ca::new(), Folder::new());
    let (known, unknown) = (clients.sign("client"), others.sign("client"));
    for (wanted, without) in [
        (ClientCertificates::Required, false),
        (ClientCertificates::Optional, true),
    ] {
        let mut settings = folder.settings(&ca.sign("localhost"));
        settings.client_ca = Some(folder.put("clients.crt", &clients.0.pem()));
        settings.client_certificates = wanted;
        let (world, _engine, _) = world(settings).await;
        let asked = |own: Option<&(String, String)>| {
            let connector = trusting(&ca, own, &[]);
            async move {
                ask(world.addr, &connector)
                    .await
                    .is_ok_and(|answer| answer.contains("200 OK"))
            }
        };
        assert!(asked(Some(&known)).await);
        assert!(!asked(Some(&unknown)).await, "{wanted:?}");
        assert_eq!(asked(None).await, without, "{wanted:?}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn handshakes_end_in_time_and_hold_up_nobody() {
    let (ca, folder) = (Ca::new(), Folder::new());
    let mut settings = folder.settings(&ca.sign("localhost"));
    settings.handshake_timeout = Duration::from_millis(300);
    settings.handshakes = 1;
    let (world, _engine, _) = world(settings).await;
    // Silent ones, and ones that speak something else.
    let mut silent = Vec::new();
    for _ in 0..20 {
        silent.push(super::client::Client::connect(world.addr).await);
    }
    let connector = trusting(&ca, None, &[]);
    assert!(ask(world.addr, &connector).await.unwrap().contains("200 OK"));
    for mut client in silent {
        let (_, bytes) = tokio::time::timeout(HANG, client.rest())
            .await
            .expect("it is kept");
        assert!(bytes.is_empty());
    }
    let mut plain = super::client::Client::connect(world.addr).await;
    plain.write("SSH-2.0-client\r\n").await;
    let (_, bytes) = tokio::time::timeout(HANG, plain.rest()).await.unwrap();
    assert!(!bytes.starts_with(b"HTTP"));
    world.stop();
    assert_eq!(world.served().await, Served::Whole);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn plain_http_is_told_to_use_https_and_its_connection_ends() {
    let (ca, folder) = (Ca::new(), Folder::new());
    let (world, _engine, _) = world(folder.settings(&ca.sign("localhost"))).await;
    let body = "x".repeat(100_000);
    for request in [
        "GET / HTTP/1.1\r\nhost: x\r\n\r\n".to_owned(),
        format!("POST {CHAT} HTTP/1.1\r\nhost: x\r\ncontent-length: 100000\r\n\r\n{body}"),
        "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n".to_owned(),
    ] {
        let mut plain = super::client::Client::connect(world.addr).await;
        plain.write(&request).await;
        let (_, bytes) = tokio::time::timeout(HANG, plain.rest()).await.unwrap();
        let text = String::from_utf8_lossy(&bytes);
        assert!(text.starts_with("HTTP/1.1 400 Bad Request\r\n"), "{text:?}");
        assert!(text.contains("connection: close\r\n"), "{text:?}");
        assert!(
            text.ends_with("\r\n\r\nthis port speaks TLS: use https://\r\n"),
            "{text:?}"
        );
    }
    assert!(ask(world.addr, &trusting(&ca, None, &[])).await.is_ok());
    world.quiet().await;
}

/// A first message that the other end can answer, as a client has it.
fn hello(connector: &TlsConnector) -> Vec<u8> {
    let name = ServerName::try_from("localhost").unwrap();
    let mut client = rustls::ClientConnection::new(connector.config().clone(), name).unwrap();
    let mut hello = Vec::new();
    client.write_tls(&mut hello).unwrap();
    hello
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn who_falls_silent_after_a_first_word_holds_up_nobody_for_long() {
    let (ca, folder) = (Ca::new(), Folder::new());
    let mut settings = folder.settings(&ca.sign("localhost"));
    settings.handshake_timeout = Duration::from_secs(3600);
    settings.handshakes = 1;
    let (world, _engine, _) = world(settings).await;
    let connector = trusting(&ca, None, &[]);
    let mut silent = TcpStream::connect(world.addr).await.unwrap();
    silent.write_all(&hello(&connector)).await.unwrap();
    let mut first = [0];
    silent.read_exact(&mut first).await.unwrap();
    let asked = tokio::time::timeout(HANG, ask(world.addr, &connector)).await;
    assert!(
        asked
            .expect("it waits for who is silent")
            .unwrap()
            .contains("200 OK")
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn who_leaves_and_who_takes_nothing_is_noticed_through_tls() {
    let (ca, folder) = (Ca::new(), Folder::new());
    let engine = engine(slow()).await;
    let tls = Tls::open(folder.settings(&ca.sign("localhost"))).unwrap();
    let setup = Setup::new().with(|setup| setup.serve.tls = Some(tls));
    let world = setup.start([of("a", &engine)]).await;
    let mut client = connect(world.addr, &trusting(&ca, None, &[])).await.unwrap();
    let body = stream(100).to_string();
    let request = format!(
        "POST {CHAT} HTTP/1.1\r\nhost: x\r\ncontent-length: {}\r\n\r\n{body}",
        body.len()
    );
    client.write_all(request.as_bytes()).await.unwrap();
    let mut some = [0; 64];
    client.read_exact(&mut some).await.unwrap();
    drop(client);
    eventually("the engine is rid of it", || engine.stats().cancelled == 1).await;
    world.quiet().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn who_says_that_it_will_say_no_more_is_taken_to_have_left() {
    let (ca, folder) = (Ca::new(), Folder::new());
    let engine = engine(slow()).await;
    let tls = Tls::open(folder.settings(&ca.sign("localhost"))).unwrap();
    let setup = Setup::new().with(|setup| setup.serve.tls = Some(tls));
    let world = setup.start([of("a", &engine)]).await;
    for (cancelled, body) in [(1, stream(100)), (2, chat(100))] {
        let mut client = connect(world.addr, &trusting(&ca, None, &[])).await.unwrap();
        let body = body.to_string();
        let request = format!(
            "POST {CHAT} HTTP/1.1\r\nhost: x\r\ncontent-length: {}\r\n\r\n{body}",
            body.len()
        );
        client.write_all(request.as_bytes()).await.unwrap();
        eventually("it runs", || engine.stats().running == 1).await;
        // TCP stays as it is, in both directions, and the client reads on.
        client.get_mut().1.send_close_notify();
        client.flush().await.unwrap();
        let mut answer = Vec::new();
        let read = tokio::time::timeout(HANG, client.read_to_end(&mut answer)).await;
        drop(read.expect("it goes on"));
        let answer = String::from_utf8(answer).unwrap();
        assert!(
            !answer.contains("[DONE]") && !answer.contains("usage"),
            "{answer}"
        );
        eventually("the engine is rid of it", || {
            engine.stats().cancelled == cancelled
        })
        .await;
        world.quiet().await;
    }
    assert_eq!(world.router.metrics().cancellations(), 2);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_stream_with_pauses_comes_to_its_end_through_tls() {
    let (ca, folder) = (Ca::new(), Folder::new());
    let engine = engine(quick().decode_tokens_per_second(100.0)).await;
    let tls = Tls::open(folder.settings(&ca.sign("localhost"))).unwrap();
    let setup = Setup::new().with(|setup| setup.serve.tls = Some(tls));
    let world = setup.start([of("a", &engine)]).await;
    let mut client = connect(world.addr, &trusting(&ca, None, &[])).await.unwrap();
    let body = stream(20).to_string();
    let request = format!(
        "POST {CHAT} HTTP/1.1\r\nhost: x\r\nconnection: close\r\ncontent-length: {}\r\n\r\n{body}",
        body.len()
    );
    client.write_all(request.as_bytes()).await.unwrap();
    let mut answer = Vec::new();
    let read = tokio::time::timeout(HANG, client.read_to_end(&mut answer)).await;
    read.expect("it hangs").expect("each byte of it is encrypted");
    let answer = String::from_utf8(answer).unwrap();
    assert!(answer.matches("data: ").count() > 20, "{answer}");
    assert!(answer.ends_with("0\r\n\r\n"), "{answer}");
    drop(client);
    world.quiet().await;
}
