//! How does each engine say how it is? One file per engine; pure reading of what it answered.
//!
//! Whoever polls asks the paths that a [`Plan`] names and hands each answer, status and body, to the reader of that
//! engine, which fills a [`Report`](crate::status::Report):
//!
//! | asked | llama.cpp | vLLM | another OpenAI endpoint |
//! |---|---|---|---|
//! | health | [`llamacpp::read_health`] | [`vllm::read_health`] | [`openai::read_health`] |
//! | running, waiting, KV cache | [`llamacpp::read_metrics`] | [`vllm::read_metrics`] | |
//! | slots | [`llamacpp::read_slots`], then [`llamacpp::read_props`] | | |
//! | models | [`llamacpp::read_models`] | [`vllm::read_models`] | [`openai::read_models`] |
//! | adapters | [`llamacpp::read_lora_adapters`] | [`vllm::read_metrics`] | |
//!
//! [SGLang](sglang) tells its load at `/v1/loads`, [TensorRT-LLM](trtllm) at `/prometheus/metrics`, and [Ollama](ollama) only its
//! models. [Triton](triton) has its metrics at a port of their own, and lists its models when it is asked with `POST`. A router behind this one ([`paddler`]) says all of that in one page.
//!
//! Three rules hold for every reader:
//!
//! - **Unknown is never zero.** What cannot be read leaves its signal as it was, which is `None` in a new report, and
//!   is said in [`Report::degraded`](crate::status::Report::degraded).
//! - **Nothing panics**, whatever the bytes are, and the time taken is linear in them.
//! - **A reader adds to the report.** Use a new report for each poll, since a report that is filled twice keeps what
//!   the first filling said was degraded.
//!
//! ```
//! use paddler_core::source::{Endpoint, Plan, llamacpp};
//! use paddler_core::status::{Health, Report};
//! use paddler_core::upstream::Engine;
//!
//! let first_poll: Vec<Endpoint> = Plan::of(Engine::Llamacpp).asks(0).collect();
//! assert!(first_poll.contains(&Endpoint::Slots));
//!
//! let mut report = Report::new();
//! llamacpp::read_health(200, br#"{"status":"ok"}"#, &mut report);
//! llamacpp::read_slots(200, br#"[{"is_processing":true},{"is_processing":false}]"#, &mut report);
//! assert_eq!(report.health, Some(Health::Ready));
//! assert_eq!((report.slots_busy, report.slots_total), (Some(1), Some(2)));
//! assert_eq!(report.waiting, None, "not asked, so not known");
//! ```

mod answer;
mod gauge;
pub mod llamacpp;
mod model_list;
pub mod ollama;
pub mod openai;
pub mod paddler;
pub mod plan;
pub mod probe;
pub mod prometheus;
pub mod sglang;
pub mod triton;
pub mod trtllm;
pub mod vllm;

#[cfg(feature = "proxy")]
pub(crate) use answer::{is_about_a_key, refusal, short};
pub use plan::{Endpoint, Plan};
pub use probe::{Answer, ProbeAnswers, identify};
