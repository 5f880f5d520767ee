//! How is a request treated, by its method and path alone?

use serde::{Deserialize, Serialize};

use super::path::{PathError, normalise};
use super::{Task, anthropic, llamacpp, ollama, openai, paddler, triton, vllm};

/// How a request is treated.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum RequestClass {
    /// It takes room on an engine, may wait for it, and has a weight.
    Generate(Task),
    /// It is passed on at once and weighs nothing.
    Control,
    /// It is answered here: the list of models, the health.
    Local,
    /// It reads or changes the inside of an engine: closed unless opened.
    Admin,
}

impl RequestClass {
    /// The word for it, whatever the task.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Generate(_) => "generate",
            Self::Control => "control",
            Self::Local => "local",
            Self::Admin => "admin",
        }
    }
}

/// Whose conventions a path follows, and so in which form an error is told.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum Dialect {
    /// OpenAI's, which vLLM and most others follow.
    #[default]
    Openai,
    /// Anthropic's.
    Anthropic,
    /// llama.cpp's own.
    Llamacpp,
    /// Ollama's own.
    Ollama,
    /// Triton's own, with KServe's.
    Triton,
}

/// What to expect of a request's body.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum BodyKind {
    /// A JSON object, whatever `Content-Type` says: anything else is refused with 400.
    Json,
    /// Perhaps a JSON object: scan it if it is said to be JSON, else pass it on unread.
    Unknown,
    /// A form with a file (`multipart/form-data`), or a JSON object: anything else is refused with 415.
    Form,
    /// Something else or nothing: pass it on unread.
    Opaque,
}

/// What method and path say of a request.
///
/// ```
/// use paddler_core::request::{RequestClass, Route, Task};
///
/// let route = Route::of("POST", "/v1/chat/completions")?;
/// assert_eq!(route.class, RequestClass::Generate(Task::Chat));
/// assert_eq!(Route::of("GET", "//%73lots")?.class, RequestClass::Admin);
/// # Ok::<(), paddler_core::request::path::PathError>(())
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub struct Route {
    /// How it is treated. [`Task::Other`] is a guess that only the body can settle: see
    /// [`RequestFacts::from_scan`](super::RequestFacts::from_scan).
    pub class: RequestClass,
    /// In which form an error is told.
    pub dialect: Dialect,
    /// What to expect of the body.
    pub body: BodyKind,
    /// Whether the path allows to send it once more, elsewhere, when it was sent and no byte came back. The body may
    /// still forbid it.
    pub replayable: bool,
}

impl Route {
    /// Judges a method (`GET`; case counts, as in HTTP) and a path, which is normalised first.
    ///
    /// # Errors
    /// [`PathError`] when the path cannot be normalised.
    pub fn of(method: &str, path: &str) -> Result<Self, PathError> {
        let path = normalise(path)?;
        let tables = [
            (Dialect::Openai, openai::TABLE),
            (Dialect::Anthropic, anthropic::TABLE),
            (Dialect::Llamacpp, llamacpp::TABLE),
            (Dialect::Openai, vllm::TABLE),
            (Dialect::Ollama, ollama::TABLE),
            (Dialect::Triton, triton::TABLE),
            (Dialect::Openai, paddler::TABLE),
        ];
        let found = tables.into_iter().find_map(|(dialect, table)| {
            let entry = table.iter().find(|entry| entry.matches(method, &path))?;
            Some(entry.route(method, dialect))
        });
        Ok(found.unwrap_or_else(|| Self::unknown(method, &path)))
    }

    fn unknown(method: &str, path: &str) -> Self {
        let post = method == "POST";
        Self {
            class: if post {
                RequestClass::Generate(Task::Other)
            } else {
                RequestClass::Control
            },
            dialect: if path.starts_with("/api/") {
                Dialect::Ollama
            } else if triton::model_in(path).is_some() {
                Dialect::Triton
            } else {
                Dialect::Openai
            },
            body: if post { BodyKind::Unknown } else { BodyKind::Opaque },
            replayable: is_safe(method),
        }
    }
}

