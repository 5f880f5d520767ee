//! How are certificates and keys read from files?
//!
//! All files are PEM. What is wrong is told without the name of the file: whoever asks puts that before it.

use std::fmt;
use std::fs::File;
use std::io::{self, ErrorKind};

use rustls_pki_types::pem::{Error, PemObject as _};
use rustls_pki_types::{CertificateDer, PrivateKeyDer};

/// What is wrong with a file.
#[derive(Debug)]
pub(crate) struct Unusable {
    problem: String,
    unread: Option<io::Error>,
}

impl Unusable {
    fn new(problem: String, error: Error) -> Self {
        let unread = match error {
            Error::Io(error) => Some(error),
            _ => None,
        };
        Self { problem, unread }
    }

    /// Why it could not be read, if it is that.
    pub(crate) fn unread(&self) -> Option<&io::Error> {
        self.unread.as_ref()
    }
}

impl fmt::Display for Unusable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.problem)
    }
}

/// The certificates in a file, at least one; `which` says what should stand there.
pub(crate) fn certificates(
    file: io::Result<File>,
    which: &str,
) -> Result<Vec<CertificateDer<'static>>, Unusable> {
    let unreadable = |error| {
        let problem = match is_missing(&error) {
            true => format!("there is no such file; {which}, in PEM, should stand there"),
            false => format!("it cannot be read as certificates in PEM ({error}; {which})"),
        };
        Unusable::new(problem, error)
    };
    let file = file.map_err(Error::Io).map_err(unreadable)?;
    let all: Result<Vec<_>, _> = CertificateDer::pem_reader_iter(file).collect();
    let all = all.map_err(unreadable)?;
    if all.is_empty() {
        let problem = format!("it holds no certificate; {which}, in PEM, should stand there");
        let unread = None;
        return Err(Unusable { problem, unread });
    }
    Ok(all)
}

/// The private key in a file; `which` says what should stand there.
pub(crate) fn private_key(file: io::Result<File>, which: &str) -> Result<PrivateKeyDer<'static>, Unusable> {
    let key = file.map_err(Error::Io).and_then(PrivateKeyDer::from_pem_reader);
    key.map_err(|error| {
        let problem = match is_missing(&error) {
            true => format!("there is no such file; {which}, in PEM, should stand there"),
            false => format!("it holds no private key ({error}); {which}, in PEM, should stand there"),
        };
        Unusable::new(problem, error)
    })
}

fn is_missing(error: &Error) -> bool {
    matches!(error, Error::Io(error) if error.kind() == ErrorKind::NotFound)
}
