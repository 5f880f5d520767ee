//! For how long is the body of a request kept, and what if there is no memory for that?
//!
//! Until the head of the answer is here, so that it can be sent again. All bodies together have a budget. They are read to
//! their end before a place is looked for, so each has to be held until it is sent; but only the first three quarters of
//! the budget are for keeping. What comes beyond that is held until it has been written to its upstream, and let go of
//! piece by piece meanwhile: it is sent once, and where it would have been sent again, the refusal says that it was not
//! kept. So a budget that long prompts fill goes on to serve, while what fits it is still safe.

use std::collections::VecDeque;
use std::ops::Range;
use std::pin::Pin;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll};

use bytes::Bytes;
use http_body::{Body as HttpBody, Frame, SizeHint};

use super::body::{Body, BoxError};
use super::pace::Behind;
use crate::schedule::{mix, stable_hash_of};

/// The part of a body, from its end, that tells requests apart: the last message of a chat is there.
const FINGERPRINTED: usize = 1 << 20;

/// The bytes of bodies that are held, over all requests.
#[derive(Debug, Default)]
pub(super) struct Budget {
    held: AtomicU64,
    /// Those who hold some of it and come in slowly.
    pub(super) behind: Behind,
}

impl Budget {
    pub(super) fn held(&self) -> u64 {
        self.held.load(Relaxed)
    }
}

/// A share of the budget. Dropped, it is given back.
#[derive(Debug)]
struct Share {
    bytes: u64,
    budget: Arc<Budget>,
}

impl Share {
    fn give_back(&mut self, bytes: u64) {
        self.bytes -= bytes;
        self.budget.held.fetch_sub(bytes, Relaxed);
    }
}

impl Drop for Share {
    fn drop(&mut self) {
        self.budget.held.fetch_sub(self.bytes, Relaxed);
    }
}

/// A body that is held, and its share of the budget.
#[derive(Debug)]
pub(super) struct Held {
    bytes: u64,
    keeping: Keeping,
    /// The budget was too full to keep it.
    crowded: bool,
}

/// So many quarters of the budget may be held before bodies are let go as they are sent. The last one is for those: they
/// are here for less time, so under pressure more requests are served, and each at its only try.
const CROWDED: u64 = 3;

#[derive(Debug)]
enum Keeping {
    /// For as long as it may be sent again.
    Kept(Pieces, Share),
    /// Until it is written.
    Once(Arc<Mutex<Rest>>),
}

/// The pieces of a body, which has one in most cases.
#[derive(Debug)]
enum Pieces {
    One(Bytes),
    Many(Vec<Bytes>),
}

impl Pieces {
    fn all(&self) -> &[Bytes] {
        match self {
            Self::One(bytes) => std::slice::from_ref(bytes),
            Self::Many(all) => all,
        }
    }

    fn take(&mut self) -> Vec<Bytes> {
        match std::mem::replace(self, Self::Many(Vec::new())) {
            Self::One(bytes) => vec![bytes],
            Self::Many(all) => all,
        }
    }
}

/// What of a body has not been written yet.
#[derive(Debug)]
struct Rest {
    chunks: VecDeque<Bytes>,
    share: Share,
    begun: bool,
}

impl Held {
    pub(super) fn new(budget: Arc<Budget>) -> Self {
        Self {
            bytes: 0,
            keeping: Keeping::Kept(Pieces::Many(Vec::new()), Share { bytes: 0, budget }),
            crowded: false,
        }
    }

    pub(super) fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Takes more of the budget; `false` and nothing taken if it has no more.
    pub(super) fn charge(&mut self, bytes: u64, limit: u64) -> bool {
        let Keeping::Kept(_, share) = &mut self.keeping else {
            return false;
        };
        let more = |held: u64| held.checked_add(bytes).filter(|after| *after <= limit);
        let Ok(before) = share.budget.held.fetch_update(Relaxed, Relaxed, more) else {
            return false;
        };
        share.bytes += bytes;
        self.bytes += bytes;
        self.crowded |= before + bytes > limit / 4 * CROWDED;
        true
    }

    /// It is whole.
    pub(super) fn fill(&mut self, with: Vec<Bytes>) {
        self.keep(Pieces::Many(with));
    }

    /// It is whole, and of one piece, or none where there is nothing in it.
    pub(super) fn fill_one(&mut self, with: Bytes) {
        let pieces = if with.is_empty() {
            Pieces::Many(Vec::new())
        } else {
            Pieces::One(with)
        };
        self.keep(pieces);
    }

    fn keep(&mut self, with: Pieces) {
        if let Keeping::Kept(chunks, share) = &mut self.keeping {
            *chunks = with;
            if self.crowded {
                let nothing = Share {
                    bytes: 0,
                    budget: share.budget.clone(),
                };
                let rest = Rest {
                    chunks: chunks.take().into(),
                    share: std::mem::replace(share, nothing),
                    begun: false,
                };
                self.keeping = Keeping::Once(Arc::new(Mutex::new(rest)));
            }
        }
    }

