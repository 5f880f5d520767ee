//! What became of each request, as the engine saw it?
//!
//! Each line tells one thing about one request, by the id that its client gave it in `x-request-id`. Held against the
//! client's own notes, the lines say whether an answer was lost, and where. They go to a file as they come, so that they
//! outlive a process that is killed, or are read with `GET /sim/log`.

use std::collections::VecDeque;
use std::fs::{File, OpenOptions};
use std::io::{self, Write as _};
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};

use serde::{Deserialize, Serialize};
use tokio::time::Instant;

/// How an answer ended for the engine.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
#[non_exhaustive]
pub enum End {
    /// Its last byte was handed over.
    Whole,
    /// A fault ended the connection.
    Cut,
    /// A fault ended the stream with an error event.
    Failed,
    /// The client had left.
    Cancelled,
}

/// One thing that became of a request.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "event", rename_all = "kebab-case")]
#[non_exhaustive]
pub enum Happened {
    /// The engine was started: what is not told to have ended before this never will be.
    Started,
    /// All of the request was here.
    Began {
        /// Its path.
        path: String,
        /// The names of the faults that hit it.
        faults: Vec<String>,
    },
    /// Its answer began.
    Answered {
        /// With this status.
        status: u16,
    },
    /// The first byte of the answer's body was handed over.
    FirstByte,
    /// It is over.
    Ended {
        /// In this way.
        end: End,
        /// So many bytes of the body were handed over.
        bytes: u64,
    },
}

/// One line of the journal.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct JournalLine {
    /// Milliseconds since the engine was started.
    pub ms: u64,
    /// The request's id; empty where it is not about one.
    pub id: String,
    /// What happened.
    #[serde(flatten)]
    pub happened: Happened,
}

/// Keeps the last lines, and writes all of them to a file if there is one.
#[derive(Debug)]
pub(crate) struct Journal {
    capacity: usize,
    started: Instant,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    lines: VecDeque<JournalLine>,
    file: Option<File>,
}

impl Journal {
    pub(crate) fn new(capacity: usize, file: Option<&Path>) -> io::Result<Arc<Self>> {
        let open = |path| OpenOptions::new().create(true).append(true).open(path);
        let file = file.map(open).transpose()?;
        let journal = Arc::new(Self {
            capacity,
            started: Instant::now(),
            state: Mutex::new(State {
                lines: VecDeque::new(),
                file,
            }),
        });
        journal.tell("", Happened::Started);
        Ok(journal)
    }

    fn tell(&self, id: &str, happened: Happened) {
        let line = JournalLine {
            ms: u64::try_from(self.started.elapsed().as_millis()).unwrap_or(u64::MAX),
            id: id.to_owned(),
            happened,
        };
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(file) = &mut state.file {
            let mut text = serde_json::to_string(&line).unwrap_or_default();
            text.push('\n');
            // One write for each line: a line is there in full or not at all. A full disk must not stop the engine.
            file.write_all(text.as_bytes()).ok();
        }
        if state.lines.len() >= self.capacity {
            state.lines.pop_front();
        }
        if self.capacity > 0 {
            state.lines.push_back(line);
        }
    }

    pub(crate) fn lines(&self) -> Vec<JournalLine> {
        let state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        state.lines.iter().cloned().collect()
    }

    /// Begins the notes about a request.
    pub(crate) fn begin(self: &Arc<Self>, id: &str, path: &str, faults: Vec<String>) -> Note {
        let path = path.to_owned();
        self.tell(id, Happened::Began { path, faults });
        Note {
            journal: self.clone(),
            id: id.to_owned(),
            bytes: 0,
            length: None,
            over: false,
        }
    }
}

/// The notes about one request. Dropped before its end, its client has left.
#[derive(Debug)]
pub(crate) struct Note {
    journal: Arc<Journal>,
    id: String,
    bytes: u64,
    /// After how many bytes it is whole, where that is known from the start.
    length: Option<u64>,
    over: bool,
}

impl Note {
    pub(crate) fn answered(&self, status: u16) {
        self.journal.tell(&self.id, Happened::Answered { status });
    }

    /// So many bytes were handed over.
    pub(crate) fn sent(&mut self, bytes: usize) {
        if self.bytes == 0 && bytes > 0 {
            self.journal.tell(&self.id, Happened::FirstByte);
        }
        self.bytes += bytes as u64;
        self.end_at_length();
    }

    /// From here on it is whole after this many bytes: nobody asks a body of known length for its end.
    pub(crate) fn has_length(&mut self, bytes: usize) {
        self.length = Some(bytes as u64);
        self.end_at_length();
    }

    fn end_at_length(&mut self) {
        if self.length.is_some_and(|length| self.bytes >= length) {
            self.ended(End::Whole);
        }
    }

    pub(crate) fn ended(&mut self, end: End) {
        if !std::mem::replace(&mut self.over, true) {
            let bytes = self.bytes;
            self.journal.tell(&self.id, Happened::Ended { end, bytes });
        }
    }
}

impl Drop for Note {
    fn drop(&mut self) {
        self.ended(End::Cancelled);
    }
}
