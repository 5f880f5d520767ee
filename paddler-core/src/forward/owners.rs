//! Who keeps what a request refers to?
//!
//! Stored answers, files and batches live at the upstream that made them: whoever asks for one by its id, or builds on it, has
//! to go there. So the ids in such answers are remembered, with who gave them. They are remembered in this process alone: after
//! a restart such a request goes where any other would, and an upstream that does not know its id says so.

use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, Mutex, PoisonError};

use http::header::CONTENT_ENCODING;
use http::{HeaderMap, Method};

use crate::upstream::UpstreamId;

/// How many ids are remembered: the latest.
const MOST: usize = 65_536;

/// The longest id, in bytes.
const LONGEST: usize = 256;

/// How much of an answer is looked at for its id, in bytes: it stands at its beginning.
const LOOKED_AT: usize = 4 << 10;

/// Paths under which things are kept, without `/v1`.
const KEEPS: [&str; 5] = ["/responses", "/files", "/batches", "/conversations", "/uploads"];

/// What is below a path that keeps things.
fn below(path: &str) -> Option<&str> {
    let path = path.strip_prefix("/v1").unwrap_or(path);
    KEEPS.iter().find_map(|keeps| path.strip_prefix(keeps))
}

/// What stands below such a path and is no id.
const WORDS: [&str; 2] = ["compact", "input_tokens"];

/// The id in a path such as `/v1/responses/ID/cancel`.
pub(super) fn in_path(path: &str) -> Option<&str> {
    let id = below(path)?.strip_prefix('/')?.split('/').next()?;
    Some(id).filter(|id| !id.is_empty() && !WORDS.contains(id))
}

/// Remembers who keeps what.
#[derive(Debug, Default)]
pub(super) struct Owners(Mutex<Table>);

#[derive(Debug, Default)]
struct Table {
    by_id: HashMap<Arc<str>, UpstreamId>,
    /// The oldest first.
    order: VecDeque<Arc<str>>,
}

impl Owners {
    /// Who keeps it, if that is remembered.
    pub(super) fn of(&self, id: &str) -> Option<UpstreamId> {
        let table = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        table.by_id.get(id).cloned()
    }

    /// The first who gives an id keeps it: an engine may let clients choose theirs.
    fn remember(&self, id: &str, owner: &UpstreamId) {
        let mut table = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if table.by_id.contains_key(id) {
            return;
        }
        if table.order.len() >= MOST
            && let Some(oldest) = table.order.pop_front()
        {
            table.by_id.remove(&oldest);
        }
        let id: Arc<str> = id.into();
        table.order.push_back(id.clone());
        table.by_id.insert(id, owner.clone());
    }

    /// Looks for the id in the answer to a request that makes something to be kept; `None` for any other, and where it cannot be
    /// read.
    pub(super) fn learn(
        self: &Arc<Self>,
        request: (&Method, &str),
        answer: (bool, &HeaderMap),
    ) -> Option<Learner> {
        let ((method, path), (good, headers)) = (request, answer);
        let makes = method == Method::POST && below(path).is_some();
        (makes && good && !headers.contains_key(CONTENT_ENCODING)).then(|| Learner {
            owners: self.clone(),
            taken: 0,
            depth: 0,
            text: None,
            key: String::new(),
            is_key: true,
            within_response: false,
            done: false,
        })
    }
}

/// Watches the beginning of an answer for its id: that of the object, or of the `response` in the first event of a stream.
/// Whatever stands deeper is not its own, and may be what its client has written.
#[derive(Debug)]
pub(super) struct Learner {
    owners: Arc<Owners>,
    taken: usize,
    depth: u32,
    /// The string that it is in, and whether the last byte was an escape. More of it than an id may have is not kept.
    text: Option<(String, bool)>,
    /// The last key of an object.
    key: String,
    /// What comes next is a key.
    is_key: bool,
    /// In the `response` of an event.
    within_response: bool,
    done: bool,
}

impl Learner {
    /// These bytes pass, which this upstream has sent. Says whether there is more to come.
    pub(super) fn saw(&mut self, bytes: &[u8], owner: &UpstreamId) -> bool {
        for byte in bytes {
            if self.done || self.taken == LOOKED_AT {
                return false;
            }
            self.taken += 1;
            match self.text.take() {
                Some(text) => self.in_text(text, *byte, owner),
                None => self.between(*byte),
            }
        }
        !self.done
    }

    fn in_text(&mut self, (mut text, escaped): (String, bool), byte: u8, owner: &UpstreamId) {
        if byte == b'"' && !escaped {
            return self.ends(text, owner);
        }
        if text.len() <= LONGEST {
            // What is no plain text is no id either.
            text.push(if byte.is_ascii_graphic() {
                char::from(byte)
            } else {
                '/'
            });
        }
        self.text = Some((text, byte == b'\\' && !escaped));
    }

    fn ends(&mut self, text: String, owner: &UpstreamId) {
        if self.is_key {
            self.key = text;
            return;
        }
        let own = self.depth == 1 || (self.depth == 2 && self.within_response);
        let plain = (1..=LONGEST).contains(&text.len()) && !text.contains(['\\', '/']);
        if own && self.key == "id" && plain {
            self.owners.remember(&text, owner);
            self.done = true;
        }
    }