    /// Puts `with` in the place of each of these ranges, which are in order and do not overlap. The rest is shared, not copied.
    pub(super) fn splice(&mut self, ranges: &[Range<u64>], with: &Bytes) {
        let splice = |chunks: &mut dyn Iterator<Item = Bytes>, share: &mut Share| {
            let before = share.bytes;
            let spliced: Vec<Bytes> = spliced(chunks, ranges, with);
            let bytes = spliced.iter().map(|chunk| chunk.len() as u64).sum::<u64>();
            // A name more or less: there is room for that.
            share.budget.held.fetch_add(bytes, Relaxed);
            share.budget.held.fetch_sub(before, Relaxed);
            share.bytes = bytes;
            spliced
        };
        match &mut self.keeping {
            Keeping::Kept(chunks, share) => {
                let taken = chunks.take();
                *chunks = Pieces::Many(splice(&mut taken.into_iter(), share));
                self.bytes = share.bytes;
            }
            Keeping::Once(rest) => {
                let Rest { chunks, share, .. } = &mut *lock(rest);
                let taken = std::mem::take(chunks);
                *chunks = splice(&mut taken.into_iter(), share).into();
                self.bytes = share.bytes;
            }
        }
    }

    /// The body, to be sent; the bytes are shared.
    pub(super) fn body(&self) -> Body {
        match &self.keeping {
            Keeping::Kept(Pieces::One(bytes), _) => Body::full(bytes.clone()),
            Keeping::Kept(chunks, _) => Body::chunks(chunks.all().iter().cloned()),
            Keeping::Once(rest) => Body::new(Once(rest.clone())),
        }
    }

    /// The bytes that are here, shared.
    #[cfg(feature = "decompress")]
    pub(super) fn pieces(&self) -> Vec<Bytes> {
        match &self.keeping {
            Keeping::Kept(chunks, _) => chunks.all().to_vec(),
            Keeping::Once(rest) => lock(rest).chunks.iter().cloned().collect(),
        }
    }

    /// Whether all of it is here, to be sent or sent again.
    pub(super) fn is_whole(&self) -> bool {
        match &self.keeping {
            Keeping::Kept(..) => true,
            Keeping::Once(rest) => !lock(rest).begun,
        }
    }

    /// A number that other bodies hardly have. Of one that was not kept, its length.
    pub(super) fn fingerprint(&self) -> u64 {
        let Keeping::Kept(chunks, _) = &self.keeping else {
            return self.bytes;
        };
        // However the network has cut it.
        let chunks = chunks.all().iter();
        let all: usize = chunks.clone().map(Bytes::len).sum();
        let mut before = all.saturating_sub(FINGERPRINTED);
        let last = chunks.map(|chunk| {
            let skipped = before.min(chunk.len());
            before -= skipped;
            &chunk[skipped..]
        });
        mix(self.bytes ^ stable_hash_of(last))
    }
}

/// These chunks with `with` in the place of each range.
fn spliced(chunks: &mut dyn Iterator<Item = Bytes>, ranges: &[Range<u64>], with: &Bytes) -> Vec<Bytes> {
    let (mut out, mut ranges, mut at) = (Vec::new(), ranges.iter().peekable(), 0_u64);
    for mut chunk in chunks {
        while let Some(range) = ranges.peek() {
            let end = at + chunk.len() as u64;
            if range.start >= end {
                break;
            }
            // A range that began in a chunk before is still being left out.
            if range.start >= at {
                let kept = chunk.split_to(offset(range.start - at));
                at += kept.len() as u64;
                out.extend([kept, with.clone()]);
            }
            let cut = chunk.split_to(offset(range.end.min(end) - at));
            at += cut.len() as u64;
            if range.end > end {
                break;
            }
            ranges.next();
        }
        at += chunk.len() as u64;
        out.push(chunk);
    }
    out.retain(|chunk| !chunk.is_empty());
    out
}

/// Within one chunk.
fn offset(bytes: u64) -> usize {
    usize::try_from(bytes).unwrap_or(usize::MAX)
}

fn lock(rest: &Mutex<Rest>) -> MutexGuard<'_, Rest> {
    rest.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A body that goes as it is written.
struct Once(Arc<Mutex<Rest>>);

impl HttpBody for Once {
    type Data = Bytes;
    type Error = BoxError;

    fn poll_frame(
        self: Pin<&mut Self>,
        _cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BoxError>>> {
        let mut rest = lock(&self.0);
        let chunk = rest.chunks.pop_front();
        if let Some(chunk) = &chunk {
            rest.begun = true;
            rest.share.give_back(chunk.len() as u64);
        }
        Poll::Ready(chunk.map(|chunk| Ok(Frame::data(chunk))))
    }

    fn is_end_stream(&self) -> bool {
        lock(&self.0).chunks.is_empty()
    }

    fn size_hint(&self) -> SizeHint {
        SizeHint::with_exact(lock(&self.0).share.bytes)
    }
}

#[cfg(test)]
mod tests {
    use http_body_util::BodyExt;

    use super::*;

    fn held(budget: &Arc<Budget>, bytes: usize, limit: u64) -> Option<Held> {
        let mut held = Held::new(budget.clone());
        let charged = held.charge(bytes as u64, limit);
        held.fill(vec![Bytes::from(vec![b'a'; bytes])]);
        charged.then_some(held)
    }

