//! What can a host tell, wherever the board is kept?

use std::sync::Arc;

use super::{StatusBoard, StatusEvent};
use crate::Moment;
use crate::schedule::Tree;
use crate::upstream::UpstreamId;

/// What a board is told: by hand as long as it has it, and through the loop or the thread that keeps it afterwards.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub enum Change {
    /// Something happened to an upstream.
    Event(Box<StatusEvent>),
    /// Another tree is in force.
    Tree(Arc<Tree>),
    /// An upstream gets nothing new, or something again.
    Drain(UpstreamId, bool),
    /// What was told before is in force, at once.
    Publish,
}

impl From<StatusEvent> for Change {
    fn from(event: StatusEvent) -> Self {
        Self::Event(Box::new(event))
    }
}

impl StatusBoard {
    /// Does what it is told. Says whether the upstream that is to be drained is known; of all else that it is done.
    pub fn change(&mut self, change: Change, now: Moment) -> bool {
        match change {
            Change::Event(event) => {
                self.apply(*event, now);
            }
            Change::Tree(tree) => self.set_tree(tree),
            Change::Drain(id, draining) => return self.set_draining(id.as_str(), draining),
            Change::Publish => {
                self.publish(now);
            }
        }
        true
    }
}