    /// Before the first object stands nothing, or how an event begins.
    fn between(&mut self, byte: u8) {
        match byte {
            b'"' if self.depth > 0 => self.text = Some((String::new(), false)),
            b'{' | b'[' => {
                self.depth += 1;
                if self.depth == 2 {
                    self.within_response = byte == b'{' && self.key == "response";
                }
                self.is_key = byte == b'{';
            }
            b'}' | b']' => {
                self.depth = self.depth.saturating_sub(1);
                self.is_key = true;
                // It has none.
                self.done |= self.depth == 0;
            }
            b':' => self.is_key = false,
            b',' => self.is_key = true,
            _ => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn owner(name: &str) -> UpstreamId {
        UpstreamId::new(name).unwrap()
    }

    fn learner(owners: &Arc<Owners>) -> Learner {
        let headers = HeaderMap::new();
        owners
            .learn((&Method::POST, "/v1/responses"), (true, &headers))
            .unwrap()
    }

    #[test]
    fn paths_name_what_they_are_about() {
        for (path, id) in [
            ("/v1/responses/resp_1", Some("resp_1")),
            ("/responses/resp_1/cancel", Some("resp_1")),
            ("/v1/files/file-1/content", Some("file-1")),
            ("/v1/batches/b/", Some("b")),
            ("/v1/conversations/c/items", Some("c")),
            ("/v1/responses", None),
            ("/v1/responses/", None),
            ("/v1/responses/compact", None),
            ("/v1/responses/input_tokens", None),
            ("/v1/models/m", None),
            ("/v1/filesystem/a", None),
        ] {
            assert_eq!(in_path(path), id, "{path}");
        }
    }

    #[test]
    fn the_id_is_found_however_the_answer_is_cut() {
        let answers = [
            r#"{"id":"resp_1","object":"response","output":[{"id" : "msg_1"}]}"#,
            "event: response.created\ndata: {\"type\":\"response.created\",\"response\":{\"id\":\"resp_1\"}}\n\n",
            r#"{"what": "id", "metadata": {"id": "msg_1"}, "list": ["id", "msg_1"], "id" : "resp_1"}"#,
            r#"{"quoted": "\"id\":\"msg_1\"", "response": {"id": "resp_1"}}"#,
        ];
        for answer in answers {
            for cut in 1..answer.len() {
                let owners = Arc::new(Owners::default());
                let mut learner = learner(&owners);
                for piece in answer.as_bytes().chunks(cut) {
                    learner.saw(piece, &owner("a"));
                }
                assert_eq!(owners.of("resp_1"), Some(owner("a")), "{cut}: {answer}");
                assert_eq!(owners.of("msg_1"), None, "{cut}: {answer}");
            }
        }
    }

    #[test]
    fn what_a_client_has_written_moves_nobodys_id() {
        let owners = Arc::new(Owners::default());
        learner(&owners).saw(br#"{"id":"resp_victim"}"#, &owner("a"));
        for answer in [
            r#"{"metadata":{"id":"resp_victim"},"id":"resp_2"}"#,
            r#"{"id":"resp_victim"}"#,
            r#"{"metadata":{"response":{"id":"resp_victim"}}}"#,
            r#"{"other":{"id":"resp_victim"}}"#,
            r#"[{"id":"resp_victim"}]"#,
        ] {
            learner(&owners).saw(answer.as_bytes(), &owner("b"));
            assert_eq!(owners.of("resp_victim"), Some(owner("a")), "{answer}");
        }
        assert_eq!(owners.of("resp_2"), Some(owner("b")));
    }

    #[test]
    fn what_is_remembered_and_looked_at_has_a_bound() {
        let owners = Arc::new(Owners::default());
        let mut watching = learner(&owners);
        let far = format!("{{{}\"id\":\"far\"", " ".repeat(LOOKED_AT));
        assert!(!watching.saw(far.as_bytes(), &owner("a")));
        assert!(!watching.saw(far.as_bytes(), &owner("a")));
        assert_eq!(owners.of("far"), None);
        owners.remember("first", &owner("a"));
        for n in 0..MOST {
            owners.remember(&format!("n{n}"), &owner("b"));
        }
        assert_eq!((owners.of("first"), owners.of("n0")), (None, Some(owner("b"))));
        let table = owners.0.lock().unwrap();
        assert_eq!((table.by_id.len(), table.order.len()), (MOST, MOST));
    }

    #[test]
    fn only_good_answers_to_what_makes_something_are_looked_at() {
        let owners = Arc::new(Owners::default());
        let (plain, mut packed) = (HeaderMap::new(), HeaderMap::new());
        packed.insert(CONTENT_ENCODING, http::HeaderValue::from_static("gzip"));
        let learns = |method, path, good, headers| owners.learn((&method, path), (good, headers)).is_some();
        assert!(learns(Method::POST, "/v1/files", true, &plain));
        assert!(!learns(Method::GET, "/v1/files", true, &plain));
        assert!(!learns(Method::POST, "/v1/chat/completions", true, &plain));
        assert!(!learns(Method::POST, "/v1/responses", false, &plain));
        assert!(!learns(Method::POST, "/v1/responses", true, &packed));
    }

    #[test]
    fn odd_ids_are_passed_over() {
        for id in ["", "a\\\"b", "a/b", &"x".repeat(LONGEST + 1)] {
            let owners = Arc::new(Owners::default());
            let text = format!(r#"{{"id":"{id}","x":1}}"#);
            learner(&owners).saw(text.as_bytes(), &owner("a"));
            assert!(owners.0.lock().unwrap().by_id.is_empty(), "{id}");
        }
    }
}
