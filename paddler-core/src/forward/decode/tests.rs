use std::future::{Future, poll_fn};
use std::io::Write as _;
use std::pin::pin;

use flate2::Compression;
use flate2::write::{GzEncoder, ZlibEncoder};
use proptest::prelude::*;
use ruzstd::encoding::{CompressionLevel, compress_to_vec};

use super::*;

const CODINGS: [Coding; 4] = [Coding::Gzip, Coding::Deflate, Coding::Zstd, Coding::Brotli];

fn encode(coding: Coding, body: &[u8]) -> Vec<u8> {
    match coding {
        Coding::Gzip => {
            let mut encoder = GzEncoder::new(Vec::new(), Compression::fast());
            encoder.write_all(body).unwrap();
            encoder.finish().unwrap()
        }
        Coding::Deflate => {
            let mut encoder = ZlibEncoder::new(Vec::new(), Compression::fast());
            encoder.write_all(body).unwrap();
            encoder.finish().unwrap()
        }
        Coding::Zstd => compress_to_vec(body, CompressionLevel::Fastest),
        // What comes of it does not matter.
        Coding::Brotli => b"\x0b\x03\x80\x7b\x22\x61\x22\x3a\x31\x7d\x03".to_vec(),
    }
}

fn decoded(coding: Coding, body: &[u8], cut: usize) -> Result<Scanned, Unread> {
    let (first, second) = body.split_at(cut.min(body.len()));
    let chunks = [
        Bytes::copy_from_slice(first),
        Bytes::new(),
        Bytes::copy_from_slice(second),
    ];
    let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
    runtime.block_on(scan(coding, &chunks, 1 << 20, ScanLimits::default()))
}

#[test]
fn the_length_is_that_of_what_was_sent() {
    let body = br#"{"model":"a","prompt":"Hi"}"#;
    for coding in [Coding::Gzip, Coding::Deflate, Coding::Zstd] {
        let encoded = encode(coding, body);
        let scanned = decoded(coding, &encoded, 3).unwrap();
        assert_eq!(scanned.body_bytes, encoded.len() as u64);
        assert!(scanned.model_spans.is_empty() && scanned.model.name().is_some());
    }
    let brotli = decoded(Coding::Brotli, &encode(Coding::Brotli, b""), 5);
    assert!(brotli.is_ok_and(|scanned| scanned.body_bytes == 11));
}

#[test]
fn a_window_wider_than_http_has_is_not_made() {
    // A frame that wants 128 MiB.
    let frame = [0x28, 0xb5, 0x2f, 0xfd, 0x00, 0x88, 0x01, 0x00, 0x00];
    assert!(matches!(decoded(Coding::Zstd, &frame, 0), Err(Unread::Broken(_))));
}

/// What comes of a body, and how often others had their turn meanwhile.
fn turns(coding: Coding, body: Vec<u8>) -> (Result<Scanned, Unread>, usize) {
    let chunks = [Bytes::from(body)];
    let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
    runtime.block_on(async {
        let mut turns = 0;
        let mut scanning = pin!(scan(coding, &chunks, 1 << 20, ScanLimits::default()));
        let scanned = poll_fn(|cx| {
            turns += 1;
            scanning.as_mut().poll(cx)
        });
        (scanned.await, turns)
    })
}

#[test]
fn what_becomes_nothing_takes_no_long_turn() {
    // Stored blocks of nothing.
    let mut deflate = vec![0x78, 0x9c];
    deflate.extend([0u8, 0, 0, 0xff, 0xff].repeat(1 << 16));
    let least = deflate.len() / INPUT;
    let (scanned, turns_taken) = turns(Coding::Deflate, deflate);
    assert!(matches!(scanned, Err(Unread::Broken(_))));
    assert!(turns_taken > least, "{turns_taken}");
    // One frame of as many empty blocks.
    let mut zstd = vec![0x28, 0xb5, 0x2f, 0xfd, 0x20, 0x00];
    zstd.extend([0u8, 0, 0].repeat(1000));
    zstd.extend([1, 0, 0]);
    let (_, turns_taken) = turns(Coding::Zstd, zstd);
    assert!(turns_taken > 1000, "{turns_taken}");
}

#[test]
fn parts_that_are_empty_are_few() {
    let body = br#"{"model":"a","prompt":"Hi"}"#;
    for coding in [Coding::Gzip, Coding::Zstd] {
        let (empty, last) = (encode(coding, b""), encode(coding, body));
        let with = |count: usize| turns(coding, [empty.repeat(count), last.clone()].concat());
        let (scanned, turns_taken) = with(1024);
        assert!(
            scanned.is_ok_and(|scanned| scanned.model.name().is_some()),
            "{coding:?}"
        );
        assert!(turns_taken > 1024, "{coding:?}: {turns_taken}");
        assert!(matches!(with(1025).0, Err(Unread::Broken(_))), "{coding:?}");
        let halves = body.split_at(9);
        let (scanned, _) = turns(
            coding,
            [encode(coding, halves.0), encode(coding, halves.1)].concat(),
        );
        assert!(
            scanned.is_ok_and(|scanned| scanned.model.name().is_some()),
            "{coding:?}"
        );
    }
}

#[test]
fn a_window_of_brotli_wider_than_http_has_is_not_made() {
    for first in [0x11, 0x91] {
        let (scanned, _) = turns(Coding::Brotli, vec![first, 0x1e, 0x03]);
        assert!(matches!(scanned, Err(Unread::Broken(error)) if error.to_string().contains("window")));
    }
}

proptest! {
    #[test]
    fn any_bytes_are_read_or_refused(bytes in prop::collection::vec(any::<u8>(), 0..400), cut in 0usize..400) {
        for coding in CODINGS {
            // It need only come back.
            decoded(coding, &bytes, cut).ok();
        }
    }

    #[test]
    fn damage_is_borne(at in any::<prop::sample::Index>(), flip in 1u8.., text in "[a-z ]{0,300}", cut in 0usize..300) {
        let body = format!("{{\"model\":\"m\",\"prompt\":\"{text}\"}}");
        for coding in CODINGS {
            let mut encoded = encode(coding, body.as_bytes());
            let whole = decoded(coding, &encoded, cut);
            prop_assert!(whole.is_ok(), "{coding:?}: {whole:?}");
            let at = at.index(encoded.len());
            encoded[at] ^= flip;
            decoded(coding, &encoded, cut).ok();
        }
    }
}
