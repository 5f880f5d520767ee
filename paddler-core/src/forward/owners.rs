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

/// How much of an answer is looked at for ids, in bytes: they stand at its beginning.
const LOOKED_AT: usize = 4 << 10;

/// How many ids of one answer are remembered: its own is among the first.
const EACH: usize = 4;

/// Paths under which things are kept, without `/v1`.
const KEEPS: [&str; 5] = ["/responses", "/files", "/batches", "/conversations", "/uploads"];

/// What is below a path that keeps things.
fn below(path: &str) -> Option<&str> {
    let path = path.strip_prefix("/v1").unwrap_or(path);
    KEEPS.iter().find_map(|keeps| path.strip_prefix(keeps))
}

/// The id in a path such as `/v1/responses/ID/cancel`.
pub(super) fn in_path(path: &str) -> Option<&str> {
    let id = below(path)?.strip_prefix('/')?.split('/').next()?;
    Some(id).filter(|id| !id.is_empty())
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

    fn remember(&self, id: &str, owner: &UpstreamId) {
        let mut table = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(known) = table.by_id.get_mut(id) {
            known.clone_from(owner);
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

    /// Looks for ids in the answer to a request that makes something to be kept; `None` for any other, and where it cannot be
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
            seen: Vec::new(),
            from: 0,
            found: 0,
        })
    }
}

/// Watches the beginning of an answer for the ids in it.
#[derive(Debug)]
pub(super) struct Learner {
    owners: Arc<Owners>,
    seen: Vec<u8>,
    /// What is before it has been looked at.
    from: usize,
    found: usize,
}

impl Learner {
    /// These bytes pass, which this upstream has sent. Says whether there is more to come.
    pub(super) fn saw(&mut self, bytes: &[u8], owner: &UpstreamId) -> bool {
        let room = LOOKED_AT - self.seen.len();
        self.seen.extend_from_slice(&bytes[..bytes.len().min(room)]);
        while self.found < EACH {
            let Some((id, end)) = next_id(&self.seen, self.from) else {
                break;
            };
            self.owners.remember(id, owner);
            (self.from, self.found) = (end, self.found + 1);
        }
        self.found < EACH && self.seen.len() < LOOKED_AT
    }
}

/// The next `"id": "..."` that is whole, and where it ends.
fn next_id(seen: &[u8], mut from: usize) -> Option<(&str, usize)> {
    const KEY: &[u8] = b"\"id\"";
    loop {
        let key = from + seen.get(from..)?.windows(KEY.len()).position(|at| at == KEY)?;
        from = key + KEY.len();
        let rest = seen[from..].trim_ascii_start();
        let Some(value) = rest.strip_prefix(b":").map(<[u8]>::trim_ascii_start) else {
            continue;
        };
        let Some(text) = value.strip_prefix(b"\"") else {
            continue;
        };
        let begins = seen.len() - text.len();
        // What is not whole yet is looked at again.
        let length = text.iter().position(|byte| *byte == b'"')?;
        let id = std::str::from_utf8(&text[..length]).ok();
        let plain = |id: &&str| (1..=LONGEST).contains(&id.len()) && !id.contains(['\\', '/']);
        if let Some(id) = id.filter(plain) {
            return Some((id, begins + length));
        }
        from = begins + length;
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
            ("/v1/models/m", None),
            ("/v1/filesystem/a", None),
        ] {
            assert_eq!(in_path(path), id, "{path}");
        }
    }

    #[test]
    fn ids_are_found_however_the_answer_is_cut() {
        let answers = [
            r#"{"id":"resp_1","object":"response","output":[{"id" : "msg_1"}]}"#,
            "event: response.created\ndata: {\"type\":\"response.created\",\"response\":{\"id\":\"resp_1\"}}\n\n",
            r#"{"what": "id", "id": 7, "id": null, "id": "resp_1"}"#,
        ];
        for answer in answers {
            for cut in 1..answer.len() {
                let owners = Arc::new(Owners::default());
                let mut learner = learner(&owners);
                for piece in answer.as_bytes().chunks(cut) {
                    learner.saw(piece, &owner("a"));
                }
                assert_eq!(owners.of("resp_1"), Some(owner("a")), "{cut}: {answer}");
            }
        }
    }

    #[test]
    fn what_is_remembered_of_an_answer_and_of_all_has_a_bound() {
        let owners = Arc::new(Owners::default());
        let mut watching = learner(&owners);
        let many: String = (0..9).map(|n| format!(r#"{{"id":"x{n}"}}"#)).collect();
        assert!(!watching.saw(many.as_bytes(), &owner("a")), "enough");
        assert!(owners.of("x3").is_some() && owners.of("x4").is_none());
        let mut watching = learner(&owners);
        let far = format!("{}\"id\":\"far\"", " ".repeat(LOOKED_AT));
        assert!(!watching.saw(far.as_bytes(), &owner("a")));
        assert!(!watching.saw(far.as_bytes(), &owner("a")));
        assert_eq!(owners.of("far"), None);
        for n in 0..MOST {
            owners.remember(&format!("n{n}"), &owner("b"));
        }
        assert_eq!((owners.of("x0"), owners.of("n0")), (None, Some(owner("b"))));
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
