//! What if this process has no file descriptor left for a connection?
//!
//! That is its own want, and no upstream is to blame: else one router that is short of them takes healthy upstreams for gone,
//! one after the other.

use std::error::Error;
use std::fmt;
use std::io;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use tokio::time::Instant;

/// How Unix numbers it that the machine, or the process, has none left.
const NONE_LEFT: [i32; 2] = [23, 24];

/// How long nothing more is said of it.
const SAID_FOR: Duration = Duration::from_secs(60);

/// No connection, since this process has no file descriptor left for it. With what was tried.
#[derive(Debug)]
pub(crate) struct OutOfFiles(String);

impl OutOfFiles {
    /// The same, of whatever was tried before that.
    pub(super) fn in_words(text: String) -> Self {
        Self(text)
    }

    /// Whether an error of the network is one of these.
    pub(super) fn is(error: &(dyn Error + 'static)) -> bool {
        let io = error.downcast_ref::<io::Error>();
        io.and_then(io::Error::get_ref)
            .is_some_and(|inner| inner.is::<Self>())
    }

    /// What the system says, if it says that. It is said in the log, and not with every request.
    pub(super) fn of(error: &io::Error) -> Option<io::Error> {
        static SAID: Mutex<Option<Instant>> = Mutex::new(None);
        if !is_none_left(error) {
            return None;
        }
        if is_due(&SAID, Instant::now()) {
            tracing::error!(%error, "no connection to an upstream can be made: this process has no file descriptor left; raise its hard limit (ulimit -Hn)");
        }
        let text = format!("this router has no file descriptor left for it: {error}");
        Some(io::Error::other(Self(text)))
    }
}

impl fmt::Display for OutOfFiles {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl Error for OutOfFiles {}

fn is_none_left(error: &io::Error) -> bool {
    cfg!(unix) && error.raw_os_error().is_some_and(|code| NONE_LEFT.contains(&code))
}

fn is_due(said: &Mutex<Option<Instant>>, now: Instant) -> bool {
    let mut said = said.lock().unwrap_or_else(PoisonError::into_inner);
    let due = said.is_none_or(|at| now.saturating_duration_since(at) >= SAID_FOR);
    if due {
        *said = Some(now);
    }
    due
}

#[cfg(all(test, unix))]
mod tests {
    use super::*;

    #[test]
    fn it_is_told_from_what_upstreams_do() {
        for code in [23, 24] {
            let error = OutOfFiles::of(&io::Error::from_raw_os_error(code)).unwrap();
            assert!(OutOfFiles::is(&error), "{error}");
            assert!(error.to_string().contains("file descriptor"), "{error}");
        }
        let refused = io::Error::from(io::ErrorKind::ConnectionRefused);
        assert!(OutOfFiles::of(&refused).is_none() && !OutOfFiles::is(&refused));
        let unreachable = io::Error::from_raw_os_error(113);
        assert!(OutOfFiles::of(&unreachable).is_none());
    }

    #[test]
    fn it_is_said_once_a_minute() {
        let (said, start) = (Mutex::new(None), Instant::now());
        let due = |seconds| is_due(&said, start + Duration::from_secs(seconds));
        assert_eq!([0, 1, 59, 60, 61].map(due), [true, false, false, true, false]);
    }
}
