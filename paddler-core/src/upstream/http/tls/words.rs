//! What is wrong with a certificate, in words that say what to do?

use std::error::Error as StdError;
use std::io;

use rustls::{AlertDescription, CertificateError, Error, InvalidMessage};

/// An error of the handshake, as a person can act on it.
pub(in super::super) fn explain(error: io::Error) -> io::Error {
    match inner(&error).map(words) {
        Some(text) => io::Error::new(error.kind(), text),
        None if error.kind() == io::ErrorKind::UnexpectedEof => io::Error::new(
            error.kind(),
            "it closed the connection where TLS should begin: does it speak https there?",
        ),
        None => error,
    }
}

/// That the upstream did not let us in, if that is what an error says. It judges our certificate after our side of the
/// handshake is over, so it is told with the first bytes; nothing of the request has been read then.
pub(in super::super) fn refused_us(error: &(dyn StdError + 'static)) -> Option<String> {
    let mut cause = Some(error);
    while let Some(error) = cause {
        if let Some(Error::AlertReceived(alert)) = error.downcast_ref::<io::Error>().and_then(inner) {
            return about_us(*alert);
        }
        cause = error.source();
    }
    None
}

fn inner(error: &io::Error) -> Option<&Error> {
    error.get_ref()?.downcast_ref::<Error>()
}

fn about_us(alert: AlertDescription) -> Option<String> {
    use AlertDescription as Alert;
    let text = match alert {
        Alert::CertificateRequired => {
            "it wants a certificate of ours: name one in `tls.certificate` and `tls.key`".to_owned()
        }
        Alert::BadCertificate
        | Alert::UnsupportedCertificate
        | Alert::CertificateRevoked
        | Alert::CertificateExpired
        | Alert::CertificateUnknown
        | Alert::UnknownCA
        | Alert::DecryptError
        | Alert::AccessDenied => {
            format!("it does not accept our certificate ({alert:?}): see `tls.certificate`")
        }
        _ => return None,
    };
    Some(text)
}

fn words(error: &Error) -> String {
    match error {
        Error::InvalidCertificate(problem) => about_it(problem),
        Error::AlertReceived(AlertDescription::NoApplicationProtocol) => {
            "it does not speak what is asked for over TLS: see `http2`".to_owned()
        }
        // What TLS 1.2 says where a certificate is missing.
        Error::AlertReceived(AlertDescription::HandshakeFailure) => {
            "it broke off the handshake (HandshakeFailure): perhaps it wants a certificate of ours, `tls.certificate`"
                .to_owned()
        }
        Error::AlertReceived(alert) => {
            about_us(*alert).unwrap_or_else(|| format!("it broke off the handshake ({alert:?})"))
        }
        Error::InvalidMessage(InvalidMessage::InvalidContentType) => {
            "it does not speak TLS there: is its url http://?".to_owned()
        }
        other => format!("TLS failed: {other}"),
    }
}

fn about_it(problem: &CertificateError) -> String {
    match problem {
        CertificateError::UnknownIssuer => {
            "its certificate is of a CA that is not trusted here: name the CA's file in `tls.ca`".to_owned()
        }
        CertificateError::BadSignature => {
            "its certificate is not of the CA that is trusted, though that has the same name: it may have been renewed; \
             see the file in `tls.ca`"
                .to_owned()
        }
        CertificateError::NotValidForNameContext { expected, presented } => {
            let names = match presented.as_slice() {
                [] => "no name".to_owned(),
                names => names.join(", "),
            };
            let expected = expected.to_str();
            format!(
                "its certificate is for {names}, not for {expected}: write a name that it is for in `tls.server_name`"
            )
        }
        CertificateError::NotValidForName => {
            "its certificate is for another name: write that in `tls.server_name`".to_owned()
        }
        CertificateError::Expired | CertificateError::ExpiredContext { .. } => {
            format!("its certificate has expired: renew it there, or set this machine's clock ({problem})")
        }
        CertificateError::NotValidYet | CertificateError::NotValidYetContext { .. } => {
            format!("its certificate is not valid yet: set this machine's clock, or wait ({problem})")
        }
        // As most recipes for a self-signed certificate make it.
        other if other.to_string().contains("CaUsedAsEndEntity") => {
            "its certificate is a CA's own and not a server's: make one for it that is no CA (basicConstraints CA:FALSE)"
                .to_owned()
        }
        other => format!("its certificate is not accepted: {other}"),
    }
}
