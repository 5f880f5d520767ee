//! Reads the recorded answers under `tests/samples`.

use std::path::Path;

use paddler_core::source::Answer;

/// What is said of an upstream that refuses our key, or the lack of one.
pub(crate) const WANTS_A_KEY: &str = "401: the upstream wants a key, and another one than it is sent, if it is sent any: \
                                      name the file of its key in `api_key_file`, or `--upstream-api-key-file` \
                                      (PADDLER_UPSTREAM_API_KEY_FILE)";

/// A recorded answer.
pub(crate) struct Recorded {
    pub(crate) status: u16,
    pub(crate) server: Option<String>,
    pub(crate) body: Vec<u8>,
}

impl Recorded {
    /// Reads `llamacpp/slots_busy` and the like: a line with what was asked, the answer, and a line end.
    pub(crate) fn read(name: &str) -> Self {
        let path = Path::new(env!("CARGO_MANIFEST_DIR"))
            .join("tests/samples")
            .join(name)
            .with_extension("http");
        let bytes = std::fs::read(path).expect(name);
        let blank = bytes
            .windows(4)
            .position(|at| at == b"\r\n\r\n")
            .expect("headers");
        let head = std::str::from_utf8(&bytes[..blank]).expect("headers are text");
        let header = |wanted: &str| {
            let lines = head.lines().filter_map(|line| line.split_once(": "));
            lines
                .filter(|(name, _)| name.eq_ignore_ascii_case(wanted))
                .map(|(_, value)| value.to_owned())
                .next()
        };
        let status = head
            .lines()
            .nth(1)
            .and_then(|line| line.split(' ').nth(1))
            .expect("a status line");
        let body = &bytes[blank + 4..];
        Self {
            status: status.parse().expect("a status"),
            server: header("server"),
            body: body.strip_suffix(b"\n").unwrap_or(body).to_vec(),
        }
    }

    pub(crate) fn text(&self) -> String {
        String::from_utf8(self.body.clone()).expect("text")
    }

    pub(crate) fn answer(&self) -> Answer<'_> {
        let answer = Answer::new(self.status, &self.body);
        match &self.server {
            Some(server) => answer.server(server),
            None => answer,
        }
    }
}