/// Whether the method promises to change nothing.
fn is_safe(method: &str) -> bool {
    matches!(method, "GET" | "HEAD" | "OPTIONS")
}

/// Whether a path has these segments, of which `{}` may be any.
fn is_like(pattern: &str, path: &str) -> bool {
    let Some((before, _)) = pattern.split_once('{') else {
        return false;
    };
    path.starts_with(before) && {
        let (mut wanted, mut found) = (pattern.split('/'), path.split('/'));
        wanted.all(|wanted| {
            found
                .next()
                .is_some_and(|found| wanted == "{}" || wanted == found)
        }) && found.next().is_none()
    }
}

/// Which methods an [`Entry`] is about.
#[derive(Clone, Copy, Debug)]
enum Methods {
    Post,
    /// GET and HEAD.
    Get,
    /// All but OPTIONS, which only asks what is possible.
    Any,
}

/// One line of a dialect's table. The first that matches counts.
#[derive(Clone, Copy, Debug)]
pub(super) struct Entry {
    methods: Methods,
    /// Ends in `/*` when it is about all paths below. `{}` stands for any one segment.
    path: &'static str,
    class: RequestClass,
    body: BodyKind,
    replayable: bool,
}

impl Entry {
    /// A POST with a JSON body that an engine works on. Replayable: it leaves nothing behind.
    pub(super) const fn generate(path: &'static str, task: Task) -> Self {
        let (methods, class) = (Methods::Post, RequestClass::Generate(task));
        Self {
            methods,
            path,
            class,
            body: BodyKind::Json,
            replayable: true,
        }
    }

    /// A POST that only computes something small: never waits, leaves nothing behind.
    pub(super) const fn control(path: &'static str) -> Self {
        let (methods, class) = (Methods::Post, RequestClass::Control);
        Self {
            methods,
            path,
            class,
            body: BodyKind::Unknown,
            replayable: true,
        }
    }

    /// A GET that is passed on.
    pub(super) const fn get(path: &'static str) -> Self {
        let (methods, class) = (Methods::Get, RequestClass::Control);
        Self {
            methods,
            path,
            class,
            body: BodyKind::Opaque,
            replayable: true,
        }
    }

    /// A GET that is answered here.
    pub(super) const fn local(path: &'static str) -> Self {
        Self {
            class: RequestClass::Local,
            ..Self::get(path)
        }
    }

    /// The inside of an engine, by any method.
    pub(super) const fn admin(path: &'static str) -> Self {
        let (methods, class) = (Methods::Any, RequestClass::Admin);
        Self {
            methods,
            path,
            class,
            body: BodyKind::Opaque,
            replayable: false,
        }
    }

    /// Costly, or paid for each: not sent twice.
    pub(super) const fn once(mut self) -> Self {
        self.replayable = false;
        self
    }

    /// The body may be anything.
    pub(super) const fn unknown(mut self) -> Self {
        self.body = BodyKind::Unknown;
        self
    }

    /// The body is a form with a file.
    pub(super) const fn form(mut self) -> Self {
        self.body = BodyKind::Form;
        self
    }

    fn matches(&self, method: &str, path: &str) -> bool {
        let by_method = match self.methods {
            Methods::Post => method == "POST",
            Methods::Get => matches!(method, "GET" | "HEAD"),
            Methods::Any => method != "OPTIONS",
        };
        by_method
            && match self.path.strip_suffix('*') {
                Some(below) => path.starts_with(below),
                None => path == self.path || is_like(self.path, path),
            }
    }

    fn route(&self, method: &str, dialect: Dialect) -> Route {
        let Self {
            class,
            body,
            replayable,
            ..
        } = *self;
        Route {
            class,
            dialect,
            body,
            replayable: replayable || is_safe(method),
        }
    }
}
