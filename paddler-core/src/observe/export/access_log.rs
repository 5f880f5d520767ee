//! What stands in the access log?
//!
//! A line for each request, once it has ended: nothing of prompts and answers, and no field longer than
//! [`LONGEST`] bytes. A thread of its own writes: a disk that hangs holds up no request.

use std::fs::{File, OpenOptions};
use std::io::{self, BufWriter, Write};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::mpsc::{Receiver, SyncSender, TryRecvError, TrySendError, sync_channel};
use std::thread;
use std::time::Duration;

use super::wall::Utc;
use crate::Moment;
use crate::config::{LogFormat, LogTarget};
use crate::observe::{Telemetry, Trail};

/// Lines that wait to be written: a second's worth of what a fast machine routes. More are lost.
const WAITING: usize = 8_192;

/// The most of a field that is written, in bytes: a client may ask for a model with any name.
const LONGEST: usize = 256;

enum Message {
    Line(String),
    Reopen,
    Flush(SyncSender<()>),
}

/// Writes a line for each request that has ended: a [`Telemetry`].
///
/// | field | says |
/// |---|---|
/// | `time` | when it ended, in UTC |
/// | `id` | its `x-request-id` |
/// | `trace` | the id of its trace, if it has one |
/// | `client` | whose key it came with |
/// | `address` | the other end of its connection |
/// | `method`, `path`, `class` | what it is, without the query |
/// | `model` | the model that it is for |
/// | `asked` | the name that it was asked by, where that stands for the model |
/// | `fallback` | the model that it was sent to last, where its own had no place for it |
/// | `upstream`, `attempts` | where it was sent last, and how often it was sent |
/// | `status`, `end`, `reason` | what its client got: `end` is `complete`, `here`, `cut_short` or `left` |
/// | `wait_seconds` | from the time that it was read to its place |
/// | `first_byte_seconds`, `duration_seconds` | from its arrival to the first byte of its answer, and to its end |
/// | `prompt_tokens`, `output_tokens` | what it used, where its answer is read for that |
/// | `answer_bytes` | of the body of its answer |
///
/// What is not known is left out.
///
/// ```
/// use paddler_core::config::{LogFormat, LogTarget};
/// use paddler_core::observe::export::AccessLog;
///
/// let file = std::env::temp_dir().join("paddler-access-doc.jsonl");
/// let log = AccessLog::open(LogTarget::File(file.clone()), LogFormat::Json)?;
/// // RouterOptions::telemetry = Some(Arc::new(log)); and after the file was moved away:
/// log.reopen();
/// log.flush();
/// assert!(file.exists());
/// # std::fs::remove_file(file)?;
/// # Ok::<(), std::io::Error>(())
/// ```
#[derive(Debug)]
pub struct AccessLog {
    to: SyncSender<Message>,
    format: LogFormat,
    lost: Arc<AtomicU64>,
}

impl AccessLog {
    /// Opens it, at its end, and begins to write.
    ///
    /// # Errors
    /// The file cannot be opened, or no thread can be started.
    pub fn open(target: LogTarget, format: LogFormat) -> io::Result<Self> {
        let sink = Sink::open(&target)?;
        let (to, messages) = sync_channel(WAITING);
        let lost = Arc::new(AtomicU64::new(0));
        let writer = Writer {
            target,
            sink,
            lost: lost.clone(),
            fails: false,
        };
        thread::Builder::new()
            .name("access-log".into())
            .spawn(move || writer.run(&messages))?;
        Ok(Self { to, format, lost })
    }

    /// Opens the file anew, as it is to be after it was moved away. What waits to be written goes into the old one.
    pub fn reopen(&self) {
        if self.to.try_send(Message::Reopen).is_err() {
            tracing::warn!("the access log is behind, and was not opened anew");
        }
    }

