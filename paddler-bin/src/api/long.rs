//! How is a long document made, without standing still and without filling the memory?

use std::time::Duration;

use http::StatusCode;
use tokio::sync::Semaphore;
use tokio::task::spawn_blocking;
use tokio::time::timeout;

use super::{Answer, error};

/// So many are made at once: each may hold thousands of names, and a core for some tenths of a second.
pub(super) const AT_ONCE: usize = 2;

/// How long somebody waits for his turn: less than most who ask wait for an answer.
const WAIT: Duration = Duration::from_secs(5);

static PLACES: Places = Places {
    free: Semaphore::const_new(AT_ONCE),
    wait: WAIT,
};

struct Places {
    free: Semaphore,
    wait: Duration,
}

/// Makes it on a thread of its own, in which no stream must stand still, once it is its turn.
pub(super) async fn long<T: Send + 'static>(make: impl FnOnce() -> T + Send + 'static) -> Result<T, Answer> {
    PLACES.take(make).await
}

impl Places {
    async fn take<T: Send + 'static>(
        &'static self,
        make: impl FnOnce() -> T + Send + 'static,
    ) -> Result<T, Answer> {
        let Ok(Ok(place)) = timeout(self.wait, self.free.acquire()).await else {
            let message = format!(
                "as many long documents are made as may, {AT_ONCE} at once: ask again, or for less, with limit and without details"
            );
            return Err(error(StatusCode::SERVICE_UNAVAILABLE, &message));
        };
        // Whoever asked may leave: it goes on, and so keeps its place.
        let made = spawn_blocking(move || {
            let _place = place;
            make()
        });
        made.await
            .map_err(|why| error(StatusCode::INTERNAL_SERVER_ERROR, &why.to_string()))
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;

    use super::*;

    #[tokio::test]
    async fn no_more_are_made_at_once_also_when_those_who_asked_have_left() {
        static TWO: Places = Places {
            free: Semaphore::const_new(AT_ONCE),
            wait: Duration::ZERO,
        };
        let (go, wait) = mpsc::channel::<()>();
        let (began, has_begun) = mpsc::channel();
        let asked = tokio::spawn(TWO.take(move || {
            began.send(()).unwrap();
            wait.recv().ok();
        }));
        tokio::task::yield_now().await;
        has_begun.recv().unwrap();
        asked.abort();
        assert!(asked.await.unwrap_err().is_cancelled());
        assert_eq!(TWO.take(|| 1).await.unwrap(), 1, "there is a second place");
        let second = TWO.free.acquire().await.unwrap();
        let (status, why) = TWO.take(|| 1).await.unwrap_err();
        assert_eq!(status, StatusCode::SERVICE_UNAVAILABLE);
        assert!(why["error"].as_str().unwrap().contains("2 at once"), "{why}");
        drop(go);
        let first = TWO.free.acquire().await.unwrap();
        drop((first, second));
        assert_eq!(TWO.take(|| 2).await.unwrap(), 2);
    }
}
