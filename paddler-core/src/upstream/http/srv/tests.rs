//! A small server of names on loopback, over UDP and TCP.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

use proptest::prelude::*;
use tokio::net::TcpListener;

use super::*;

/// What a server says of a name.
#[derive(Debug, Clone, Copy)]
enum Says {
    /// Priority, weight, port and target.
    Services(&'static [(u16, u16, u16, &'static str)]),
    Code(u8),
    /// Something to another question first, and then this.
    AfterNoise(&'static [(u16, u16, u16, &'static str)]),
}

/// Addresses that are told along.
const GLUE: [(&str, [u8; 4]); 3] = [
    ("a.pool", [10, 0, 0, 1]),
    ("b.pool", [10, 0, 0, 2]),
    ("c.pool", [10, 0, 0, 3]),
];

struct Server {
    address: SocketAddr,
    over_tcp: Arc<AtomicUsize>,
}

impl Server {
    async fn start(zone: &'static [(&'static str, Says)]) -> Self {
        let (udp, tcp) = loop {
            let udp = UdpSocket::bind("127.0.0.1:0").await.unwrap();
            if let Ok(tcp) = TcpListener::bind(udp.local_addr().unwrap()).await {
                break (udp, tcp);
            }
        };
        let address = udp.local_addr().unwrap();
        let over_tcp = Arc::new(AtomicUsize::new(0));
        let count = over_tcp.clone();
        tokio::spawn(async move {
            let mut buffer = [0; 512];
            loop {
                let (length, from) = udp.recv_from(&mut buffer).await.unwrap();
                let (noise, mut answer) = answers(zone, &buffer[..length]);
                if noise {
                    let mut other = answer.clone();
                    other[0] ^= 1;
                    udp.send_to(&other, from).await.unwrap();
                }
                if answer.len() > 512 {
                    answer.truncate(512);
                    answer[2] |= 0b10;
                }
                udp.send_to(&answer, from).await.unwrap();
            }
        });
        tokio::spawn(async move {
            loop {
                let (mut stream, _) = tcp.accept().await.unwrap();
                count.fetch_add(1, Relaxed);
                let mut question = vec![0; usize::from(stream.read_u16().await.unwrap())];
                stream.read_exact(&mut question).await.unwrap();
                let (_, answer) = answers(zone, &question);
                stream.write_u16(answer.len().try_into().unwrap()).await.unwrap();
                stream.write_all(&answer).await.unwrap();
            }
        });
        Self { address, over_tcp }
    }
}

/// The name as it stands in a message.
fn labels(name: &str) -> Vec<u8> {
    let mut bytes = Vec::new();
    for label in name.split('.') {
        bytes.push(label.len().try_into().unwrap());
        bytes.extend(label.as_bytes());
    }
    bytes.push(0);
    bytes
}

/// An answer, and whether something else is to be sent before.
fn answers(zone: &[(&str, Says)], question: &[u8]) -> (bool, Vec<u8>) {
    let asked = &question[HEADER_OF_TESTS..question.len() - 4];
    let found = zone.iter().find(|(name, _)| labels(name) == asked);
    let (noise, code, services) = match found.map(|(_, says)| *says) {
        None => (false, 3, &[][..]),
        Some(Says::Code(code)) => (false, code, &[][..]),
        Some(Says::Services(services)) => (false, 0, services),
        Some(Says::AfterNoise(services)) => (true, 0, services),
    };
    let mut answer = question.to_vec();
    answer[2] |= 0x80;
    answer[3] = code;
    let mut glue = Vec::new();
    for (priority, weight, port, target) in services {
        // The owner is the name that was asked for, which stands further up.
        answer.extend([0xc0, 12, 0, 33, 0, 1, 0, 0, 0, 5]);
        let name = if *target == "." { vec![0] } else { labels(target) };
        answer.extend(u16::try_from(6 + name.len()).unwrap().to_be_bytes());
        answer.extend([*priority, *weight, *port].map(u16::to_be_bytes).concat());
        if let Some((_, ip)) = GLUE.iter().find(|(owner, _)| owner == target) {
            // In capital letters, as some servers have them.
            let mut record = labels(&target.to_ascii_uppercase());
            record.extend([0, 1, 0, 1, 0, 0, 0, 5, 0, 4]);
            record.extend(ip);
            glue.push(record);
        }
        answer.extend(name);
    }
    answer[6..8].copy_from_slice(&u16::try_from(services.len()).unwrap().to_be_bytes());
    answer[10..12].copy_from_slice(&u16::try_from(glue.len()).unwrap().to_be_bytes());
    answer.extend(glue.concat());
    (noise, answer)
}

const HEADER_OF_TESTS: usize = 12;

const MANY: [(u16, u16, u16, &str); 40] = {
    let mut all = [(0, 0, 0, "a.pool"); 40];
    let mut at = 0;
    while at < all.len() {
        all[at].2 = 8000 + at as u16;
        at += 1;
    }
    all
};

const ZONE: &[(&str, Says)] = &[
    (
        "_http._tcp.pool",
        Says::Services(&[
            (1, 0, 8001, "c.pool"),
            (0, 0, 8002, "b.pool"),
            (0, 90, 8001, "a.pool"),
        ]),
    ),
    ("_many._tcp.pool", Says::Services(&MANY)),
    ("_none._tcp.pool", Says::Services(&[(0, 0, 1, ".")])),
    ("_local._tcp.pool", Says::Services(&[(0, 0, 7000, "localhost")])),
    ("_noisy._tcp.pool", Says::AfterNoise(&[(0, 0, 8001, "a.pool")])),
    ("_ill._tcp.pool", Says::Code(2)),
];

