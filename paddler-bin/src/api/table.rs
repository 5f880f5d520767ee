//! Which paths does the management API have, and what is asked and answered there?
//!
//! The one place that knows: requests are routed by it, and the OpenAPI document is made of it. Its rows are in [`paths`](mod@super::paths),
//! and the shapes that they name in `schemas.json`.

use http::Method;

use super::paths::ENDPOINTS;

/// A path, whose parts in braces stand for anything, and what can be done there.
#[derive(Debug)]
pub(super) struct Endpoint {
    pub(super) path: &'static str,
    pub(super) operations: &'static [Operation],
}

/// What a method does at a path.
#[derive(Debug, Clone, Copy)]
pub(super) struct Operation {
    pub(super) verb: Verb,
    pub(super) does: Does,
    pub(super) summary: &'static str,
    pub(super) query: &'static [Query],
    pub(super) asked: Option<Content>,
    pub(super) answers: &'static [Answers],
    pub(super) who: Who,
}

/// Who may ask for it where there are no keys.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Who {
    /// Whoever reads, and programs of this machine.
    Reader,
    /// Programs of this machine: it tells more than others may know without a key, such as prompts' whereabouts and files.
    Local,
    /// Who may be an [agent](super::agents), with keys of its own.
    Agent,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Verb {
    Get,
    Post,
    Put,
    Delete,
}

/// What is done: each is carried out in one place.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Does {
    TellDocument,
    ListUpstreams,
    AddUpstream,
    TellUpstream,
    RemoveUpstream,
    DrainUpstream,
    UndrainUpstream,
    TellLeases,
    TellQueue,
    ListModels,
    TellTree,
    ReplaceTree,
    ValidateTree,
    TellConfig,
    FollowEvents,
    Explain,
    TellSnapshot,
    ListDecisions,
    TellDecision,
    TellReload,
    Reload,
    ListAgents,
    FollowAgents,
    HearAgent,
    HearAgentOf2025,
    HearAgentOf12,
}

/// What may stand behind the `?`.
#[derive(Debug, Clone, Copy)]
pub(super) struct Query {
    pub(super) name: &'static str,
    pub(super) description: &'static str,
    /// Its JSON schema.
    pub(super) schema: &'static str,
}

/// A body: its media type, and the name of its shape if it is JSON.
#[derive(Debug, Clone, Copy)]
pub(super) struct Content {
    pub(super) media: &'static str,
    pub(super) schema: Option<&'static str>,
}

/// What is answered with a status.
#[derive(Debug, Clone, Copy)]
pub(super) struct Answers {
    pub(super) status: u16,
    pub(super) description: &'static str,
    pub(super) content: Content,
}

pub(super) const JSON: &str = "application/json";
pub(super) const TEXT: &str = "text/plain";
pub(super) const EVENTS: &str = "text/event-stream";
pub(super) const LINES: &str = "application/x-ndjson";

impl Verb {
    pub(super) fn takes(self, method: &Method) -> bool {
        match self {
            Self::Get => method == Method::GET || method == Method::HEAD,
            Self::Post => method == Method::POST,
            Self::Put => method == Method::PUT,
            Self::Delete => method == Method::DELETE,
        }
    }

    fn allow(self) -> &'static str {
        match self {
            Self::Get => "GET, HEAD",
            Self::Post => "POST",
            Self::Put => "PUT",
            Self::Delete => "DELETE",
        }
    }
}

impl Endpoint {
    /// What stands for the parts in braces, if this is the path's.
    fn matches(&self, path: &str) -> Option<Vec<String>> {
        let (mut ours, mut theirs) = (self.path.split('/'), path.split('/'));
        let mut parts = Vec::new();
        loop {
            match (ours.next(), theirs.next()) {
                (None, None) => return Some(parts),
                (Some(open), Some(part)) if open.starts_with('{') => {
                    parts.push(paddler_core::request::path::decode_part(part));
                }
                (Some(ours), Some(theirs)) if ours == theirs => {}
                _ => return None,
            }
        }
    }

    /// The methods that it takes, as `Allow` has them.
    pub(super) fn methods(&self) -> String {
        let all = self.operations.iter().map(|operation| operation.verb.allow());
        all.collect::<Vec<_>>().join(", ")
    }
}

/// What a path is about, and what stands for its parts in braces.
pub(super) fn find(path: &str) -> Option<(&'static Endpoint, Vec<String>)> {
    ENDPOINTS
        .iter()
        .find_map(|endpoint| Some((endpoint, endpoint.matches(path)?)))
}

/// Where things are, for those who look elsewhere.
pub(crate) fn paths() -> String {
    let all: Vec<_> = ENDPOINTS.iter().map(|endpoint| endpoint.path).collect();
    all.join(", ")
}

/// The methods that a path of the management listener takes.
pub(crate) fn methods(path: &str) -> String {
    find(path).map_or("GET, HEAD".to_owned(), |(endpoint, _)| endpoint.methods())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_path_says_which_methods_it_takes() {
        for (path, takes) in [
            ("/api/v1/upstreams", "GET, HEAD, POST"),
            ("/api/v1/upstreams/gpu-1", "GET, HEAD, DELETE"),
            ("/api/v1/upstreams/drain", "GET, HEAD, DELETE"),
            ("/api/v1/upstreams/gpu-1/drain", "POST"),
            ("/api/v1/upstreams/gpu-1/undrain", "POST"),
            ("/api/v1/tree", "GET, HEAD, PUT"),
            ("/api/v1/reload", "GET, HEAD, POST"),
            ("/api/v1/explain", "POST"),
            ("/api/v1/snapshot", "GET, HEAD"),
            ("/api/v1/agents", "GET, HEAD"),
            ("/api/v1/agents/stream", "GET, HEAD"),
            ("/api/v1/agents/a%2Fb/status", "POST"),
            ("/api/v1/agent_status_update/x", "POST"),
            ("/status_update/x", "POST"),
            ("/metrics", "GET, HEAD"),
        ] {
            assert_eq!(methods(path), takes, "{path}");
        }
        assert_eq!(find("/api/v1/upstreams/a%2Fb/drain").unwrap().1, ["a/b"]);
        for nowhere in [
            "/api/v1",
            "/api/v1/upstreams/a/b",
            "/api/v1/upstreams/a/drain/",
            "/api/v1/agents/x",
            "/status_update",
            "/api/v2/queue",
        ] {
            assert!(find(nowhere).is_none(), "{nowhere}");
        }
    }
}
