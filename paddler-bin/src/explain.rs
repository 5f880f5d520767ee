//! Where would a request go, and why?
//!
//! Asked of the engines as they are now, or of a snapshot that was taken of a router while it served. Nothing is sent there.

use std::convert::Infallible;
use std::fs::File;
use std::io::{self, BufReader, Read as _, Write as _};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use paddler_core::config::Config;
use paddler_core::request::{ModelRules, RequestFacts};
use paddler_core::schedule::{Ask, Explained, Explanation, Scratch, Tree};
use paddler_core::status::{FixedList, Snapshot, SnapshotRecord, StatusBoard, StatusLoop};
use paddler_core::upstream::http::HttpConnect;
use paddler_core::{Clock, Moment};
use tokio::time::{sleep, timeout};

use crate::args::Serve;
use crate::args::look::{Explain, ExplainFormat};
use crate::settings::Loaded;
use crate::{Failure, settings};

/// The path that a request is for if nothing is said.
pub(crate) const PATH: &str = "/v1/chat/completions";

/// How many upstreams each list names.
pub(crate) const NAMED: usize = 100;

/// Prints where the request of these arguments would go.
pub(crate) fn explain(args: &Explain) -> Result<(), Failure> {
    let body = body(&args.request)?;
    let why = match &args.snapshot {
        Some(file) => {
            if !args.upstream.is_empty() {
                tracing::warn!(
                    "--upstream (PADDLER_UPSTREAM) counts for nothing beside --snapshot, which has its own"
                );
            }
            let config = match &args.config {
                Some(file) => settings::of_file(file, args.r#for.mode())?,
                None => Config::default_for(args.r#for.mode()),
            };
            let snapshot = recorded(file, Arc::new(config.tree))?;
            let now = snapshot.published();
            walk(
                &snapshot,
                &facts(args, &body, &config.models, now)?,
                &config.models,
                now,
            )
        }
        None => crate::to_its_end(live(args, &body))?,
    };
    let text = match args.format {
        ExplainFormat::Text => why.to_string(),
        ExplainFormat::Json => serde_json::to_string_pretty(&why)?,
    };
    Ok(writeln!(io::stdout(), "{text}")?)
}

/// The body of the request; `-`: what comes on standard input.
fn body(file: &Path) -> Result<Vec<u8>, Failure> {
    if file == Path::new("-") {
        let mut body = Vec::new();
        io::stdin().read_to_end(&mut body)?;
        return Ok(body);
    }
    std::fs::read(file)
        .map_err(|error| format!("{} (the request) cannot be read: {error}", file.display()).into())
}

fn facts(args: &Explain, body: &[u8], models: &ModelRules, now: Moment) -> Result<RequestFacts, Failure> {
    let (method, path) = (&args.method, &args.path);
    let mut facts = RequestFacts::read(method, path, body, now, args.seed)
        .map_err(|error| format!("{} ({method} {path}): {error}", args.request.display()))?;
    facts.priority = args.priority;
    models.resolve(&mut facts);
    Ok(facts)
}

fn walk(snapshot: &Snapshot, facts: &RequestFacts, models: &ModelRules, now: Moment) -> Explained {
    let one = |facts: &RequestFacts| {
        let (view, mut why) = (facts.as_facts(), Explanation::default());
        let ask = Ask::new(&view, now, facts.seed);
        let _outcome = snapshot.pick(&ask, &mut Scratch::default(), &mut why);
        Ok::<_, Infallible>(why.data(snapshot.tree(), NAMED))
    };
    let others = models
        .fallback(facts)
        .map_or(Vec::new(), |fallback| fallback.models);
    let Ok(why) = one(facts).and_then(|why| why.of(facts).or_else(facts, &others, one));
    why
}

/// What `GET /api/v1/snapshot` has told.
fn recorded(file: &Path, tree: Arc<Tree>) -> Result<Snapshot, Failure> {
    let name = file.display();
    let unreadable = |why: &dyn std::fmt::Display| format!("{name} (the snapshot) cannot be read: {why}");
    let text = BufReader::new(File::open(file).map_err(|error| unreadable(&error))?);
    let record: SnapshotRecord = serde_json::from_reader(text).map_err(|error| {
        let hint = "save what GET /api/v1/snapshot answers";
        format!("{}; {hint}", unreadable(&error))
    })?;
    Ok(Snapshot::from_record(&record, tree).map_err(|error| unreadable(&error))?)
}

/// Asks each upstream of the config how it is, once.
async fn live(args: &Explain, body: &[u8]) -> Result<Explained, Failure> {
    let serve = Serve {
        config: args.config.clone(),
        upstream: args.upstream.clone(),
        ..Serve::default()
    };
    let loaded = settings::load(args.r#for.mode(), &serve).map_err(|faulty| faulty.why)?;
    let Loaded {
        mut config, secrets, ..
    } = loaded;
    if !secrets.specs.dns.is_empty() {
        return Err(
            "names that stand for several upstreams (dns+) are not looked up here: ask the router itself by \
                    POST /api/v1/explain, or take a snapshot of it"
                .into(),
        );
    }
    let clock = Clock::new();
    let many = secrets.specs.single.len() + secrets.specs.file.len();
    let tree = std::mem::replace(&mut config.tree, paddler_core::schedule::trees::gateway());
    let statuses = StatusLoop::start(
        StatusBoard::with_options(tree, config.board_options()),
        vec![
            Box::new(FixedList::new(secrets.specs.single)),
            Box::new(FixedList::new(secrets.specs.file)),
        ],
        Arc::new(HttpConnect::new(config.http_options())),
        Some(config.poll_options()),
        clock,
    );
    let published = statuses.published();
    let heard = |snapshot: &Snapshot| {
        snapshot.len() == many && snapshot.iter().all(|(_, entry)| entry.has_answered())
    };
    let all_heard = async {
        while !heard(&published.load()) {
            sleep(Duration::from_millis(5)).await;
        }
    };
    // Whoever says nothing for so long is told as one that was never heard.
    timeout(config.poll.timeout + config.timeouts.connect, all_heard)
        .await
        .ok();
    let now = clock.now();
    let snapshot = published.load_full();
    for (_, entry) in snapshot.iter() {
        if let Some(failure) = entry.last_failure() {
            tracing::warn!(upstream = %entry.spec().id, %failure, "does not say how it is");
        }
    }
    let facts = facts(args, body, &config.models, now)?;
    Ok(walk(&snapshot, &facts, &config.models, now))
}