    /// Done when all that has ended until now is written, or two seconds are over.
    pub fn flush(&self) {
        let (tell, told) = sync_channel(1);
        let mut message = Message::Flush(tell);
        // It may have much to write, which is when this matters.
        for _ in 0..200 {
            match self.to.try_send(message) {
                Ok(()) => {
                    told.recv_timeout(Duration::from_secs(1)).ok();
                    return;
                }
                Err(TrySendError::Full(again)) => message = again,
                Err(TrySendError::Disconnected(_)) => return,
            }
            thread::sleep(Duration::from_millis(5));
        }
    }
}

impl Telemetry for AccessLog {
    fn ended(&self, trail: &Trail) {
        let line = line(trail, &Utc::now().to_string(), self.format);
        if self.to.try_send(Message::Line(line)).is_err() {
            self.lost.fetch_add(1, Relaxed);
        }
    }

    fn lost(&self) -> Vec<(&'static str, u64)> {
        vec![("access_log", self.lost.load(Relaxed))]
    }
}

/// A value of a line.
enum Value<'a> {
    Text(&'a str),
    Number(u64),
    Time(Duration),
}

/// What is said of a request, in this order.
fn each<'a>(
    trail: &'a Trail,
    (time, address): (&'a str, Option<&'a str>),
    mut say: impl FnMut(&'static str, Value<'a>),
) {
    use Value::{Number, Text, Time};
    let since = |from: Option<Moment>, to: Option<Moment>| Some(Time(to?.since(from?)));
    let (arrived, facts) = (Some(trail.arrived), trail.facts.as_ref());
    let trace = trail.traceparent.as_deref();
    let placed = trail.attempts.first().map(|sent| sent.at);
    let fields = [
        ("time", Some(Text(time))),
        ("id", Some(Text(&trail.id))),
        ("trace", trace.and_then(|trace| trace.get(3..35)).map(Text)),
        ("client", trail.client.as_deref().map(Text)),
        ("address", address.map(Text)),
        ("method", Some(Text(&trail.method))),
        ("path", Some(Text(&trail.path)).filter(|_| !trail.path.is_empty())),
        ("class", Some(Text(trail.class))),
        ("model", facts.and_then(|facts| facts.model.as_deref()).map(Text)),
        ("asked", facts.and_then(|facts| facts.asked.as_deref()).map(Text)),
        ("fallback", trail.fallback().map(|model| Text(model))),
        ("upstream", trail.upstream().map(|id| Text(id.as_str()))),
        ("attempts", Some(Number(trail.attempts.len() as u64))),
        ("status", trail.status.map(|status| Number(status.into()))),
        ("end", trail.end.map(|end| Text(end.as_str()))),
        ("reason", trail.reason.as_deref().map(Text)),
        ("wait_seconds", since(trail.began, placed)),
        ("first_byte_seconds", since(arrived, trail.first_byte)),
        ("duration_seconds", since(arrived, trail.ended)),
        ("prompt_tokens", trail.prompt_tokens.map(Number)),
        ("output_tokens", trail.output_tokens.map(Number)),
        ("answer_bytes", Some(Number(trail.answer_bytes))),
    ];
    for (name, value) in fields {
        if let Some(value) = value {
            say(name, value);
        }
    }
}

fn line(trail: &Trail, time: &str, format: LogFormat) -> String {
    let mut line = String::with_capacity(512);
    let address = trail.address.map(|address| address.to_string());
    let bare = |text: &str| {
        let plain = |byte: u8| byte.is_ascii_graphic() && byte != b'"' && byte != b'=';
        format == LogFormat::Text && !text.is_empty() && text.bytes().all(plain)
    };
    each(trail, (time, address.as_deref()), |name, value| {
        match (format, line.is_empty()) {
            (LogFormat::Json, true) => line.push('{'),
            (LogFormat::Json, false) => line.push(','),
            (LogFormat::Text, true) => {}
            (LogFormat::Text, false) => line.push(' '),
        }
        match format {
            LogFormat::Json => line.extend(["\"", name, "\":"]),
            LogFormat::Text => line.extend([name, "="]),
        }
        match value {
            Value::Text(text) if bare(cut(text)) => line.push_str(cut(text)),
            Value::Text(text) => line.push_str(&quoted(cut(text))),
            Value::Number(number) => line.push_str(&number.to_string()),
            Value::Time(time) => line.push_str(&(time.as_micros() as f64 / 1e6).to_string()),
        }
    });
    line.push_str(match format {
        LogFormat::Json => "}\n",
        LogFormat::Text => "\n",
    });
    line
}

