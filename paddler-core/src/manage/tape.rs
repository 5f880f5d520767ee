//! How are decisions written down, so that they can be made again by another tree?
//!
//! As lines of JSON, each a map with one key:
//!
//! | key | is |
//! |---|---|
//! | `tree` | the tree in force from here on, as text |
//! | `snapshot` | the statuses in force from here on: a [`SnapshotRecord`](crate::status::SnapshotRecord) |
//! | `change` | what of them is different from here on: its generation and time, the entries that are others, and places that are free |
//! | `decision` | a [`Record`](crate::schedule::Record) on these statuses, with the `id` of its request |
//!
//! A thread writes them. Where it cannot keep up, decisions are left out and counted; none waits for it. At a largest length
//! nothing more is written. No prompt is in it, but models, tenants and sessions are: the file is for its owner alone.

use std::collections::BTreeMap;
use std::fs::{File, OpenOptions};
use std::io::{self, BufWriter, Read as _, Seek as _, SeekFrom, Write as _};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::sync::mpsc::{Receiver, SyncSender, TryRecvError, TrySendError, sync_channel};
use std::thread;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::Moment;
use crate::observe::{Trail, TrailAttempt};
use crate::schedule::{Record, Tree};
use crate::status::{EntryRecord, Snapshot, SnapshotRecord};
use crate::upstream::UpstreamIndex;

/// How many decisions may wait to be written.
const WAITING: usize = 256;

/// A line.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Line {
    Tree(String),
    Snapshot(SnapshotRecord),
    Change(Change),
    Decision(Box<Written>),
}

/// What is different from the snapshot before.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct Change {
    generation: u64,
    published: Moment,
    entries: Vec<EntryRecord>,
    free: Vec<u32>,
}

/// A decision, and whose it was.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct Written {
    pub(super) id: String,
    pub(super) record: Record,
}

/// What is to be done.
enum Order {
    Write(Arc<Snapshot>, Box<Written>),
    /// Have all that came before in the file, and say so.
    Flush(SyncSender<()>),
}

/// How long somebody waits until all is written: a disk that hangs must not hold up the end of a program.
const PATIENCE: Duration = Duration::from_secs(1);

/// How often is tried in that time.
const TRIES: u32 = 100;

/// Writes decisions into a file.
#[derive(Debug)]
pub struct Tape {
    to: SyncSender<Order>,
    left_out: AtomicU64,
    full: Arc<AtomicBool>,
}

/// Ends a line that was cut off, when the program before was killed: what comes next is no part of it.
fn end_line(file: &mut File) -> io::Result<()> {
    let mut last = [b'\n'];
    if file.metadata()?.len() > 0 {
        file.seek(SeekFrom::End(-1))?;
        file.read_exact(&mut last)?;
    }
    if last != [b'\n'] {
        file.write_all(b"\n")?;
    }
    Ok(())
}

impl Tape {
    /// Writes to the end of this file, which is made if it is not there, for its owner alone. `most`: at this length, in bytes,
    /// nothing more is written.
    ///
    /// # Errors
    /// When it cannot be opened.
    pub fn open(file: &Path, most: u64) -> io::Result<Self> {
        let mut options = OpenOptions::new();
        options.create(true).append(true);
        #[cfg(unix)]
        std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
        let mut file = options.read(true).open(file)?;
        end_line(&mut file)?;
        let mut writer = Writer {
            length: file.metadata()?.len(),
            most,
            to: BufWriter::new(file),
            last: None,
        };
        let (to, orders) = sync_channel(WAITING);
        let full = Arc::new(AtomicBool::new(false));
        let is_full = full.clone();
        thread::Builder::new()
            .name("decisions".to_owned())
            .spawn(move || {
                let ended = writer.run(&orders);
                is_full.store(true, Relaxed);
                match ended {
                    Ok(false) => {}
                    Ok(true) => tracing::warn!(
                        most,
                        "the log of decisions is as long as it may be: no more are written"
                    ),
                    Err(error) => {
                        tracing::error!(%error, "the log of decisions cannot be written: no more are");
                    }
                }
            })?;
        Ok(Self {
            to,
            left_out: AtomicU64::new(0),
            full,
        })
    }

    /// Whether more is written.
    pub fn is_open(&self) -> bool {
        !self.full.load(Relaxed)
    }

    /// How many decisions were left out, since the file could not be written as fast.
    pub fn left_out(&self) -> u64 {
        self.left_out.load(Relaxed)
    }

