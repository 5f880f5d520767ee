//! Is a name followed where it leads, and the next address tried when one is dead?

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use http::Request;
use http_body_util::BodyExt as _;
use paddler_core::forward::Body;
use paddler_core::upstream::http::{Dial, HttpOptions, HttpUpstream, Tcp};
use paddler_core::upstream::{CallError, Extensions, Sent, Upstream as _, UpstreamSpec};

use super::net::{HANG, Named, Net, eventually, get, soon};

fn upstream(net: &Arc<Net>, set: impl FnOnce(&mut HttpOptions)) -> HttpUpstream {
    let mut options = HttpOptions::default();
    options.idle_timeout = HANG;
    set(&mut options);
    let spec = UpstreamSpec::new("engine", "http://engine.test:80").unwrap();
    HttpUpstream::over(net.clone(), &spec, options).unwrap()
}

/// An address at which nobody is.
async fn nobody() -> SocketAddr {
    let gone = Named::start("gone", "127.0.0.1").await;
    gone.stop().await;
    gone.addr
}

#[tokio::test]
async fn a_kept_connection_does_not_outlive_its_address_in_the_names_answer() {
    let (old, new) = (
        Named::start("old", "127.0.0.1").await,
        Named::start("new", "127.0.0.1").await,
    );
    let net = Net::new(&[old.addr]);
    let upstream = upstream(&net, |options| options.address_ttl = Duration::ZERO);
    // Two are kept, of which one is used again and one is not.
    let request = || Request::get("/").body(Body::empty()).unwrap();
    for response in [upstream.call(request()).await, upstream.call(request()).await] {
        soon(response.unwrap().into_body().collect()).await.unwrap();
    }
    assert_eq!(old.open(), 2);
    // The old one stays up, and would go on to answer.
    net.now(&[new.addr]);
    get(&upstream).await.unwrap();
    eventually("the old one is left", || old.open() == 0).await;
    assert_eq!(get(&upstream).await.unwrap(), "new");
}

#[tokio::test]
async fn a_connection_in_use_is_not_kept_once_its_address_has_left() {
    let (old, new) = (
        Named::start("old", "127.0.0.1").await,
        Named::start("new", "127.0.0.1").await,
    );
    let net = Net::new(&[old.addr]);
    let upstream = upstream(&net, |options| options.address_ttl = Duration::ZERO);
    let request = Request::get("/").body(Body::empty()).unwrap();
    let held = soon(upstream.call(request)).await.unwrap();
    net.now(&[new.addr]);
    assert_eq!(get(&upstream).await.unwrap(), "new");
    soon(held.into_body().collect()).await.unwrap();
    eventually("it was closed at its end", || old.open() == 0).await;
    assert_eq!(get(&upstream).await.unwrap(), "new");
}

#[tokio::test]
async fn a_name_is_not_looked_up_for_each_connection_and_is_when_nobody_answers() {
    let (old, new) = (
        Named::start("old", "127.0.0.1").await,
        Named::start("new", "127.0.0.1").await,
    );
    let net = Net::new(&[old.addr]);
    let upstream = upstream(&net, |options| options.max_idle = 0);
    for _ in 0..3 {
        assert_eq!(get(&upstream).await.unwrap(), "old");
    }
    assert_eq!(net.asked.load(Relaxed), 1);
    old.stop().await;
    net.now(&[new.addr]);
    assert_eq!(get(&upstream).await.unwrap(), "new", "found within one call");
    assert_eq!(net.asked.load(Relaxed), 2);
}

#[tokio::test]
async fn the_last_answer_stands_in_for_a_resolver_that_has_none() {
    let engine = Named::start("engine", "127.0.0.1").await;
    let net = Net::new(&[engine.addr]);
    let upstream = upstream(&net, |options| {
        options.address_ttl = Duration::ZERO;
        options.max_idle = 0;
    });
    get(&upstream).await.unwrap();
    net.fail();
    assert_eq!(get(&upstream).await.unwrap(), "engine");
    assert!(net.asked.load(Relaxed) >= 2);
}

#[tokio::test]
async fn a_name_without_an_answer_is_said_and_nothing_was_sent() {
    let net = Net::new(&[]);
    let upstream = upstream(&net, |_| {});
    for problem in ["the name has no address", "try again later"] {
        let error = get(&upstream).await.unwrap_err();
        let error = error.downcast_ref::<CallError>().unwrap();
        assert_eq!(error.sent(), Sent::No);
        let text = std::error::Error::source(error).unwrap().to_string();
        assert!(text.contains("engine.test") && text.contains(problem), "{text}");
        net.fail();
    }
}

