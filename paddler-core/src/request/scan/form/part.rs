//! What do the headers around a form and its parts say?

use super::super::error::ScanErrorKind;

/// The headers of one part, as far as they are looked at.
#[derive(Debug, Default)]
pub(super) struct Part {
    /// What the field is called, once that was said.
    pub(super) name: Option<String>,
    /// It has a name of a file, so that servers take it for one.
    pub(super) is_file: bool,
}

impl Part {
    /// Takes a header. What two servers could read in two ways is wrong.
    pub(super) fn header(&mut self, line: &[u8]) -> Result<(), &'static str> {
        let colon = line.iter().position(|byte| *byte == b':');
        let (name, value) = line.split_at(colon.ok_or("a header of a part has no `:`")?);
        let is_token = |byte: &u8| byte.is_ascii_alphanumeric() || b"-_".contains(byte);
        if name.is_empty() || !name.iter().all(is_token) {
            // A line that goes on with the header before begins with a blank.
            return Err("the name of a part's header holds something else than letters, digits, `-` and `_`");
        }
        let value = value[1..].trim_ascii();
        if name.eq_ignore_ascii_case(b"content-disposition") {
            return self.disposition(value);
        }
        if name.eq_ignore_ascii_case(b"content-transfer-encoding") {
            let as_it_is = [&b"7bit"[..], b"8bit", b"binary"];
            if !as_it_is.iter().any(|word| value.eq_ignore_ascii_case(word)) {
                return Err("a part is encoded (Content-Transfer-Encoding): send its bytes as they are");
            }
        }
        if name.eq_ignore_ascii_case(b"content-type") && !is_in_utf8(&String::from_utf8_lossy(value)) {
            return Err("the charset of a part is not UTF-8");
        }
        Ok(())
    }

    fn disposition(&mut self, value: &[u8]) -> Result<(), &'static str> {
        if self.name.is_some() {
            return Err("a part has two headers Content-Disposition, or two names");
        }
        let value = str::from_utf8(value).map_err(|_| "a Content-Disposition is not UTF-8")?;
        let (kind, parameters) = value.split_once(';').unwrap_or((value, ""));
        if !kind.trim().eq_ignore_ascii_case("form-data") {
            return Err("the Content-Disposition of a part is not form-data");
        }
        for parameter in Parameters(parameters) {
            let (key, value) = parameter?;
            if key.eq_ignore_ascii_case("name") {
                if self.name.is_some() {
                    return Err("a part has two headers Content-Disposition, or two names");
                }
                // Some cut at a `;` before they look for quotes, and some trim what was in quotes.
                if value.contains(|sign: char| sign == '\\' || sign == ';' || sign.is_whitespace()) {
                    return Err("the name of a part holds a backslash, a `;` or a blank");
                }
                self.name = Some(value.to_owned());
            } else if key.eq_ignore_ascii_case("name*") {
                return Err("the name of a part is encoded (`name*`): write name=\"...\"");
            } else if key.eq_ignore_ascii_case("filename") || key.eq_ignore_ascii_case("filename*") {
                self.is_file = true;
            }
        }
        match self.name {
            Some(_) => Ok(()),
            None => Err("a part has no name in a Content-Disposition"),
        }
    }
}

/// What the parts of a form are separated by, from the `Content-Type` of its request.
pub(super) fn boundary(content_type: &str) -> Result<&str, ScanErrorKind> {
    let (_, parameters) = content_type.split_once(';').ok_or(ScanErrorKind::NoBoundary)?;
    let mut boundary = None;
    for parameter in Parameters(parameters) {
        let (key, value) = parameter.map_err(|_| ScanErrorKind::NoBoundary)?;
        if key.eq_ignore_ascii_case("boundary") && boundary.replace(value).is_some() {
            return Err(ScanErrorKind::NoBoundary);
        }
        if key.eq_ignore_ascii_case("charset") && !is_utf8(value) {
            return Err(ScanErrorKind::MalformedForm {
                problem: "its charset is not UTF-8",
            });
        }
    }
    // RFC 2046, 5.1.1, without blanks: some readers trim them.
    let fits = |byte: u8| byte.is_ascii_alphanumeric() || b"'()+_,-./:=?".contains(&byte);
    let boundary = boundary.filter(|text| (1..=70).contains(&text.len()) && text.bytes().all(fits));
    boundary.ok_or(ScanErrorKind::NoBoundary)
}

fn is_in_utf8(content_type: &str) -> bool {
    let Some((_, parameters)) = content_type.split_once(';') else {
        return true;
    };
    let mut charsets = Parameters(parameters);
    charsets.all(|parameter| {
        parameter.is_ok_and(|(key, value)| !key.eq_ignore_ascii_case("charset") || is_utf8(value))
    })
}

fn is_utf8(charset: &str) -> bool {
    ["utf-8", "utf8", "us-ascii"]
        .iter()
        .any(|known| charset.eq_ignore_ascii_case(known))
}

/// The parameters of a header, `key=value` or `key="value"` with `;` between. An escape in quotes ends them with a fault: some
/// readers know none, and see the end of the text there.
struct Parameters<'a>(&'a str);

impl<'a> Iterator for Parameters<'a> {
    type Item = Result<(&'a str, &'a str), &'static str>;

    fn next(&mut self) -> Option<Self::Item> {
        let rest = self.0.trim_start_matches([' ', '\t', ';']);
        if rest.is_empty() {
            return None;
        }
        let one = parameter(rest);
        self.0 = one.map_or("", |(_, rest)| rest);
        Some(one.map(|(pair, _)| pair))
    }
}

type Pair<'a> = ((&'a str, &'a str), &'a str);

fn parameter(text: &str) -> Result<Pair<'_>, &'static str> {
    const WRONG: &str = "a header has a parameter that is not key=value or key=\"value\"";
    let (key, rest) = text.split_once('=').ok_or(WRONG)?;
    if key.is_empty()
        || !key
            .bytes()
            .all(|byte| byte.is_ascii_alphanumeric() || b"-_*".contains(&byte))
    {
        return Err(WRONG);
    }
    let Some(quoted) = rest.strip_prefix('"') else {
        let end = rest.find([';', ' ', '\t']).unwrap_or(rest.len());
        let (value, rest) = rest.split_at(end);
        return if value.contains(['"', '\\']) || !ends(rest) {
            Err(WRONG)
        } else {
            Ok(((key, value), rest))
        };
    };
    let end = quoted.find('"').ok_or(WRONG)?;
    let (value, rest) = (&quoted[..end], &quoted[end + 1..]);
    if value.ends_with('\\') {
        return Err("a header has a `\\` before a quote: write %22 for a quote in a name");
    }
    if !ends(rest) {
        return Err(WRONG);
    }
    if value.to_ascii_lowercase().contains("name=") {
        return Err("a header has `name=` within a quoted text: rename the file");
    }
    Ok(((key, value), rest))
}

/// Whether a parameter ends here.
fn ends(rest: &str) -> bool {
    let rest = rest.trim_start_matches([' ', '\t']);
    rest.is_empty() || rest.starts_with(';')
}
