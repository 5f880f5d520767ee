//! Which series is meant?

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use super::labels::{closing_quote, decode};
use super::{Sample, is_name_char};

/// A metric name, and labels that a series must have. More labels than these do a series no harm.
///
/// Written as `metric` or `metric{label=value,other="a, b"}`: a value needs quotes when it has a comma, a quote, a
/// brace or white space at an end in it, and then has the escapes of the text format.
///
/// ```
/// use paddler_core::source::prometheus::{Selector, samples};
///
/// let selector: Selector = "kv_blocks{kind=used}".parse().unwrap();
/// assert_eq!(selector, Selector::new("kv_blocks").label("kind", "used"));
///
/// let mut page = samples(b"kv_blocks{kind=\"used\",gpu=\"0\"} 7\nkv_blocks{kind=\"max\"} 9\n");
/// assert!(selector.matches(&page.next().unwrap()));
/// assert!(!selector.matches(&page.next().unwrap()));
/// ```
#[derive(Clone, PartialEq, Eq, Debug, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Selector {
    name: String,
    labels: Vec<(String, String)>,
}

impl Selector {
    /// Every series of one metric.
    pub fn new(name: impl Into<String>) -> Self {
        Self {
            name: name.into(),
            labels: Vec::new(),
        }
    }

    /// Asks for a label too.
    #[must_use]
    pub fn label(mut self, name: impl Into<String>, value: impl Into<String>) -> Self {
        self.labels.push((name.into(), value.into()));
        self
    }

    /// Reads a selector as it is written in a config.
    ///
    /// # Errors
    /// [`InvalidSelector`] when the text is not `metric` or `metric{label=value,...}`.
    pub fn parse(text: &str) -> Result<Self, InvalidSelector> {
        read(text.trim()).ok_or_else(|| InvalidSelector(text.chars().take(128).collect()))
    }

    /// The name of the metric.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The labels asked for.
    pub fn labels(&self) -> impl Iterator<Item = (&str, &str)> {
        self.labels
            .iter()
            .map(|(name, value)| (name.as_str(), value.as_str()))
    }

    /// Whether a line of a page begins with this name.
    pub(in crate::source) fn begins(&self, line: &[u8]) -> bool {
        // Where it would end tells most lines apart.
        let goes_on = |byte: &u8| is_name_char(char::from(*byte));
        !line.get(self.name.len()).is_some_and(goes_on) && line.starts_with(self.name.as_bytes())
    }

    /// Whether the sample has this name and all these labels.
    pub fn matches(&self, sample: &Sample<'_>) -> bool {
        sample.name == self.name
            && self
                .labels
                .iter()
                .all(|(name, value)| sample.label(name).is_some_and(|found| found == *value))
    }
}

fn read(text: &str) -> Option<Selector> {
    let (name, labels) = match text.split_once('{') {
        Some((name, rest)) => (name.trim_end(), rest.strip_suffix('}')?),
        None => (text, ""),
    };
    if name.is_empty() || !name.chars().all(is_name_char) {
        return None;
    }
    let mut selector = Selector::new(name);
    let mut rest = labels.trim();
    while !rest.is_empty() {
        let (label, value, after) = read_label(rest)?;
        selector = selector.label(label, value);
        rest = after;
    }
    Some(selector)
}

/// Reads `label=value` and the comma after it.
fn read_label(text: &str) -> Option<(&str, String, &str)> {
    let (name, rest) = text.split_once('=')?;
    let name = name.trim_end();
    if name.is_empty() || !name.chars().all(is_name_char) {
        return None;
    }
    let rest = rest.trim_start();
    let Some(quoted) = rest.strip_prefix('"') else {
        let (value, after) = rest.split_once(',').unwrap_or((rest, ""));
        let plain = !value.contains(['"', '{', '}']);
        return plain.then(|| (name, value.trim_end().to_owned(), after.trim_start()));
    };
    let end = closing_quote(quoted)?;
    let value = decode(&quoted[..end]).into_owned();
    let after = quoted[end + 1..].trim_start();
    if after.is_empty() {
        return Some((name, value, after));
    }
    Some((name, value, after.strip_prefix(',')?.trim_start()))
}

impl fmt::Display for Selector {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.name)?;
        for (at, (name, value)) in self.labels.iter().enumerate() {
            let value = value
                .replace('\\', r"\\")
                .replace('"', r#"\""#)
                .replace('\n', r"\n");
            write!(f, "{}{name}=\"{value}\"", if at == 0 { '{' } else { ',' })?;
        }
        f.write_str(if self.labels.is_empty() { "" } else { "}" })
    }
}

impl FromStr for Selector {
    type Err = InvalidSelector;

    fn from_str(text: &str) -> Result<Self, InvalidSelector> {
        Self::parse(text)
    }
}

impl TryFrom<String> for Selector {
    type Error = InvalidSelector;

    fn try_from(text: String) -> Result<Self, InvalidSelector> {
        Self::parse(&text)
    }
}

impl From<Selector> for String {
    fn from(selector: Selector) -> Self {
        selector.to_string()
    }
}

/// A text that is no [`Selector`].
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct InvalidSelector(String);

impl fmt::Display for InvalidSelector {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{:?} is not a metric: write `metric` or `metric{{label=value}}`",
            self.0
        )
    }
}

impl std::error::Error for InvalidSelector {}
