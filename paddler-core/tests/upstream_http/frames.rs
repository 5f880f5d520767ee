//! An upstream that speaks HTTP/2 frame by frame, so that it can do what no library lets it.

use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use paddler_core::upstream::http::Io;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpListener;
use tokio::task::{AbortHandle, JoinSet};

pub(crate) const DATA: u8 = 0;
pub(crate) const HEADERS: u8 = 1;
pub(crate) const RESET: u8 = 3;
pub(crate) const SETTINGS: u8 = 4;
const PING: u8 = 6;
const GOAWAY: u8 = 7;
pub(crate) const WINDOW_UPDATE: u8 = 8;

const END_STREAM: u8 = 1;
const ACK: u8 = 1;
const END_HEADERS: u8 = 4;

/// What it does with a request.
#[derive(Clone, Debug)]
pub(crate) enum Do {
    /// 200, and nothing more.
    Ok,
    /// The head, these bytes, and no end.
    Begin(&'static str),
    /// The head, these bytes, and the trailer `x-end: 1`.
    Whole(&'static str),
    /// `RST_STREAM` with this code.
    Reset(u32),
    /// `GOAWAY`: this request and all after it were not read.
    GoAway,
    /// Closes the connection.
    Close,
    /// The same, after so long.
    CloseAfter(Duration),
    Nothing,
    /// Nothing, nor anything else from now on.
    Mute,
}

/// A frame that came.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Frame {
    pub(crate) kind: u8,
    pub(crate) flags: u8,
    pub(crate) stream: u32,
    pub(crate) payload: Vec<u8>,
}

impl Frame {
    fn new(kind: u8, flags: u8, stream: u32, payload: &[u8]) -> Self {
        let payload = payload.to_vec();
        Self {
            kind,
            flags,
            stream,
            payload,
        }
    }

    fn bytes(&self) -> Vec<u8> {
        let mut bytes = (self.payload.len() as u32).to_be_bytes()[1..].to_vec();
        bytes.extend([self.kind, self.flags]);
        bytes.extend(self.stream.to_be_bytes());
        bytes.extend(&self.payload);
        bytes
    }

    async fn read(io: &mut (impl Io + ?Sized)) -> Option<Self> {
        let mut head = [0; 9];
        io.read_exact(&mut head).await.ok()?;
        let mut payload = vec![0; u32::from_be_bytes([0, head[0], head[1], head[2]]) as usize];
        io.read_exact(&mut payload).await.ok()?;
        let stream = u32::from_be_bytes([head[5], head[6], head[7], head[8]]);
        Some(Self {
            kind: head[3],
            flags: head[4],
            stream,
            payload,
        })
    }

    /// What a `SETTINGS` frame says of this.
    pub(crate) fn setting(&self, id: u16) -> Option<u32> {
        let mut pairs = self.payload.chunks_exact(6);
        pairs.find_map(|pair| {
            (u16::from_be_bytes([pair[0], pair[1]]) == id)
                .then(|| u32::from_be_bytes([pair[2], pair[3], pair[4], pair[5]]))
        })
    }
}

/// It does one thing after the other, over all its connections, and the last of them for ever.
pub(crate) struct Frames {
    pub(crate) authority: String,
    seen: Arc<Mutex<Vec<Frame>>>,
    connections: Arc<AtomicUsize>,
    open: Arc<AtomicUsize>,
    serving: AbortHandle,
}

impl Frames {
    /// `streams`: how many it allows at once.
    pub(crate) async fn start(streams: u32, script: impl IntoIterator<Item = Do>) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let authority = listener.local_addr().unwrap().to_string();
        let seen = Arc::new(Mutex::new(Vec::new()));
        let connections = Arc::new(AtomicUsize::new(0));
        let turn = Arc::new(AtomicUsize::new(0));
        let script: Arc<[Do]> = script.into_iter().collect();
        let open = Arc::new(AtomicUsize::new(0));
        let (log, count, now) = (seen.clone(), connections.clone(), open.clone());
        let serving = tokio::spawn(async move {
            let mut tasks = JoinSet::new();
            while let Ok((io, _)) = listener.accept().await {
                count.fetch_add(1, Relaxed);
                now.fetch_add(1, Relaxed);
                let serving = serve(io, streams, script.clone(), turn.clone(), log.clone());
                let now = now.clone();
                tasks.spawn(async move {
                    serving.await;
                    now.fetch_sub(1, Relaxed);
                });
            }
        });
        Self {
            authority,
            seen,
            connections,
            open,
            serving: serving.abort_handle(),
        }
    }

