//! What does a compressed body say?
//!
//! It is decoded for its facts alone and forwarded as it came. What it becomes is never held: it goes through the scanner
//! piece by piece, and may be neither longer than any body nor out of all proportion to what was sent.

use std::collections::VecDeque;
use std::io::{self, Read};

use brotli_decompressor::Decompressor;
use bytes::{Buf, Bytes};
use flate2::read::{MultiGzDecoder, ZlibDecoder};
use ruzstd::decoding::StreamingDecoder;
use tokio::sync::Semaphore;
use tokio::task::yield_now;

use crate::request::{ScanError, ScanLimits, Scanned, Scanner};

/// How much is decoded before others have their turn on this thread: less than a millisecond of work.
const STEP: usize = 64 * 1024;

/// How many bodies of this process are decoded at once. Each may take up to 16 MiB, its window.
static PLACES: Semaphore = Semaphore::const_new(8);

/// The widest window of zstd that is decoded: what HTTP allows (RFC 9659).
const ZSTD_WINDOW: u64 = 8 << 20;

/// How many bytes one byte may become, once they are more than [`FREE`]. Text shrinks to a tenth, and a prompt that repeats
/// itself to a hundredth.
const MOST_FOR_ONE: u64 = 250;

/// As many bytes may come of any body.
const FREE: u64 = 1 << 20;

/// How a body is compressed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Coding {
    Gzip,
    Deflate,
    Zstd,
    Brotli,
}

/// Why a body could not be read.
#[derive(Debug)]
pub(super) enum Unread {
    /// It becomes more than so many bytes.
    TooLarge(u64),
    /// It is not compressed as it says.
    Broken(io::Error),
    /// It is not what it should be once it is decoded.
    Malformed(ScanError),
}

impl Coding {
    /// The coding of this name in `Content-Encoding`, which is in small letters.
    pub(super) fn of(name: &str) -> Option<Self> {
        match name {
            "gzip" | "x-gzip" => Some(Self::Gzip),
            "deflate" => Some(Self::Deflate),
            "zstd" => Some(Self::Zstd),
            "br" => Some(Self::Brotli),
            _ => None,
        }
    }

    fn decoder(self, source: Chunks) -> io::Result<Box<dyn Read + Send>> {
        Ok(match self {
            Self::Gzip => Box::new(MultiGzDecoder::new(source)),
            Self::Deflate => Box::new(ZlibDecoder::new(source)),
            Self::Brotli => Box::new(Decompressor::new(source, 4096)),
            Self::Zstd => Box::new(Zstd {
                frame: Some(zstd_frame(source)?),
            }),
        })
    }
}

/// Scans what a body becomes, which may be at most `limit` bytes.
pub(super) async fn scan(
    coding: Coding,
    chunks: &[Bytes],
    limit: u64,
    limits: ScanLimits,
) -> Result<Scanned, Unread> {
    let sent: u64 = chunks.iter().map(|chunk| chunk.len() as u64).sum();
    let most = limit.min(FREE.max(sent.saturating_mul(MOST_FOR_ONE)));
    // It is never closed.
    let _place = PLACES.acquire().await.ok();
    let mut decoder = coding
        .decoder(Chunks(chunks.iter().cloned().collect()))
        .map_err(Unread::Broken)?;
    let mut scanner = Scanner::new(limits);
    let mut piece = vec![0; STEP];
    let mut decoded = 0;
    loop {
        let bytes = match decoder.read(&mut piece) {
            Ok(0) => break,
            Ok(bytes) => bytes,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
            Err(error) => return Err(Unread::Broken(error)),
        };
        decoded += bytes as u64;
        if decoded > most {
            return Err(Unread::TooLarge(most));
        }
        scanner.feed(&piece[..bytes]).map_err(Unread::Malformed)?;
        yield_now().await;
    }
    let mut scanned = scanner.finish().map_err(Unread::Malformed)?;
    // What is held and forwarded is what was sent, and in that no value stands where it was found.
    scanned.body_bytes = sent;
    scanned.model_spans.clear();
    Ok(scanned)
}

/// Pieces, one after the other.
struct Chunks(VecDeque<Bytes>);

impl Chunks {
    /// Whether nothing is left.
    fn is_empty(&self) -> bool {
        self.0.iter().all(Bytes::is_empty)
    }
}

impl Read for Chunks {
    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        while self.0.front().is_some_and(Bytes::is_empty) {
            self.0.pop_front();
        }
        let Some(first) = self.0.front_mut() else {
            return Ok(0);
        };
        let bytes = buf.len().min(first.len());
        first.copy_to_slice(&mut buf[..bytes]);
        Ok(bytes)
    }
}

type Frame = StreamingDecoder<Chunks, ruzstd::decoding::FrameDecoder>;

fn zstd_frame(source: Chunks) -> io::Result<Frame> {
    StreamingDecoder::new_with_max_window_size(source, ZSTD_WINDOW)
        .map_err(|error| io::Error::new(io::ErrorKind::InvalidData, error.to_string()))
}

/// Frames of zstd, one after the other.
struct Zstd {
    frame: Option<Frame>,
}

impl Read for Zstd {
    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        while let Some(frame) = &mut self.frame {
            let bytes = frame.read(buf)?;
            if bytes > 0 {
                return Ok(bytes);
            }
            let rest = self.frame.take().map(StreamingDecoder::into_inner);
            self.frame = match rest.filter(|rest| !rest.is_empty()) {
                Some(rest) => Some(zstd_frame(rest)?),
                None => None,
            };
        }
        Ok(0)
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write as _;

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
}
