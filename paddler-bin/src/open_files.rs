//! How many files may be open, and do the connections fit?
//!
//! Systems hand out a small limit, often 1,024, that a process may raise up to a hard one: it is small for the sake of old
//! programs, and this is none of them.

use paddler_core::config::Limits;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

/// What else is open: listeners, logs, polls, names that are looked up.
const BESIDES: u64 = 256;

/// Raises the limit as far as it goes, and says if so many connections from clients do not fit.
pub(crate) fn fit(limits: &Limits) {
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
    if let Some(limit) = limit {
        say(limit, limits);
    }
}

/// What is sure to be too much is a fault. What may be, depends on how many requests clients of HTTP/2 have at once.
fn say(limit: u64, limits: &Limits) {
    let Limits {
        connections, streams, ..
    } = *limits;
    let (one_each, most) = (needed(connections, 1), needed(connections, streams));
    if limit < one_each {
        tracing::warn!(
            limit,
            needed = one_each,
            "limits.connections may take more open files than there can be: raise the hard limit (ulimit -Hn), or lower \
             limits.connections to {}",
            (limit.saturating_sub(BESIDES) / 2).max(1)
        );
    } else if limit < most {
        tracing::info!(
            limit,
            needed = most,
            "there are open files for limits.connections and a request on each, {} in all; clients of HTTP/2 may have more at \
             once (limits.streams), each of which may take a connection to an upstream",
            (limit - BESIDES).saturating_sub(u64::try_from(connections).unwrap_or(u64::MAX))
        );
    }
}

/// For each connection one from the client, and one to an upstream for each request that it may have at once.
fn needed(connections: usize, requests: u32) -> u64 {
    u64::try_from(connections)
        .unwrap_or(u64::MAX)
        .saturating_mul(u64::from(requests).saturating_add(1))
        .saturating_add(BESIDES)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_request_on_a_connection_takes_a_file_beside_it() {
        assert_eq!(needed(1000, 1), 2_256);
        assert_eq!(needed(4096, 128), 4096 * 129 + 256);
        assert_eq!(needed(usize::MAX, u32::MAX), u64::MAX);
    }
}
