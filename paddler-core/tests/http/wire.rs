//! HTTP/2 by hand: frames, and headers in HPACK's plainest form.

use std::net::SocketAddr;

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;

pub(crate) const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Frame {
    pub(crate) kind: u8,
    pub(crate) flags: u8,
    pub(crate) stream: u32,
    pub(crate) payload: Vec<u8>,
}

pub(crate) fn frame(kind: u8, flags: u8, stream: u32, payload: &[u8]) -> Vec<u8> {
    let length = u32::try_from(payload.len()).unwrap().to_be_bytes();
    let mut bytes = length[1..].to_vec();
    bytes.extend([kind, flags]);
    bytes.extend(stream.to_be_bytes());
    bytes.extend(payload);
    bytes
}

pub(crate) fn settings(payload: &[u8]) -> Vec<u8> {
    frame(4, 0, 0, payload)
}

pub(crate) fn headers(stream: u32, flags: u8, block: &[u8]) -> Vec<u8> {
    frame(1, flags, stream, block)
}

pub(crate) fn data(stream: u32, flags: u8, payload: &[u8]) -> Vec<u8> {
    frame(0, flags, stream, payload)
}

/// A header that is not kept, in plain letters. Each character is a byte.
pub(crate) fn literal(name: &str, value: &str) -> Vec<u8> {
    let mut bytes = vec![0];
    for text in [name, value] {
        assert!(text.len() < 127, "it would take a longer length");
        bytes.push(u8::try_from(text.len()).unwrap());
        bytes.extend(text.bytes());
    }
    bytes
}

/// GET with this path, of the host x.
pub(crate) fn block(path: &str) -> Vec<u8> {
    let mut bytes = vec![0x82, 0x86, 0x04, u8::try_from(path.len()).unwrap()];
    bytes.extend(path.bytes());
    bytes.extend([0x01, 1, b'x']);
    bytes
}

/// A whole request without a body.
pub(crate) fn get(stream: u32) -> Vec<u8> {
    headers(stream, 5, &block("/a"))
}

/// The head of a request with a body.
pub(crate) fn post(stream: u32) -> Vec<u8> {
    let mut block = block("/a");
    block[0] = 0x83;
    headers(stream, 4, &block)
}

/// The status that a block begins with.
pub(crate) fn status(block: &[u8]) -> Option<u16> {
    const INDEXED: [u16; 7] = [200, 204, 206, 304, 400, 404, 500];
    match *block {
        [indexed @ 0x88..=0x8e, ..] => Some(INDEXED[usize::from(indexed - 0x88)]),
        // The name is in the table, and the value follows, in plain letters or in Huffman's.
        [0x48..=0x4e | 0x08..=0x0e, length, ref rest @ ..] if length < 0x80 => {
            std::str::from_utf8(rest.get(..usize::from(length))?)
                .ok()?
                .parse()
                .ok()
        }
        [0x48..=0x4e | 0x08..=0x0e, length, ref rest @ ..] => digits(rest.get(..usize::from(length & 0x7f))?),
        _ => None,
    }
}

/// Three digits in Huffman's code (RFC 7541, B): 0 to 2 have five bits, the others six.
fn digits(bytes: &[u8]) -> Option<u16> {
    let bits: Vec<u16> = bytes
        .iter()
        .flat_map(|byte| (0..8).rev().map(move |at| u16::from(byte >> at & 1)))
        .collect();
    let (mut at, mut number) = (0, 0);
    for _ in 0..3 {
        let value = |length: usize| {
            Some(
                bits.get(at..at + length)?
                    .iter()
                    .fold(0, |sum, bit| sum * 2 + bit),
            )
        };
        let digit = match value(5)? {
            low @ 0..=2 => {
                at += 5;
                low
            }
            _ => {
                let high = value(6)?;
                at += 6;
                high.checked_sub(25)? + 3
            }
        };
        number = number * 10 + digit;
    }
    Some(number)
}

#[test]
fn a_status_is_read_in_each_form() {
    assert_eq!(status(&[0x88]), Some(200));
    assert_eq!(status(&[0x48, 3, b'4', b'0', b'5']), Some(405));
    // 4 0 3 in Huffman's code: 011010 00000 011001, and ones to the end.
    assert_eq!(
        status(&[0x48, 0x83, 0b0110_1000, 0b0000_1100, 0b1111_1111]),
        Some(403)
    );
}

/// A bare connection.
pub(crate) struct Raw {
    stream: TcpStream,
    buffer: Vec<u8>,
}

impl Raw {
    pub(crate) async fn connect(addr: SocketAddr) -> Self {
        Self {
            stream: TcpStream::connect(addr).await.unwrap(),
            buffer: Vec::new(),
        }
    }

    /// One on which both ends have said and understood how they speak.
    pub(crate) async fn handshake(addr: SocketAddr) -> Self {
        let mut raw = Self::connect(addr).await;
        raw.write(PREFACE).await;
        raw.write(&settings(&[])).await;
        let (mut said, mut understood) = (false, false);
        while !(said && understood) {
            let frame = raw.frame().await.expect("it ends at once");
            match (frame.kind, frame.flags) {
                (4, 0) => said = true,
                (4, 1) => understood = true,
                _ => {}
            }
        }
        raw.write(&frame(4, 1, 0, &[])).await;
        raw
    }

    /// Writes to one who may have gone.
    pub(crate) async fn write(&mut self, bytes: &[u8]) {
        drop(self.stream.write_all(bytes).await);
    }

    /// The next frame; `None`: the connection has ended.
    pub(crate) async fn frame(&mut self) -> Option<Frame> {
        loop {
            if let Some(length) = self.buffer.get(..3) {
                let whole = 9
                    + usize::from(length[0]) * 65_536
                    + usize::from(length[1]) * 256
                    + usize::from(length[2]);
                if self.buffer.len() >= whole {
                    let bytes: Vec<u8> = self.buffer.drain(..whole).collect();
                    let stream = u32::from_be_bytes([bytes[5], bytes[6], bytes[7], bytes[8]]);
                    return Some(Frame {
                        kind: bytes[3],
                        flags: bytes[4],
                        stream,
                        payload: bytes[9..].to_vec(),
                    });
                }
            }
            if !matches!(self.stream.read_buf(&mut self.buffer).await, Ok(1..)) {
                return None;
            }
        }
    }
}
