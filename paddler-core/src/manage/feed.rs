//! What has changed, told as it changes to whoever listens?
//!
//! The last events are kept, and each reader takes them from there at his own pace: however many read and however slowly,
//! nothing more is kept. Who falls behind is told so, and goes on with what is there. A reader who comes back with the id of
//! the last event that he has seen goes on from there, if it is still kept and was told by the same process.

use std::collections::VecDeque;
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use serde::Serialize;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, mpsc, watch};
use tokio::time::timeout;

use crate::forward::Body;

/// How many events are kept: of a fleet of 500 that all come back at once, each one.
const KEPT: usize = 1024;

/// How many may read at once, those included who follow something else and hold a [`Place`].
const READERS: usize = 64;

/// How often a reader over HTTP hears something when there is nothing to tell, so that both sides know of each other, and
/// nothing in between takes the connection for dead.
const KEEP_ALIVE: Duration = Duration::from_secs(5);

/// Something that has happened.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct Event {
    /// Counts the events of this feed, from 1.
    pub number: u64,
    /// What kind, such as `upstream.joined`.
    pub kind: &'static str,
    /// What there is to say of it, in JSON.
    pub data: Arc<str>,
}

/// What a reader hears.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub enum News {
    /// Something has happened.
    Event(Event),
    /// Events were told that he does not hear: he was too slow, or comes back too late. What he knows may be wrong now.
    Gap {
        /// How many, if that is known: not if he has read another process.
        missed: Option<u64>,
    },
}

/// Events, told by one side and read by many. Cheap to clone; clones are the same feed.
///
/// ```
/// use paddler_core::manage::{Feed, News};
///
/// # #[tokio::main(flavor = "current_thread")] async fn main() {
/// let feed = Feed::new(7);
/// let mut reader = feed.reader(None).unwrap();
/// feed.tell("config.reloaded", &serde_json::json!({"result": "success"}));
/// feed.close();
/// let Some(News::Event(event)) = reader.next().await else { panic!() };
/// assert_eq!((event.number, event.kind), (1, "config.reloaded"));
/// assert!(reader.next().await.is_none(), "closed");
/// # }
/// ```
#[derive(Clone)]
pub struct Feed(Arc<Inner>);

struct Inner {
    /// Tells this feed from that of another process.
    epoch: u64,
    told: Mutex<Told>,
    news: watch::Sender<()>,
    places: Arc<Semaphore>,
}

#[derive(Default)]
struct Told {
    kept: VecDeque<Event>,
    /// The number of the last event.
    last: u64,
    closed: bool,
}

impl Feed {
    /// An empty feed. `epoch`: another number for each process, so that ids of one mean nothing to the next.
    pub fn new(epoch: u64) -> Self {
        Self(Arc::new(Inner {
            epoch,
            told: Mutex::default(),
            news: watch::Sender::new(()),
            places: Arc::new(Semaphore::new(READERS)),
        }))
    }

    fn told(&self) -> MutexGuard<'_, Told> {
        // Nothing in here can leave it half changed.
        self.0.told.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Tells of something. What cannot be written as JSON is logged and not told.
    pub fn tell(&self, kind: &'static str, data: &impl Serialize) {
        let data = match serde_json::to_string(data) {
            Ok(data) => data.into(),
            Err(error) => return tracing::error!(kind, %error, "an event cannot be written as JSON"),
        };
        let mut told = self.told();
        if told.closed {
            return;
        }
        told.last += 1;
        let number = told.last;
        if told.kept.len() >= KEPT {
            told.kept.pop_front();
        }
        told.kept.push_back(Event { number, kind, data });
        drop(told);
        self.0.news.send_replace(());
    }

    /// Nothing more is told, and readers end once they have heard what was.
    pub fn close(&self) {
        self.told().closed = true;
        self.0.news.send_replace(());
    }

    /// The id of an event, for [`reader`](Self::reader).
    pub fn id(&self, number: u64) -> String {
        format!("{:016x}-{number}", self.0.epoch)
    }

    /// A reader of what is told from now on; with `after`, the [id](Self::id) of the last event that he has heard, of what came
    /// since. `None`: as many read as may.
    pub fn reader(&self, after: Option<&str>) -> Option<Reader> {
        let place = self.place()?;
        let last = self.told().last;
        let (heard, gap) = match after {
            None => (last, None),
            Some(id) => match self.number(id).filter(|number| *number <= last) {
                Some(number) => (number, None),
                None => (last, Some(News::Gap { missed: None })),
            },
        };
        Some(Reader {
            feed: self.clone(),
            heard,
            gap,
            news: self.0.news.subscribe(),
            _place: place,
        })
    }

    /// A place among its readers, for one who follows something else of this process for as long. `None`: as many read as may.
    pub fn place(&self) -> Option<Place> {
        self.0.places.clone().try_acquire_owned().ok().map(Place)
    }

    /// The number in an id of this feed.
    fn number(&self, id: &str) -> Option<u64> {
        let (epoch, number) = id.split_once('-')?;
        (u64::from_str_radix(epoch, 16) == Ok(self.0.epoch)).then(|| number.parse().ok())?
    }
}

impl fmt::Debug for Feed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Feed")
            .field("last", &self.told().last)
            .field("places", &self.0.places.available_permits())
            .finish_non_exhaustive()
    }
}

