//! Does anything get through that was not sent as a request, out of very many texts that are almost requests?
//!
//! Each connection gets, in pieces, up to two sound requests, one with one to three faults in it, and two sound ones behind it.
//! What arrives at the upstream has to be what a strict reader of the same bytes reads, in order, and each answer has to be
//! the one to its own request. `PADDLER_MALFORMED=1000000` says how many faulty ones are sent; the default is a few thousand.

use std::panic;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

use paddler_core::request::path::normalise;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _, DuplexStream};

use super::generator::{Generator, Random};
use super::memory::{Arrived, Memory};
use super::oracle::{Sent, requests};

static PANICS: AtomicUsize = AtomicUsize::new(0);

/// Sends the bytes in pieces, and reads until the connection ends.
async fn converse(mut client: DuplexStream, bytes: &[u8], random: &mut Random) -> Vec<u8> {
    let mut answers = Vec::new();
    let mut rest = bytes;
    while !rest.is_empty() {
        let most = if random.one_in(4) { 3 } else { 400 };
        let (piece, after) = rest.split_at(rest.len().min(1 + random.below(most)));
        rest = after;
        // It may have closed already.
        if client.write_all(piece).await.is_err() {
            break;
        }
        if random.one_in(3) {
            tokio::task::yield_now().await;
        }
    }
    // It ends by itself: with the last request, a fault, or when nothing comes any more.
    let read = client.read_to_end(&mut answers).await;
    assert!(read.is_ok(), "{read:?}");
    answers
}

/// The head of each answer: its status, and which request it says that it answers.
fn heads(answers: &[u8]) -> Vec<(u16, Option<String>)> {
    let mut heads = Vec::new();
    let mut rest = answers;
    while let Some(end) = rest.windows(4).position(|four| four == b"\r\n\r\n") {
        let head = String::from_utf8_lossy(&rest[..end]).into_owned();
        rest = &rest[end + 4..];
        let mut lines = head.split("\r\n");
        let first = lines.next().unwrap_or_default();
        let status = first
            .strip_prefix("HTTP/1.")
            .and_then(|line| line.get(2..5)?.parse().ok());
        let status: u16 = status.unwrap_or_else(|| panic!("no answer begins so: {first:?}"));
        if status == 100 {
            continue;
        }
        let header = |name: &str| {
            let line = head
                .split("\r\n")
                .find(|line| line.to_ascii_lowercase().starts_with(name));
            line.map(|line| line[name.len()..].trim().to_owned())
        };
        let echo = header("x-echo:");
        let length = header("content-length:").map_or(0, |length| length.parse().unwrap());
        // An answer to HEAD has no body, whatever its length is.
        let is_head = echo.as_ref().is_some_and(|echo| echo.starts_with("HEAD "))
            || (echo.is_none() && rest.get(..5).is_none_or(|next| next == b"HTTP/"));
        if !is_head {
            rest = rest
                .get(length..)
                .unwrap_or_else(|| panic!("a body is cut short: {head:?}"));
        }
        heads.push((status, echo));
    }
    assert!(rest.is_empty(), "no answer: {:?}", String::from_utf8_lossy(rest));
    heads
}

/// Whether a request that arrived is this one.
fn is(arrived: &Arrived, sent: &Sent) -> bool {
    arrived.method == sent.method && arrived.body == sent.body && arrived.target == target(&sent.target)
}

/// The target as it is sent on.
fn target(target: &str) -> String {
    let bare = target.split('#').next().unwrap_or_default();
    let bare = match bare.split_once("://") {
        Some((scheme, rest)) if !scheme.contains(['/', '?']) => {
            rest.find(['/', '?']).map_or("/", |at| &rest[at..])
        }
        _ => bare,
    };
    if bare == "*" {
        return "/".to_owned();
    }
    let (path, query) = bare
        .split_once('?')
        .map_or((bare, None), |(path, query)| (path, Some(query)));
    let path =
        normalise(if path.is_empty() { "/" } else { path }).map_or_else(|_| path.to_owned(), String::from);
    query.map_or(path.clone(), |query| format!("{path}?{query}"))
}

/// Checks one connection. Gives how many requests arrived.
fn check(bytes: &[u8], arrived: &[Arrived], answers: &[u8]) -> usize {
    let (meant, _) = requests(bytes, true);
    let explain = || format!("{:?}\nread: {meant:#?}", String::from_utf8_lossy(bytes));
    let mut left = meant.iter();
    for one in arrived {
        assert!(
            left.any(|sent| is(one, sent)),
            "nobody has sent {one:?} in\n{}",
            explain()
        );
    }
    let heads = heads(answers);
    // An answer to each request, in order, and perhaps one that says what is wrong with the rest.
    assert!(heads.len() <= meant.len() + 1, "{heads:?}\n{}", explain());
    let mut echoed = arrived.iter();
    for (number, (status, echo)) in heads.iter().enumerate() {
        let Some(echo) = echo else {
            let local = meant
                .get(number)
                .is_some_and(|sent| target(&sent.target) == "/health");
            assert!(*status >= 400 || local, "{status}\n{}", explain());
            continue;
        };
        let sent = meant
            .get(number)
            .unwrap_or_else(|| panic!("{echo:?}\n{}", explain()));
        assert_eq!(
            *echo,
            format!("{} {}", sent.method, target(&sent.target)),
            "{}",
            explain()
        );
        let known = echoed.any(|one| *echo == format!("{} {}", one.method, one.target));
        assert!(known, "{echo:?} is the answer to another request\n{}", explain());
    }
    arrived.len()
}

async fn run(texts: u64, seed: u64) -> (u64, usize) {
    let memory = Memory::start().await;
    let (mut sent, mut arrived) = (0, 0);
    let mut random = Random::new(seed);
    while sent < texts {
        let mut generator = Generator::new(Random::new(random.next()));
        let mut bytes = Vec::new();
        for _ in 0..random.below(3) {
            generator.sound(&mut bytes);
        }
        generator.faulty(&mut bytes);
        sent += 1;
        generator.sound(&mut bytes);
        generator.last(&mut bytes);
        let answers = converse(memory.connect(), &bytes, &mut random).await;
        arrived += check(&bytes, &memory.arrived(), &answers);
        assert_eq!(PANICS.load(Relaxed), 0, "{:?}", String::from_utf8_lossy(&bytes));
    }
    (sent, arrived)
}

#[tokio::test(start_paused = true)]
async fn nothing_arrives_that_was_not_sent_as_one() {
    let before = panic::take_hook();
    // Other tests may fail meanwhile; all of this one runs in its own thread.
    let here = std::thread::current().id();
    panic::set_hook(Box::new(move |info| {
        PANICS.fetch_add(usize::from(std::thread::current().id() == here), Relaxed);
        before(info);
    }));
    let said = |name| std::env::var(name).ok().and_then(|said| said.parse().ok());
    let (texts, seed) = (
        said("PADDLER_MALFORMED").unwrap_or(2_000),
        said("PADDLER_SEED").unwrap_or(1),
    );
    let (sent, arrived) = run(texts, seed).await;
    println!("{sent} texts from seed {seed}, {arrived} requests arrived, no panic");
    // It is of no use when all are refused, or none.
    let share = arrived as f64 / sent as f64;
    assert!((0.5..3.0).contains(&share), "{share}");
}