fn resolver(servers: &[&Server]) -> Resolver {
    Resolver {
        servers: servers.iter().map(|server| server.address).collect(),
        search: vec!["nobody".to_owned(), "pool".to_owned()],
        dots: 2,
    }
}

async fn found(resolver: &Resolver, name: &str) -> Vec<String> {
    let mut found: Vec<_> = resolver
        .addresses(name)
        .await
        .unwrap()
        .iter()
        .map(ToString::to_string)
        .collect();
    found.sort();
    found
}

#[tokio::test]
async fn the_targets_of_the_lowest_priority_serve_whatever_their_weight() {
    let server = Server::start(ZONE).await;
    let resolver = resolver(&[&server]);
    let two = ["10.0.0.1:8001", "10.0.0.2:8002"];
    assert_eq!(found(&resolver, "_http._tcp.pool").await, two);
    assert_eq!(
        found(&resolver, "_http._tcp.pool.").await,
        two,
        "as it is, and no other"
    );
    // By the second search domain, as a name with one dot only.
    assert_eq!(found(&resolver, "_http._tcp").await, two);
    assert_eq!(server.over_tcp.load(Relaxed), 0);
}

#[tokio::test]
async fn what_does_not_fit_is_asked_for_over_tcp() {
    let server = Server::start(ZONE).await;
    assert_eq!(
        found(&resolver(&[&server]), "_many._tcp.pool").await.len(),
        MANY.len()
    );
    assert_eq!(server.over_tcp.load(Relaxed), 1);
}

#[tokio::test]
async fn a_target_without_an_address_is_looked_up_as_other_names_are() {
    let server = Server::start(ZONE).await;
    let found = found(&resolver(&[&server]), "_local._tcp.pool").await;
    assert!(found.contains(&"127.0.0.1:7000".to_owned()), "{found:?}");
}

#[tokio::test]
async fn the_next_server_is_asked_where_one_has_no_answer_and_noise_is_none() {
    let (ill, well) = (
        Server::start(&[("_http._tcp.pool", Says::Code(2))]).await,
        Server::start(ZONE).await,
    );
    let both = resolver(&[&ill, &well]);
    assert_eq!(found(&both, "_http._tcp.pool").await.len(), 2);
    assert_eq!(
        found(&resolver(&[&well]), "_noisy._tcp.pool").await,
        ["10.0.0.1:8001"]
    );
}

#[tokio::test]
async fn no_service_is_told_apart_from_no_answer() {
    let server = Server::start(ZONE).await;
    let resolver = resolver(&[&server]);
    for (name, kind, says) in [
        ("_none._tcp.pool", io::ErrorKind::NotFound, "no SRV record"),
        ("_what._tcp.pool", io::ErrorKind::NotFound, "no SRV record"),
        ("_ill._tcp.pool", io::ErrorKind::Other, "Failed(2)"),
        ("_tcp..pool", io::ErrorKind::InvalidInput, "no name"),
    ] {
        let error = resolver.addresses(name).await.unwrap_err();
        assert_eq!(error.kind(), kind, "{name}: {error}");
        assert!(error.to_string().contains(says), "{name}: {error}");
    }
}

#[test]
fn whom_to_ask_is_as_the_system_has_it() {
    let text = "# by hand\nsearch a b\nnameserver 10.0.0.53\nnameserver fe80::1%eth0\nnameserver ::1\n\
                options timeout:1 ndots:5\nsearch ns.svc.cluster.local svc.cluster.local\n";
    let read = Resolver::read(text);
    let servers: Vec<_> = read.servers.iter().map(ToString::to_string).collect();
    assert_eq!(servers, ["10.0.0.53:53", "[::1]:53"]);
    assert_eq!(
        read.names("_http._tcp.engines"),
        [
            "_http._tcp.engines.ns.svc.cluster.local",
            "_http._tcp.engines.svc.cluster.local",
            "_http._tcp.engines"
        ]
    );
    assert_eq!(Resolver::read("").servers, ["127.0.0.1:53".parse().unwrap()]);
}

/// A good answer, and its question.
fn good() -> (Vec<u8>, Vec<u8>) {
    let question = question(7, "_http._tcp.pool").unwrap();
    (answers(ZONE, &question).1, question)
}

#[test]
fn a_name_that_goes_round_in_circles_or_is_broken_off_is_malformed() {
    let (answer, question) = good();
    assert!(matches!(read(&answer, &question), Some(Answer::Services(all)) if all.len() == 3));
    for end in question.len()..answer.len() {
        assert_eq!(read(&answer[..end], &question), Some(Answer::Malformed), "{end}");
    }
    let mut circle = answer.clone();
    // The target of the first service leads to itself.
    let target = question.len() + 12 + 6;
    circle[target..target + 2].copy_from_slice(&[0xc0, target as u8]);
    assert_eq!(read(&circle, &question), Some(Answer::Malformed));
}

proptest! {
    #[test]
    fn any_bytes_are_read_without_harm(changes in prop::collection::vec((0_usize..200, any::<u8>()), 0..12)) {
        let (mut answer, question) = good();
        for (at, byte) in changes {
            let at = at % answer.len();
            answer[at] = byte;
        }
        if let Some(Answer::Services(services)) = read(&answer, &question) {
            prop_assert!(services.iter().all(|service| service.port > 0 && service.target.len() <= 255));
        }
    }
}