    /// Waits until all is in the file that was told so far, for a second at most. It blocks its thread.
    pub fn flush(&self) {
        let (done, is_done) = sync_channel(1);
        let mut order = Order::Flush(done);
        for _ in 0..TRIES {
            order = match self.to.try_send(order) {
                Ok(()) => {
                    // Who has waited for so long waits no longer.
                    is_done.recv_timeout(PATIENCE).ok();
                    return;
                }
                Err(TrySendError::Full(order)) => order,
                Err(TrySendError::Disconnected(_)) => return,
            };
            thread::sleep(PATIENCE / TRIES);
        }
    }

    /// Writes the last decision of a request, if there is a record of it.
    pub(super) fn write(&self, trail: &Trail) {
        let last = trail
            .attempts
            .last()
            .and_then(|sent: &TrailAttempt| sent.why.as_deref());
        let Some((record, snapshot)) =
            last.and_then(|why| Some((why.record.clone()?, why.snapshot.clone()?)))
        else {
            return;
        };
        let written = Box::new(Written {
            id: trail.id.to_string(),
            record,
        });
        if self.is_open() && self.to.try_send(Order::Write(snapshot, written)).is_err() {
            self.left_out.fetch_add(1, Relaxed);
        }
    }
}

struct Writer {
    to: BufWriter<File>,
    length: u64,
    most: u64,
    last: Option<Arc<Snapshot>>,
}

impl Writer {
    /// Whether it ended since the file is full.
    fn run(&mut self, orders: &Receiver<Order>) -> io::Result<bool> {
        loop {
            let next = match orders.try_recv() {
                Ok(next) => next,
                Err(TryRecvError::Disconnected) => break,
                // Whoever reads it sees what there is.
                Err(TryRecvError::Empty) => {
                    self.to.flush()?;
                    let Ok(next) = orders.recv() else { break };
                    next
                }
            };
            match next {
                Order::Write(snapshot, written) => {
                    if !self.decision(snapshot, written)? {
                        self.to.flush()?;
                        return Ok(true);
                    }
                }
                Order::Flush(done) => {
                    self.to.flush()?;
                    // Whoever waited may have waited enough.
                    done.send(()).ok();
                }
            }
        }
        self.to.flush()?;
        Ok(false)
    }

    /// Whether there is room for more.
    fn decision(&mut self, snapshot: Arc<Snapshot>, written: Box<Written>) -> io::Result<bool> {
        let before = self.last.replace(snapshot.clone());
        if before
            .as_ref()
            .is_none_or(|before| !is_same_tree(before.tree(), snapshot.tree()))
        {
            self.line(&Line::Tree(snapshot.tree().to_string()))?;
        }
        match before {
            None => self.line(&Line::Snapshot(snapshot.record()))?,
            Some(before) if before.generation() == snapshot.generation() => {}
            Some(before) => self.line(&Line::Change(Change::between(&before, &snapshot)))?,
        }
        self.line(&Line::Decision(written))?;
        Ok(self.length < self.most)
    }

    fn line(&mut self, line: &Line) -> io::Result<()> {
        let mut text = serde_json::to_vec(line)?;
        text.push(b'\n');
        self.length += text.len() as u64;
        self.to.write_all(&text)
    }
}

/// Those on which there is somebody.
fn places(snapshot: &Snapshot) -> impl Iterator<Item = u32> {
    snapshot.iter().map(|(at, _)| at.0)
}

fn is_same_tree(one: &Arc<Tree>, other: &Arc<Tree>) -> bool {
    Arc::ptr_eq(one, other)
}

impl Change {
    fn between(before: &Snapshot, now: &Snapshot) -> Self {
        let is_new = |place: u32| {
            let (was, is) = (
                before.entry(UpstreamIndex(place)),
                now.entry(UpstreamIndex(place)),
            );
            is.filter(|is| was.is_none_or(|was| !Arc::ptr_eq(was, is)))
        };
        let entries = places(now).filter_map(|place| Some(EntryRecord::of(place, is_new(place)?)));
        let is_free = |place: &u32| now.entry(UpstreamIndex(*place)).is_none();
        Self {
            generation: now.generation(),
            published: now.published(),
            entries: entries.collect(),
            free: places(before).filter(is_free).collect(),
        }
    }

    /// Makes the snapshot that it is about of the one before.
    pub(super) fn apply(self, to: &mut SnapshotRecord) {
        let before = std::mem::take(&mut to.entries);
        let mut all: BTreeMap<u32, EntryRecord> =
            before.into_iter().map(|entry| (entry.place, entry)).collect();
        all.retain(|place, _| !self.free.contains(place));
        all.extend(self.entries.into_iter().map(|entry| (entry.place, entry)));
        (to.generation, to.published) = (self.generation, self.published);
        to.entries = all.into_values().collect();
    }
}
