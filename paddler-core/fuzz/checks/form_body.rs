//! Is a form read the same way however it is cut, and as a reader that knows nothing of this one? Shared by the fuzz target
//! and the tests.

use paddler_core::request::{AskedModel, ScanError, ScanLimits, Scanned, Scanner};

/// The `Content-Type` of the forms that are checked.
pub(crate) const CONTENT_TYPE: &str = "multipart/form-data; boundary=b0-";

/// Reads a form in pieces of these many bytes.
pub(crate) fn in_chunks(body: &[u8], size: usize) -> Result<Scanned, ScanError> {
    let mut scanner = match Scanner::of_form(CONTENT_TYPE, ScanLimits::default()) {
        Ok(scanner) => scanner,
        Err(kind) => panic!("a sound boundary: {kind}"),
    };
    let fed = body.chunks(size).try_for_each(|chunk| scanner.feed(chunk));
    let finished = scanner.finish();
    if fed.is_err() {
        assert_eq!(finished.as_ref().err(), fed.as_ref().err(), "an error stays");
    }
    finished
}

/// Panics if the scan of a form depends on how it is cut, or finds other models than are there.
pub(crate) fn check(body: &[u8]) {
    let whole = in_chunks(body, body.len().max(1));
    for size in [1, 2, 7, body.first().map_or(3, |byte| usize::from(*byte) + 3)] {
        assert_eq!(whole, in_chunks(body, size), "{size} bytes at a time");
    }
    match whole {
        Ok(scanned) => agrees(body, &scanned),
        Err(error) => assert!(error.offset() <= body.len() as u64 && !error.to_string().is_empty()),
    }
}

/// What was found is what a careless reader finds.
fn agrees(body: &[u8], scanned: &Scanned) {
    assert_eq!((scanned.is_form, scanned.body_bytes), (true, body.len() as u64));
    let spans = scanned.model_spans.iter();
    let spans: Vec<_> = spans
        .map(|span| &body[span.start as usize..span.end as usize])
        .collect();
    assert_eq!(spans, careless(body), "{}", body.escape_ascii());
    match &scanned.model {
        AskedModel::Named(name) => assert!(spans.iter().all(|value| *value == name.as_bytes())),
        AskedModel::TooLong { bytes } => assert!(spans.iter().all(|value| value.len() as u64 == *bytes)),
        _ => assert!(spans.iter().all(|value| value.is_empty())),
    }
}

/// The values of all parts that anything would take for `model`: cut at the boundaries, wherever they stand.
fn careless(body: &[u8]) -> Vec<&[u8]> {
    let mut found = Vec::new();
    for part in split(body, b"--b0-") {
        let Some(end) = find(part, b"\r\n\r\n") else {
            continue;
        };
        let (head, value) = (&part[..end], &part[end + 4..]);
        let head = String::from_utf8_lossy(head).to_ascii_lowercase();
        let mut lines = head
            .lines()
            .filter(|line| line.starts_with("content-disposition"));
        if lines.any(names_model) {
            found.push(value.strip_suffix(b"\r\n").unwrap_or(value));
        }
    }
    found
}

/// Whether something calls itself `model` anywhere in this line.
fn names_model(line: &str) -> bool {
    line.match_indices("name=").any(|(at, key)| {
        let (before, after) = (&line[..at], &line[at + key.len()..]);
        let ends = |rest: &str| rest.is_empty() || rest.starts_with([';', ' ', '\t', '"']);
        let value = after.strip_prefix('"').unwrap_or(after);
        before.ends_with([';', ' ', '\t']) && value.strip_prefix("model").is_some_and(ends)
    })
}

fn split<'b>(body: &'b [u8], by: &[u8]) -> Vec<&'b [u8]> {
    let (mut rest, mut parts) = (body, Vec::new());
    while let Some(at) = find(rest, by) {
        parts.push(&rest[..at]);
        rest = &rest[at + by.len()..];
    }
    parts.push(rest);
    parts
}

fn find(bytes: &[u8], what: &[u8]) -> Option<usize> {
    bytes.windows(what.len()).position(|window| window == what)
}
