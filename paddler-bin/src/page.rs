//! What does somebody see who opens the management listener in a browser?
//!
//! One page, which asks the management API as anybody does who has a key, or is on this machine. It is all in this program: no
//! file is read and nothing is fetched from elsewhere, and its browser is told to hold it to that.

use http::HeaderValue;
use http::header::{CONTENT_SECURITY_POLICY, HeaderMap, REFERRER_POLICY};

/// What the page may do: load what is here, and ask what is here. Nobody may put it in a frame of theirs.
const POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; \
                      base-uri 'none'; form-action 'none'; frame-ancestors 'none'";

const HTML: &str = "text/html; charset=utf-8";
const CSS: &str = "text/css; charset=utf-8";
const SCRIPT: &str = "text/javascript; charset=utf-8";
const SVG: &str = "image/svg+xml";

/// A file of the page: where it is, what it is and what it says.
type File = (&'static str, &'static str, &'static str);

macro_rules! script {
    ($name:literal) => {
        (
            concat!("/page/", $name),
            SCRIPT,
            include_str!(concat!("page/", $name)),
        )
    };
}

const FILES: &[File] = &[
    ("/", HTML, include_str!("page/index.html")),
    ("/page/style.css", CSS, include_str!("page/style.css")),
    ("/page/icon.svg", SVG, include_str!("page/icon.svg")),
    script!("main.js"),
    script!("api.js"),
    script!("dom.js"),
    script!("words.js"),
    script!("figures.js"),
    script!("upstreams.js"),
    script!("requests.js"),
    script!("why.js"),
    script!("tree.js"),
    script!("queue.js"),
    script!("models.js"),
    script!("events.js"),
];

/// The file at a path: its media type and its text.
pub(crate) fn file(path: &str) -> Option<(&'static str, &'static str)> {
    // Where Paddler 1.x had it.
    let path = if path == "/dashboard" { "/" } else { path };
    let file = FILES.iter().find(|(at, ..)| *at == path);
    file.map(|(_, media, text)| (*media, *text))
}

/// What the browser is told along with it.
pub(crate) fn guard(headers: &mut HeaderMap) {
    headers.insert(CONTENT_SECURITY_POLICY, HeaderValue::from_static(POLICY));
    headers.insert(REFERRER_POLICY, HeaderValue::from_static("no-referrer"));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_is_small_and_whole() {
        let size: usize = FILES.iter().map(|(.., text)| text.len()).sum();
        assert!(size < 60_000, "{size} bytes");
        for (at, _, text) in FILES {
            for named in text
                .split(['"', '\''])
                .filter(|part| part.starts_with("./") || part.starts_with("page/"))
            {
                let path = format!("/page/{}", named.rsplit('/').next().unwrap_or_default());
                assert!(file(&path).is_some(), "{at} names {named}");
            }
            assert!(
                !text.contains("://") || *at == "/page/icon.svg",
                "{at} names another place"
            );
        }
    }

    #[test]
    fn each_script_says_what_it_answers_and_reads_no_html() {
        for (at, _, text) in FILES.iter().filter(|(_, media, _)| *media == SCRIPT) {
            let first = text.lines().next().unwrap_or_default();
            assert!(first.starts_with("// ") && first.ends_with('?'), "{at}: {first}");
            for word in [
                "innerHTML",
                "outerHTML",
                "insertAdjacentHTML",
                "document.write",
                "DOMParser",
                "eval(",
                "Function(",
            ] {
                assert!(!text.contains(word), "{at} has {word}");
            }
        }
    }
}
