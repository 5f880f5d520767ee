//! Which inference engine answers when there is no model and no GPU?
//!
//! This one does: a simulated engine that speaks real HTTP, with the face of llama.cpp's server or of vLLM's.
//! It has slots or a batch, a queue, a KV cache and adapters; it takes the time that prompts and tokens take;
//! it says the same thing each time it is asked the same; and it misbehaves on command.
//!
//! ```
//! use paddler_engine::{Engine, EngineConfig, Fault};
//!
//! # async fn run() -> std::io::Result<()> {
//! let engine = Engine::start(EngineConfig::llamacpp("tiny").slots(2).fixed_ids(true)).await?;
//! println!("ask {}/v1/chat/completions", engine.url());
//! engine.set_fault(Some(Fault::ResetAfter { bytes: 100 }))?;
//! assert_eq!(engine.stats().running, 0);
//! engine.shutdown().await;
//! # Ok(())
//! # }
//! # tokio::runtime::Runtime::new().unwrap().block_on(run()).unwrap();
//! ```
//!
//! # How a request passes through
//!
//! ```text
//!  wire: door -> connection -> serve -> face (route, errors, words)
//!                                |  faults: what hits this request?
//!                                v
//!                            inference -> schedule (who runs?) -> work (tokens, in time)
//!                                ^                                  |
//!                                +----------- events ---------------+
//! ```
//!
//! # What it keeps and what it leaves out
//!
//! * llama.cpp: `n` and arrays take one slot each; the oldest waits first; an idle connection is closed after
//!   5 seconds, the hundredth answer closes its connection, and so does a streamed answer although it said
//!   otherwise. There is no prompt cache, no router mode and no sleep.
//! * vLLM: a task holds the blocks that its tokens fill, and takes more as it generates; when they run out
//!   the youngest begins anew. An adapter that has no place in the batch is passed over. There is no prefix
//!   cache, and prefills do not share one budget.
//! * A client that leaves frees its place at once, also while it waits, unless [`Fault::HangOnDisconnect`].
//! * Times in an answer (`timings`) are those of the model of time, not measured ones.
//! * With `fixed_ids` in the [`EngineConfig`] equal requests get equal bytes. A stream of several tasks is
//!   the exception: in which order their tokens come depends on when they run.
//!
//! # Control over HTTP
//!
//! `POST /sim/fault` takes a fault, or an array of them, and puts it in place of those in force; `DELETE
//! /sim/fault` clears; `GET /sim/fault`, `/sim/stats`, `/sim/requests` and `/sim/log` tell how things stand. A single
//! request can bring its own fault: `x-sim-fault: reset-after=100`.
//!
//! How to test a gateway of your own with it is in the crate's README, which is also the documentation of [`guide`].

mod ask;
mod checksum;
mod clock;
mod config;
mod control;
mod core;
mod effects;
mod engine;
mod face;
mod fault;
mod gzip;
mod inference;
mod journal;
mod meters;
mod prometheus;
mod reply;
mod schedule;
mod serve;
mod stats;
mod text;
mod wire;
mod work;

pub use checksum::{Corrupt, digest, verify_stream};
pub use config::{EngineConfig, Face};
pub use engine::Engine;
pub use fault::{Fault, FaultParseError, FaultRule, Scope};
pub use journal::{End, Happened, JournalLine};
pub use stats::{RequestRecord, Stats};

#[doc = include_str!("../README.md")]
pub mod guide {}
