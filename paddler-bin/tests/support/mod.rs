//! What do all tests of the program need?

pub(crate) mod client;
pub(crate) mod program;
pub(crate) mod schema;
