//! What does the router cost beside nginx, HAProxy, Envoy and other routers?
//!
//! ```sh
//! cargo run --release -p paddler-benches --bin proxies -- --peers nginx,haproxy,envoy,vllm-router,smg --seconds 4 --rounds 3
//! ```
//!
//! Each stands before the same two engines of no cost, as a process of its own, and is asked the same in turn, so that whatever
//! else the machine does meets all. CPU time is what the system counts for the proxy's threads and processes; the engines and
//! the clients, which are in this process, are not in it.
//!
//! - `plain`: chats of 900 bytes with a small answer, one after another on each of 32 connections.
//! - `stream`: events of 208 bytes, 50 a second in each of 200 streams; the time for an event that has reached the client.
//! - `large`: chats of 1 MiB, on 8 connections.
//! - first byte: chats as in `plain` that come at random, half as many a second as the slowest has answered there; what a proxy
//!   adds to the engine's own time.
//!
//! `bare` is a proxy of hyper that does nothing else: what Paddler costs over it is what a router does, and what is under it is not
//! to be had without another server.
//!
//! Those who are not installed are named with the command that installs them. It judges nothing but the answers: the program
//! fails when Paddler has given a wrong one, or none.

mod load;
mod peers;
mod process;
mod table;

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::str::FromStr;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use clap::{Parser, ValueEnum};
use paddler_benches::harness::Failure;
use paddler_benches::harness::costless::{Engine, Pace};
use paddler_benches::harness::figures::{median, percentile};
use paddler_benches::harness::flags::{rate, seconds, whole};
use paddler_benches::harness::programs::{Programs, raise_open_files};
use paddler_benches::harness::trial::run_in_folder;
use tokio::signal::unix::{SignalKind, signal};
use tokio::time::{Instant, sleep};

use load::{Load, Workload, first_bytes};
use peers::{Peer, Setting};
use process::Proxy;
use table::Measured;

/// Measures what proxies cost before the same engines.
#[derive(Debug, Parser)]
struct Arguments {
    /// With whom to compare: "none", or some of bare, nginx, haproxy, envoy, vllm-router, sglang-router and smg, with commas between.
    #[arg(
        long,
        default_value = "bare,nginx,haproxy,envoy,vllm-router,sglang-router,smg"
    )]
    peers: Peers,
    /// How long each is measured at each kind of work in each round, after a quarter of it to warm up: from 0.5 to 3600.
    #[arg(long, default_value_t = 4.0, value_parser = seconds, allow_negative_numbers = true)]
    seconds: f64,
    /// How often each is measured: from 1 to 1000.
    #[arg(long, default_value_t = 3, value_parser = whole::<1_000>, allow_negative_numbers = true)]
    rounds: usize,
    /// How many threads each proxy has for its work: from 1 to 1024.
    #[arg(long, default_value_t = 1, value_parser = whole::<1_024>, allow_negative_numbers = true)]
    threads: usize,
    /// How many connections ask in `plain`: from 1 to 20000.
    #[arg(long, default_value_t = 32, value_parser = whole::<20_000>, allow_negative_numbers = true)]
    connections: usize,
    /// How many streams are open in `stream`: from 1 to 20000.
    #[arg(long, default_value_t = 200, value_parser = whole::<20_000>, allow_negative_numbers = true)]
    streams: usize,
    /// How many events a second each has: from 1 to 1000.
    #[arg(long, default_value_t = 50, value_parser = whole::<1_000>, allow_negative_numbers = true)]
    events: usize,
    /// How many connections ask in `large`: from 1 to 1000.
    #[arg(long, default_value_t = 8, value_parser = whole::<1_000>, allow_negative_numbers = true)]
    uploads: usize,
    /// How many requests a second come while the first byte's time is measured, from 1 to 1000000 [default: half of what the slowest answered].
    #[arg(long, value_parser = rate, allow_negative_numbers = true)]
    rate: Option<f64>,
    /// The program `paddler` [default: this workspace's, built in the profile of this program].
    #[arg(long)]
    paddler: Option<PathBuf>,
    /// Where `NAME/bin/NAME` is looked for before the path, for each peer [default: `peers` in the target directory].
    #[arg(long)]
    folder: Option<PathBuf>,
}

