//! How are certificates and keys read from files?
//!
//! All files are PEM. What is wrong is told without the name of the file: whoever asks puts that before it.

use std::io::ErrorKind;
use std::path::Path;

use rustls_pki_types::pem::{Error, PemObject as _};
use rustls_pki_types::{CertificateDer, PrivateKeyDer};

/// The certificates in a file, at least one; `which` says what should stand there.
pub(crate) fn certificates(file: &Path, which: &str) -> Result<Vec<CertificateDer<'static>>, String> {
    let unreadable = |error| match is_missing(&error) {
        true => format!("there is no such file; {which}, in PEM, should stand there"),
        false => format!("it cannot be read as certificates in PEM ({error}; {which})"),
    };
    let all: Result<Vec<_>, _> = CertificateDer::pem_file_iter(file).map_err(unreadable)?.collect();
    let all = all.map_err(unreadable)?;
    if all.is_empty() {
        return Err(format!(
            "it holds no certificate; {which}, in PEM, should stand there"
        ));
    }
    Ok(all)
}

/// The private key in a file; `which` says what should stand there.
pub(crate) fn private_key(file: &Path, which: &str) -> Result<PrivateKeyDer<'static>, String> {
    PrivateKeyDer::from_pem_file(file).map_err(|error| match is_missing(&error) {
        true => format!("there is no such file; {which}, in PEM, should stand there"),
        false => format!("it holds no private key ({error}); {which}, in PEM, should stand there"),
    })
}

fn is_missing(error: &Error) -> bool {
    matches!(error, Error::Io(error) if error.kind() == ErrorKind::NotFound)
}
