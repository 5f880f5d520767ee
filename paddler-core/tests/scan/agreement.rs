//! Does the scanner agree with `serde_json`, however the body is written and cut?

use paddler_core::request::{ScanError, ScanErrorKind, ScanLimits, Scanned};
use proptest::prelude::*;
use serde_json::{Map, Value};

use crate::body::{Writer, apply, body, damage, long_body};
use crate::oracle::{expected, is_json_object};
use crate::{scan, scan_in_all_ways, scan_in_chunks};

/// Errors that are about the meaning of what was read so far; the rest may be JSON or not.
fn is_about_meaning(kind: &ScanErrorKind) -> bool {
    use ScanErrorKind::{AmbiguousModel, RepeatedModel, WrongType};
    matches!(kind, WrongType { .. } | AmbiguousModel | RepeatedModel { .. })
}

/// What was scanned is what `serde_json` has read from there.
fn agrees(
    object: &Map<String, Value>,
    body: &[u8],
    scanned: Result<Scanned, ScanError>,
) -> Result<(), TestCaseError> {
    match scanned {
        Ok(scanned) => prop_assert!(expected(object, body, &scanned).is_some(), "accepted {object:?}"),
        Err(error) => {
            prop_assert!(is_about_meaning(error.kind()), "{error}");
            let nothing = scan("{}").unwrap();
            let verdict = std::panic::catch_unwind(|| expected(object, body, &nothing));
            prop_assert!(matches!(verdict, Ok(None)), "refused {object:?}: {error}");
        }
    }
    Ok(())
}

/// The body in chunks of these sizes, over and over.
fn chunks<'a>(body: &'a [u8], sizes: &[usize]) -> Vec<&'a [u8]> {
    let (mut rest, mut chunks) = (body, Vec::new());
    for size in sizes.iter().cycle() {
        let (chunk, after) = rest.split_at((*size).min(rest.len()));
        chunks.push(chunk);
        rest = after;
        if rest.is_empty() || chunks.len() > 10_000 {
            break;
        }
    }
    chunks.push(rest);
    chunks
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(400) })]

    #[test]
    fn facts_are_those_of_serde_json(object in body(), seed: u64) {
        let body = Writer::write(&object, seed);
        // Writing and reading numbers may round them: compare with what serde_json reads.
        let object: Map<String, Value> = serde_json::from_slice(&body).unwrap();
        agrees(&object, &body, scan_in_all_ways(&body))?;
    }
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(3000) })]

    #[test]
    fn damaged_bodies_are_valid_where_serde_json_says_so(
        object in body(),
        seed: u64,
        damages in prop::collection::vec(damage(), 1..4),
    ) {
        let mut body = Writer::write(&object, seed);
        damages.iter().for_each(|damage| apply(&mut body, damage));
        let whole = scan(&body);
        match &whole {
            Ok(_) => prop_assert!(is_json_object(&body), "accepted {}", body.escape_ascii()),
            Err(error) if is_about_meaning(error.kind()) => {}
            Err(error) => prop_assert!(!is_json_object(&body), "refused {}: {error}", body.escape_ascii()),
        }
        prop_assert_eq!(whole, scan_in_chunks(body.chunks(1), ScanLimits::default()));
    }

    #[test]
    fn facts_of_long_texts_are_those_of_serde_json(
        object in long_body(),
        seed: u64,
        sizes in prop::collection::vec(1usize..300, 1..8),
        damage in damage(),
    ) {
        let mut body = Writer::write(&object, seed);
        let object: Map<String, Value> = serde_json::from_slice(&body).unwrap();
        agrees(&object, &body, scan(&body))?;
        prop_assert_eq!(scan(&body), scan_in_chunks(chunks(&body, &sizes), ScanLimits::default()));
        apply(&mut body, &damage);
        let whole = scan(&body);
        let is_json = !whole.as_ref().is_err_and(|error| !is_about_meaning(error.kind()));
        prop_assert!(is_json == is_json_object(&body) || (is_json && whole.is_err()));
        prop_assert_eq!(&whole, &scan_in_chunks(chunks(&body, &sizes), ScanLimits::default()));
        prop_assert_eq!(whole, scan_in_chunks(body.chunks(1), ScanLimits::default()));
    }

    #[test]
    fn any_cut_gives_the_same(object in body(), seed: u64, sizes in prop::collection::vec(0usize..20, 1..8)) {
        let body = Writer::write(&object, seed);
        let chunks = chunks(&body, &sizes);
        prop_assert_eq!(scan(&body), scan_in_chunks(chunks, ScanLimits::default()));
    }
}
