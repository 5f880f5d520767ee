//! When does the program stop, and when does it read its config again?

use std::future::Future;

use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::sync::watch;

use crate::Failure;

/// Listens for SIGHUP: the config is to be read again.
#[derive(Debug)]
pub(crate) struct Hangups(Signal);

impl Hangups {
    /// From now on SIGHUP ends the program no more.
    pub(crate) fn listen() -> Result<Self, Failure> {
        Ok(Self(signal(SignalKind::hangup())?))
    }

    /// Ready when one has come since the last.
    pub(crate) async fn next(&mut self) {
        if self.0.recv().await.is_none() {
            std::future::pending::<()>().await;
        }
    }
}

/// The requests to stop that have come so far: the first one asks, the second one insists.
#[derive(Debug, Clone)]
pub(crate) struct Stops(watch::Receiver<u32>);

impl Stops {
    /// Listens for SIGTERM and SIGINT from now on.
    pub(crate) fn listen() -> Result<Self, Failure> {
        let mut terminate = signal(SignalKind::terminate())?;
        let mut interrupt = signal(SignalKind::interrupt())?;
        let (count, seen) = watch::channel(0);
        tokio::spawn(async move {
            loop {
                tokio::select! {
                    _ = terminate.recv() => {}
                    _ = interrupt.recv() => {}
                }
                count.send_modify(|count| *count += 1);
            }
        });
        Ok(Self(seen))
    }

    /// Ready once so many have come.
    pub(crate) fn reach(&self, count: u32) -> impl Future<Output = ()> + Send + use<> {
        let mut seen = self.0.clone();
        async move {
            // The sender lives as long as the runtime, and nothing is to be stopped after that.
            if seen.wait_for(|seen| *seen >= count).await.is_err() {
                std::future::pending::<()>().await;
            }
        }
    }
}