    pub(crate) fn url(&self) -> String {
        format!("http://{}", self.authority)
    }

    pub(crate) fn connections(&self) -> usize {
        self.connections.load(Relaxed)
    }

    /// How many connections to it are open.
    pub(crate) fn open(&self) -> usize {
        self.open.load(Relaxed)
    }

    /// The frames of this kind that have come.
    pub(crate) fn seen(&self, kind: u8) -> Vec<Frame> {
        let seen = self.seen.lock().unwrap();
        seen.iter().filter(|frame| frame.kind == kind).cloned().collect()
    }
}

impl Drop for Frames {
    fn drop(&mut self) {
        self.serving.abort();
    }
}

/// `:status: 200`, as the standard's own table has it.
const OK: &[u8] = &[0x88];
/// `x-end: 1`, written out.
const TRAILER: &[u8] = b"\x00\x05x-end\x011";

pub(crate) async fn serve(
    mut io: impl Io,
    streams: u32,
    script: Arc<[Do]>,
    turn: Arc<AtomicUsize>,
    seen: Arc<Mutex<Vec<Frame>>>,
) {
    let mut preface = [0; 24];
    if io.read_exact(&mut preface).await.is_err() || !preface.starts_with(b"PRI * HTTP/2.0") {
        return;
    }
    let mut settings = 3u16.to_be_bytes().to_vec();
    settings.extend(streams.to_be_bytes());
    let mut out = Frame::new(SETTINGS, 0, 0, &settings).bytes();
    loop {
        if io.write_all(&out).await.is_err() {
            return;
        }
        out.clear();
        let Some(frame) = Frame::read(&mut io).await else {
            return;
        };
        let (kind, flags, stream) = (frame.kind, frame.flags, frame.stream);
        let payload = frame.payload.clone();
        seen.lock().unwrap().push(frame);
        let mut say = |kind, flags, payload: &[u8]| {
            out.extend(Frame::new(kind, flags, stream, payload).bytes());
        };
        match kind {
            SETTINGS | PING if flags & ACK == 0 => say(kind, ACK, if kind == PING { &payload } else { &[] }),
            HEADERS => {
                let turn = turn.fetch_add(1, Relaxed).min(script.len() - 1);
                match &script[turn] {
                    Do::Ok => say(HEADERS, END_HEADERS | END_STREAM, OK),
                    Do::Begin(text) => {
                        say(HEADERS, END_HEADERS, OK);
                        say(DATA, 0, text.as_bytes());
                    }
                    Do::Whole(text) => {
                        say(HEADERS, END_HEADERS, OK);
                        say(DATA, 0, text.as_bytes());
                        say(HEADERS, END_HEADERS | END_STREAM, TRAILER);
                    }
                    Do::Reset(code) => say(RESET, 0, &code.to_be_bytes()),
                    Do::GoAway => {
                        let mut last = stream.saturating_sub(2).to_be_bytes().to_vec();
                        last.extend([0; 4]);
                        out.extend(Frame::new(GOAWAY, 0, 0, &last).bytes());
                    }
                    Do::Close => return,
                    Do::CloseAfter(long) => return tokio::time::sleep(*long).await,
                    Do::Nothing => {}
                    Do::Mute => while Frame::read(&mut io).await.is_some() {},
                }
            }
            _ => {}
        }
    }
}
