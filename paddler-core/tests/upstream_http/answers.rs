//! Is every answer read as one, as it is meant, or refused?

use std::fmt::Write as _;

use http::Method;
use proptest::prelude::*;

use super::answer::{End, check, read};

/// What an upstream says, `C` if it then closes, and what that is.
const ANSWERS: &[(&str, char, &str)] = &[
    // Lengths.
    (
        "HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nhi",
        ' ',
        "200 \"hi\" Whole, kept",
    ),
    (
        "HTTP/1.1 200\r\ncontent-length: 2\r\n\r\nhi",
        ' ',
        "200 \"hi\" Whole, kept",
    ),
    (
        "HTTP/1.1 200 \r\nContent-Length: 0002\r\n\r\nhi",
        ' ',
        "200 \"hi\" Whole, kept",
    ),
    (
        "HTTP/1.1 200 OK\r\ncontent-length: 2\r\ncontent-length: 2\r\n\r\nhi",
        ' ',
        "200 \"hi\" Whole, kept",
    ),
    (
        "HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n",
        ' ',
        "200 \"\" Whole, kept",
    ),
    (
        "HTTP/1.1 200 OK\r\ncontent-length: 3\r\n\r\nhi",
        ' ',
        "200 \"hi\" Waits",
    ),
    (
        "HTTP/1.1 200 OK\r\ncontent-length: 3\r\n\r\nhi",
        'C',
        "200 \"hi\" Broken",
    ),
    (
        "HTTP/1.1 200 OK\r\ncontent-length: 2\r\ncontent-length: 3\r\n\r\nhi!",
        ' ',
        "0 \"\" Broken",
    ),
    (
        "HTTP/1.1 200 OK\r\ncontent-length: 2, 2\r\n\r\nhi",
        ' ',
        "0 \"\" Broken",
    ),
    (
        "HTTP/1.1 200 OK\r\ncontent-length: +2\r\n\r\nhi",
        ' ',
        "0 \"\" Broken",
    ),
    (
        "HTTP/1.1 200 OK\r\ncontent-length: -2\r\n\r\nhi",
        ' ',
        "0 \"\" Broken",
    ),
    (
        "HTTP/1.1 200 OK\r\ncontent-length: 0x2\r\n\r\nhi",
        ' ',
        "0 \"\" Broken",
    ),
    (
        "HTTP/1.1 200 OK\r\ncontent-length:\r\n\r\nhi",
        ' ',
        "0 \"\" Broken",
    ),
    (
        "HTTP/1.1 200 OK\r\ncontent-length: 18446744073709551616\r\n\r\nhi",
        ' ',
        "0 \"\" Broken",
    ),
    (
        "HTTP/1.1 200 OK\r\ncontent-length: 18446744073709551615\r\n\r\nhi",
        ' ',
        "200 \"hi\" Waits",
    ),
    // Chunks.
    (
        "HTTP/1.1 200 OK\r\ntransfer-encoding: Chunked\r\n\r\n2\r\nhi\r\n0\r\n\r\n",
        ' ',
        "200 \"hi\" Whole, kept",
    ),
    (
        "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n2\r\nhi\r\n0a;x=\"y\"\r\n0123456789\r\n00\r\n\r\n",
        ' ',
        "200 \"hi0123456789\" Whole, kept",
    ),
    (
        "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n2 \r\nhi\r\n0\r\n\r\n",
        ' ',
        "200 \"hi\" Whole, kept",
    ),
    (
        "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n2 \t\r\nhi\r\n0\r\n\r\n",
        ' ',
        "200 \"hi\" Whole, kept",
    ),
    (
        "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n2 ;x\r\nhi\r\n0\r\n\r\n",
        ' ',
        "200 \"hi\" Whole, kept",
    ),
    (
        "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n2 2\r\nhi\r\n0\r\n\r\n",
        ' ',
        "200 \"\" Broken",
    ),
    (
        "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n2\t0\r\nhi\r\n0\r\n\r\n",
        ' ',
        "200 \"\" Broken",
    ),
    (
        "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n2 garbage\r\nhi\r\n0\r\n\r\n",
        ' ',
        "200 \"\" Broken",
    ),
    (
        "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n2 \t;x 2\r\nhi\r\n0\r\n\r\n",
        ' ',
        "200 \"hi\" Whole, kept",
    ),
    (
        "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n2\r\nhi\r\n",
        'C',
        "200 \"hi\" Broken",
    ),
    (
        "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n2\r\nhi\r\n0\r\n",
        'C',
        "200 \"hi\" Broken",
    ),
    (
        "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n2\r\nhi\r\n0\r\n",
        ' ',
        "200 \"hi\" Waits",
    ),
    (
        "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n2\r\nhiX\r\n0\r\n\r\n",
        ' ',
        "200 \"hi\" Broken",
    ),
    (
        "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n2\r\nhi\n0\r\n\r\n",
        ' ',
        "200 \"hi\" Broken",
    ),
    (
        "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n2\nhi\r\n0\r\n\r\n",
        ' ',
        "200 \"\" Broken",
    ),
    (
        "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n2;\nhi\r\n0\r\n\r\n",
        ' ',
        "200 \"\" Broken",
    ),
    (
        "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n2\rhi\r\n0\r\n\r\n",
        ' ',
        "200 \"\" Broken",
    ),
    (
        "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n\r\nhi",
        ' ',
        "200 \"\" Broken",
    ),
    (
        "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n+2\r\nhi\r\n0\r\n\r\n",
        ' ',
        "200 \"\" Broken",
    ),
    (
        "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n 2\r\nhi\r\n0\r\n\r\n",
        ' ',
        "200 \"\" Broken",
    ),
    (
        "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n0x2\r\nhi\r\n0\r\n\r\n",
        ' ',
        "200 \"\" Broken",
    ),
    (
        "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\nffffffffffffffff\r\nhi",
        ' ',
        "200 \"hi\" Waits",
    ),
    (
        "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n10000000000000002\r\nhi",
        ' ',
        "200 \"\" Broken",
    ),
    (
        "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n00000000000000002\r\nhi",
        ' ',
        "200 \"\" Broken",
    ),
    // Trailers.
    (
        "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n0\r\nx-a: b\r\n\r\n",
        ' ',
        "200 \"\" Whole, kept",
    ),
    (
        "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n0\r\nx-a : b\r\n\r\n",
        ' ',
        "200 \"\" Broken",
    ),
    (
        "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n0\r\nx-a: b\n\r\n",
        ' ',
        "200 \"\" Broken",
    ),
    (
        "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n0\r\nHTTP/1.1 200 OK\r\n\r\n",
        ' ',
        "200 \"\" Broken",
    ),
    // Both, and other codings.
    (
        "HTTP/1.1 200 OK\r\ncontent-length: 9\r\ntransfer-encoding: chunked\r\n\r\n2\r\nhi\r\n0\r\n\r\n",
        ' ',
        "200 \"hi\" Whole",
    ),
    (
        "HTTP/1.1 200 OK\r\ntransfer-encoding: gzip, chunked\r\n\r\n2\r\nhi\r\n0\r\n\r\n",
        ' ',
        "0 \"\" Broken",
    ),
    (
        "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\ntransfer-encoding: chunked\r\n\r\n2\r\nhi\r\n0\r\n\r\n",
        ' ',
        "0 \"\" Broken",
    ),
    (
        "HTTP/1.1 200 OK\r\ntransfer-encoding: identity\r\n\r\nhi",
        'C',
        "0 \"\" Broken",
    ),
    (
        "HTTP/1.1 200 OK\r\ntransfer-encoding:\r\ncontent-length: 2\r\n\r\nhi",
        ' ',
        "0 \"\" Broken",
    ),
    // Until the connection ends.
    ("HTTP/1.1 200 OK\r\n\r\nhi", 'C', "200 \"hi\" Whole"),
    ("HTTP/1.1 200 OK\r\n\r\nhi", ' ', "200 \"hi\" Waits"),
    // Keeping the connection.
    (
        "HTTP/1.1 200 OK\r\ncontent-length: 2\r\nConnection: x, Close\r\n\r\nhi",
        ' ',
        "200 \"hi\" Whole",
    ),
    (
        "HTTP/1.1 200 OK\r\ncontent-length: 2\r\nconnection: close\r\nconnection: keep-alive\r\n\r\nhi",
        ' ',
        "200 \"hi\" Whole",
    ),
    (
        "HTTP/1.0 200 OK\r\ncontent-length: 2\r\n\r\nhi",
        ' ',
        "200 \"hi\" Whole",
    ),
    (
        "HTTP/1.0 200 OK\r\ncontent-length: 2\r\nconnection: keep-alive\r\n\r\nhi",
        ' ',
        "200 \"hi\" Whole, kept",
    ),
    (
        "HTTP/1.0 200 OK\r\ncontent-length: 2\r\nconnection: keep-alive, close\r\n\r\nhi",
        ' ',
        "200 \"hi\" Whole",
    ),
    (
        "HTTP/1.0 200 OK\r\ntransfer-encoding: chunked\r\n\r\n2\r\nhi\r\n0\r\n\r\n",
        ' ',
        "0 \"\" Broken",
    ),
    (
        "HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nhi",
        'C',
        "200 \"hi\" Whole",
    ),
    (
        "HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nhi!",
        ' ',
        "200 \"hi\" Whole",
    ),
    (
        "HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nhi\r\n",
        ' ',
        "200 \"hi\" Whole",
    ),
    (
        "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n2\r\nhi\r\n0\r\n\r\nHTTP/1.1 200 OK\r\n",
        ' ',
        "200 \"hi\" Whole",
    ),
    // No body, whatever is said of one.
    (
        "HTTP/1.1 204 No Content\r\ncontent-length: 2\r\n\r\n",
        ' ',
        "204 \"\" Whole, kept",
    ),
    (
        "HTTP/1.1 304 Not Modified\r\ntransfer-encoding: chunked\r\n\r\n",
        ' ',
        "304 \"\" Whole, kept",
    ),
    (
        "HTTP/1.1 204 No Content\r\ncontent-length: 2\r\n\r\nhi",
        ' ',
        "204 \"\" Whole",
    ),
    // Before the answer.
    (
        "HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 103 Early Hints\r\nlink: x\r\n\r\nHTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nhi",
        ' ',
        "200 \"hi\" Whole, kept",
    ),
    ("HTTP/1.1 100 Continue\r\n\r\n", ' ', "0 \"\" Waits"),
    ("HTTP/1.1 100 Continue\r\n\r\n", 'C', "0 \"\" Broken"),
    (
        "HTTP/1.1 101 Switching Protocols\r\nupgrade: x\r\n\r\nhi",
        ' ',
        "101 \"\" Whole",
    ),
    // Heads that are none.
    ("", 'C', "0 \"\" Broken"),
    ("", ' ', "0 \"\" Waits"),
    ("HTTP/1.1 200 OK\r\ncontent-length: 2\r\n", 'C', "0 \"\" Broken"),
    ("HTTP/1.1 200 OK\r\ncontent-length: 2\r\n", ' ', "0 \"\" Waits"),
    (
        "\r\nHTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nhi",
        ' ',
        "0 \"\" Broken",
    ),
    ("HTTP/1.1 200 OK\ncontent-length: 2\n\nhi", ' ', "0 \"\" Broken"),
    (
        "HTTP/1.1 200 OK\r\ncontent-length: 2\n\r\nhi",
        ' ',
        "0 \"\" Broken",
    ),
    (
        "HTTP/1.1 200 OK\r\nx: a\rb\r\ncontent-length: 2\r\n\r\nhi",
        ' ',
        "0 \"\" Broken",
    ),
    (
        "HTTP/1.1 200 OK\r\nx: a\r\n b\r\ncontent-length: 2\r\n\r\nhi",
        ' ',
        "0 \"\" Broken",
    ),
    (
        "HTTP/1.1 200 OK\r\n x: a\r\ncontent-length: 2\r\n\r\nhi",
        ' ',
        "0 \"\" Broken",
    ),
    (
        "HTTP/1.1 200 OK\r\ncontent-length : 2\r\n\r\nhi",
        ' ',
        "0 \"\" Broken",
    ),
    (
        "HTTP/1.1 200 OK\r\nx: \0\r\ncontent-length: 2\r\n\r\nhi",
        ' ',
        "0 \"\" Broken",
    ),
    (
        "HTTP/1.1 200 OK\r\n: a\r\ncontent-length: 2\r\n\r\nhi",
        ' ',
        "0 \"\" Broken",
    ),
    (
        "HTTP/1.1 200 OK\r\nx\r\ncontent-length: 2\r\n\r\nhi",
        ' ',
        "0 \"\" Broken",
    ),
    (
        "HTTP/1.1 099 OK\r\ncontent-length: 2\r\n\r\nhi",
        ' ',
        "0 \"\" Broken",
    ),
    (
        "HTTP/1.1 20 OK\r\ncontent-length: 2\r\n\r\nhi",
        ' ',
        "0 \"\" Broken",
    ),
    ("HTTP/2.0 200 OK\r\n", ' ', "0 \"\" Broken"),
    (
        "HTTP/1.2 200 OK\r\ncontent-length: 2\r\n\r\nhi",
        ' ',
        "0 \"\" Broken",
    ),
    ("SSH-2.0-OpenSSH_9\r\n", ' ', "0 \"\" Broken"),
];