/// A place among those who may read a [`Feed`] at once. Dropped, it is free for the next.
#[derive(Debug)]
pub struct Place(#[expect(dead_code, reason = "it is held")] OwnedSemaphorePermit);

/// Somebody who reads a [`Feed`].
#[derive(Debug)]
pub struct Reader {
    feed: Feed,
    /// The number of the last event that he has heard, or was told that he missed.
    heard: u64,
    gap: Option<News>,
    news: watch::Receiver<()>,
    _place: Place,
}

impl Reader {
    /// What comes next; `None` once the feed is closed and all was heard. Dropped, the future takes nothing with it.
    pub async fn next(&mut self) -> Option<News> {
        loop {
            self.news.mark_unchanged();
            if let Some(news) = self.gap.take() {
                return Some(news);
            }
            {
                let told = self.feed.told();
                let first = told.kept.front().map_or(told.last + 1, |first| first.number);
                let missed = first.saturating_sub(self.heard + 1);
                if missed > 0 {
                    self.heard = first - 1;
                    return Some(News::Gap { missed: Some(missed) });
                }
                let next = usize::try_from(self.heard + 1 - first).unwrap_or(usize::MAX);
                if let Some(event) = told.kept.get(next) {
                    self.heard = event.number;
                    return Some(News::Event(event.clone()));
                }
                if told.closed {
                    return None;
                }
            }
            // The feed is held here, so its sender is there.
            self.news.changed().await.ok()?;
        }
    }

    /// All that comes, as server-sent events: `event: KIND`, `id: ID`, `data: JSON`; a gap is `event: gap` with how many were
    /// missed, and where nothing is told for 5 s a comment is. It ends when the feed is closed, and takes from the feed only as
    /// fast as it is read.
    pub fn into_body(mut self) -> Body {
        let (pieces, body) = mpsc::channel(1);
        tokio::spawn(async move {
            // So that the client sees at once that it is connected.
            let mut piece = Some(": paddler\n\n".to_owned());
            while let Some(text) = piece {
                if pieces.send(Bytes::from(text)).await.is_err() {
                    return;
                }
                piece = tokio::select! {
                    () = pieces.closed() => return,
                    next = timeout(KEEP_ALIVE, self.next()) => match next {
                        Ok(Some(news)) => Some(self.written(&news)),
                        Ok(None) => None,
                        Err(_) => Some(": nothing new\n\n".to_owned()),
                    },
                };
            }
        });
        Body::from_channel(body)
    }

    fn written(&self, news: &News) -> String {
        let id = |number| self.feed.id(number);
        match news {
            News::Event(Event { number, kind, data }) => {
                format!("event: {kind}\nid: {}\ndata: {data}\n\n", id(*number))
            }
            News::Gap { missed } => {
                let data = serde_json::json!({ "missed": missed });
                format!("event: gap\nid: {}\ndata: {data}\n\n", id(self.heard))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use http_body_util::BodyExt as _;

    use super::*;

    async fn heard(reader: &mut Reader) -> (Option<u64>, Option<u64>) {
        match reader.next().await {
            Some(News::Event(event)) => (Some(event.number), None),
            Some(News::Gap { missed }) => (None, missed),
            None => (None, None),
        }
    }

    #[tokio::test]
    async fn who_is_too_slow_hears_how_many_he_has_missed() {
        let feed = Feed::new(1);
        let mut reader = feed.reader(None).unwrap();
        for _ in 0..KEPT + 10 {
            feed.tell("a", &());
        }
        assert_eq!(heard(&mut reader).await, (None, Some(10)));
        assert_eq!(heard(&mut reader).await, (Some(11), None));
        feed.close();
        feed.tell("a", &());
        for number in 12..=KEPT as u64 + 10 {
            assert_eq!(heard(&mut reader).await.0, Some(number));
        }
        assert!(reader.next().await.is_none());
    }

    #[tokio::test]
    async fn who_comes_back_goes_on_where_he_was_if_that_is_known() {
        let feed = Feed::new(1);
        (0..3).for_each(|_| feed.tell("a", &()));
        let next = async |after: &str| heard(&mut feed.reader(Some(after)).unwrap()).await;
        assert_eq!(next(&feed.id(1)).await, (Some(2), None));
        assert_eq!(next(&feed.id(0)).await, (Some(1), None));
        for strange in [
            &Feed::new(2).id(1),
            &feed.id(99),
            "",
            "1",
            "x-1",
            "0000000000000001-x",
        ] {
            let mut reader = feed.reader(Some(strange)).unwrap();
            let Some(News::Gap { missed: None }) = reader.next().await else {
                panic!("{strange}");
            };
            feed.tell("a", &());
            let Some(News::Event(event)) = reader.next().await else {
                panic!("{strange}");
            };
            assert_eq!(feed.id(event.number), feed.id(feed.told().last));
        }
    }

    #[tokio::test]
    async fn no_more_read_than_may_and_a_place_comes_free() {
        let feed = Feed::new(1);
        let mut readers: Vec<_> = (1..READERS).map(|_| feed.reader(None).unwrap()).collect();
        let place = feed.place().unwrap();
        assert!(feed.reader(None).is_none() && feed.place().is_none());
        drop(place);
        assert!(feed.place().is_some());
        readers.pop();
        let place = feed.place();
        assert!(feed.reader(None).is_some() && place.is_some());
    }

    #[tokio::test(start_paused = true)]
    async fn as_a_body_it_keeps_alive_and_ends_with_the_feed() {
        let feed = Feed::new(10);
        let mut body = feed.reader(None).unwrap().into_body();
        let mut piece = async || {
            let frame = body.frame().await?.unwrap();
            Some(String::from_utf8(frame.into_data().unwrap().to_vec()).unwrap())
        };
        assert_eq!(piece().await.unwrap(), ": paddler\n\n");
        assert_eq!(piece().await.unwrap(), ": nothing new\n\n");
        feed.tell("upstream.left", &serde_json::json!({"id": "a"}));
        assert_eq!(
            piece().await.unwrap(),
            "event: upstream.left\nid: 000000000000000a-1\ndata: {\"id\":\"a\"}\n\n"
        );
        feed.close();
        assert_eq!(piece().await, None);
    }
}
