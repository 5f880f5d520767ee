//! How do bytes and connections behave?

pub(crate) mod body;
pub(crate) mod connection;
pub(crate) mod door;
pub(crate) mod line;
pub(crate) mod rewrite;
pub(crate) mod socket;