#[derive(Debug, Clone)]
struct Peers(Vec<Peer>);

impl FromStr for Peers {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        if text == "none" {
            return Ok(Self(Vec::new()));
        }
        text.split(',')
            .map(|name| Peer::from_str(name, false))
            .collect::<Result<_, _>>()
            .map(Self)
    }
}

fn main() -> ExitCode {
    run_in_folder("proxies", async |arguments: &Arguments, folder| {
        let [mut interrupt, mut terminate] =
            [signal(SignalKind::interrupt())?, signal(SignalKind::terminate())?];
        // Whoever is not waited for any more is dropped, and every proxy with it.
        tokio::select! {
            done = compare(arguments, folder) => done,
            _ = interrupt.recv() => Err("interrupted".into()),
            _ = terminate.recv() => Err("told to end".into()),
        }
    })
}

async fn compare(arguments: &Arguments, folder: &Path) -> Result<bool, Failure> {
    raise_open_files()?;
    let pace = Pace {
        every: Duration::from_secs_f64(1.0 / arguments.events as f64),
        events: arguments.events as u64 * (4.0 * arguments.seconds + 60.0) as u64,
    };
    let engines = [Engine::start(pace).await?, Engine::start(pace).await?];
    let addresses = engines.each_ref().map(|engine| engine.address);
    let setting = Setting {
        engines: &addresses,
        threads: arguments.threads,
        folder,
    };
    let (proxies, left_out) = start(arguments, setting).await?;
    let mut trial = Trial {
        arguments,
        measured: proxies.iter().map(|proxy| Measured::of(proxy.name)).collect(),
        proxies,
    };
    for workload in Workload::ALL {
        trial.work(workload).await;
    }
    let (rate, direct) = trial.first_bytes(addresses[0]).await?;
    println!("{}", table::cpu(&trial.measured));
    println!("{}", table::rest(&trial.measured, &direct));
    println!(
        "{} rounds of {} s, {} thread(s) each; first byte at {rate:.0} requests a second, of the engine itself {:.3} ms (p50)",
        arguments.rounds,
        arguments.seconds,
        arguments.threads,
        median(direct.iter().map(|times| times[0]))
    );
    for reason in left_out {
        println!("left out: {reason}");
    }
    Ok(trial.measured[0].errors == 0)
}

/// Starts Paddler and all peers that are there; the reasons why others are not.
async fn start(arguments: &Arguments, setting: Setting<'_>) -> Result<(Vec<Proxy>, Vec<String>), Failure> {
    let paddler = match &arguments.paddler {
        Some(file) if file.is_file() => file.clone(),
        Some(file) => {
            let command = "cargo build --release -p paddler-bin";
            return Err(format!("{} is not there: build it: {command}", file.display()).into());
        }
        None => Programs::build()?.paddler,
    };
    let own = std::env::current_exe()?;
    let target = own
        .parent()
        .and_then(Path::parent)
        .ok_or("this program is in no target directory")?;
    let folder = arguments.folder.clone().unwrap_or_else(|| target.join("peers"));
    let (mut proxies, mut left_out) = (vec![peers::paddler(&paddler, setting).await?], Vec::new());
    for peer in &arguments.peers.0 {
        let started = match peer.find(&folder) {
            Ok(file) => peer
                .start(&file, setting)
                .await
                .map_err(|error| error.to_string()),
            Err(command) => Err(format!("not installed: {command}")),
        };
        match started {
            Ok(proxy) => proxies.push(proxy),
            Err(reason) => left_out.push(format!("{}: {reason}", peer.name())),
        }
    }
    Ok((proxies, left_out))
}

#[derive(Debug)]
struct Trial<'a> {
    arguments: &'a Arguments,
    proxies: Vec<Proxy>,
    measured: Vec<Measured>,
}

