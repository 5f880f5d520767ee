//! What was said in the log, to be looked at.

use std::cell::RefCell;
use std::fmt::{Debug, Write};
use std::sync::{Arc, Mutex, Once};

use tracing::field::{Field, Visit};
use tracing::span::{Attributes, Id, Record};
use tracing::{Event, Metadata, Subscriber};

thread_local! {
    static HERE: RefCell<Option<Log>> = const { RefCell::new(None) };
}

/// Lines of the log of one test, each `LEVEL message field=value ..`. Tests run on a thread each, and so does the loop
/// that they start.
#[derive(Clone, Default)]
pub(crate) struct Log(Arc<Mutex<Vec<String>>>);

/// Listens on every thread, before anything is said: a place in the code that first speaks while nobody listens may
/// be taken for silent ever after.
pub(crate) fn listen() {
    static LISTENING: Once = Once::new();
    LISTENING.call_once(|| tracing::subscriber::set_global_default(Listener).unwrap());
}

impl Log {
    /// Writes down what this thread says from now on.
    pub(crate) fn begin() -> Self {
        let log = Self::default();
        HERE.set(Some(log.clone()));
        log
    }

    /// How many lines have all of these words in them.
    pub(crate) fn count(&self, words: &[&str]) -> usize {
        let lines = self.0.lock().unwrap();
        lines
            .iter()
            .filter(|line| words.iter().all(|word| line.contains(word)))
            .count()
    }
}

struct Listener;

struct Line(String);

impl Visit for Line {
    fn record_debug(&mut self, field: &Field, value: &dyn Debug) {
        write!(self.0, " {}={value:?}", field.name()).unwrap();
    }
}

impl Subscriber for Listener {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        metadata.target().starts_with("paddler_core")
    }

    fn new_span(&self, _: &Attributes<'_>) -> Id {
        Id::from_u64(1)
    }

    fn record(&self, _: &Id, _: &Record<'_>) {}

    fn record_follows_from(&self, _: &Id, _: &Id) {}

    fn event(&self, event: &Event<'_>) {
        HERE.with_borrow(|log| {
            if let Some(Log(lines)) = log {
                let mut line = Line(event.metadata().level().to_string());
                event.record(&mut line);
                lines.lock().unwrap().push(line.0);
            }
        });
    }

    fn enter(&self, _: &Id) {}

    fn exit(&self, _: &Id) {}
}
