//! Where does a service listen whose name only SRV records know (RFC 2782)?
//!
//! The operating system looks up hosts, and no services, so the servers that it asks are asked here. Neither a cache nor a
//! choice by weight: who asks keeps the answer, and spreads requests by load.

mod message;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::hash::{BuildHasher as _, Hasher as _, RandomState};
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::time::Duration;

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpStream, UdpSocket, lookup_host};
use tokio::task::{JoinSet, spawn_blocking};
use tokio::time::timeout;

use message::{Answer, Service, question, read};

/// How long one server may take for one answer. Names are asked for again after seconds, so the next server is worth more than
/// a long wait.
const TRY: Duration = Duration::from_millis(1500);

/// How many servers and search domains count, as in the C library.
const MOST: usize = 6;

/// Whom to ask, and which names a short one may stand for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Resolver {
    servers: Vec<SocketAddr>,
    search: Vec<String>,
    /// A name with so many dots is tried as it is before the search domains.
    dots: usize,
}

impl Resolver {
    /// As the operating system has it.
    pub(super) async fn of_this_machine() -> Self {
        let file = spawn_blocking(|| std::fs::read_to_string("/etc/resolv.conf")).await;
        // Without the file this machine is asked, as resolv.conf(5) says.
        Self::read(&file.ok().and_then(Result::ok).unwrap_or_default())
    }

    fn read(text: &str) -> Self {
        let mut resolver = Self {
            servers: Vec::new(),
            search: Vec::new(),
            dots: 1,
        };
        for line in text.lines() {
            let mut words = line.split_whitespace();
            match words.next() {
                Some("nameserver") => {
                    let ip = words.next().and_then(|ip| ip.parse::<IpAddr>().ok());
                    resolver.servers.extend(ip.map(|ip| SocketAddr::new(ip, 53)));
                }
                // The last one counts.
                Some("search" | "domain") => resolver.search = words.take(MOST).map(str::to_owned).collect(),
                Some("options") => {
                    let mut dots = words.filter_map(|word| word.strip_prefix("ndots:")?.parse().ok());
                    resolver.dots = dots.next_back().unwrap_or(resolver.dots);
                }
                _ => {}
            }
        }
        resolver.servers.truncate(MOST);
        if resolver.servers.is_empty() {
            resolver.servers.push((Ipv4Addr::LOCALHOST, 53).into());
        }
        resolver
    }

    /// The names that one may stand for, in the order in which they are asked for.
    fn names(&self, name: &str) -> Vec<String> {
        if name.ends_with('.') {
            return vec![name.to_owned()];
        }
        let mut names: Vec<_> = self
            .search
            .iter()
            .map(|domain| format!("{name}.{domain}"))
            .collect();
        let first = name.matches('.').count() >= self.dots;
        names.insert(if first { 0 } else { names.len() }, name.to_owned());
        names
    }

    /// Where the service listens: at the targets of the lowest priority that have an address.
    pub(super) async fn addresses(&self, name: &str) -> io::Result<Vec<SocketAddr>> {
        let mut failed = None;
        for name in self.names(name) {
            // What one domain refuses, another may tell.
            let services = match self.ask(&name).await {
                Ok(services) => services,
                Err(error) => {
                    failed.get_or_insert(error);
                    continue;
                }
            };
            if services.is_empty() {
                continue;
            }
            let mut by_priority: BTreeMap<u16, Vec<Service>> = BTreeMap::new();
            for service in services {
                by_priority.entry(service.priority).or_default().push(service);
            }
            for services in by_priority.into_values() {
                let found = located(services).await;
                if !found.is_empty() {
                    return Ok(found);
                }
            }
            let error = format!("none of the targets of {name} has an address");
            return Err(io::Error::new(io::ErrorKind::NotFound, error));
        }
        let none = || io::Error::new(io::ErrorKind::NotFound, "the name has no SRV record");
        Err(failed.unwrap_or_else(none))
    }

    /// What the first server says that has an answer. Nothing: there is no such name, or no service.
    async fn ask(&self, name: &str) -> io::Result<Vec<Service>> {
        let id = RandomState::new().build_hasher().finish() as u16;
        let question = question(id, name)
            .ok_or_else(|| io::Error::new(io::ErrorKind::InvalidInput, "this is no name of a service"))?;
        let mut failed = io::ErrorKind::TimedOut.into();
        for server in self.servers.iter().chain(&self.servers) {
            match timeout(TRY, answer_of(*server, &question)).await {
                Ok(Ok(Answer::Services(services))) => return Ok(services),
                Ok(Ok(answer)) => failed = io::Error::other(format!("{server} answers {answer:?}")),
                Ok(Err(error)) => failed = error,
                Err(_) => {
                    let late = format!("{server} does not answer");
                    failed = io::Error::new(io::ErrorKind::TimedOut, late);
                }
            }
        }
        Err(failed)
    }
}

/// The addresses of targets; the operating system is asked for those that came without.
async fn located(services: Vec<Service>) -> Vec<SocketAddr> {
    let mut found = Vec::new();
    let mut asked = JoinSet::new();
    for service in services {
        let Service {
            target, port, ips, ..
        } = service;
        if ips.is_empty() {
            asked.spawn(async move {
                lookup_host((target, port))
                    .await
                    .map(|all| all.collect::<Vec<_>>())
            });
        }
        found.extend(ips.into_iter().map(|ip| SocketAddr::new(ip, port)));
    }
    while let Some(answered) = asked.join_next().await {
        // One of several that nobody knows is none.
        found.extend(answered.ok().and_then(Result::ok).into_iter().flatten());
    }
    found.sort_unstable();
    found.dedup();
    found
}

/// By UDP, and by TCP what does not fit that.
async fn answer_of(server: SocketAddr, question: &[u8]) -> io::Result<Answer> {
    let any: IpAddr = match server {
        SocketAddr::V4(_) => Ipv4Addr::UNSPECIFIED.into(),
        SocketAddr::V6(_) => Ipv6Addr::UNSPECIFIED.into(),
    };
    let socket = UdpSocket::bind((any, 0)).await?;
    // From nobody else is anything taken.
    socket.connect(server).await?;
    socket.send(question).await?;
    let mut buffer = [0; 4096];
    loop {
        let length = socket.recv(&mut buffer).await?;
        match read(&buffer[..length], question) {
            Some(Answer::Truncated) => break,
            Some(answer) => return Ok(answer),
            // To another question, or of somebody who guesses.
            None => {}
        }
    }
    let mut stream = TcpStream::connect(server).await?;
    let length = u16::try_from(question.len()).map_err(io::Error::other)?;
    stream
        .write_all(&[&length.to_be_bytes()[..], question].concat())
        .await?;
    let mut answer = vec![0; usize::from(stream.read_u16().await?)];
    stream.read_exact(&mut answer).await?;
    read(&answer, question).ok_or_else(|| io::Error::other(format!("{server} answers something else")))
}