impl Trial<'_> {
    /// All rounds of one kind of work. Each round begins with another proxy.
    async fn work(&mut self, workload: Workload) {
        for round in 0..self.arguments.rounds {
            eprintln!(
                "{}, round {} of {}",
                workload.name(),
                round + 1,
                self.arguments.rounds
            );
            for turn in 0..self.proxies.len() {
                let place = (turn + round) % self.proxies.len();
                self.once(workload, place).await;
            }
        }
        for (proxy, measured) in self.proxies.iter().zip(&mut self.measured) {
            measured.work[workload as usize].peak = proxy.peak_memory();
        }
    }

    async fn once(&mut self, workload: Workload, place: usize) {
        let (arguments, proxy) = (self.arguments, &self.proxies[place]);
        let seconds = Duration::from_secs_f64(arguments.seconds);
        let (askers, over) = match workload {
            Workload::Plain => (arguments.connections, Duration::ZERO),
            Workload::Stream => (arguments.streams, Duration::from_secs(1).min(seconds)),
            Workload::Large => (arguments.uploads, Duration::ZERO),
        };
        let load = Load::start(workload, proxy.address, askers, over).await;
        sleep(seconds / 4).await;
        let (began, cpu, done) = (Instant::now(), proxy.cpu(), load.counts.done.load(Relaxed));
        sleep(seconds).await;
        // One at least has to be through, however slow the machine is.
        let until = Instant::now() + load::PATIENCE;
        let counts = &load.counts;
        while counts.done.load(Relaxed) == done && counts.errors.load(Relaxed) == 0 && Instant::now() < until
        {
            sleep(Duration::from_millis(10)).await;
        }
        let cpu = proxy.cpu().saturating_sub(cpu).as_secs_f64();
        let (took, done) = (
            began.elapsed().as_secs_f64(),
            load.counts.done.load(Relaxed) - done,
        );
        let errors = load.counts.errors.load(Relaxed);
        let due = arguments.events as f64 * askers as f64 * took;
        if workload == Workload::Stream && (done as f64) < 0.9 * due {
            eprintln!("{}: {done} of {due:.0} events arrived in time", proxy.name);
        }
        let measured = &mut self.measured[place];
        measured.errors += errors;
        let work = &mut measured.work[workload as usize];
        work.cpu.push(if done == 0 {
            f64::NAN
        } else {
            cpu * 1e6 / done as f64
        });
        work.rate.push(done as f64 / took);
    }

    /// The rate at which the first byte was waited for, and the engine's own times for it by round.
    async fn first_bytes(&mut self, engine: SocketAddr) -> Result<(f64, Vec<[f64; 2]>), Failure> {
        let answered = |measured: &Measured| median(measured.work[0].rate.iter().copied());
        let slowest = self
            .measured
            .iter()
            .map(answered)
            .filter(|rate| *rate > 0.0)
            .fold(f64::MAX, f64::min);
        let rate = self.arguments.rate.unwrap_or((slowest / 2.0).min(1e5));
        let time = Duration::from_secs_f64(self.arguments.seconds);
        let mut direct = Vec::new();
        for round in 0..self.arguments.rounds {
            eprintln!("first byte, round {} of {}", round + 1, self.arguments.rounds);
            direct.push(middle_and_slowest(
                first_bytes(engine, rate, time, round as u64).await?,
            ));
            for turn in 0..self.proxies.len() {
                let place = (turn + round) % self.proxies.len();
                let (proxy, measured) = (&self.proxies[place], &mut self.measured[place]);
                match first_bytes(proxy.address, rate, time, round as u64).await {
                    Ok(times) => measured.first_byte.push(middle_and_slowest(times)),
                    Err(error) => {
                        eprintln!("{}: first byte: {error}", proxy.name);
                        measured.first_byte.push([f64::NAN; 2]);
                        measured.errors += 1;
                    }
                }
            }
        }
        Ok((rate, direct))
    }
}

/// In milliseconds.
fn middle_and_slowest(times: Vec<Duration>) -> [f64; 2] {
    let mut sorted: Vec<f64> = times.into_iter().map(|time| time.as_secs_f64() * 1e3).collect();
    sorted.sort_by(f64::total_cmp);
    [percentile(&sorted, 50), percentile(&sorted, 99)]
}

impl Measured {
    fn of(name: &'static str) -> Self {
        Self {
            name,
            ..Self::default()
        }
    }
}
