use std::convert::Infallible;
use std::sync::atomic::AtomicUsize;
use std::task::Waker;
use std::time::Duration;

use http::{HeaderMap, HeaderValue, Request};
use hyper::body::Incoming;
use hyper::service::service_fn;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpListener;
use tokio::sync::mpsc::{self, UnboundedReceiver, UnboundedSender};
use tokio::sync::oneshot;
use tokio::task::JoinHandle;
use tokio::time::{sleep, timeout};

use super::super::server::{ServeOptions, Served, serve};
use super::*;

/// Far more than anything here takes.
const PATIENCE: Duration = Duration::from_secs(20);

const HEAD_ENDS: &[u8] = b"\r\n\r\n";

type Piece = Result<Frame<Bytes>, BoxError>;

/// A body that comes as it is sent.
struct Sent(UnboundedReceiver<Piece>);

impl HttpBody for Sent {
    type Data = Bytes;
    type Error = BoxError;

    fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Next> {
        self.0.poll_recv(cx)
    }
}

/// A server whose answers are the bodies that `make` makes, one after the other, and a client of it.
async fn client<B>(idle: Duration, make: impl Fn() -> B + Clone + Send + 'static) -> (TcpStream, Serving)
where
    B: HttpBody<Data = Bytes, Error = BoxError> + Send + 'static,
{
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let service = service_fn(move |_: Request<Incoming>| {
        let mut answer = Response::new(Body::new(make()));
        let trailer = HeaderValue::from_static("x-sum");
        answer.headers_mut().insert("trailer", trailer);
        async move { Ok::<_, Infallible>(answer) }
    });
    let options = ServeOptions {
        client_idle: idle,
        grace: PATIENCE,
        ..ServeOptions::default()
    };
    let (stop, stopped) = oneshot::channel::<()>();
    let stopped = async move { drop(stopped.await) };
    let served = tokio::spawn(serve(listener, service, options, stopped, std::future::pending()));
    (
        TcpStream::connect(address).await.unwrap(),
        Serving { stop, served },
    )
}

struct Serving {
    stop: oneshot::Sender<()>,
    served: JoinHandle<io::Result<Served>>,
}

/// As [`client`], with what is sent to each of so many answers.
async fn speaker(answers: usize) -> (TcpStream, Vec<UnboundedSender<Piece>>, Serving) {
    let (senders, receivers): (Vec<_>, Vec<_>) = (0..answers).map(|_| mpsc::unbounded_channel()).unzip();
    let receivers = Arc::new(Mutex::new(receivers.into_iter()));
    let make = move || Sent(receivers.lock().unwrap().next().unwrap());
    let (client, serving) = client(PATIENCE, make).await;
    (client, senders, serving)
}

/// An answer of which the head has come.
async fn stream() -> (TcpStream, UnboundedSender<Piece>, Serving) {
    let (mut client, mut senders, serving) = speaker(1).await;
    ask(&mut client).await;
    head(&mut client).await;
    (client, senders.pop().unwrap(), serving)
}

async fn ask(client: &mut TcpStream) {
    let request = b"GET / HTTP/1.1\r\nhost: here\r\nte: trailers\r\n\r\n";
    client.write_all(request).await.unwrap();
}

/// Reads a head, to its end.
async fn head(client: &mut TcpStream) -> String {
    let mut bytes = Vec::new();
    while !bytes.ends_with(HEAD_ENDS) {
        bytes.push(timeout(PATIENCE, client.read_u8()).await.unwrap().unwrap());
    }
    String::from_utf8(bytes).unwrap()
}

async fn expect(client: &mut TcpStream, expected: &[u8]) {
    let mut bytes = vec![0; expected.len()];
    timeout(PATIENCE, client.read_exact(&mut bytes))
        .await
        .unwrap()
        .unwrap();
    assert!(bytes == expected, "{:?}", String::from_utf8_lossy(&bytes));
}

fn chunk(data: &[u8]) -> Vec<u8> {
    [format!("{:X}\r\n", data.len()).as_bytes(), data, b"\r\n"].concat()
}

fn data(bytes: &[u8]) -> Piece {
    Ok(Frame::data(Bytes::copy_from_slice(bytes)))
}

#[tokio::test]
async fn each_piece_is_a_chunk_whoever_writes_it_and_comes_at_once() {
    let (mut client, senders, _serving) = speaker(2).await;
    for say in senders {
        ask(&mut client).await;
        let head = head(&mut client).await;
        assert!(head.contains("transfer-encoding: chunked"), "{head}");
        for size in [1, 15, 16, 208, 255, 256, SMALL, SMALL + 1, 3, 100_000, 7] {
            say.send(data(b"")).unwrap();
            let piece = vec![b'a'; size];
            say.send(data(&piece)).unwrap();
            expect(&mut client, &chunk(&piece)).await;
        }
        let mut trailers = HeaderMap::new();
        trailers.insert("x-sum", HeaderValue::from_static("1"));
        say.send(Ok(Frame::trailers(trailers))).unwrap();
        expect(&mut client, b"0\r\nx-sum: 1\r\n\r\n").await;
    }
}

#[tokio::test]
async fn the_end_and_an_error_are_told_as_the_server_tells_them() {
    for error in [false, true] {
        let (mut client, say, _serving) = stream().await;
        for _ in 0..3 {
            say.send(data(b"one")).unwrap();
            expect(&mut client, &chunk(b"one")).await;
        }
        if error {
            say.send(Err("it broke".into())).unwrap();
            let mut rest = Vec::new();
            let end = timeout(PATIENCE, client.read_to_end(&mut rest)).await.unwrap();
            assert_eq!((end.unwrap(), rest), (0, vec![]));
        } else {
            drop(say);
            expect(&mut client, b"0\r\n\r\n").await;
        }
    }
}

#[tokio::test]
async fn who_hangs_up_is_seen_and_who_stops_lets_it_end() {
    let (mut client, say, serving) = stream().await;
    say.send(data(b"one")).unwrap();
    expect(&mut client, &chunk(b"one")).await;
    serving.stop.send(()).unwrap();
    for _ in 0..3 {
        say.send(data(b"two")).unwrap();
        expect(&mut client, &chunk(b"two")).await;
    }
    drop(client);
    timeout(PATIENCE, say.closed()).await.unwrap();
    let served = timeout(PATIENCE, serving.served).await.unwrap().unwrap();
    assert_eq!(served.unwrap(), Served::Whole);
}

/// Numbered pieces, as many as are taken, with a wait now and then.
struct Many {
    made: Arc<AtomicUsize>,
    waited: bool,
}

const MANY: usize = 40_000;

fn numbered(number: usize) -> Vec<u8> {
    format!("{number:0>1000}").into_bytes()
}

impl HttpBody for Many {
    type Data = Bytes;
    type Error = BoxError;

    fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Next> {
        let number = self.made.load(Relaxed);
        self.waited = !self.waited && number.is_multiple_of(50);
        if self.waited {
            cx.waker().wake_by_ref();
            return Poll::Pending;
        }
        if number == MANY {
            return Poll::Ready(None);
        }
        self.made.fetch_add(1, Relaxed);
        Poll::Ready(Some(data(&numbered(number))))
    }
}

async fn client_of_many(idle: Duration) -> (TcpStream, Arc<AtomicUsize>, Serving) {
    let made = Arc::<AtomicUsize>::default();
    let counted = made.clone();
    let make = move || Many {
        made: counted.clone(),
        waited: false,
    };
    let (mut client, serving) = client(idle, make).await;
    ask(&mut client).await;
    head(&mut client).await;
    (client, made, serving)
}

#[tokio::test]
async fn no_more_is_fetched_than_the_client_takes_and_nothing_is_lost() {
    let (mut client, made, _serving) = client_of_many(PATIENCE).await;
    loop {
        let before = made.load(Relaxed);
        sleep(Duration::from_millis(50)).await;
        if before > 0 && made.load(Relaxed) == before {
            break;
        }
    }
    assert!(made.load(Relaxed) < MANY, "it waits for the client");
    for number in 0..MANY {
        expect(&mut client, &chunk(&numbered(number))).await;
    }
    expect(&mut client, b"0\r\n\r\n").await;
}

#[tokio::test]
async fn who_takes_nothing_for_too_long_is_let_go() {
    let (_client, made, serving) = client_of_many(Duration::from_millis(100)).await;
    serving.stop.send(()).unwrap();
    let served = timeout(PATIENCE, serving.served).await.unwrap().unwrap();
    assert_eq!(served.unwrap(), Served::Whole);
    assert!(made.load(Relaxed) < MANY);
}

#[tokio::test]
async fn it_opens_only_where_the_server_has_written_all_and_waits() {
    let (say, said) = mpsc::unbounded_channel::<Piece>();
    let lane = Lane::default();
    let cx = &mut Context::from_waker(Waker::noop());
    lane.wrote_all();
    assert!(!lane.opens(), "no answer");
    lane.begin(Body::new(Sent(said)));
    assert!(!lane.opens(), "not asked");
    assert!(lane.poll_server(cx).is_pending());
    assert!(!lane.opens(), "the head is unwritten");
    say.send(data(b"x")).unwrap();
    assert!(lane.poll_server(cx).is_ready());
    assert!(lane.poll_server(cx).is_pending());
    assert!(!lane.opens(), "unwritten");
    lane.wrote_all();
    say.send(data(b"x")).unwrap();
    assert!(lane.poll_server(cx).is_ready());
    assert!(lane.poll_server(cx).is_pending());
    assert!(!lane.opens(), "unwritten again");
    lane.wrote(false);
    lane.wrote_all();
    assert!(!lane.opens(), "the line is behind");
    lane.wrote(true);
    lane.wrote_all();
    assert!(lane.opens());
    say.send(data(b"x")).unwrap();
    assert!(lane.poll_server(cx).is_pending());
    lane.end();
    assert!(!lane.opens());
    assert!(say.is_closed());
    let next = lane.poll_server(cx);
    assert!(
        matches!(next, Poll::Ready(Some(Err(_)))),
        "no end that says it is whole"
    );
}

#[tokio::test]
async fn answers_to_requests_that_came_together_stay_apart() {
    let (mut client, senders, _serving) = speaker(3).await;
    for _ in 0..3 {
        ask(&mut client).await;
    }
    for say in senders {
        let head = head(&mut client).await;
        assert!(head.starts_with("HTTP/1.1 200"), "{head}");
        for _ in 0..3 {
            say.send(data(b"one")).unwrap();
            expect(&mut client, &chunk(b"one")).await;
        }
        say.send(data(&[b'x'; 5000])).unwrap();
        say.send(data(b"last")).unwrap();
        drop(say);
        expect(&mut client, &chunk(&[b'x'; 5000])).await;
        expect(&mut client, &chunk(b"last")).await;
        expect(&mut client, b"0\r\n\r\n").await;
    }
}

#[tokio::test]
async fn who_is_old_or_asks_for_the_head_or_waits_to_go_on_is_answered_right() {
    let (mut client, mut senders, _serving) = speaker(1).await;
    client.write_all(b"GET / HTTP/1.0\r\n\r\n").await.unwrap();
    let text = head(&mut client).await;
    assert!(!text.contains("chunked"), "{text}");
    let say = senders.pop().unwrap();
    for _ in 0..3 {
        say.send(data(b"one")).unwrap();
        expect(&mut client, b"one").await;
    }
    drop(say);
    let mut rest = Vec::new();
    client.read_to_end(&mut rest).await.unwrap();
    assert!(rest.is_empty());

    let (mut client, senders, _serving) = speaker(2).await;
    client
        .write_all(b"HEAD / HTTP/1.1\r\nhost: h\r\n\r\n")
        .await
        .unwrap();
    head(&mut client).await;
    timeout(PATIENCE, senders[0].closed()).await.unwrap();
    let post = b"POST / HTTP/1.1\r\nhost: h\r\nexpect: 100-continue\r\ncontent-length: 5\r\n\r\n";
    client.write_all(post).await.unwrap();
    let text = head(&mut client).await;
    assert!(text.starts_with("HTTP/1.1 200"), "{text}");
    for _ in 0..3 {
        senders[1].send(data(b"one")).unwrap();
        expect(&mut client, &chunk(b"one")).await;
    }
    client.write_all(b"later").await.unwrap();
    senders[1].send(data(b"two")).unwrap();
    expect(&mut client, &chunk(b"two")).await;
}

/// Large and small in turn, a wait before each.
struct Turns(usize, bool);

fn turn(number: usize) -> Vec<u8> {
    let size = if number.is_multiple_of(2) { 60_000 } else { 20 };
    format!("{number:0>size$}").into_bytes()
}

impl HttpBody for Turns {
    type Data = Bytes;
    type Error = BoxError;

    fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Next> {
        self.1 = !self.1;
        if self.1 {
            cx.waker().wake_by_ref();
            return Poll::Pending;
        }
        if self.0 == 1000 {
            return Poll::Ready(None);
        }
        self.0 += 1;
        Poll::Ready(Some(data(&turn(self.0 - 1))))
    }
}

#[tokio::test]
async fn nothing_gets_into_what_the_server_has_not_written_yet() {
    let (mut client, _serving) = client(PATIENCE, || Turns(0, false)).await;
    ask(&mut client).await;
    head(&mut client).await;
    for number in 0..1000 {
        if number % 200 == 0 {
            sleep(Duration::from_millis(100)).await;
        }
        expect(&mut client, &chunk(&turn(number))).await;
    }
    expect(&mut client, b"0\r\n\r\n").await;
}

#[tokio::test]
async fn what_is_not_in_chunks_has_none() {
    for old in [false, true] {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let (say, said) = mpsc::unbounded_channel::<Piece>();
        let said = Arc::new(Mutex::new(Some(said)));
        let service = service_fn(move |_: Request<Incoming>| {
            let mut answer = Response::new(Body::new(Sent(said.lock().unwrap().take().unwrap())));
            if old {
                *answer.version_mut() = Version::HTTP_10;
            } else {
                answer
                    .headers_mut()
                    .insert(CONTENT_LENGTH, HeaderValue::from_static("9"));
            }
            async move { Ok::<_, Infallible>(answer) }
        });
        tokio::spawn(serve(
            listener,
            service,
            ServeOptions::default(),
            std::future::pending(),
            std::future::pending(),
        ));
        let mut client = TcpStream::connect(address).await.unwrap();
        ask(&mut client).await;
        head(&mut client).await;
        for _ in 0..3 {
            say.send(data(b"one")).unwrap();
            expect(&mut client, b"one").await;
        }
    }
}

/// Small pieces that are all there at once.
struct Together(usize);

impl HttpBody for Together {
    type Data = Bytes;
    type Error = BoxError;

    fn poll_frame(mut self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<Next> {
        self.0 += 1;
        Poll::Ready((self.0 < 100).then(|| data(&[b'a'; 200])))
    }
}

#[tokio::test]
async fn pieces_that_are_there_together_go_together() {
    let mut way = Way {
        body: Some(Body::new(Together(0))),
        ..Way::default()
    };
    let cx = &mut Context::from_waker(Waker::noop());
    let (mut all, mut writes) = (Vec::new(), 0);
    while way.left.is_none() {
        let mut room = [MaybeUninit::uninit(); BLOCK];
        let mut block = ReadBuf::uninit(&mut room);
        let gathered = way.gather(&mut block, cx);
        assert_eq!(gathered.is_ready(), way.left.is_some());
        all.extend_from_slice(block.filled());
        writes += 1;
    }
    assert_eq!(all, chunk(&[b'a'; 200]).repeat(99));
    assert!(matches!(way.left, Some(None)));
    // Ten of them leave no room for the largest.
    assert_eq!(writes, 10);
}
