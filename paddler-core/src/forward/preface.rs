//! Does the client speak HTTP/2?
//!
//! One that knows beforehand that we do begins with the preface. A client of HTTP/1.1 differs from it within the first four
//! bytes or so.

use std::io;

use bytes::Bytes;
use tokio::io::{AsyncRead, AsyncReadExt as _};

use super::again::Again;

/// With these bytes a client says that it speaks HTTP/2 (RFC 9113, 3.4).
const PREFACE: &[u8; 24] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";

/// The preface, and the head of the frame behind it.
const LENGTH: usize = PREFACE.len() + 9;

/// Where the kind of a frame stands in its head, and which kind has to be the first.
const KIND: (usize, u8) = (PREFACE.len() + 3, 4);

/// What was read, and may be read again.
pub(super) struct Read<I> {
    pub(super) io: Again<I>,
    pub(super) http2: bool,
}

/// Reads until it is clear what the client speaks.
pub(super) async fn preface<I: AsyncRead + Unpin>(mut io: I) -> io::Result<Read<I>> {
    let mut bytes = [0; LENGTH];
    let mut read = 0;
    let http2 = loop {
        match io.read(&mut bytes[read..]).await? {
            // Whoever goes on sees the end, too.
            0 => break false,
            more => read += more,
        }
        if !bytes[..read].starts_with(&PREFACE[..read.min(PREFACE.len())]) {
            break false;
        }
        if read == LENGTH {
            if bytes[KIND.0] != KIND.1 {
                let message = "another frame than SETTINGS follows the preface";
                return Err(io::Error::new(io::ErrorKind::InvalidData, message));
            }
            break true;
        }
    };
    let io = Again::new(Bytes::copy_from_slice(&bytes[..read]), io);
    Ok(Read { io, http2 })
}

#[cfg(test)]
mod tests {
    use tokio::io::AsyncWriteExt as _;

    use super::*;

    #[tokio::test]
    async fn every_byte_is_read_again() {
        let text = |text: &str| text.as_bytes().to_vec();
        let cases = [
            (
                text("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\u{4}\0\0\0\0\0and more"),
                true,
            ),
            (text("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\u{4}\0"), false),
            (text("PRI * HTTP/1.1\r\n\r\n"), false),
            (text("POST / HTTP/1.1\r\n\r\n"), false),
            (text(""), false),
        ];
        for (sent, http2) in cases {
            for split in 0..=sent.len() {
                let (mut client, server) = tokio::io::duplex(1024);
                client.write_all(&sent[..split]).await.unwrap();
                let reading = tokio::spawn(preface(server));
                tokio::task::yield_now().await;
                client.write_all(&sent[split..]).await.unwrap();
                client.shutdown().await.unwrap();
                let mut read = reading.await.unwrap().unwrap();
                assert_eq!(read.http2, http2, "{sent:?}");
                let mut again = Vec::new();
                read.io.read_to_end(&mut again).await.unwrap();
                assert_eq!(again, sent);
            }
        }
    }
}
