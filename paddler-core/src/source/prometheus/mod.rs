//! What stands on a Prometheus text page?
//!
//! [`samples`] walks over a page and yields its samples as they stand there, borrowed from the page; a [`Selector`] says
//! which series is meant. The parser reads the text format 0.0.4 and OpenMetrics 1.0, and is made for pages that it
//! cannot trust: a line that it cannot read is skipped and counted, and the rest is still read.
//!
//! ```
//! use paddler_core::source::prometheus::{Selector, samples};
//!
//! let page = b"# TYPE queue gauge\nqueue{engine=\"0\"} 3 1700000000000\nqueue{engine=\"1\"} oops\n";
//! let mut on_page = samples(page);
//! let queue = on_page.next().expect("a sample");
//! assert_eq!((queue.name, queue.value, queue.timestamp_ms), ("queue", 3.0, Some(1_700_000_000_000)));
//! assert_eq!(queue.label("engine").as_deref(), Some("0"));
//! assert!(on_page.next().is_none());
//! assert_eq!(on_page.malformed(), 1);
//! assert!(Selector::parse("queue{engine=0}").unwrap().matches(&queue));
//! ```
//!
//! Left out: names in quotes (UTF-8 names, which a server only sends to those who ask for them) and the native
//! histograms of the protobuf format. Types and help texts are skipped.

mod labels;
mod selector;

use std::borrow::Cow;

use memchr::{memchr, memrchr};

pub use labels::{Label, Labels};
pub use selector::{InvalidSelector, Selector};

/// The most that is read of a page, in bytes (16 MiB). What comes after the last whole line within it is left unread
/// and counts as one malformed line.
pub const MAX_PAGE: usize = 16 << 20;

/// The longest line that is read, in bytes (64 KiB). A longer one counts as malformed.
pub const MAX_LINE: usize = 64 << 10;

/// One sample: a line of the page.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Sample<'a> {
    /// The name of the metric, such as `vllm:num_requests_running`; of a histogram, with its suffix.
    pub name: &'a str,
    /// The labels in the order of the page.
    pub labels: Labels<'a>,
    /// The value, in the unit of the metric. It may be NaN or infinite.
    pub value: f64,
    /// When the value was taken, in milliseconds since 1970, where the page says so.
    pub timestamp_ms: Option<i64>,
}

impl<'a> Sample<'a> {
    /// The value of a label, with escapes decoded. `None`: the sample has no such label.
    pub fn label(&self, name: &str) -> Option<Cow<'a, str>> {
        self.labels.get(name)
    }
}

/// Walks over the samples of a page.
///
/// Nothing is copied: names and labels borrow from the page, and only a label value that has escapes in it is decoded
/// into a text of its own, when it is asked for.
pub fn samples(page: &[u8]) -> Samples<'_> {
    Samples::new(page)
}

/// The samples of a page, in order. See [`samples`].
#[derive(Clone, Debug)]
pub struct Samples<'a> {
    lines: Lines<'a>,
    malformed: usize,
}

impl<'a> Samples<'a> {
    fn new(page: &'a [u8]) -> Self {
        let lines = Lines::new(page);
        let malformed = usize::from(lines.is_cut);
        Self { lines, malformed }
    }

    /// How many lines so far could not be read. Comments and empty lines do not count. The whole page has been seen
    /// once the iterator has ended.
    pub fn malformed(&self) -> usize {
        self.malformed
    }
}

impl<'a> Iterator for Samples<'a> {
    type Item = Sample<'a>;

    fn next(&mut self) -> Option<Sample<'a>> {
        loop {
            let line = self.lines.next()?;
            match self.lines.read(line) {
                Some(sample) => return Some(sample),
                None => self.malformed += 1,
            }
        }
    }
}

/// The lines of a page that are neither empty nor comments, without blanks at their ends. Most are of no interest to whoever
/// asks, and are not read.
#[derive(Clone, Debug)]
pub(super) struct Lines<'a> {
    rest: &'a [u8],
    /// The page is too long, and its end is left out.
    is_cut: bool,
    time: TimeUnit,
}

impl<'a> Lines<'a> {
    pub(super) fn new(page: &'a [u8]) -> Self {
        let time = if page.trim_ascii_end().ends_with(b"# EOF") {
            TimeUnit::Seconds
        } else {
            TimeUnit::Milliseconds
        };
        let head = page.get(..MAX_PAGE).filter(|head| head.len() < page.len());
        // Half a line could still be read as a sample, with a value that has lost its last digits.
        let rest = head.map(|head| &head[..memrchr(b'\n', head).map_or(0, |at| at + 1)]);
        Self {
            rest: rest.unwrap_or(page),
            is_cut: rest.is_some(),
            time,
        }
    }

    /// What a line of this page says.
    pub(super) fn read(&self, line: &'a [u8]) -> Option<Sample<'a>> {
        read_line(line, self.time)
    }
}

impl<'a> Iterator for Lines<'a> {
    type Item = &'a [u8];

    fn next(&mut self) -> Option<&'a [u8]> {
        while !self.rest.is_empty() {
            let end = memchr(b'\n', self.rest).map_or(self.rest.len(), |at| at + 1);
            let (line, rest) = self.rest.split_at(end);
            self.rest = rest;
            let line = line.trim_ascii();
            if !line.is_empty() && !line.starts_with(b"#") {
                return Some(line);
            }
        }
        None
    }
}

/// In which unit a page writes time stamps. An OpenMetrics page is known by its last line.
#[derive(Clone, Copy, Debug)]
enum TimeUnit {
    /// Whole milliseconds: the text format.
    Milliseconds,
    /// Seconds with a fraction: OpenMetrics.
    Seconds,
}

impl TimeUnit {
    fn read(self, text: &str) -> Option<i64> {
        match self {
            Self::Milliseconds => text.parse().ok(),
            Self::Seconds => {
                let seconds: f64 = text.parse().ok()?;
                // The cast saturates, so a far-off time stays far off.
                seconds.is_finite().then_some((seconds * 1000.0).round() as i64)
            }
        }
    }
}

/// Reads `name{labels} value [time stamp] [# exemplar]`.
fn read_line(line: &[u8], time: TimeUnit) -> Option<Sample<'_>> {
    if line.len() > MAX_LINE {
        return None;
    }
    let line = std::str::from_utf8(line).ok()?;
    let (name, rest) = line.split_at(line.find(|c| !is_name_char(c)).unwrap_or(line.len()));
    if name.is_empty() || name.starts_with(|c: char| c.is_ascii_digit()) {
        return None;
    }
    let after_name = rest.trim_start_matches(BLANKS);
    let (labels, rest) = match after_name.strip_prefix('{') {
        Some(inside) => Labels::read(inside)?,
        None if after_name.len() < rest.len() => (Labels::default(), after_name),
        None => return None,
    };
    let mut words = rest.split(BLANKS).filter(|word| !word.is_empty());
    let value = words.next()?.parse().ok()?;
    let mut words = words.take_while(|word| !word.starts_with('#'));
    let timestamp_ms = match words.next() {
        Some(word) => Some(time.read(word)?),
        None => None,
    };
    words.next().is_none().then_some(Sample {
        name,
        labels,
        value,
        timestamp_ms,
    })
}

/// What separates the parts of a line.
const BLANKS: [char; 2] = [' ', '\t'];

fn is_name_char(c: char) -> bool {
    c.is_ascii_alphanumeric() || c == '_' || c == ':'
}
