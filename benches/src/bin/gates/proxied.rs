//! What does one request cost the router, and one event of a stream?
//!
//! A router serves on this thread, as the program does: bytes over TCP in, a request, a place, bytes over TCP out. Its client
//! and its engine are another thread, which does one thing after another, so that each step finds all of the one before. What
//! that thread does is not counted.

use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::{Arc, mpsc};
use std::thread;
use std::time::Duration;

use paddler_benches::harness::Failure;
use paddler_core::Clock;
use paddler_core::config::DecisionRules;
use paddler_core::forward::{Router, RouterOptions, ServeOptions, serve};
use paddler_core::manage::Decisions;
use paddler_core::observe::export::CountTokens;
use paddler_core::observe::{Telemetries, Telemetry};
use paddler_core::request::{ModelRule, ModelRules};
use paddler_core::schedule::trees;
use paddler_core::status::{FixedList, StatusBoard, StatusLoop};
use paddler_core::upstream::http::HttpConnect;
use paddler_core::upstream::{ModelEntry, Models, UpstreamSpec};
use tokio::runtime::{Builder, Runtime};
use tokio::sync::mpsc::{UnboundedReceiver, unbounded_channel};

/// How much of it is done at once, so that beginning and ending it weighs little.
pub(crate) const MANY: u32 = 64;

/// Far more than anything takes, also under callgrind.
const PATIENCE: Duration = Duration::from_secs(60);

const ANSWER: &str = r#"{"id":"chatcmpl-1","object":"chat.completion","created":1764500000,"model":"bench","choices":[{"index":0,"message":{"role":"assistant","content":"All is well."},"finish_reason":"stop"}],"usage":{"prompt_tokens":200,"completion_tokens":4,"total_tokens":204}}"#;

const EVENT: &str = "data: {\"id\":\"chatcmpl-1\",\"object\":\"chat.completion.chunk\",\"created\":1764500000,\"model\":\"bench\",\
\"choices\":[{\"index\":0,\"delta\":{\"content\":\"well\"},\"logprobs\":null,\"finish_reason\":null}]}\n\n";

/// What is counted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Work {
    /// A small chat with a small answer, over connections that are kept.
    Chat,
    /// An event of a stream.
    Event,
    /// An event of a stream that is read for the tokens it tells of.
    EventCounted,
    /// A chat whose model has another one to fall back to, and a place.
    Ruled,
    /// A chat whose model nobody has, and that another one serves instead.
    FallsBack,
}

impl Work {
    /// All of it, by the name of its case.
    pub(crate) const ALL: [(&'static str, Self); 5] = [
        ("proxy/chat", Self::Chat),
        ("proxy/event", Self::Event),
        ("proxy/event_counted", Self::EventCounted),
        ("proxy/ruled", Self::Ruled),
        ("proxy/falls_back", Self::FallsBack),
    ];

    /// What is said of models: nothing, or who serves instead of whom.
    fn rules(self) -> Result<ModelRules, Failure> {
        let rule = match self {
            Self::Chat | Self::Event | Self::EventCounted => return Ok(ModelRules::default()),
            Self::Ruled => ("bench", ModelRule::default().or_else(["other"])),
            Self::FallsBack => ("large", ModelRule::default().or_else(["bench"])),
        };
        ModelRules::new([rule]).map_err(|faults| format!("{faults:?}").into())
    }

    fn request(self) -> Vec<u8> {
        let model = if self == Self::FallsBack { "large" } else { "bench" };
        request(model, self.streams())
    }

    fn streams(self) -> bool {
        matches!(self, Self::Event | Self::EventCounted)
    }

    /// None of its requests is recorded: hardly any of a busy router's is.
    fn telemetry(self) -> Option<Arc<dyn Telemetry>> {
        let mut decisions = DecisionRules::default();
        decisions.per_second = 0;
        let decisions: Arc<dyn Telemetry> = Arc::new(Decisions::new(decisions));
        let counts = (self == Self::EventCounted).then(|| Arc::new(CountTokens) as _);
        Telemetries::of([Some(decisions), counts])
    }
}

/// A router that serves, with someone who asks and answers.
struct Proxied {
    runtime: Runtime,
    // Dropped, its upstreams would stand still.
    _statuses: StatusLoop,
    begin: mpsc::Sender<()>,
    done: UnboundedReceiver<Result<(), String>>,
}

/// Serves, and gives what does the work [`MANY`] times.
pub(crate) fn run(work: Work) -> Result<Box<dyn FnMut()>, Failure> {
    // As the program logs: each request costs its share, though nothing is written.
    tracing_subscriber::fmt()
        .with_env_filter("info")
        .with_writer(std::io::stderr)
        .try_init()
        .ok();
    let mut proxied = Proxied::start(work)?;
    // The first opens connections, and may fail.
    proxied.many()?;
    Ok(Box::new(move || {
        if let Err(error) = proxied.many() {
            panic!("{work:?}: {error}");
        }
    }))
}

impl Proxied {
    fn start(work: Work) -> Result<Self, Failure> {
        let engine = TcpListener::bind("127.0.0.1:0")?;
        let runtime = Builder::new_current_thread().enable_all().build()?;
        let (statuses, address) = runtime.block_on(router(engine.local_addr()?, work))?;
        let (begin, begun) = mpsc::channel();
        let (tell, done) = unbounded_channel();
        thread::spawn(move || {
            let mut ends = None;
            while let Ok(()) = begun.recv() {
                let result = all(work, &mut ends, (&engine, address));
                if tell.send(result.map_err(|error| error.to_string())).is_err() {
                    return;
                }
            }
        });
        Ok(Self {
            runtime,
            _statuses: statuses,
            begin,
            done,
        })
    }

