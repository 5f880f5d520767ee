//! Where do the headers of an answer come, without memory being asked for each time?
//!
//! Into the map of a request that has been answered: each thread keeps one.

use std::cell::Cell;

use http::HeaderMap;

thread_local! {
    static SPARE: Cell<Option<HeaderMap>> = const { Cell::new(None) };
}

/// The largest that is kept, in headers.
const MOST: usize = 64;

/// Keeps the map of a request that is not sent again. What is in it goes.
pub(crate) fn keep(mut headers: HeaderMap) {
    // What a map has for names that come more than once is in no capacity, and stays when it is cleared.
    let has_more = headers.keys_len() < headers.len();
    headers.clear();
    if headers.capacity() <= MOST && !has_more {
        // A thread that ends keeps nothing.
        SPARE.try_with(|spare| spare.set(Some(headers))).ok();
    }
}

/// An empty map.
pub(super) fn take() -> HeaderMap {
    SPARE.try_with(Cell::take).ok().flatten().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use http::HeaderValue;
    use http::header::HOST;

    use super::*;

    #[test]
    fn a_map_is_used_again_and_nothing_of_what_was_in_it() {
        let mut small = HeaderMap::with_capacity(8);
        small.insert(HOST, HeaderValue::from_static("a"));
        let room = small.capacity();
        keep(small);
        let again = take();
        assert_eq!((again.len(), again.capacity()), (0, room));
        keep(HeaderMap::with_capacity(2 * MOST));
        assert_eq!(take().capacity(), 0, "a large one is not kept");
        let mut repeated = HeaderMap::new();
        for _ in 0..1000 {
            repeated.append(HOST, HeaderValue::from_static("a"));
        }
        keep(repeated);
        assert_eq!(take().capacity(), 0, "nor one that holds much under one name");
    }
}
