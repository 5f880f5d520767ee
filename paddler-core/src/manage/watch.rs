//! How are changes of upstreams found, to be told?
//!
//! By looking four times a second at how each is now and comparing that with how it was: what comes and goes between two looks
//! is not told, except that somebody was ejected, which is counted.

use std::collections::HashMap;
use std::time::Duration;

use serde::Serialize;

use super::feed::Feed;
use super::models::state;
use crate::clock::Clock;
use crate::observe::UpstreamStatus;
use crate::status::{Published, Snapshot};
use crate::upstream::{UpstreamId, UpstreamIndex};

/// How often is looked.
const LOOK: Duration = Duration::from_millis(250);

/// What is compared of an upstream.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Seen {
    /// Counts the specs that this id has had.
    generation: u64,
    state: &'static str,
    ejections: u64,
}

/// Something has happened to an upstream.
#[derive(Debug, Serialize)]
struct Change<'a> {
    /// How it was before, if that is what has changed.
    #[serde(skip_serializing_if = "Option::is_none")]
    before: Option<&'a str>,
    /// How it is now.
    state: &'a str,
    upstream: UpstreamStatus,
}

/// Tells in `feed` of each upstream that joins (`upstream.joined`), leaves (`upstream.left`), becomes another one under its id
/// (`upstream.changed`), comes into another state (`upstream.state`, in the words of
/// [`Serving::state`](super::Serving::state)) or was ejected (`upstream.ejected`), until it is dropped. Those that are there at
/// first have not joined.
pub async fn watch(feed: Feed, published: Published, clock: Clock) {
    let mut before = look(&published.load_full());
    loop {
        tokio::time::sleep(LOOK).await;
        let snapshot = published.load_full();
        let now = look(&snapshot);
        tell(&feed, &snapshot, (&before, &now), clock);
        before = now;
    }
}

fn look(snapshot: &Snapshot) -> HashMap<UpstreamId, (UpstreamIndex, Seen)> {
    let seen = |at: UpstreamIndex, generation| Seen {
        generation,
        state: state(snapshot, at),
        ejections: snapshot.health(at).map_or(0, |health| health.ejections),
    };
    snapshot
        .iter()
        .map(|(at, entry)| (entry.spec().id.clone(), (at, seen(at, entry.generation()))))
        .collect()
}

type Looked = HashMap<UpstreamId, (UpstreamIndex, Seen)>;

fn tell(feed: &Feed, snapshot: &Snapshot, (before, now): (&Looked, &Looked), clock: Clock) {
    for id in before.keys().filter(|id| !now.contains_key(*id)) {
        feed.tell("upstream.left", &serde_json::json!({ "id": id }));
    }
    for (id, (_, seen)) in now {
        let was = before.get(id).map(|(_, was)| was);
        if was == Some(seen) {
            continue;
        }
        let Some(upstream) = UpstreamStatus::find(snapshot, id.as_str(), clock.now()) else {
            continue;
        };
        let change = |before| Change {
            before,
            state: seen.state,
            upstream: upstream.clone(),
        };
        let Some(was) = was else {
            feed.tell("upstream.joined", &change(None));
            continue;
        };
        if was.generation != seen.generation {
            feed.tell("upstream.changed", &change(None));
        }
        if was.ejections < seen.ejections {
            feed.tell("upstream.ejected", &change(Some(was.state)));
        }
        if was.state != seen.state {
            feed.tell("upstream.state", &change(Some(was.state)));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::feed::News;
    use super::*;
    use crate::Moment;
    use crate::schedule::trees;
    use crate::status::{StatusBoard, StatusEvent};
    use crate::upstream::UpstreamSpec;

    #[tokio::test(start_paused = true)]
    async fn what_happens_to_an_upstream_is_told_once() {
        let mut board = StatusBoard::new(trees::gateway());
        let spec = |id: &str, port: u16| UpstreamSpec::new(id, format!("http://127.0.0.1:{port}")).unwrap();
        board.apply(StatusEvent::Upsert(spec("old", 1)), Moment::ZERO);
        board.publish(Moment::ZERO);
        let (feed, clock) = (Feed::new(1), Clock::new());
        let mut reader = feed.reader(None).unwrap();
        tokio::spawn(watch(feed.clone(), board.published(), clock));
        let mut next = async || match reader.next().await {
            Some(News::Event(event)) => {
                let data: serde_json::Value = serde_json::from_str(&event.data).unwrap();
                (event.kind, data)
            }
            other => panic!("{other:?}"),
        };
        tokio::time::sleep(LOOK * 2).await;

        board.apply(StatusEvent::Upsert(spec("new", 2)), clock.now());
        board.publish(clock.now());
        let (kind, data) = next().await;
        assert_eq!(
            (kind, data["upstream"]["id"].as_str()),
            ("upstream.joined", Some("new"))
        );

        board.set_draining("old", true);
        let (kind, data) = next().await;
        let told = (kind, data["before"].as_str(), data["state"].as_str());
        assert_eq!(told, ("upstream.state", Some("healthy"), Some("draining")));

        board.apply(StatusEvent::Upsert(spec("new", 3)), clock.now());
        board.publish(clock.now());
        let (kind, data) = next().await;
        assert_eq!(kind, "upstream.changed");
        assert_eq!(data["upstream"]["url"], "http://127.0.0.1:3");

        board.apply(StatusEvent::Remove(spec("new", 3).id), clock.now());
        board.publish(clock.now());
        let (kind, data) = next().await;
        assert_eq!((kind, data["id"].as_str()), ("upstream.left", Some("new")));
    }
}
