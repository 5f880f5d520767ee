//! What is asked?
//!
//! Pure inspection of a request, in three steps that need no I/O and keep no body:
//!
//! 1. [`Route::of`] judges method and path: does it generate, is it answered here, is it closed? In few APIs the path names the
//!    model, too.
//! 2. A [`Scanner`] reads the JSON body, or the form, as it arrives and keeps the few values that matter: [`Scanned`].
//! 3. [`RequestFacts`] are what the two add up to: model, weight, tokens. [`ModelRules`] put the model that is meant in the place
//!    of the name that is asked for. [`Facts`] is their borrowed view, which a pick reads.
//!
//! Each API dialect has a file with the table of its paths.

mod anthropic;
mod facts;
mod llamacpp;
mod models;
mod ollama;
mod openai;
mod paddler;
pub mod path;
mod route;
mod scan;
mod task;
mod triton;
mod view;
mod vllm;

pub use facts::{FactsError, RequestFacts, UnreadableRequest};
pub use models::{ModelRule, ModelRuleFault, ModelRules, ModelSettings, ModelTarget};
#[cfg(feature = "proxy")]
pub(crate) use paddler::STATUS;
pub use route::{BodyKind, Dialect, RequestClass, Route};
pub use scan::{AskedAdapter, AskedModel, ScanError, ScanErrorKind, ScanLimits, Scanned, Scanner};
pub use task::Task;
#[cfg(feature = "proxy")]
pub(crate) use triton::{model_in, with_model};
pub use view::Facts;
