//! Upstreams behind a name: as many as it has addresses, for as long as it has them.

use std::io;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use async_trait::async_trait;
use paddler_core::schedule::trees;
use paddler_core::status::{DnsList, Snapshot};
use paddler_core::upstream::http::{Dial, HttpConnect, Io};
use tokio::time::{Instant, sleep};

use crate::rig::{Rig, spec};

/// A resolver whose answers the test gives, by name.
#[derive(Debug, Default)]
struct Resolver {
    answers: Mutex<Vec<(&'static str, Vec<&'static str>)>>,
    asked: Mutex<Vec<String>>,
}

impl Resolver {
    fn now(&self, answers: &[(&'static str, &[&'static str])]) {
        *self.answers.lock().unwrap() = answers.iter().map(|(name, ips)| (*name, ips.to_vec())).collect();
    }
}

#[async_trait]
impl Dial for Resolver {
    async fn resolve(&self, host: &str, port: u16) -> io::Result<Vec<SocketAddr>> {
        self.asked.lock().unwrap().push(host.to_owned());
        if host == "hangs" {
            return std::future::pending().await;
        }
        let answers = self.answers.lock().unwrap();
        let found = answers.iter().find(|(name, _)| *name == host);
        let (_, ips) = found.ok_or_else(|| io::Error::other("try again later"))?;
        Ok(ips
            .iter()
            .map(|ip| SocketAddr::new(ip.parse().unwrap(), port))
            .collect())
    }

    async fn dial(&self, _: SocketAddr) -> io::Result<Box<dyn Io>> {
        Err(io::ErrorKind::ConnectionRefused.into())
    }
}

fn urls(snapshot: &Snapshot) -> Vec<String> {
    let mut urls: Vec<_> = snapshot
        .iter()
        .map(|(_, entry)| format!("{} {}", entry.spec().id, entry.spec().url))
        .collect();
    urls.sort_unstable();
    urls
}

fn one(ip: &str) -> String {
    format!("{ip}:8000 http://{ip}:8000")
}

#[tokio::test(start_paused = true)]
async fn replicas_join_and_leave_as_the_name_says_and_stay_while_it_says_nothing() {
    let resolver = Arc::new(Resolver::default());
    resolver.now(&[("pool", &["10.0.0.2", "10.0.0.1", "10.0.0.1"])]);
    let ten = Duration::from_secs(10);
    let (names, list) = DnsList::new(
        [spec("any", "http://pool:8000").label("zone", "a")],
        ten,
        resolver.clone(),
    );
    let connect = Arc::new(HttpConnect::default().dial(resolver.clone()));
    let rig = Rig::start(trees::gateway(), vec![Box::new(list)], connect, None);
    let is = async |what: &str, expected: &[String]| {
        rig.until(what, |snapshot| urls(snapshot) == expected).await;
    };
    is("two", &[one("10.0.0.1"), one("10.0.0.2")]).await;
    let entry = rig.snapshot().find("10.0.0.1:8000").unwrap().clone();
    assert_eq!(entry.spec().labels["zone"], "a");

    resolver.now(&[("pool", &["10.0.0.2", "10.0.0.3"])]);
    let began = Instant::now();
    is(
        "one has gone and one has come",
        &[one("10.0.0.2"), one("10.0.0.3")],
    )
    .await;
    assert!(
        began.elapsed() <= ten + Duration::from_millis(20),
        "{:?}",
        began.elapsed()
    );

    // No answer is no news, and neither is an empty one.
    for answers in [&[][..], &[("pool", &[][..])]] {
        resolver.now(answers);
        sleep(ten * 3).await;
        assert_eq!(urls(&rig.snapshot()), [one("10.0.0.2"), one("10.0.0.3")]);
    }
    let asked = resolver.asked.lock().unwrap().len();
    assert!((8..=9).contains(&asked), "{asked}");

    // Another name holds up nobody, and is looked up at once.
    resolver.now(&[("pool", &["10.0.0.2"]), ("other", &["10.0.0.9"])]);
    names.set(["http://pool:8000", "https://other:8000", "http://hangs:1"].map(|url| spec(url, url)));
    is(
        "both names",
        &[one("10.0.0.2"), "10.0.0.9:8000 https://10.0.0.9:8000".to_owned()],
    )
    .await;
    let entry = rig.snapshot().find("10.0.0.9:8000").unwrap().clone();
    assert_eq!(entry.spec().protocol.tls.server_name.as_deref(), Some("other"));
    names.set([]);
    is("no name, nobody", &[]).await;
}

/// As SRV records say it: each with a port of its own.
#[derive(Debug)]
struct Services;

#[async_trait]
impl Dial for Services {
    async fn resolve(&self, host: &str, _: u16) -> io::Result<Vec<SocketAddr>> {
        assert_eq!(host, "_https._tcp.pool");
        Ok(["10.0.0.1:8001", "10.0.0.1:8002"]
            .map(|address| address.parse().unwrap())
            .into())
    }

    async fn dial(&self, _: SocketAddr) -> io::Result<Box<dyn Io>> {
        Err(io::ErrorKind::ConnectionRefused.into())
    }
}

#[tokio::test(start_paused = true)]
async fn a_service_has_the_ports_that_are_told_and_the_certificate_of_its_domain() {
    let pool = spec("any", "https://_https._tcp.pool");
    let (_names, list) = DnsList::new([pool], Duration::from_secs(10), Arc::new(Services));
    let connect = Arc::new(HttpConnect::default().dial(Arc::new(Services)));
    let rig = Rig::start(trees::gateway(), vec![Box::new(list)], connect, None);
    rig.until("both", |snapshot| {
        urls(snapshot)
            == [
                "10.0.0.1:8001 https://10.0.0.1:8001",
                "10.0.0.1:8002 https://10.0.0.1:8002",
            ]
    })
    .await;
    for (_, entry) in rig.snapshot().iter() {
        assert_eq!(entry.spec().protocol.tls.server_name.as_deref(), Some("pool"));
    }
}

#[tokio::test(start_paused = true)]
async fn a_machine_with_addresses_of_both_kinds_is_one_and_no_answer_holds_for_five_minutes() {
    let resolver = Arc::new(Resolver::default());
    resolver.now(&[("pool", &["fd00::1", "10.0.0.1"]), ("six", &["fd00::2"])]);
    let specs = [spec("a", "http://pool:8000"), spec("b", "http://six:8000")];
    let (_names, list) = DnsList::new(specs, Duration::MAX, resolver.clone());
    let connect = Arc::new(HttpConnect::default().dial(resolver.clone()));
    let rig = Rig::start(trees::gateway(), vec![Box::new(list)], connect, None);
    let six = "[fd00::2]:8000 http://[fd00::2]:8000".to_owned();
    rig.until("both", |snapshot| {
        urls(snapshot) == [one("10.0.0.1"), six.clone()]
    })
    .await;

    let ten = Duration::from_secs(10);
    let (_names, list) = DnsList::new([spec("a", "http://pool:8000")], ten, resolver.clone());
    let connect = Arc::new(HttpConnect::default().dial(resolver.clone()));
    let rig = Rig::start(trees::gateway(), vec![Box::new(list)], connect, None);
    rig.until("one", |snapshot| urls(snapshot) == [one("10.0.0.1")])
        .await;
    resolver.now(&[]);
    sleep(Duration::from_secs(290)).await;
    assert_eq!(urls(&rig.snapshot()), [one("10.0.0.1")]);
    sleep(Duration::from_secs(30)).await;
    assert_eq!(
        urls(&rig.snapshot()),
        [""; 0],
        "its address may be somebody else's by now"
    );
}
