//! Who tells of an engine from beside it?
//!
//! An agent: it runs where the engine runs, finds out what that is, follows it closely over loopback, and tells one balancer or
//! several, at once when something changes. So engines come and go without a word in any config, and nobody polls through the
//! network. [`Agent`] is the one end, in a program of its own (`paddler agent`) or in the engine's process; [`Agents`] and
//! [`AgentList`] are the other, for whoever has a listener: the list is a [`StatusSource`](crate::status::StatusSource).
//!
//! ```text
//! engine <- asks, every 250 ms - agent - POST, JSON, a stream -> Agents -> AgentList -> StatusBoard
//! ```
//!
//! # What holds
//!
//! - Under one id one agent speaks: the one that lives. Another one is refused (409), and told to take another id. The next stream
//!   of the same agent goes on with it at once, whatever became of the one before, and so does another agent once that one has been
//!   silent for three beats or its stream has broken off. Agents are told apart by what they say of themselves at each start
//!   (`instance`); those of Paddler 1.x say nothing, so of two for one address the newest counts, and one of ours before both.
//! - One engine, by host and port, counts once, however many ids are told of it: under the one that was told first, for as long as
//!   that agent speaks.
//! - Whoever says nothing for three beats is *stale*: his upstream gets no new request. After six it leaves. What is open there goes
//!   on in any case.
//! - An agent that says good-bye takes its upstream away at once. A stream that breaks off leaves it there for 5 s, or three
//!   beats if they are shorter: connections break, and what is gone with its agent is found out by the first request.
//! - A report carries how long ago the engine was asked, and is corrected by our own requests as that of a poll is.
//! - How many agents there are, how long a message is and how many names are in it is bounded ([`AgentsOptions`]).
//!
//! Agents of Paddler 1.x are listened to as they are ([`Dialect::Paddler1`]): they say each 10 s or so how many slots are busy. How
//! often is learnt, and until it is, 30 s of silence are borne. Between two words our own requests are counted as always, and
//! what was not ours at the last one is taken to be still there.

mod beat;
mod beside;
mod document;
mod frames;
mod link;
mod list;
mod old;
mod registry;
mod said;

pub use beside::{Agent, AgentOptions};
pub use document::AgentsDocument;
pub use frames::Unreadable;
pub use list::{AgentList, Agents, AgentsOptions, Dialect, StreamEnd};
pub use registry::Refused;

#[cfg(test)]
mod tests;
