//! What does a compressed body say?
//!
//! It is decoded for its facts alone and forwarded as it came. What it becomes is never held: it goes through the scanner
//! piece by piece, and may be neither longer than any body nor out of all proportion to what was sent.

use std::collections::VecDeque;
use std::io::{self, BufRead, Read};

use brotli_decompressor::Decompressor;
use bytes::{Buf, Bytes};
use flate2::bufread::{GzDecoder, ZlibDecoder};
use ruzstd::decoding::{BlockDecodingStrategy, FrameDecoder};
use tokio::sync::Semaphore;
use tokio::task::yield_now;

use crate::request::{ScanError, ScanLimits, Scanned, Scanner};

/// How much is decoded before others have their turn on this thread: less than a millisecond of work.
const STEP: usize = 64 * 1024;

/// How much is taken in before others have their turn: what becomes nothing is work as well.
const INPUT: usize = 16 * 1024;

/// How many members of gzip, or frames of zstd, may become nothing. Each costs tens of microseconds, and a few bytes.
const MOST_EMPTY: u32 = 1024;

/// How many bodies of this process are decoded at once. Each may take up to 16 MiB, its window.
static PLACES: Semaphore = Semaphore::const_new(8);

/// The widest window of zstd that is decoded: what HTTP allows (RFC 9659).
const ZSTD_WINDOW: u64 = 8 << 20;

/// How a stream of brotli begins that wants a window of up to 1 GiB: an extension that RFC 7932 does not have.
const LARGE_WINDOW: u8 = 0x11;

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

    fn decoder(self, source: Chunks) -> Box<dyn Read + Send> {
        match self {
            Self::Gzip => Box::new(Gzip {
                member: Some(GzDecoder::new(source)),
                parts: Parts::default(),
            }),
            Self::Deflate => Box::new(ZlibDecoder::new(source)),
            Self::Brotli => Box::new(Decompressor::new(source, 4096)),
            Self::Zstd => Box::new(Zstd::new(source)),
        }
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
    let first = chunks.iter().find_map(|chunk| chunk.first());
    if coding == Coding::Brotli && first.is_some_and(|byte| byte & 0x7f == LARGE_WINDOW) {
        let message = "its window is larger than HTTP has (RFC 7932)";
        return Err(Unread::Broken(io::Error::new(
            io::ErrorKind::InvalidData,
            message,
        )));
    }
    let mut decoder = coding.decoder(Chunks::new(chunks));
    let mut scanner = Scanner::new(limits);
    let mut piece = vec![0; STEP];
    let mut decoded = 0;
    loop {
        let bytes = match decoder.read(&mut piece) {
            Ok(0) => break,
            Ok(bytes) => bytes,
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                yield_now().await;
                continue;
            }
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

/// Pieces, one after the other, with a pause after each [`INPUT`] bytes: decoders pass it on, and go on where they were.
struct Chunks {
    pieces: VecDeque<Bytes>,
    until_pause: usize,
}

impl Chunks {
    fn new(pieces: &[Bytes]) -> Self {
        Self {
            pieces: pieces.iter().filter(|piece| !piece.is_empty()).cloned().collect(),
            until_pause: INPUT,
        }
    }

    /// Whether nothing is left.
    fn is_empty(&self) -> bool {
        self.pieces.is_empty()
    }

    /// What can be taken without a pause.
    fn at_hand(&self, most: usize) -> &[u8] {
        let first = self.pieces.front().map_or(&[][..], |piece| &piece[..]);
        &first[..first.len().min(most)]
    }

    fn take(&mut self, bytes: usize) {
        if let Some(first) = self.pieces.front_mut() {
            first.advance(bytes.min(first.len()));
            if first.is_empty() {
                self.pieces.pop_front();
            }
        }
    }

    /// Reads without pauses.
    fn read_on(&mut self, buf: &mut [u8]) -> usize {
        let at_hand = self.at_hand(buf.len());
        let bytes = at_hand.len();
        buf[..bytes].copy_from_slice(at_hand);
        self.take(bytes);
        bytes
    }
}

impl BufRead for Chunks {
    fn fill_buf(&mut self) -> io::Result<&[u8]> {
        if self.until_pause == 0 && !self.is_empty() {
            self.until_pause = INPUT;
            return Err(pause());
        }
        Ok(self.at_hand(self.until_pause))
    }

    fn consume(&mut self, bytes: usize) {
        self.until_pause = self.until_pause.saturating_sub(bytes);
        self.take(bytes);
    }
}

impl Read for Chunks {
    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        let bytes = self.fill_buf()?.len().min(buf.len());
        self.until_pause -= bytes;
        Ok(self.read_on(&mut buf[..bytes]))
    }
}

/// Others have their turn now.
fn pause() -> io::Error {
    io::ErrorKind::WouldBlock.into()
}

/// Counts the parts of a body, members or frames.
#[derive(Default)]
struct Parts {
    empty: u32,
    /// Whether something has come of this one.
    made: bool,
}

impl Parts {
    /// This one is at its end.
    fn end(&mut self) -> io::Result<()> {
        self.empty += u32::from(!self.made);
        self.made = false;
        if self.empty <= MOST_EMPTY {
            return Ok(());
        }
        let message = format!("more than {MOST_EMPTY} of its parts are empty");
        Err(io::Error::new(io::ErrorKind::InvalidData, message))
    }
}

/// Members of gzip, one after the other.
struct Gzip {
    member: Option<GzDecoder<Chunks>>,
    parts: Parts,
}

impl Read for Gzip {
    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        let Some(member) = &mut self.member else {
            return Ok(0);
        };
        let bytes = member.read(buf)?;
        if bytes > 0 {
            self.parts.made = true;
            return Ok(bytes);
        }
        self.parts.end()?;
        let rest = self.member.take().map(GzDecoder::into_inner);
        let Some(rest) = rest.filter(|rest| !rest.is_empty()) else {
            return Ok(0);
        };
        self.member = Some(GzDecoder::new(rest));
        Err(pause())
    }
}

/// Frames of zstd, one after the other.
struct Zstd {
    source: Chunks,
    frame: FrameDecoder,
    within: bool,
    parts: Parts,
}

impl Zstd {
    fn new(source: Chunks) -> Self {
        let mut frame = FrameDecoder::new();
        frame.set_max_window_size(ZSTD_WINDOW);
        Self {
            source,
            frame,
            within: false,
            parts: Parts::default(),
        }
    }
}

/// A block may not be left half way, so it is read without pauses: none is longer than 128 KiB.
struct ReadOn<'a>(&'a mut Chunks);

impl Read for ReadOn<'_> {
    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        Ok(self.0.read_on(buf))
    }
}

impl Read for Zstd {
    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        let invalid =
            |error: &dyn std::error::Error| io::Error::new(io::ErrorKind::InvalidData, error.to_string());
        if !self.within {
            self.frame
                .reset(ReadOn(&mut self.source))
                .map_err(|error| invalid(&error))?;
            self.within = true;
        }
        if self.frame.can_collect() == 0 && !self.frame.is_finished() {
            self.frame
                .decode_blocks(ReadOn(&mut self.source), BlockDecodingStrategy::UptoBlocks(1))
                .map_err(|error| invalid(&error))?;
        }
        let bytes = self.frame.read(buf)?;
        if bytes > 0 {
            self.parts.made = true;
            return Ok(bytes);
        }
        if self.frame.is_finished() {
            self.parts.end()?;
            if self.source.is_empty() {
                return Ok(0);
            }
            self.within = false;
        }
        Err(pause())
    }
}

#[cfg(test)]
mod tests;
