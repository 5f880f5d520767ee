//! What labels does a sample have?

use std::borrow::Cow;
use std::fmt;

use super::BLANKS;

/// The labels of a sample, still as they stand on the page: the text between the braces, known to be well formed.
///
/// Iterating yields each [`Label`] in order.
#[derive(Clone, Copy, PartialEq, Eq, Default)]
pub struct Labels<'a>(&'a str);

impl<'a> Labels<'a> {
    /// Reads labels up to the closing brace, and says what comes after it. `inside` begins after the opening brace.
    pub(super) fn read(inside: &'a str) -> Option<(Self, &'a str)> {
        let mut rest = inside;
        loop {
            rest = rest.trim_start_matches(BLANKS);
            if let Some(after) = rest.strip_prefix('}') {
                let length = inside.len() - rest.len();
                return Some((Self(&inside[..length]), after));
            }
            rest = read_label(rest)?.1.trim_start_matches(BLANKS);
            match rest.strip_prefix(',') {
                Some(after) => rest = after,
                None if rest.starts_with('}') => {}
                None => return None,
            }
        }
    }

    /// Whether there are none.
    pub fn is_empty(self) -> bool {
        self.into_iter().next().is_none()
    }

    /// The value of the label `name`, with escapes decoded. Of labels with the same name, which no page should have,
    /// the first.
    pub fn get(self, name: &str) -> Option<Cow<'a, str>> {
        self.into_iter()
            .find(|label| label.name == name)
            .map(|label| label.value())
    }
}

impl fmt::Debug for Labels<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_map()
            .entries(self.into_iter().map(|label| (label.name, label.value())))
            .finish()
    }
}

impl<'a> IntoIterator for Labels<'a> {
    type Item = Label<'a>;
    type IntoIter = Iter<'a>;

    fn into_iter(self) -> Iter<'a> {
        Iter(self.0)
    }
}

/// Yields the labels of a sample. See [`Labels`].
#[derive(Clone, Debug)]
pub struct Iter<'a>(&'a str);

impl<'a> Iterator for Iter<'a> {
    type Item = Label<'a>;

    fn next(&mut self) -> Option<Label<'a>> {
        let (label, rest) = read_label(self.0.trim_start_matches(BLANKS))?;
        let rest = rest.trim_start_matches(BLANKS);
        self.0 = rest.strip_prefix(',').unwrap_or(rest);
        Some(label)
    }
}

/// One label of a sample.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Label<'a> {
    /// The name.
    pub name: &'a str,
    /// The value as it stands between the quotes, escapes and all.
    raw: &'a str,
}

impl<'a> Label<'a> {
    /// The value, with `\\`, `\"` and `\n` decoded. Any other escape stays as it is written.
    pub fn value(&self) -> Cow<'a, str> {
        decode(self.raw)
    }
}

/// Reads `name="value"`, and says what comes after it.
fn read_label(text: &str) -> Option<(Label<'_>, &str)> {
    let end = text
        .find(|c: char| !c.is_ascii_alphanumeric() && c != '_')
        .unwrap_or(text.len());
    let (name, rest) = text.split_at(end);
    if name.is_empty() || name.starts_with(|c: char| c.is_ascii_digit()) {
        return None;
    }
    let rest = rest.trim_start_matches(BLANKS).strip_prefix('=')?;
    let quoted = rest.trim_start_matches(BLANKS).strip_prefix('"')?;
    let end = closing_quote(quoted)?;
    let label = Label {
        name,
        raw: &quoted[..end],
    };
    Some((label, &quoted[end + 1..]))
}

/// Where the text ends: at the first quote that no backslash escapes.
pub(super) fn closing_quote(quoted: &str) -> Option<usize> {
    let mut escaped = false;
    quoted.bytes().position(|byte| {
        let closes = byte == b'"' && !escaped;
        escaped = byte == b'\\' && !escaped;
        closes
    })
}

/// Decodes what stood between quotes; copies only if there is an escape in it.
pub(super) fn decode(raw: &str) -> Cow<'_, str> {
    if !raw.contains('\\') {
        return Cow::Borrowed(raw);
    }
    let mut decoded = String::with_capacity(raw.len());
    let mut chars = raw.chars();
    while let Some(c) = chars.next() {
        if c != '\\' {
            decoded.push(c);
            continue;
        }
        match chars.next() {
            Some('n') => decoded.push('\n'),
            Some(escaped @ ('\\' | '"')) => decoded.push(escaped),
            other => {
                decoded.push('\\');
                decoded.extend(other);
            }
        }
    }
    Cow::Owned(decoded)
}
