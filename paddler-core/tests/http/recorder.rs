//! An upstream that keeps every byte it gets.

use std::sync::{Arc, Mutex};

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::AbortHandle;

use super::oracle::{Rest, Sent, requests};

/// What came over each connection.
type Connections = Arc<Mutex<Vec<Vec<u8>>>>;

/// It answers each whole request with its target, and keeps the connection.
pub(crate) struct Recorder {
    pub(crate) url: String,
    connections: Connections,
    serving: AbortHandle,
}

impl Recorder {
    pub(crate) async fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let connections = Connections::default();
        let kept = connections.clone();
        let serving = tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                let number = {
                    let mut kept = kept.lock().unwrap();
                    kept.push(Vec::new());
                    kept.len() - 1
                };
                tokio::spawn(answer(stream, kept.clone(), number));
            }
        });
        Self {
            url,
            connections,
            serving: serving.abort_handle(),
        }
    }

    /// The requests so far, each of which is one and whole, by the letter of the standard.
    pub(crate) fn requests(&self) -> Vec<Sent> {
        let mut all = Vec::new();
        for bytes in self.connections.lock().unwrap().iter() {
            let (read, rest) = requests(bytes, false);
            assert_eq!(rest, Rest::None, "{}", String::from_utf8_lossy(bytes));
            all.extend(read);
        }
        for request in &all {
            assert_eq!(request.all("host").len(), 1, "{request:?}");
            assert!(request.all("transfer-encoding").is_empty(), "{request:?}");
            // That trailers are taken may be said on.
            assert!(
                request.all("te").iter().all(|te| *te == b"trailers"),
                "{request:?}"
            );
            assert!(
                request.all("connection").iter().all(|named| *named == b"te"),
                "{request:?}"
            );
            for name in ["upgrade", "keep-alive", "expect", "trailer"] {
                assert!(request.all(name).is_empty(), "{name} in {request:?}");
            }
        }
        all
    }
}

impl Drop for Recorder {
    fn drop(&mut self) {
        self.serving.abort();
    }
}

async fn answer(mut stream: TcpStream, kept: Connections, number: usize) {
    let mut answered = 0;
    let mut buffer = vec![0; 1 << 16];
    loop {
        let Ok(read @ 1..) = stream.read(&mut buffer).await else {
            return;
        };
        let all = {
            let mut kept = kept.lock().unwrap();
            kept[number].extend(&buffer[..read]);
            requests(&kept[number], false).0
        };
        for request in &all[answered..] {
            let body = if request.method == "HEAD" {
                ""
            } else {
                &request.target
            };
            let text = format!(
                "HTTP/1.1 200 OK\r\ncontent-length: {}\r\nx-echo: {}\r\n\r\n{body}",
                request.target.len(),
                request.target
            );
            if stream.write_all(text.as_bytes()).await.is_err() {
                return;
            }
        }
        answered = all.len();
    }
}