#[test]
fn an_answer_is_what_it_says_or_none() {
    for (said, closes, expected) in ANSWERS {
        let read = read(&Method::GET, said.as_bytes(), usize::MAX, *closes == 'C');
        assert_eq!(read.to_string(), *expected, "{said:?}");
    }
}

#[test]
fn an_answer_is_the_same_however_it_is_cut() {
    for (said, ..) in ANSWERS {
        check(said.as_bytes());
        // And what is one byte away from it.
        for at in 0..said.len() {
            let mut near = said.as_bytes().to_vec();
            near[at] ^= 1 << (at % 8);
            check(&near);
        }
    }
}

#[test]
fn head_asks_for_no_body() {
    for framing in ["content-length: 2", "transfer-encoding: chunked", "x: y"] {
        let said = format!("HTTP/1.1 200 OK\r\n{framing}\r\n\r\n");
        let read = read(&Method::HEAD, said.as_bytes(), usize::MAX, false);
        assert_eq!(read.to_string(), "200 \"\" Whole, kept", "{framing}");
    }
    let said = b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nhi";
    let read = read(&Method::HEAD, said, usize::MAX, false);
    assert_eq!(read.to_string(), "200 \"\" Whole", "whose bytes are these?");
}

#[test]
fn what_is_too_much_is_refused() {
    let with = |count: usize, line: &str, end: &str| {
        let said = format!("HTTP/1.1 200 OK\r\n{}{end}", line.repeat(count));
        read(&Method::GET, said.as_bytes(), 1 << 16, false).to_string()
    };
    let end = "content-length: 0\r\n\r\n";
    assert_eq!(with(1_000, "x: y\r\n", end), "200 \"\" Whole, kept");
    assert_eq!(with(1_030, "x: y\r\n", end), "0 \"\" Broken");
    let long = format!("x: {}\r\n", "y".repeat(100_000));
    assert_eq!(with(2, &long, end), "200 \"\" Whole, kept");
    // Before its end has come.
    assert_eq!(with(3, &long, ""), "0 \"\" Broken");
    let chunked = |extensions: usize, trailers: usize| {
        let head = "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n";
        let chunk = format!("1;{}\r\nx\r\n", "e".repeat(1_000)).repeat(extensions);
        let said = format!("{head}{chunk}0\r\n{}\r\n", "t: 45678\r\n".repeat(trailers));
        read(&Method::GET, said.as_bytes(), 1 << 16, false).end
    };
    assert_eq!((chunked(16, 0), chunked(17, 0)), (End::Whole, End::Broken));
    assert_eq!((chunked(0, 1_000), chunked(0, 1_700)), (End::Whole, End::Broken));
    let trailers = |count: usize| {
        let trailer = format!("t: {}\r\n", "x".repeat(95)).repeat(count);
        let said = format!("HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n0\r\n{trailer}\r\n");
        read(&Method::GET, said.as_bytes(), 1 << 16, false).end
    };
    assert_eq!((trailers(163), trailers(164)), (End::Whole, End::Broken));
    let padded = |chunks: usize, blanks: usize| {
        let chunk = format!("1{}\r\nx\r\n", " ".repeat(blanks)).repeat(chunks);
        let said = format!("HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n{chunk}0\r\n\r\n");
        read(&Method::GET, said.as_bytes(), 1 << 16, false).end
    };
    assert_eq!((padded(3_000, 8), padded(1, 32)), (End::Whole, End::Whole));
    assert_eq!(padded(1, 33), End::Broken);
    let interim = |count: usize| {
        let before = "HTTP/1.1 103 Early Hints\r\n\r\n".repeat(count);
        let said = format!("{before}HTTP/1.1 200 OK\r\n{end}");
        read(&Method::GET, said.as_bytes(), usize::MAX, false).end
    };
    assert_eq!((interim(16), interim(17)), (End::Whole, End::Broken));
}

