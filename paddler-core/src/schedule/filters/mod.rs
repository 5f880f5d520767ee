//! Which filters are built in?
//!
//! Each says in its docs who passes, what unknown signals do, and what it means when nobody passes.

mod adapter;
mod capable;
mod combine;
mod fresh;
mod label;
mod least;
mod model;
mod presence;
mod slot;
mod threshold;
mod within_best;

pub use adapter::{AdapterFilter, lora_active, lora_low_cost, lora_room};
pub use capable::{Capable, capable};
pub use combine::{AllOf, AnyOf, Not, all_of, any_of, not};
pub use fresh::{Fresh, Heard, fresh, heard};
pub use label::{Label, label};
pub use least::{Least, least_kv_cache, least_queue};
pub use model::{ServesModel, model};
pub use presence::{Healthy, Present, healthy, present};
pub use slot::{HasSlot, slot};
pub use threshold::{Bound, Threshold, Unknown, kv_cache, queue_depth};
pub use within_best::{Margin, WithinBest, within_best};