#[tokio::test]
async fn the_next_address_is_tried_and_remembered() {
    let engine = Named::start("engine", "127.0.0.1").await;
    let (dead, last) = (nobody().await, nobody().await);
    let net = Net::new(&[dead, engine.addr, last]);
    let upstream = upstream(&net, |options| options.max_idle = 0);
    assert_eq!(get(&upstream).await.unwrap(), "engine");
    assert_eq!(net.dialled(), [dead, engine.addr]);
    assert_eq!(get(&upstream).await.unwrap(), "engine");
    assert_eq!(
        net.dialled(),
        [engine.addr],
        "the one that answered is tried first"
    );
    engine.stop().await;
    let error = get(&upstream).await.unwrap_err();
    let text = std::error::Error::source(&*error).unwrap().to_string();
    for address in [dead, engine.addr, last] {
        assert!(text.contains(&address.to_string()), "{text}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_silent_address_leaves_time_for_the_next() {
    let (silent, engine) = (([192, 0, 2, 1], 80).into(), ([192, 0, 2, 2], 80).into());
    let net = Net::new(&[silent, engine]);
    net.within(engine, "engine");
    net.silence(silent);
    let upstream = upstream(&net, |options| options.max_idle = 0);
    let began = tokio::time::Instant::now();
    assert_eq!(get(&upstream).await.unwrap(), "engine");
    assert_eq!(
        began.elapsed(),
        Duration::from_secs(1),
        "half of the time to connect"
    );
    net.silence(engine);
    let began = tokio::time::Instant::now();
    let error = get(&upstream).await.unwrap_err();
    assert_eq!(error.downcast_ref::<CallError>().unwrap().sent(), Sent::No);
    assert_eq!(
        began.elapsed(),
        Duration::from_secs(2),
        "the time to connect, and no more"
    );
}

#[tokio::test]
async fn an_address_of_ip_version_6_is_reached() {
    let engine = Named::start("six", "::1").await;
    let url = format!("http://{}", engine.addr);
    assert!(url.starts_with("http://[::1]:"));
    let upstream = HttpUpstream::new(&url, &Extensions::default(), HttpOptions::default()).unwrap();
    assert_eq!(get(&upstream).await.unwrap(), "six");
    // And by a name that has one, after one of version 4 that nobody listens at.
    let net = Net::new(&[nobody().await, engine.addr]);
    assert_eq!(get(&self::upstream(&net, |_| {})).await.unwrap(), "six");
}

#[tokio::test]
async fn the_operating_system_knows_this_machine() {
    let found = soon(Tcp.resolve("localhost", 80)).await.unwrap();
    assert!(
        !found.is_empty()
            && found
                .iter()
                .all(|address| address.ip().is_loopback() && address.port() == 80)
    );
    assert!(soon(Tcp.resolve("no-such-name.invalid", 80)).await.is_err());
}

#[tokio::test(start_paused = true)]
async fn who_only_wants_to_know_the_addresses_waits_for_no_resolver_that_is_not_needed() {
    let [one, other]: [SocketAddr; 2] =
        ["10.0.0.1:80", "10.0.0.2:80"].map(|address| address.parse().unwrap());
    let net = Net::new(&[one, other]);
    net.fail();
    let upstream = upstream(&net, |_| {});
    let asked = || net.asked.load(Relaxed);
    for _ in 0..3 {
        let error = upstream.addresses().await.unwrap_err().to_string();
        assert!(
            error.contains("engine.test") && error.contains("try again later"),
            "{error}"
        );
    }
    assert_eq!(asked(), 1, "what had no answer is not asked for by each");
    net.now(&[one, other]);
    tokio::time::advance(Duration::from_secs(2)).await;
    for _ in 0..3 {
        assert_eq!(upstream.addresses().await.unwrap(), [one, other]);
    }
    assert_eq!(asked(), 2);
    // What is old is told all the same, and looked up beside.
    net.now(&[other]);
    tokio::time::advance(Duration::from_secs(30)).await;
    assert_eq!(upstream.addresses().await.unwrap(), [one, other]);
    eventually("it has been looked up", || asked() == 3).await;
    assert_eq!(upstream.addresses().await.unwrap(), [other]);
    let literal = HttpUpstream::new(
        "http://[::1]:8080",
        &Extensions::default(),
        HttpOptions::default(),
    );
    let literal = literal.unwrap().addresses().await.unwrap();
    assert_eq!(literal, ["[::1]:8080".parse().unwrap()]);
}

#[tokio::test(start_paused = true)]
async fn a_name_is_looked_up_once_for_all_who_only_want_to_know_it_though_they_wait_no_longer() {
    let one: SocketAddr = "10.0.0.1:80".parse().unwrap();
    let net = Net::new(&[one]);
    net.hang();
    let upstream = upstream(&net, |_| {});
    for _ in 0..5 {
        let waits = tokio::time::timeout(Duration::ZERO, upstream.addresses()).await;
        assert!(waits.is_err(), "nothing is known yet");
    }
    let (first, second) = tokio::join!(upstream.addresses(), upstream.addresses());
    assert!(first.is_err() && second.is_err());
    assert_eq!(net.asked.load(Relaxed), 1);
    // That there was no answer is known for a while.
    let error = upstream.addresses().await.unwrap_err();
    assert!(error.to_string().contains("engine.test"), "{error}");
    assert_eq!(net.asked.load(Relaxed), 1);
    net.now(&[one]);
    tokio::time::advance(Duration::from_secs(2)).await;
    assert_eq!(upstream.addresses().await.unwrap(), [one]);
    assert_eq!(net.asked.load(Relaxed), 2);
}
