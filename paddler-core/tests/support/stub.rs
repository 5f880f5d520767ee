//! An upstream that answers with exactly these bytes.

use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::AbortHandle;
use tokio::time::sleep;

/// What a stub does with a request once it has read all of it.
#[derive(Clone)]
pub(crate) enum Do {
    /// Writes these bytes and keeps the connection.
    Say(Vec<u8>),
    /// Writes these bytes and closes.
    SayAndClose(Vec<u8>),
    /// Writes these bytes once two requests have come.
    SayToTwo(Vec<u8>),
    /// Writes the one at once, and the other once two requests have come.
    SayRestToTwo(Vec<u8>, Vec<u8>),
    /// Writes each of these by itself.
    SayInPieces(Vec<Vec<u8>>),
    /// Writes these bytes if they answer the first request of a connection, and closes all other connections.
    SayOnFresh(Vec<u8>),
    /// Writes the one to a POST, and the other to anything else.
    SayToPost(Vec<u8>, Vec<u8>),
    /// Closes.
    Close,
    /// Nothing, for ever.
    Stall,
}

impl Do {
    pub(crate) fn say(text: &str) -> Self {
        Self::Say(text.as_bytes().to_vec())
    }

    pub(crate) fn ok(text: &str) -> Self {
        Self::say(&format!(
            "HTTP/1.1 200 OK\r\ncontent-length: {}\r\n\r\n{text}",
            text.len()
        ))
    }
}

/// It does one thing after the other, over all its connections, and the last of them for ever.
pub(crate) struct Stub {
    pub(crate) url: String,
    seen: Arc<Mutex<Vec<Vec<u8>>>>,
    connections: Arc<AtomicUsize>,
    serving: AbortHandle,
}

impl Stub {
    pub(crate) async fn start(script: impl IntoIterator<Item = Do>) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let seen = Arc::new(Mutex::new(Vec::new()));
        let script: Arc<[Do]> = script.into_iter().collect();
        let connections = Arc::new(AtomicUsize::new(0));
        let (log, count) = (seen.clone(), connections.clone());
        let serving = tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                count.fetch_add(1, Relaxed);
                tokio::spawn(serve(stream, script.clone(), log.clone()));
            }
        });
        Self {
            url,
            seen,
            connections,
            serving: serving.abort_handle(),
        }
    }

    /// One that answers after the first bytes of a request, and reads no more of it.
    pub(crate) async fn early(answer: &'static str) -> Early {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let serving = tokio::spawn(async move {
            let (mut stream, _) = listener.accept().await.unwrap();
            stream.read_exact(&mut [0; 200]).await.unwrap();
            stream.write_all(answer.as_bytes()).await.unwrap();
            (stream, listener)
        });
        Early { url, serving }
    }

    /// How many connections were made to it.
    pub(crate) fn connections(&self) -> usize {
        self.connections.load(Relaxed)
    }

    /// The requests so far, byte by byte.
    pub(crate) fn seen(&self) -> Vec<String> {
        self.seen
            .lock()
            .unwrap()
            .iter()
            .map(|bytes| String::from_utf8_lossy(bytes).into_owned())
            .collect()
    }
}

/// See [`Stub::early`].
pub(crate) struct Early {
    pub(crate) url: String,
    serving: tokio::task::JoinHandle<(TcpStream, TcpListener)>,
}

impl Early {
    /// The connection over which it has answered, and where the next ones come.
    pub(crate) async fn answered(self) -> (TcpStream, TcpListener) {
        self.serving.await.unwrap()
    }

    /// Waits until the other end has closed the connection: what was written so far can be read to its end.
    pub(crate) async fn closed(self) {
        let (stream, _) = self.answered().await;
        read_to_end(stream).await;
    }
}

impl Drop for Stub {
    fn drop(&mut self) {
        self.serving.abort();
    }
}

/// How much more comes before the other end closes the connection.
pub(crate) async fn read_to_end(mut stream: TcpStream) -> usize {
    let (mut buffer, mut many) = (vec![0; 1 << 16], 0);
    let end = tokio::time::timeout(super::client::HANG, async {
        while let Ok(some @ 1..) = stream.read(&mut buffer).await {
            many += some;
        }
    });
    end.await.expect("it was not closed");
    many
}

async fn serve(mut stream: TcpStream, script: Arc<[Do]>, seen: Arc<Mutex<Vec<Vec<u8>>>>) {
    let mut buffer = Vec::new();
    for turn in 0.. {
        while length(&buffer).is_none_or(|length| buffer.len() < length) {
            if !matches!(stream.read_buf(&mut buffer).await, Ok(1..)) {
                return;
            }
        }
        let is_post = buffer.starts_with(b"POST ");
        let number = {
            let mut seen = seen.lock().unwrap();
            seen.push(std::mem::take(&mut buffer));
            seen.len() - 1
        };
        match &script[number.min(script.len() - 1)] {
            Do::Say(bytes) => stream.write_all(bytes).await.unwrap(),
            Do::SayAndClose(bytes) => return stream.write_all(bytes).await.unwrap(),
            Do::SayToPost(bytes, others) => {
                let bytes = if is_post { bytes } else { others };
                stream.write_all(bytes).await.unwrap();
            }
            Do::SayToTwo(bytes) => {
                while seen.lock().unwrap().len() < 2 {
                    sleep(Duration::from_millis(1)).await;
                }
                stream.write_all(bytes).await.unwrap();
            }
            Do::SayRestToTwo(bytes, rest) => {
                stream.write_all(bytes).await.unwrap();
                while seen.lock().unwrap().len() < 2 {
                    sleep(Duration::from_millis(1)).await;
                }
                stream.write_all(rest).await.unwrap();
            }
            Do::SayInPieces(pieces) => {
                for piece in pieces {
                    stream.write_all(piece).await.unwrap();
                    sleep(Duration::from_millis(1)).await;
                }
            }
            Do::SayOnFresh(bytes) if turn == 0 => stream.write_all(bytes).await.unwrap(),
            Do::SayOnFresh(_) | Do::Close => return,
            Do::Stall => {
                let mut rest = Vec::new();
                drop(stream.read_to_end(&mut rest).await);
                return;
            }
        }
    }
}

/// How long the request at the front is, once its head is here.
fn length(bytes: &[u8]) -> Option<usize> {
    let head = bytes.windows(4).position(|window| window == b"\r\n\r\n")? + 4;
    let text = String::from_utf8_lossy(&bytes[..head]).to_ascii_lowercase();
    let body = text
        .lines()
        .find_map(|line| line.strip_prefix("content-length: ")?.parse::<usize>().ok());
    Some(head + body.unwrap_or(0))
}
