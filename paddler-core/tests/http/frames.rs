//! Is HTTP/2 spoken as RFC 9113 wants it, frame by frame?
//!
//! In the order of the RFC, as h2spec has it: each case is what a client sends after the handshake, over a bare socket, and
//! what it has to get for it. Where the RFC leaves it open how an error is told (5.4), each way counts; the h2 crate often
//! tells `PROTOCOL_ERROR` where there is a more specific word.

use std::time::Duration;

use super::client::HANG;
use super::recorder::Recorder;
use super::wire::{Frame, Raw, block, data, frame, get, headers, literal, post, settings};
use super::world::{Setup, spec};
use Expect::{Connection, Pong, Status, Stream};

const PROTOCOL: u32 = 1;
const FLOW: u32 = 3;
const CLOSED: u32 = 5;
const SIZE: u32 = 6;
const REFUSED: u32 = 7;
const COMPRESSION: u32 = 9;
const CALM: u32 = 11;

/// What has to come.
#[derive(Debug, Clone, Copy)]
enum Expect {
    /// The connection ends, with one of these errors if any is told.
    Connection(&'static [u32]),
    /// The stream, or the connection, ends with one of these errors.
    Stream(&'static [u32]),
    /// Stream 1 is answered with this status.
    Status(u16),
    /// The connection lives on: a PING that is sent afterwards is answered, and nothing ends before.
    Pong,
}

type Case = (&'static str, Vec<Vec<u8>>, Expect);

const END_STREAM: u8 = 1;
const END_HEADERS: u8 = 4;
const PADDED: u8 = 8;
const PRIORITY: u8 = 32;
const BOTH: u8 = END_STREAM | END_HEADERS;

fn part_4() -> Vec<Case> {
    let big = vec![0; 16_385];
    vec![
        (
            "4.1: an unknown type is passed over",
            vec![frame(0x16, 0, 0, &[0; 8])],
            Pong,
        ),
        (
            "4.1: unknown flags are passed over",
            vec![frame(6, 0xfe, 0, &[0; 8])],
            Pong,
        ),
        (
            "4.1: the reserved bit is passed over",
            vec![frame(6, 0, 1 << 31, &[0; 8])],
            Pong,
        ),
        (
            "4.2: DATA of the largest size",
            vec![post(1), data(1, END_STREAM, &big[..16_384])],
            Status(200),
        ),
        (
            "4.2: DATA that is larger",
            vec![post(1), data(1, END_STREAM, &big)],
            Stream(&[SIZE]),
        ),
        (
            "4.2: HEADERS that are larger",
            vec![frame(1, BOTH, 1, &big)],
            Connection(&[SIZE]),
        ),
        (
            "4.3: a block that is none",
            vec![frame(1, BOTH, 1, &[0x82, 0x86, 0x84, 0x00, 0x85, 0x01])],
            Connection(&[COMPRESSION, PROTOCOL]),
        ),
        (
            "4.3: PRIORITY within a block",
            vec![
                frame(1, END_STREAM, 1, &block("/a")),
                frame(2, 0, 1, &[0, 0, 0, 0, 1]),
            ],
            Connection(&[PROTOCOL]),
        ),
        (
            "4.3: another stream within a block",
            vec![frame(1, END_STREAM, 1, &block("/a")), get(3)],
            Connection(&[PROTOCOL]),
        ),
    ]
}

fn part_5() -> Vec<Case> {
    let reset = |stream: u32| frame(3, 0, stream, &[0, 0, 0, 8]);
    vec![
        (
            "5.1: DATA on an idle stream",
            vec![data(1, END_STREAM, b"x")],
            Connection(&[PROTOCOL]),
        ),
        (
            "5.1: RST_STREAM on an idle stream",
            vec![reset(1)],
            Connection(&[PROTOCOL]),
        ),
        (
            "5.1: WINDOW_UPDATE on an idle stream",
            vec![frame(8, 0, 1, &[0, 0, 0, 1])],
            Connection(&[PROTOCOL]),
        ),
        (
            "5.1: CONTINUATION on an idle stream",
            vec![frame(9, END_HEADERS, 1, &block("/a"))],
            Connection(&[PROTOCOL]),
        ),
        (
            "5.1: DATA after the end",
            vec![get(1), data(1, END_STREAM, b"x")],
            Stream(&[CLOSED, PROTOCOL]),
        ),
        (
            "5.1: HEADERS after the end",
            vec![get(1), get(1)],
            Stream(&[CLOSED, PROTOCOL]),
        ),
        (
            "5.1: CONTINUATION after the end",
            vec![get(1), frame(9, END_HEADERS, 1, &block("/a"))],
            Stream(&[CLOSED, PROTOCOL]),
        ),
        (
            "5.1: DATA after a reset",
            vec![post(1), reset(1), data(1, END_STREAM, b"x")],
            Stream(&[CLOSED]),
        ),
        (
            "5.1: HEADERS after a reset",
            vec![post(1), reset(1), get(1)],
            Stream(&[CLOSED, PROTOCOL]),
        ),
        (
            "5.1: CONTINUATION after a reset",
            vec![post(1), reset(1), frame(9, END_HEADERS, 1, &block("/a"))],
            Stream(&[CLOSED, PROTOCOL]),
        ),
        (
            "5.1: WINDOW_UPDATE after a reset is passed over",
            vec![post(1), reset(1), frame(8, 0, 1, &[0, 0, 0, 1])],
            Pong,
        ),
        ("5.1.1: an even stream", vec![get(2)], Connection(&[PROTOCOL])),
        (
            "5.1.1: a stream below the last",
            vec![get(5), get(3)],
            Connection(&[PROTOCOL, CLOSED]),
        ),
        (
            "5.1.2: more streams than may be",
            (0..10).map(|n| post(2 * n + 1)).collect(),
            Stream(&[PROTOCOL, REFUSED]),
        ),
        (
            "5.3.1: HEADERS that depend on themselves",
            vec![frame(
                1,
                BOTH | PRIORITY,
                1,
                &[&[0, 0, 0, 1, 0], &block("/a")[..]].concat(),
            )],
            Stream(&[PROTOCOL]),
        ),
        (
            "5.5: an unknown type within a block",
            vec![frame(1, END_STREAM, 1, &block("/a")), frame(0x16, 0, 0, &[])],
            Connection(&[PROTOCOL]),
        ),
    ]
}

fn part_6() -> Vec<Case> {
    let set = |id: u8, value: u32| {
        let mut payload = vec![0, id];
        payload.extend(value.to_be_bytes());
        settings(&payload)
    };
    let most = [0x7f, 0xff, 0xff, 0xff];
    let (head, tail) = (block("/a"), literal("x-a", "1"));
    vec![
        (
            "6.1: DATA on stream 0",
            vec![data(0, END_STREAM, b"x")],
            Connection(&[PROTOCOL]),
        ),
        (
            "6.1: DATA with more padding than there is",
            vec![post(1), data(1, END_STREAM | PADDED, &[6, 1, 2, 3])],
            Connection(&[PROTOCOL]),
        ),
        (
            "6.1: DATA with padding",
            vec![post(1), data(1, END_STREAM | PADDED, &[2, b'h', b'i', 0, 0])],
            Status(200),
        ),
        ("6.2: HEADERS on stream 0", vec![get(0)], Connection(&[PROTOCOL])),
        (
            "6.2: HEADERS with more padding than there is",
            vec![frame(1, BOTH | PADDED, 1, &[&[200], &head[..]].concat())],
            Connection(&[PROTOCOL]),
        ),
        (
            "6.2: HEADERS with padding and priority",
            vec![frame(
                1,
                BOTH | PADDED | PRIORITY,
                1,
                &[&[2, 0, 0, 0, 0, 9], &head[..], &[0, 0]].concat(),
            )],
            Status(200),
        ),
        (
            "6.3: PRIORITY on stream 0",
            vec![frame(2, 0, 0, &[0, 0, 0, 1, 1])],
            Connection(&[PROTOCOL]),
        ),
        (
            "6.3: PRIORITY of four bytes",
            vec![get(1), frame(2, 0, 1, &[0, 0, 0, 1])],
            Stream(&[SIZE, PROTOCOL]),
        ),
        (
            "6.3: PRIORITY is taken on an idle stream",
            vec![frame(2, 0, 9, &[0, 0, 0, 1, 1])],
            Pong,
        ),
        (
            "6.4: RST_STREAM on stream 0",
            vec![frame(3, 0, 0, &[0, 0, 0, 8])],
            Connection(&[PROTOCOL]),
        ),
        (
            "6.4: RST_STREAM of three bytes",
            vec![post(1), frame(3, 0, 1, &[0, 0, 8])],
            Connection(&[SIZE, PROTOCOL]),
        ),
        (
            "6.5: an acknowledgement that says something",
            vec![frame(4, 1, 0, &[0])],
            Connection(&[SIZE, PROTOCOL]),
        ),
        (
            "6.5: SETTINGS on a stream",
            vec![frame(4, 0, 1, &[])],
            Connection(&[PROTOCOL]),
        ),
        (
            "6.5: SETTINGS that are cut",
            vec![settings(&[0, 3, 0])],
            Connection(&[SIZE, PROTOCOL]),
        ),
        (
            "6.5.2: ENABLE_PUSH of 2",
            vec![set(2, 2)],
            Connection(&[PROTOCOL]),
        ),
        (
            "6.5.2: a window over the most",
            vec![set(4, 1 << 31)],
            Connection(&[FLOW, PROTOCOL]),
        ),
        (
            "6.5.2: frames smaller than the least",
            vec![set(5, 16_383)],
            Connection(&[PROTOCOL]),
        ),
        (
            "6.5.2: frames larger than the most",
            vec![set(5, 1 << 24)],
            Connection(&[PROTOCOL]),
        ),
        (
            "6.5.2: an unknown setting is passed over",
            vec![set(0xff, 1)],
            Pong,
        ),
        (
            "6.6: PUSH_PROMISE from a client",
            vec![frame(5, END_HEADERS, 1, &[&[0, 0, 0, 2], &head[..]].concat())],
            Connection(&[PROTOCOL]),
        ),
        (
            "6.7: an answer to no PING is not answered",
            vec![frame(6, 1, 0, &[9; 8])],
            Pong,
        ),
        (
            "6.7: PING on a stream",
            vec![frame(6, 0, 1, &[0; 8])],
            Connection(&[PROTOCOL]),
        ),
        (
            "6.7: PING of six bytes",
            vec![frame(6, 0, 0, &[0; 6])],
            Connection(&[SIZE, PROTOCOL]),
        ),
        (
            "6.8: GOAWAY on a stream",
            vec![frame(7, 0, 1, &[0; 8])],
            Connection(&[PROTOCOL]),
        ),
        (
            "6.9: WINDOW_UPDATE of nothing",
            vec![frame(8, 0, 0, &[0; 4])],
            Connection(&[PROTOCOL]),
        ),
        (
            "6.9: WINDOW_UPDATE of nothing on a stream",
            vec![post(1), frame(8, 0, 1, &[0; 4])],
            Stream(&[PROTOCOL]),
        ),
        (
            "6.9: WINDOW_UPDATE of three bytes",
            vec![frame(8, 0, 0, &[0; 3])],
            Connection(&[SIZE, PROTOCOL]),
        ),
        (
            "6.9.1: a window over the most",
            vec![frame(8, 0, 0, &most), frame(8, 0, 0, &most)],
            Connection(&[FLOW]),
        ),
        (
            "6.9.1: a window of a stream over the most",
            vec![post(1), frame(8, 0, 1, &most), frame(8, 0, 1, &most)],
            Stream(&[FLOW]),
        ),
        (
            "6.9.2: a window that is made small",
            vec![set(4, 0), get(1)],
            Status(200),
        ),
        (
            "6.9.2: a window that is made larger than it may be",
            vec![post(1), frame(8, 0, 1, &most), set(4, 0x7fff_ffff)],
            Stream(&[FLOW]),
        ),
        (
            "6.10: a block in three parts",
            vec![
                frame(1, END_STREAM, 1, &head),
                frame(9, 0, 1, &tail),
                frame(9, END_HEADERS, 1, &tail),
            ],
            Status(200),
        ),
        (
            "6.10: CONTINUATION after the end of a block",
            vec![post(1), frame(9, END_HEADERS, 1, &tail)],
            Connection(&[PROTOCOL]),
        ),
        (
            "6.10: CONTINUATION on stream 0",
            vec![frame(1, END_STREAM, 1, &head), frame(9, END_HEADERS, 0, &tail)],
            Connection(&[PROTOCOL]),
        ),
        (
            "6.10: DATA within a block",
            vec![frame(1, 0, 1, &head), data(1, END_STREAM, b"x")],
            Connection(&[PROTOCOL]),
        ),
        (
            "6.10: a block without an end",
            [
                vec![frame(1, END_STREAM, 1, &head)],
                (0..60_000).map(|_| frame(9, 0, 1, &tail)).collect(),
            ]
            .concat(),
            Connection(&[PROTOCOL, CALM, COMPRESSION]),
        ),
        (
            "7: an unknown error of a stream",
            vec![post(1), frame(3, 0, 1, &[0, 0, 0, 0xff])],
            Pong,
        ),
    ]
}

fn part_8() -> Vec<Case> {
    let with = |more: &[u8]| frame(1, BOTH, 1, &[&block("/a")[..], more].concat());
    let without = |number: usize| {
        let pseudo: [&[u8]; 4] = [&[0x82], &[0x86], &[0x84], &[0x01, 1, b'x']];
        let left = pseudo
            .iter()
            .enumerate()
            .filter(|(at, _)| *at != number)
            .flat_map(|(_, bytes)| bytes.iter());
        frame(1, BOTH, 1, &left.copied().collect::<Vec<_>>())
    };
    let sized = |length: &str| {
        headers(
            1,
            END_HEADERS,
            &[
                &[0x83, 0x86, 0x84, 0x01, 1, b'x'],
                &literal("content-length", length)[..],
            ]
            .concat(),
        )
    };
    let all = Stream(&[PROTOCOL]);
    let trailers = |flags: u8, more: &[u8]| vec![post(1), data(1, 0, b"x"), headers(1, flags, more)];
    vec![
        (
            "8.1: a second HEADERS that is not the end",
            trailers(END_HEADERS, &literal("x", "1")),
            all,
        ),
        (
            "8.1: a pseudo-header in the trailers",
            trailers(BOTH, &literal(":method", "GET")),
            Status(400),
        ),
        (
            "8.2.1: a name in capital letters",
            vec![with(&literal("X-A", "1"))],
            all,
        ),
        (
            "8.2.1: a name with a space",
            vec![with(&literal("x a", "1"))],
            all,
        ),
        (
            "8.2.1: a name with a colon",
            vec![with(&literal("x:a", "1"))],
            all,
        ),
        ("8.2.1: a name that is empty", vec![with(&literal("", "1"))], all),
        (
            "8.2.1: a value with a line break",
            vec![with(&literal("x-a", "1\r\nx-b: 2"))],
            all,
        ),
        ("8.2.1: a value with LF", vec![with(&literal("x-a", "1\n2"))], all),
        ("8.2.1: a value with NUL", vec![with(&literal("x-a", "1\0"))], all),
        (
            "8.2.2: connection",
            vec![with(&literal("connection", "keep-alive"))],
            all,
        ),
        ("8.2.2: keep-alive", vec![with(&literal("keep-alive", "1"))], all),
        (
            "8.2.2: proxy-connection",
            vec![with(&literal("proxy-connection", "keep-alive"))],
            all,
        ),
        (
            "8.2.2: transfer-encoding",
            vec![with(&literal("transfer-encoding", "chunked"))],
            all,
        ),
        ("8.2.2: upgrade", vec![with(&literal("upgrade", "h2c"))], all),
        (
            "8.2.2: TE but for trailers",
            vec![with(&literal("te", "gzip"))],
            all,
        ),
        (
            "8.2.2: TE for trailers",
            vec![with(&literal("te", "trailers"))],
            Status(200),
        ),
        (
            "8.3: an unknown pseudo-header",
            vec![with(&literal(":x", "1"))],
            all,
        ),
        (
            "8.3: a pseudo-header of answers",
            vec![with(&literal(":status", "200"))],
            all,
        ),
        (
            "8.3: a pseudo-header behind a header",
            vec![frame(
                1,
                BOTH,
                1,
                &[&[0x82, 0x86], &literal("x", "1")[..], &[0x84, 0x01, 1, b'x']].concat(),
            )],
            all,
        ),
        ("8.3.1: no :method", vec![without(0)], all),
        ("8.3.1: no :scheme", vec![without(1)], all),
        ("8.3.1: no :path", vec![without(2)], all),
        ("8.3.1: no :authority, and no host", vec![without(3)], Status(400)),
        (
            "8.3.1: :method twice",
            vec![frame(1, BOTH, 1, &[0x82, 0x82, 0x86, 0x84, 0x01, 1, b'x'])],
            all,
        ),
        (
            "8.3.1: :scheme twice",
            vec![frame(1, BOTH, 1, &[0x82, 0x86, 0x86, 0x84, 0x01, 1, b'x'])],
            all,
        ),
        (
            "8.3.1: :path twice",
            vec![frame(1, BOTH, 1, &[0x82, 0x86, 0x84, 0x84, 0x01, 1, b'x'])],
            all,
        ),
        (
            "8.3.1: a path that is empty",
            vec![headers(1, BOTH, &block(""))],
            all,
        ),
        (
            "8.3.1: a path with a space",
            vec![headers(1, BOTH, &block("/a b"))],
            all,
        ),
        (
            "8.3.1: a path with a line break",
            vec![headers(1, BOTH, &block("/a\r\nx: y"))],
            all,
        ),
        (
            "8.3.1: a path that is a request line",
            vec![headers(1, BOTH, &block("/a HTTP/1.1\r\nhost: x\r\n\r\nGET /b"))],
            all,
        ),
        (
            "8.3.1: a method with a line break",
            vec![frame(
                1,
                BOTH,
                1,
                &[
                    &literal(":method", "GET /x HTTP/1.1\r\n")[..],
                    &[0x86, 0x84, 0x01, 1, b'x'],
                ]
                .concat(),
            )],
            all,
        ),
        (
            "8.3.1: a host beside :authority that differs",
            vec![with(&literal("host", "y"))],
            Status(400),
        ),
        (
            "8.3.1: a host beside :authority that is the same",
            vec![with(&literal("host", "x"))],
            Status(200),
        ),
        (
            "8.1.1: more than the length",
            vec![sized("1"), data(1, END_STREAM, b"abc")],
            all,
        ),
        (
            "8.1.1: less than the length",
            vec![sized("9"), data(1, END_STREAM, b"abc")],
            all,
        ),
        (
            "8.1.1: more than the length, in two parts",
            vec![sized("4"), data(1, 0, b"abc"), data(1, END_STREAM, b"abc")],
            all,
        ),
        (
            "8.1.1: a length of nothing and bytes",
            vec![sized("0"), data(1, END_STREAM, b"abc")],
            all,
        ),
        (
            "8.1.1: a length, and the end at once",
            vec![headers(
                1,
                BOTH,
                &[
                    &[0x83, 0x86, 0x84, 0x01, 1, b'x'],
                    &literal("content-length", "3")[..],
                ]
                .concat(),
            )],
            all,
        ),
        (
            "8.1.1: a length that is none",
            vec![sized("+3"), data(1, END_STREAM, b"abc")],
            all,
        ),
        (
            "8.1.1: two lengths",
            vec![
                headers(
                    1,
                    END_HEADERS,
                    &[
                        &[0x83, 0x86, 0x84, 0x01, 1, b'x'],
                        &literal("content-length", "3")[..],
                        &literal("content-length", "4")[..],
                    ]
                    .concat(),
                ),
                data(1, END_STREAM, b"abc"),
            ],
            all,
        ),
        (
            "8.1.1: the right length",
            vec![sized("3"), data(1, END_STREAM, b"abc")],
            Status(200),
        ),
        (
            "8.5: CONNECT is not served",
            vec![frame(
                1,
                BOTH,
                1,
                &[
                    &literal(":method", "CONNECT")[..],
                    &[0x01, 4, b'x', b':', b'8', b'0'],
                ]
                .concat(),
            )],
            Status(405),
        ),
    ]
}

/// HPACK (RFC 7541).
fn hpack() -> Vec<Case> {
    let with = |more: &[u8]| frame(1, BOTH, 1, &[&block("/a")[..], more].concat());
    let broken = Connection(&[COMPRESSION, PROTOCOL]);
    vec![
        (
            "2.3.3: an index that is not there",
            vec![with(&[0xff, 0x80, 0x01])],
            broken,
        ),
        ("6.1: the index 0", vec![with(&[0x80])], broken),
        (
            "4.2: a change of size behind a header",
            vec![with(&[0x20])],
            broken,
        ),
        (
            "6.3: a table larger than may be",
            vec![frame(
                1,
                BOTH,
                1,
                &[&[0x3f, 0xff, 0xff, 0x01], &block("/a")[..]].concat(),
            )],
            broken,
        ),
        (
            "5.2: more padding than a byte",
            vec![with(&[0x00, 0x85, 0xf2, 0xb2, 0x4a, 0x84, 0xff, 0x81, 0x41])],
            broken,
        ),
        (
            "5.2: the sign for the end",
            vec![with(&[
                0x00, 0x85, 0xf2, 0xb2, 0x4a, 0x84, 0xff, 0x83, 0xff, 0xff, 0xff, 0xff,
            ])],
            broken,
        ),
        (
            "5.1: an integer without an end",
            vec![with(&[
                0x00, 0x7f, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff,
            ])],
            broken,
        ),
    ]
}

async fn check(case: Case, addr: std::net::SocketAddr) -> Result<(), String> {
    let (name, frames, expect) = case;
    let mut raw = Raw::handshake(addr).await;
    for chunk in frames.chunks(1000) {
        raw.write(&chunk.concat()).await;
    }
    let ping = [7, 6, 5, 4, 3, 2, 1, 0];
    if matches!(expect, Pong) {
        raw.write(&frame(6, 0, 0, &ping)).await;
    }
    let mut seen = Vec::new();
    loop {
        let next = tokio::time::timeout(HANG, raw.frame()).await;
        let Ok(next) = next else {
            return Err(format!(
                "{name}: nothing comes after {seen:?} instead of {expect:?}"
            ));
        };
        let met = match (&next, expect) {
            (None, Connection(_)) => true,
            (Some(Frame { kind: 7, payload, .. }), Connection(codes) | Stream(codes)) => {
                codes.contains(&code(&payload[4..]))
            }
            (Some(Frame { kind: 3, payload, .. }), Stream(codes)) => codes.contains(&code(payload)),
            (
                Some(Frame {
                    kind: 1,
                    stream: 1,
                    payload,
                    ..
                }),
                Status(status),
            ) => super::wire::status(payload) == Some(status),
            (
                Some(Frame {
                    kind: 6,
                    flags: 1,
                    payload,
                    ..
                }),
                Pong,
            ) if *payload == ping => true,
            // Others before it, such as acknowledgements and answers.
            (Some(Frame { kind, .. }), _) if !matches!(kind, 3 | 7) => {
                seen.push(next);
                continue;
            }
            _ => false,
        };
        return if met {
            Ok(())
        } else {
            Err(format!("{name}: {next:?} after {seen:?} instead of {expect:?}"))
        };
    }
}

fn code(payload: &[u8]) -> u32 {
    payload.get(..4).map_or(u32::MAX, |four| {
        u32::from_be_bytes([four[0], four[1], four[2], four[3]])
    })
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_frame_gets_what_the_standard_wants() {
    let recorder = Recorder::start().await;
    let setup = Setup::new().with(|setup| {
        setup.serve.max_streams = 5;
        setup.options.timeouts.body_idle = Duration::from_secs(60);
    });
    let world = setup.start([spec("a", &recorder.url)]).await;
    let cases = [part_4(), part_5(), part_6(), part_8(), hpack()].concat();
    let (many, mut wrong) = (cases.len(), Vec::new());
    for case in cases {
        wrong.extend(check(case, world.addr).await.err());
    }
    println!("{} of {many} cases", many - wrong.len());
    assert!(wrong.is_empty(), "\n{}", wrong.join("\n"));
    // Nothing came along that was not one request: the recorder checks each byte.
    for request in recorder.requests() {
        assert!(matches!(request.target.as_str(), "/a" | "/"), "{request:?}");
        assert!(request.body.len() % 16_384 <= 3, "{request:?}");
    }
    world.quiet().await;
}

#[tokio::test]
async fn what_begins_as_neither_is_refused() {
    let recorder = Recorder::start().await;
    let world = Setup::new().start([spec("a", &recorder.url)]).await;
    let mut client = super::client::Client::connect(world.addr).await;
    client.write("PRI * HTTP/2.0\r\n\r\nXX\r\n\r\n").await;
    let (_, bytes) = tokio::time::timeout(HANG, client.rest()).await.unwrap();
    assert!(
        bytes.is_empty() || bytes.starts_with(b"HTTP/1.1 400"),
        "{bytes:?}"
    );
    // After the preface come settings, and nothing else.
    let mut raw = Raw::connect(world.addr).await;
    raw.write(super::wire::PREFACE).await;
    raw.write(&frame(6, 0, 0, &[0; 8])).await;
    loop {
        match raw.frame().await {
            None => break,
            Some(Frame { kind: 7, payload, .. }) => {
                assert_eq!(code(&payload[4..]), PROTOCOL);
                break;
            }
            Some(Frame { kind: 4, .. }) => {}
            Some(other) => panic!("{other:?}"),
        }
    }
}
