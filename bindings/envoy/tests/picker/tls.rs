//! Does Envoy get to the picker over TLS, and nobody else?

use std::path::{Path, PathBuf};

use paddler_core::config::{ClientCertificates, ListenerTls};
use paddler_core::forward::Tls;
use rcgen::{CertifiedKey, KeyPair, generate_simple_self_signed};
use tonic::transport::{Certificate, Channel, ClientTlsConfig, Endpoint, Error, Identity};

use super::envoy::{BODY, CHAT, Stream, request_body, request_headers};
use super::world::{Setup, World, one};

/// A certificate that signs itself, and its files.
struct Files {
    certificate: PathBuf,
    key: PathBuf,
    texts: (String, String),
}

fn files(name: &str) -> Files {
    let CertifiedKey { cert, signing_key } = generate_simple_self_signed(["localhost".to_owned()]).unwrap();
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR"));
    let (certificate, key) = (
        folder.join(format!("{name}.pem")),
        folder.join(format!("{name}.key")),
    );
    let texts = (cert.pem(), KeyPair::serialize_pem(&signing_key));
    std::fs::write(&certificate, &texts.0).unwrap();
    std::fs::write(&key, &texts.1).unwrap();
    Files {
        certificate,
        key,
        texts,
    }
}

async fn world(own: &Files, client_ca: Option<&Files>) -> World {
    let mut settings = ListenerTls::new(&own.certificate, &own.key);
    settings.client_ca = client_ca.map(|files| files.certificate.clone());
    settings.client_certificates = ClientCertificates::Required;
    let tls = Tls::open(settings).unwrap();
    let setup = Setup::new().with(|setup| setup.serve.tls = Some(tls));
    setup.start(one()).await
}

async fn over_tls(world: &World, trusted: &Files, shown: Option<&Files>) -> Result<Channel, Error> {
    let mut tls = ClientTlsConfig::new().ca_certificate(Certificate::from_pem(&trusted.texts.0));
    if let Some(Files { texts, .. }) = shown {
        tls = tls.identity(Identity::from_pem(&texts.0, &texts.1));
    }
    let url = format!("https://localhost:{}", world.addr.port());
    Endpoint::from_shared(url)?.tls_config(tls)?.connect().await
}

async fn is_placed(channel: Channel) -> bool {
    let mut stream = Stream::open(channel).await;
    stream.say(request_headers("POST", CHAT, &[], false)).await;
    stream.say(request_body(BODY, true)).await;
    stream.placed().await.endpoints == ["10.0.0.1:8000"]
}

#[tokio::test]
async fn a_request_is_placed_over_tls() {
    let own = files("picker-own");
    let world = world(&own, None).await;
    let channel = over_tls(&world, &own, None).await.unwrap();
    assert!(is_placed(channel).await);
    assert!(over_tls(&world, &files("picker-other"), None).await.is_err());
}

#[tokio::test]
async fn who_shows_no_certificate_that_is_asked_for_is_not_let_in() {
    let (own, envoy) = (files("picker-asks"), files("picker-envoy"));
    let world = world(&own, Some(&envoy)).await;
    let channel = over_tls(&world, &own, Some(&envoy)).await.unwrap();
    assert!(is_placed(channel).await);
    for shown in [None, Some(&own)] {
        let refused = match over_tls(&world, &own, shown).await {
            // TLS 1.3 tells a client only after its own part is done.
            Ok(channel) => Stream::try_open(channel).await.is_err(),
            Err(_) => true,
        };
        assert!(refused);
    }
}
