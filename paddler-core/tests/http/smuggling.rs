//! Does each request arrive as the one that it is, and nothing as one that is none?
//!
//! The cases are the known ways in which two readers of one text came to read different requests in it, as the HTTP Garden
//! and the work on request smuggling list them. Each says what may arrive, over a real socket, at an upstream that keeps every
//! byte, and what the client is told.

use std::time::Duration;

use super::cases::{CASES, Case};
use super::client::{Client, HANG};
use super::recorder::Recorder;
use super::world::{Setup, World, spec};

/// A router that waits for nothing for long.
async fn world(recorder: &Recorder) -> World {
    let soon = Duration::from_millis(500);
    let setup = Setup::new().with(|setup| {
        setup.serve.header_timeout = soon;
        setup.options.timeouts.body_idle = soon;
    });
    setup.start([spec("a", &recorder.url)]).await
}

/// Sends all of it and reads the answers until the connection ends.
async fn answers(world: &World, sent: &[u8], split: bool) -> Vec<u16> {
    let mut client = Client::connect(world.addr).await;
    for part in sent.chunks(if split { 1 } else { sent.len().max(1) }) {
        client.try_write(part).await;
        tokio::task::yield_now().await;
    }
    let (_, bytes) = tokio::time::timeout(HANG, client.rest())
        .await
        .expect("it was not closed");
    statuses(&bytes)
}

/// The status of each answer.
fn statuses(bytes: &[u8]) -> Vec<u16> {
    let text = String::from_utf8_lossy(bytes);
    let status = |answer: &str| {
        let number = answer.get(2..6)?.strip_suffix(' ')?;
        number.parse().ok()
    };
    text.split("HTTP/1.").skip(1).filter_map(status).collect()
}

async fn check(case: &Case, number: usize, world: &World, recorder: &Recorder) -> Result<(), String> {
    for split in [false, true] {
        let path = format!("/c{number}-{}", u8::from(split));
        let sent = case.sent.replace("{p}", &path);
        let mut answered = answers(world, &bytes(&sent), split).await;
        // Only a preface that has come whole is known for one, and ends the connection in silence.
        if split && sent.contains("PRI * HTTP/2.0") && answered.len() > case.answers.len() {
            assert_eq!(answered.pop(), Some(400), "{}", case.name);
        }
        let mut arrived: Vec<String> = recorder
            .requests()
            .into_iter()
            .filter(|request| request.target.contains(&path))
            .map(|request| {
                let target = request.target.replace(&path, "");
                let text = format!(
                    "{} {target} {}",
                    request.method,
                    String::from_utf8_lossy(&request.body)
                );
                text.trim().to_owned()
            })
            .collect();
        // They may have gone over several connections.
        let mut arrives = case.arrives.to_vec();
        arrived.sort();
        arrives.sort_unstable();
        if arrived != arrives || answered != case.answers {
            return Err(format!(
                "{}: arrived {arrived:?} instead of {:?}, answered {answered:?} instead of {:?}",
                case.name, case.arrives, case.answers
            ));
        }
    }
    Ok(())
}

/// Each character is a byte, so that a case can hold any.
fn bytes(text: &str) -> Vec<u8> {
    text.chars()
        .map(|c| u8::try_from(u32::from(c)).unwrap())
        .collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_arrives_is_what_was_asked_and_nothing_else() {
    let recorder = Recorder::start().await;
    let world = world(&recorder).await;
    let checks = CASES
        .iter()
        .enumerate()
        .map(|(number, case)| check(case, number, &world, &recorder));
    let mut wrong = Vec::new();
    // Some at a time, so that no machine is too slow for the time limits.
    let mut checks: Vec<_> = checks.collect();
    while !checks.is_empty() {
        let some = checks.split_off(checks.len().saturating_sub(16));
        let results = join(some).await;
        wrong.extend(results.into_iter().filter_map(Result::err));
    }
    assert!(wrong.is_empty(), "\n{}", wrong.join("\n"));
    // Nobody else's bytes came along. What is asked of the server as a whole has no path of its own.
    let strange = recorder.requests().into_iter().filter(|request| {
        !request.target.starts_with("/c") && (request.method != "OPTIONS" || request.target != "/")
    });
    assert_eq!(strange.collect::<Vec<_>>(), []);
    world.quiet().await;
}

async fn join<T>(futures: Vec<impl Future<Output = T>>) -> Vec<T> {
    let mut pinned: Vec<_> = futures.into_iter().map(Box::pin).collect();
    let mut done: Vec<Option<T>> = pinned.iter().map(|_| None).collect();
    std::future::poll_fn(move |cx| {
        for (future, done) in pinned.iter_mut().zip(&mut done) {
            if done.is_none()
                && let std::task::Poll::Ready(value) = future.as_mut().poll(cx)
            {
                *done = Some(value);
            }
        }
        if done.iter().all(Option::is_some) {
            std::task::Poll::Ready(done.iter_mut().filter_map(Option::take).collect())
        } else {
            std::task::Poll::Pending
        }
    })
    .await
}

#[test]
fn what_may_arrive_is_what_a_strict_reader_reads() {
    for case in CASES {
        let (read, rest) = super::oracle::requests(&bytes(&case.sent.replace("{p}", "/p")), true);
        let read: Vec<_> = read
            .iter()
            .map(|sent| (sent.method.as_str(), sent.target.as_str()))
            .collect();
        let mut left = read.iter();
        for arrives in case.arrives {
            let method = arrives.split(' ').next().unwrap();
            assert!(
                left.any(|(known, _)| *known == method),
                "{}: {read:?} {rest:?}",
                case.name
            );
        }
        // What is malformed has no good answer.
        let good = case.answers.iter().filter(|status| (200..300).contains(*status));
        assert!(good.count() <= read.len(), "{}: {rest:?}", case.name);
    }
}