    #[tokio::test]
    async fn what_the_budget_cannot_keep_goes_as_it_is_written() {
        let budget = Arc::new(Budget::default());
        let kept = held(&budget, 75, 100).unwrap();
        let once = held(&budget, 25, 100).unwrap();
        assert!(held(&budget, 1, 100).is_none(), "there is no more");
        assert_eq!(budget.held(), 100);
        for held in [&kept, &once] {
            // A body that was made and not read is as none.
            drop(held.body());
            assert!(held.is_whole());
            let body = held.body();
            assert_eq!(body.size_hint().exact(), Some(held.bytes()));
            assert_eq!(
                body.collect().await.unwrap().to_bytes().len() as u64,
                held.bytes()
            );
        }
        assert!(kept.is_whole() && !once.is_whole());
        assert_eq!(budget.held(), 75);
        assert_eq!((once.bytes(), once.fingerprint()), (25, 25));
        drop((kept, once));
        assert_eq!(budget.held(), 0);
    }

    #[tokio::test]
    async fn what_is_put_into_a_body_stands_in_the_place_of_what_was_there() {
        let text = b"0123456789";
        for cuts in 0..1_u32 << 9 {
            // Each way to cut it into pieces.
            let mut pieces: Vec<Vec<u8>> = vec![Vec::new()];
            for (at, byte) in text.iter().enumerate() {
                if at > 0 && cuts >> (at - 1) & 1 == 1 {
                    pieces.push(Vec::new());
                }
                pieces.last_mut().unwrap().push(*byte);
            }
            for (ranges, with, expected) in [
                (&[0..1, 9..10][..], "abc", "abc12345678abc"),
                (&[2..5, 5..6], "-", "01--6789"),
                (std::slice::from_ref(&(0..10)), "", ""),
                (
                    std::slice::from_ref(&(3..4)),
                    "long enough",
                    "012long enough456789",
                ),
            ] {
                for limit in [10, 100] {
                    let budget = Arc::new(Budget::default());
                    let mut held = Held::new(budget.clone());
                    assert!(held.charge(10, limit));
                    held.fill(pieces.iter().cloned().map(Bytes::from).collect());
                    held.splice(ranges, &Bytes::from(with));
                    assert_eq!(
                        (held.bytes(), budget.held()),
                        (expected.len() as u64, held.bytes())
                    );
                    let body = held.body().collect().await.unwrap().to_bytes();
                    assert_eq!(body, expected, "{pieces:?} {ranges:?}");
                    drop(held);
                    assert_eq!(budget.held(), 0);
                }
            }
        }
    }

    #[tokio::test]
    async fn one_piece_is_as_good_as_many() {
        for limit in [10, 100] {
            let budget = Arc::new(Budget::default());
            let mut held = Held::new(budget.clone());
            assert!(held.charge(10, limit));
            held.fill_one(Bytes::from_static(b"0123456789"));
            let body = held.body();
            assert_eq!(body.size_hint().exact(), Some(10));
            drop(body);
            held.splice(std::slice::from_ref(&(2..4)), &Bytes::from_static(b"ab"));
            let body = held.body().collect().await.unwrap().to_bytes();
            assert_eq!(body, "01ab456789");
        }
    }

    #[test]
    fn a_body_of_nothing_is_sent_as_none_however_little_room_there_is() {
        for crowded in [false, true] {
            let mut held = Held::new(Arc::new(Budget::default()));
            held.crowded = crowded;
            held.fill_one(Bytes::new());
            assert!(held.body().is_end_stream(), "crowded: {crowded}");
        }
    }

    #[test]
    fn a_fingerprint_tells_contents_apart() {
        let budget = Arc::new(Budget::default());
        let print = |texts: &[&'static str]| {
            let mut held = Held::new(budget.clone());
            let bytes = texts.iter().map(|text| text.len() as u64).sum();
            assert!(held.charge(bytes, 1000));
            held.fill(
                texts
                    .iter()
                    .map(|text| Bytes::from_static(text.as_bytes()))
                    .collect(),
            );
            held.fingerprint()
        };
        assert_eq!(print(&["ab", "cd"]), print(&["ab", "cd"]));
        assert_ne!(print(&["ab", "cd"]), print(&["ab", "ce"]));
        assert_ne!(print(&["ab", "cd"]), print(&["bb", "cd"]));
        assert_ne!(print(&[]), print(&["a"]));
        assert_eq!(print(&["ab", "cd"]), print(&["a", "", "bcd"]), "however it came");

        let long = vec![b'a'; FINGERPRINTED + 10];
        let cut = |at: usize| {
            let mut held = Held::new(budget.clone());
            assert!(held.charge(long.len() as u64, 1 << 30));
            let (one, other) = long.split_at(at);
            held.fill(vec![Bytes::copy_from_slice(one), Bytes::copy_from_slice(other)]);
            held.fingerprint()
        };
        assert_eq!(cut(3), cut(FINGERPRINTED - 1), "nor where its last part begins");
    }
}