#[test]
fn headers_and_trailers_are_as_they_were_said() {
    let said = b"HTTP/1.1 200 OK\r\nX-A:  \tone \xe4 two\t \r\nx-a:\r\ntransfer-encoding: chunked\r\n\r\n0\r\nX-End: 1\r\nx-end: 2\r\n\r\n";
    let read = read(&Method::GET, said, 7, false);
    let values: Vec<_> = read
        .headers
        .get_all("x-a")
        .iter()
        .map(|value| value.as_bytes())
        .collect();
    assert_eq!(values, [b"one \xe4 two".as_slice(), b""]);
    let trailers = read.trailers.unwrap();
    let values: Vec<_> = trailers.get_all("x-end").iter().collect();
    assert_eq!(values, ["1", "2"]);
    assert!(read.is_kept);
}

proptest! {
    /// Also where it is large, and is read in another way.
    #[test]
    fn a_body_is_the_same_whatever_its_chunks(
        chunks in proptest::collection::vec((1usize..20_000, any::<u8>()), 0..8),
        size in prop_oneof![1usize..20, 1_000usize..40_000],
    ) {
        let (mut said, mut body) = (b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n".to_vec(), Vec::new());
        for (length, byte) in chunks {
            let mut line = String::new();
            write!(line, "{length:x}\r\n").unwrap();
            let data = vec![byte; length];
            said.extend([line.as_bytes(), &data, b"\r\n"].concat());
            body.extend(data);
        }
        said.extend(b"0\r\n\r\n");
        let chunked = read(&Method::GET, &said, size, false);
        prop_assert_eq!(&chunked.body, &body);
        prop_assert!(chunked.is_kept && chunked.end == End::Whole);
        let mut plain = format!("HTTP/1.1 200 OK\r\ncontent-length: {}\r\n\r\n", body.len()).into_bytes();
        plain.extend(&body);
        let plain = read(&Method::GET, &plain, size, false);
        prop_assert_eq!(&plain.body, &body);
        prop_assert!(plain.is_kept && plain.end == End::Whole);
    }

    #[test]
    fn no_bytes_are_read_in_two_ways(bytes in proptest::collection::vec(any::<u8>(), 0..100)) {
        let chunked = [b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n", &bytes[..]].concat();
        check(&chunked);
        check(&[b"HTTP/1.1 200 OK\r\n", &bytes[..]].concat());
    }
}