/// As much of it as is written.
fn cut(text: &str) -> &str {
    let mut end = text.len().min(LONGEST);
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    &text[..end]
}

/// A string of JSON, which has no line in it, whatever a reader takes for the end of one.
fn quoted(text: &str) -> String {
    let is_line = |c: char| ('\u{7f}'..='\u{9f}').contains(&c) || matches!(c, '\u{2028}' | '\u{2029}');
    let quoted = serde_json::Value::from(text).to_string();
    if !quoted.contains(is_line) {
        return quoted;
    }
    let escaped = quoted.chars().map(|c| match is_line(c) {
        true => format!("\\u{:04x}", u32::from(c)),
        false => c.into(),
    });
    escaped.collect()
}

/// Where lines go.
enum Sink {
    File(BufWriter<File>),
    Stderr,
}

impl Sink {
    fn open(target: &LogTarget) -> io::Result<Self> {
        let open = |path: &Path| {
            let mut options = OpenOptions::new();
            options.append(true).create(true);
            // Names of keys and addresses are in it: for its owner, and the group that collects.
            #[cfg(unix)]
            std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o640);
            options.open(path)
        };
        match target {
            LogTarget::File(path) => open(path).map(BufWriter::new).map(Self::File),
            LogTarget::Stderr => Ok(Self::Stderr),
        }
    }

    fn write(&mut self, line: &str) -> io::Result<()> {
        match self {
            Self::File(file) => file.write_all(line.as_bytes()),
            Self::Stderr => io::stderr().write_all(line.as_bytes()),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        match self {
            Self::File(file) => file.flush(),
            Self::Stderr => Ok(()),
        }
    }
}

struct Writer {
    target: LogTarget,
    sink: Sink,
    lost: Arc<AtomicU64>,
    fails: bool,
}

impl Writer {
    /// Until nobody can say anything any more.
    fn run(mut self, messages: &Receiver<Message>) {
        while let Some(message) = self.next(messages) {
            match message {
                Message::Line(line) => {
                    let written = self.sink.write(&line);
                    self.lost.fetch_add(u64::from(written.is_err()), Relaxed);
                    self.judge(written);
                }
                Message::Reopen => self.reopen(),
                Message::Flush(tell) => {
                    let flushed = self.sink.flush();
                    self.judge(flushed);
                    // Whoever asked may not want to know any more.
                    tell.try_send(()).ok();
                }
            }
        }
        let flushed = self.sink.flush();
        self.judge(flushed);
    }

    /// What comes next. While nothing does, what has come is in the file.
    fn next(&mut self, messages: &Receiver<Message>) -> Option<Message> {
        match messages.try_recv() {
            Ok(message) => Some(message),
            Err(TryRecvError::Disconnected) => None,
            Err(TryRecvError::Empty) => {
                let flushed = self.sink.flush();
                self.judge(flushed);
                messages.recv().ok()
            }
        }
    }

    fn reopen(&mut self) {
        let flushed = self.sink.flush();
        self.judge(flushed);
        match Sink::open(&self.target) {
            Ok(sink) => self.sink = sink,
            Err(error) => {
                tracing::error!(%error, "the access log cannot be opened anew; it goes on in the old file");
            }
        }
    }

    /// Says once that it fails, and once that it works again.
    fn judge(&mut self, result: io::Result<()>) {
        if let Err(error) = &result {
            if !self.fails {
                tracing::error!(%error, "the access log cannot be written; its lines are lost until it can");
            }
        } else if self.fails {
            tracing::info!("the access log is written again");
        }
        self.fails = result.is_err();
    }
}

#[cfg(test)]
#[path = "access_log/tests.rs"]
mod tests;
