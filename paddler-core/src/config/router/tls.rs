//! How are connections from clients encrypted?

use std::path::PathBuf;
use std::time::Duration;

use super::fill::{HOUR, MOMENT, count, duration, file};
use crate::config::fault::Faults;
use crate::config::read::{At, Fields};

/// How connections from clients are encrypted. The files are PEM; relative paths are as they are written: `paddler` looks for
/// them beside the config file.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ListenerTls {
    /// The certificate, and behind it those up to the root.
    pub certificate: PathBuf,
    /// Its private key.
    pub key: PathBuf,
    /// The certificates by which clients' are signed. Default `None`: clients are not asked for one.
    pub client_ca: Option<PathBuf>,
    /// Whether a client may do without one, where `client_ca` is named. Default required.
    pub client_certificates: ClientCertificates,
    /// How long a handshake may take, 10 ms to 1 h. Default 10 s: ten round trips over a bad line.
    pub handshake_timeout: Duration,
    /// Handshakes at once, 1 to 100,000; more wait. Default 256: each one costs about a millisecond of a core, which streams
    /// under way would miss.
    pub handshakes: usize,
    /// Whether the management listener is encrypted, too. Default false: it is on loopback, and probes speak plainly.
    pub management: bool,
}

impl ListenerTls {
    /// With these files and defaults for the rest.
    pub fn new(certificate: impl Into<PathBuf>, key: impl Into<PathBuf>) -> Self {
        Self {
            certificate: certificate.into(),
            key: key.into(),
            client_ca: None,
            client_certificates: ClientCertificates::default(),
            handshake_timeout: Duration::from_secs(10),
            handshakes: 256,
            management: false,
        }
    }
}

/// Whether clients have to show a certificate.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Hash)]
#[non_exhaustive]
pub enum ClientCertificates {
    /// Who shows none is not served.
    #[default]
    Required,
    /// Who shows one is checked, and who shows none is served.
    Optional,
}

pub(super) fn listener_tls(at: &At<'_>, faults: &mut Faults) -> Option<ListenerTls> {
    let mut fields = at.fields(faults)?;
    let needed = |fields: &mut Fields<'_>, name, faults: &mut Faults| {
        let at = fields.need(name, faults)?;
        at.text(faults).map(PathBuf::from)
    };
    let certificate = needed(&mut fields, "certificate", faults);
    let key = needed(&mut fields, "key", faults);
    let mut tls = ListenerTls::new(certificate.unwrap_or_default(), key.unwrap_or_default());
    tls.client_ca = file(&mut fields, "client_ca", faults);
    if let Some(at) = fields.take("client_certificates", faults) {
        let words = [
            ("required", ClientCertificates::Required),
            ("optional", ClientCertificates::Optional),
        ];
        if tls.client_ca.is_none() {
            let mend = "name in `client_ca` the certificates by which they are signed";
            at.fault_mend(faults, "no client's certificate could be checked", mend);
        }
        tls.client_certificates = at.word(faults, &words).unwrap_or_default();
    }
    duration(
        &mut fields,
        "handshake_timeout",
        (MOMENT, HOUR),
        &mut tls.handshake_timeout,
        faults,
    );
    count(
        &mut fields,
        "handshakes",
        (1, 100_000),
        &mut tls.handshakes,
        faults,
    );
    if let Some(at) = fields.take("management", faults) {
        tls.management = at
            .word(faults, &[("plain", false), ("tls", true)])
            .unwrap_or_default();
    }
    fields.end(faults);
    Some(tls)
}
