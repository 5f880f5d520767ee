//! How many files may be open, and do the connections fit?
//!
//! Systems hand out a small limit, often 1,024, that a process may raise up to a hard one: it is small for the sake of old
//! programs, and this is none of them.

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

/// What else is open: listeners, logs, polls, names that are looked up.
const BESIDES: u64 = 256;

/// Raises the limit as far as it goes, and says if so many connections from clients do not fit.
pub(crate) fn fit(connections: usize) {
    let Rlimit { current, maximum } = getrlimit(Resource::Nofile);
    let raised = Rlimit {
        current: maximum,
        maximum,
    };
    let limit = match setrlimit(Resource::Nofile, raised) {
        Ok(()) => maximum,
        Err(error) => {
            tracing::debug!(%error, "the limit of open files stays as it is");
            current
        }
    };
    let needed = needed(connections);
    if let Some(limit) = limit.filter(|limit| *limit < needed) {
        tracing::warn!(
            limit,
            needed,
            "limits.connections may take more open files than there can be: raise the hard limit (ulimit -Hn), or lower \
             limits.connections to {}",
            (limit.saturating_sub(BESIDES) / 2).max(1)
        );
    }
}

/// One from the client and one to the upstream, for each.
fn needed(connections: usize) -> u64 {
    u64::try_from(connections)
        .unwrap_or(u64::MAX)
        .saturating_mul(2)
        .saturating_add(BESIDES)
}
