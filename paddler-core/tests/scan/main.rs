//! Are requests read and classed by what an engine would make of them?

#![allow(
    clippy::unwrap_used,
    reason = "helpers of tests may panic like the tests themselves"
)]

mod agreement;
mod body;
mod corpus;
mod form;
mod oddities;
mod oracle;
mod routes;

use paddler_core::request::{ScanError, ScanErrorKind, ScanLimits, Scanned, Scanner};

fn scan(body: impl AsRef<[u8]>) -> Result<Scanned, ScanError> {
    Scanner::scan(body.as_ref(), ScanLimits::default())
}

fn scan_in_chunks<'a>(
    chunks: impl IntoIterator<Item = &'a [u8]>,
    limits: ScanLimits,
) -> Result<Scanned, ScanError> {
    let mut scanner = Scanner::new(limits);
    for chunk in chunks {
        scanner.feed(chunk)?;
    }
    scanner.finish()
}

/// Scans in all ways of cutting in two and byte by byte, and checks that they agree.
fn scan_in_all_ways(body: &[u8]) -> Result<Scanned, ScanError> {
    let limits = ScanLimits::default();
    let whole = Scanner::scan(body, limits);
    assert_eq!(
        whole,
        scan_in_chunks(body.chunks(1), limits),
        "byte by byte: {:?}",
        body.escape_ascii().to_string()
    );
    for cut in 0..=body.len() {
        let (before, after) = body.split_at(cut);
        assert_eq!(
            whole,
            scan_in_chunks([before, after], limits),
            "cut at {cut}: {}",
            body.escape_ascii()
        );
    }
    whole
}

/// What a valid body says.
fn accepted(body: &str) -> Scanned {
    scan_in_all_ways(body.as_bytes()).unwrap()
}

/// The kind of error, and the byte where it is.
fn fault(body: impl AsRef<[u8]>) -> (ScanErrorKind, u64) {
    let error = scan_in_all_ways(body.as_ref()).unwrap_err();
    (error.kind().clone(), error.offset())
}