    fn many(&mut self) -> Result<(), Failure> {
        self.begin.send(())?;
        let done = self.runtime.block_on(self.done.recv());
        Ok(done.ok_or("nobody asks any more")??)
    }
}

/// A router before this engine, as the program sets it up, and where it listens.
async fn router(engine: SocketAddr, work: Work) -> Result<(StatusLoop, SocketAddr), Failure> {
    let (clock, board) = (Clock::new(), StatusBoard::new(trees::gateway()));
    let models = Models::Listed(vec![ModelEntry::new("bench")]);
    let spec = UpstreamSpec::new("engine", format!("http://{engine}"))?.models(models);
    let sources: Vec<Box<dyn paddler_core::status::StatusSource>> = vec![Box::new(FixedList::new([spec]))];
    let statuses = StatusLoop::start(board, sources, Arc::new(HttpConnect::default()), None, clock);
    let mut options = RouterOptions::default();
    options.models = Arc::new(work.rules()?);
    options.telemetry = work.telemetry();
    let router = Router::new(statuses.published(), clock, options);
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await?;
    let address = listener.local_addr()?;
    let never = std::future::pending;
    tokio::spawn(serve(listener, router, ServeOptions::default(), never(), never()));
    Ok((statuses, address))
}

/// The connections of the client and of the engine.
type Ends = (TcpStream, TcpStream);

fn all(work: Work, ends: &mut Option<Ends>, at: (&TcpListener, SocketAddr)) -> Result<(), Failure> {
    let (client, engine) = match ends {
        Some(ends) => ends,
        None => ends.insert(open(work, at)?),
    };
    for _ in 0..MANY {
        match work {
            Work::Chat | Work::Ruled | Work::FallsBack => {
                client.write_all(&work.request())?;
                read_to(engine, b"]}")?;
                let head = "HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: ";
                engine.write_all(format!("{head}{}\r\n\r\n{ANSWER}", ANSWER.len()).as_bytes())?;
                read_to(client, ANSWER.as_bytes())?;
            }
            Work::Event | Work::EventCounted => {
                engine.write_all(format!("{:x}\r\n{EVENT}\r\n", EVENT.len()).as_bytes())?;
                read_to(client, format!("{EVENT}\r\n").as_bytes())?;
            }
        }
    }
    Ok(())
}

/// Connections that are ready for this work.
fn open(work: Work, (listener, address): (&TcpListener, SocketAddr)) -> Result<Ends, Failure> {
    let mut client = TcpStream::connect(address)?;
    client.write_all(&work.request())?;
    let (mut engine, _) = listener.accept()?;
    for end in [&client, &engine] {
        end.set_nodelay(true)?;
        end.set_read_timeout(Some(PATIENCE))?;
    }
    read_to(&mut engine, b"]}")?;
    let (head, end): (_, &[u8]) = if work.streams() {
        let head = "content-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n2\r\n{}\r\n";
        (head, b"{}\r\n")
    } else {
        ("content-length: 2\r\n\r\n{}", b"{}")
    };
    engine.write_all(format!("HTTP/1.1 200 OK\r\n{head}").as_bytes())?;
    read_to(&mut client, end)?;
    Ok((client, engine))
}

fn request(model: &str, stream: bool) -> Vec<u8> {
    let words = "Say in one word how it goes, and why. ".repeat(18);
    let body = format!(
        r#"{{"model":"{model}","stream":{stream},"max_tokens":1000,"messages":[{{"role":"user","content":"{words}"}}]}}"#
    );
    let head = "POST /v1/chat/completions HTTP/1.1\r\nhost: localhost\r\nuser-agent: bench\r\naccept: */*\r\n\
                content-type: application/json\r\ncontent-length: ";
    format!("{head}{}\r\n\r\n{body}", body.len()).into_bytes()
}

/// Reads all that comes up to these bytes, which are the last.
fn read_to(stream: &mut TcpStream, end: &[u8]) -> Result<(), Failure> {
    let (mut bytes, mut read) = (vec![0; 16 << 10], 0);
    while !bytes[..read].ends_with(end) {
        match stream.read(&mut bytes[read..])? {
            0 => return Err(format!("it ends: {}", String::from_utf8_lossy(&bytes[..read])).into()),
            more => read += more,
        }
    }
    Ok(())
}
