//! Which upstreams stand behind a name?
//!
//! One for each address that the name has: replicas of a service that only a resolver knows, such as those of a headless service
//! of Kubernetes. The name is looked up again and again; who is new joins, who is gone leaves. Where there is no answer, the last
//! one stands for as long as it does for connections: an address may be given to somebody else.

use std::collections::{HashMap, HashSet};
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep_until, timeout};

use super::source::{StatusSource, Told};
use super::{Members, StatusEvent};
use crate::clock::after;
use crate::upstream::address::{parse, service_domain};
use crate::upstream::http::{Dial, STANDS_IN};
use crate::upstream::{UpstreamId, UpstreamSpec};

/// How long a resolver may take.
const LOOK_UP: Duration = Duration::from_secs(5);

/// Upstreams by the names of hosts, each name for as many as it has addresses, of IPv4 if it has any of that. Each is called by its address (`10.0.0.3:8000`), and
/// is otherwise as the spec says that has the name in its URL: its key, its models, its limits, and over TLS the name that its
/// certificate has to be for. A name of a service (`_http._tcp.engines`) stands for each target of its SRV records, with the
/// ports that these say; over TLS their certificate has to be for the domain (`engines`).
///
/// ```
/// use std::{sync::Arc, time::Duration};
/// use paddler_core::status::{DnsList, StatusEvent, StatusSource};
/// use paddler_core::upstream::{UpstreamSpec, http::Tcp};
///
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let engines = UpstreamSpec::new("engines", "http://localhost:8000")?;
/// let (_names, mut list) = DnsList::new([engines], Duration::from_secs(10), Arc::new(Tcp));
/// let Some(StatusEvent::Upsert(engine)) = list.next().await else { panic!() };
/// assert!(engine.id.as_str().ends_with(":8000") && engine.id.as_str() != "localhost:8000");
/// # Ok(()) }
/// ```
#[derive(Debug)]
pub struct DnsList {
    wanted: watch::Receiver<Vec<UpstreamSpec>>,
    every: Duration,
    dial: Arc<dyn Dial>,
    /// When the names are looked up next.
    due: Instant,
    /// By host and port.
    answers: HashMap<(String, u16), Answer>,
    told: Told,
}

/// What is known of a name.
#[derive(Debug, Default)]
struct Answer {
    addresses: Vec<SocketAddr>,
    /// When they were told.
    told: Option<Instant>,
    /// The last look-up had no answer, which was said.
    failed: bool,
}

impl DnsList {
    /// The upstreams behind the names in the URLs of these specs, whose ids count for nothing; looked up every so often, at least
    /// a second apart, by what [`Dial::resolve`] says. What is given besides replaces the list, as with a
    /// [`MemberList`](super::MemberList).
    pub fn new(
        names: impl IntoIterator<Item = UpstreamSpec>,
        every: Duration,
        dial: Arc<dyn Dial>,
    ) -> (Members, Self) {
        let (members, wanted) = Members::new(names);
        let list = Self {
            wanted,
            every: every.max(Duration::from_secs(1)),
            dial,
            due: Instant::now(),
            answers: HashMap::new(),
            told: Told::default(),
        };
        (members, list)
    }

    /// Asks for all names at once.
    async fn look_up(&mut self) {
        // One list for all of it: what is given meanwhile is another round.
        let specs = self.wanted.borrow_and_update().clone();
        let names: HashSet<_> = specs
            .iter()
            .filter_map(|spec| spec.host_and_port().ok())
            .collect();
        self.answers.retain(|name, _| names.contains(name));
        let mut asked = JoinSet::new();
        for (host, port) in names {
            let dial = self.dial.clone();
            asked.spawn(async move {
                let late = |_| io::ErrorKind::TimedOut.into();
                let found = timeout(LOOK_UP, dial.resolve(&host, port)).await.map_err(late);
                ((host, port), found.and_then(|found| found))
            });
        }
        while let Some(answered) = asked.join_next().await {
            // A resolver of the host's that panics has no answer.
            if let Ok((name, found)) = answered {
                self.hear(name, found);
            }
        }
        self.due = after(Instant::now(), self.every);
        let wanted: Vec<_> = specs.iter().flat_map(|spec| self.behind(spec)).collect();
        self.told.replace(&wanted);
    }

    fn hear(&mut self, name: (String, u16), found: io::Result<Vec<SocketAddr>>) {
        let host = name.0.clone();
        let known = self.answers.entry(name).or_default();
        match found {
            Ok(mut addresses) if !addresses.is_empty() => {
                // The same machines by their other addresses are no more of them.
                if addresses.iter().any(SocketAddr::is_ipv4) {
                    addresses.retain(SocketAddr::is_ipv4);
                }
                addresses.sort_unstable();
                addresses.dedup();
                if known.addresses != addresses {
                    tracing::info!(name = host, now = ?addresses, before = ?known.addresses, "the upstreams behind a name");
                }
                *known = Answer {
                    addresses,
                    told: Some(Instant::now()),
                    failed: false,
                };
            }
            found => {
                let error = found
                    .err()
                    .unwrap_or_else(|| io::Error::new(io::ErrorKind::NotFound, "the name has no address"));
                if !std::mem::replace(&mut known.failed, true) {
                    tracing::warn!(name = host, %error, upstreams = known.addresses.len(), "no answer about a name; those that are known of it stay for five minutes");
                }
                let old = |told| after(told, STANDS_IN) <= Instant::now();
                if known.told.is_some_and(old) && !known.addresses.is_empty() {
                    tracing::warn!(
                        name = host,
                        "there is still no answer: nobody is behind the name any more"
                    );
                    known.addresses.clear();
                }
            }
        }
    }

    /// An upstream for each address that the name in the URL of this spec has.
    fn behind(&self, spec: &UpstreamSpec) -> Vec<UpstreamSpec> {
        let Ok(name) = spec.host_and_port() else {
            return Vec::new();
        };
        let addresses = self.answers.get(&name).map_or(&[][..], |known| &known.addresses);
        let one = |address: &SocketAddr| {
            let mut one = spec.clone();
            one.id = UpstreamId::new(address.to_string()).ok()?;
            let tls = spec.speaks_tls();
            let path = parse(&spec.url).map(|address| address.path().to_owned());
            let scheme = if tls { "https" } else { "http" };
            one.url = format!("{scheme}://{address}{}", path.unwrap_or_default());
            if tls {
                // A certificate is for a domain, and for no service of it.
                let domain = service_domain(&name.0).unwrap_or(&name.0);
                one.protocol
                    .tls
                    .server_name
                    .get_or_insert_with(|| domain.to_owned());
            }
            Some(one)
        };
        addresses.iter().filter_map(one).collect()
    }
}

#[async_trait]
impl StatusSource for DnsList {
    async fn next(&mut self) -> Option<StatusEvent> {
        loop {
            if let Some(event) = self.told.next() {
                return Some(event);
            }
            tokio::select! {
                // Whoever gave the names has gone: they stay.
                Ok(()) = self.wanted.changed() => {}
                () = sleep_until(self.due) => {}
            }
            self.look_up().await;
        }
    }

    fn name(&self) -> &'static str {
        "dns"
    }
}
