//! Is a body read the same way however it is cut? Shared by the fuzz target and the tests over the corpus.

use paddler_core::Moment;
use paddler_core::request::{RequestFacts, Route, ScanError, ScanLimits, Scanned, Scanner};

/// Panics if the scan of `body` depends on how it is cut, or contradicts itself.
pub(crate) fn check(body: &[u8]) {
    let limits = ScanLimits::default();
    let whole = Scanner::scan(body, limits);
    assert_eq!(whole, in_chunks(body, 1, limits), "one byte at a time");
    // The first byte says where to cut, so that a fuzzer can choose.
    let size = body.first().map_or(1, |byte| usize::from(*byte) + 2);
    assert_eq!(whole, in_chunks(body, size, limits), "{size} bytes at a time");
    match whole {
        Ok(scanned) => check_scanned(body, &scanned),
        Err(error) => {
            assert!(error.offset() <= body.len() as u64);
            assert!(error.line() >= 1 && error.column() >= 1);
            assert!(!error.to_string().is_empty());
        }
    }
}

fn in_chunks(body: &[u8], size: usize, limits: ScanLimits) -> Result<Scanned, ScanError> {
    let mut scanner = Scanner::new(limits);
    let fed = body.chunks(size).try_for_each(|chunk| scanner.feed(chunk));
    let finished = scanner.finish();
    if fed.is_err() {
        assert_eq!(finished.as_ref().err(), fed.as_ref().err(), "an error stays");
    }
    finished
}

fn check_scanned(body: &[u8], scanned: &Scanned) {
    assert_eq!(scanned.body_bytes, body.len() as u64);
    // Half of a surrogate pair is six bytes and counts as three: text never grows by being decoded.
    assert!(scanned.prompt_bytes <= scanned.body_bytes);
    for span in &scanned.model_spans {
        let value = &body[span.start as usize..span.end as usize];
        assert!(value == b"null" || (value.len() >= 2 && value.starts_with(b"\"") && value.ends_with(b"\"")));
    }
    for (method, path) in [
        ("POST", "/v1/completions"),
        ("POST", "/v1/responses"),
        ("POST", "/else"),
        ("GET", "/"),
    ] {
        let Ok(route) = Route::of(method, path) else {
            unreachable!("these paths are normal")
        };
        if let Ok(facts) = RequestFacts::from_scan(&route, scanned, Moment::ZERO, 0) {
            let facts = facts.as_facts();
            assert_eq!(facts.weight(facts.weight), facts, "a weight within its bounds");
        }
    }
}
