//! How does a changed config come into force, with no request failing?
//!
//! It is read and checked as a whole before anything is changed; a fault is told, and what was in force stays. One task does
//! it, so two reloads never meet. Requests that are here go on with what they came under; upstreams that stay keep their
//! connections and what is known of them.

mod lists;

use std::collections::{HashMap, HashSet};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use paddler_core::Moment;
use paddler_core::config::{Config, Mode};
use paddler_core::forward::{Keys, Tls};
use paddler_core::upstream::http::UpstreamKey;
use paddler_core::upstream::{UpstreamId, UpstreamSpec};
use serde_json::{Value, json};
use tokio::sync::{mpsc, oneshot};
use tokio::task::spawn_blocking;
use tokio::time::sleep;

use crate::Failure;
use crate::args::Serve;
use crate::control::{Control, Doors};
use crate::files::{self, Contents, Watched};
use crate::secrets::Specs;
use crate::settings::{self, Faulty, Loaded};
use crate::stop::Hangups;
pub(crate) use lists::Lists;

/// How often files are looked at. A change is in force after two to three looks.
const LOOK: Duration = Duration::from_secs(1);

/// How long names that stand for several upstreams may take to be looked up.
const RESOLVED: Duration = Duration::from_secs(5);

/// Where the config comes from.
#[derive(Debug, Clone)]
pub(crate) struct Origin {
    pub(crate) mode: Mode,
    pub(crate) args: Arc<Serve>,
}

impl Origin {
    pub(crate) async fn load(&self) -> Result<Loaded, Faulty> {
        let Self { mode, args, .. } = self.clone();
        let broken = |error: tokio::task::JoinError| Faulty {
            why: error.to_string().into(),
            files: Vec::new(),
        };
        let loaded = spawn_blocking(move || settings::load(mode, &args)).await;
        loaded.map_err(broken).and_then(|loaded| loaded)
    }

    /// The files that are watched: the config's own, and those that it names.
    fn files(&self, named: impl IntoIterator<Item = PathBuf>) -> HashSet<PathBuf> {
        self.args.config.iter().cloned().chain(named).collect()
    }
}

/// How the last reload went.
#[derive(Debug, Clone, Default)]
pub(crate) struct Report {
    /// What is wrong, each fault in a line of its own. Empty: nothing.
    pub(crate) faults: Vec<String>,
    /// Settings that have changed, and wait for a restart.
    pub(crate) needs_restart: Vec<&'static str>,
    at: Moment,
}

impl Report {
    pub(crate) fn is_sound(&self) -> bool {
        self.faults.is_empty()
    }

    pub(crate) fn json(&self, now: Moment) -> Value {
        json!({
            "result": if self.is_sound() { "success" } else { "failure" },
            "faults": self.faults,
            "needs_restart": self.needs_restart,
            "age_seconds": now.since(self.at).as_secs_f64(),
        })
    }
}

/// Somebody who asks for a reload, and waits for how it went.
pub(crate) type Request = oneshot::Sender<Report>;

/// Puts changed configs into force.
pub(crate) struct Reloads {
    control: Arc<Control>,
    origin: Origin,
    lists: Lists,
    watched: Watched,
    in_force: InForce,
}

/// What is needed of the config in force to see what another one changes.
struct InForce {
    specs: Specs,
    /// With what their owners have used.
    keys: Option<Keys>,
    poll: paddler_core::config::Poll,
    /// What waits for a restart when it changes: settings, with what they come to, always in the same order.
    needs_restart: Vec<(&'static str, String)>,
    files: Vec<PathBuf>,
    tls: Option<Tls>,
}

impl InForce {
    fn new(
        (config, files): (&Config, Vec<PathBuf>),
        specs: Specs,
        keys: Option<Keys>,
        tls: Option<Tls>,
    ) -> Self {
        Self {
            specs,
            keys,
            tls,
            poll: config.poll,
            needs_restart: config.fixed(),
            files,
        }
    }
}

fn by_id<'s>(specs: impl IntoIterator<Item = &'s UpstreamSpec>) -> HashMap<&'s UpstreamId, &'s UpstreamSpec> {
    specs.into_iter().map(|spec| (&spec.id, spec)).collect()
}

/// A key that was only read again is no new one.
fn keep_keys<'s>(after: &mut [UpstreamSpec], before: impl IntoIterator<Item = &'s UpstreamSpec>) {
    let before = by_id(before);
    for spec in after {
        if let Some(before) = before.get(&spec.id) {
            spec.extensions.keep::<UpstreamKey>(&before.extensions);
        }
    }
}

impl Reloads {
    /// `config`, upstreams, keys and TLS are in force, as they came from `origin`.
    pub(crate) fn new(
        control: Arc<Control>,
        origin: Origin,
        lists: Lists,
        config: (&Config, Vec<PathBuf>),
        (specs, keys, tls): (Specs, Option<Keys>, Option<Tls>),
    ) -> Self {
        let in_force = InForce::new(config, specs, keys, tls);
        let watched = Watched::new(files::look(origin.files(in_force.files.iter().cloned())));
        Self {
            control,
            origin,
            lists,
            watched,
            in_force,
        }
    }

    /// Reloads on a signal, on request, and when a file has changed, for ever.
    pub(crate) async fn run(mut self, mut hangups: Hangups, mut requests: mpsc::Receiver<Request>) {
        loop {
            let mut waits: Vec<Request> = Vec::new();
            tokio::select! {
                () = hangups.next() => {
                    tracing::info!("SIGHUP: reading the config again");
                    self.control.exports.reopen();
                }
                Some(request) = requests.recv() => waits.push(request),
                () = sleep(LOOK) => {
                    if !self.has_changed().await {
                        continue;
                    }
                    tracing::info!("a file has changed: reading the config again");
                }
            }
            while let Ok(request) = requests.try_recv() {
                waits.push(request);
            }
            let report = self.reload().await;
            for request in waits {
                // Whoever asked may not want to know any more.
                request.send(report.clone()).ok();
            }
        }
    }

    async fn look(&self) -> Contents {
        let files = self.watched.files();
        let look = spawn_blocking(move || files::look(files));
        look.await.unwrap_or_default()
    }

    async fn has_changed(&mut self) -> bool {
        let now = self.look().await;
        self.watched.is_due(now)
    }

    async fn load(&self) -> Result<Loaded, Faulty> {
        match self.watched.files().find(|file| files::is_pipe(file)) {
            // Read again it would be empty, or never come to its end.
            Some(pipe) => Err(Faulty {
                why: format!(
                    "{} is a pipe, which can be read once: name a file to have it read again",
                    pipe.display()
                )
                .into(),
                files: Vec::new(),
            }),
            None => self.origin.load().await,
        }
    }

    async fn reload(&mut self) -> Report {
        // Looked at before they are read: what changes meanwhile is a change.
        let before = self.look().await;
        let applied = match self.load().await {
            Ok(loaded) => self.apply(loaded).await.map_err(|why| Faulty {
                why,
                files: Vec::new(),
            }),
            Err(faulty) => Err(faulty),
        };
        let (mut report, mut named) = (Report::default(), self.in_force.files.clone());
        match applied {
            Ok(needs_restart) => report.needs_restart = needs_restart,
            Err(Faulty { why, files }) => {
                report.faults = why.to_string().lines().map(str::to_owned).collect();
                named.extend(files);
            }
        }
        self.watched.acted_on(&before, self.origin.files(named));
        report.at = self.control.now();
        self.say(&report);
        self.control.reloaded(report.clone());
        report
    }

    fn say(&self, report: &Report) {
        for fault in &report.faults {
            tracing::error!("{fault}");
        }
        if !report.is_sound() {
            tracing::error!("the config has a fault: the one before it stays in force");
            return;
        }
        for setting in &report.needs_restart {
            tracing::warn!(
                setting,
                "has changed, and waits for a restart; all else is in force"
            );
        }
        let Specs { single, file, dns } = &self.in_force.specs;
        tracing::info!(
            upstreams = single.len() + file.len(),
            names = dns.len(),
            "the config is in force"
        );
    }

    /// Puts it into force. Says what cannot be, without a restart.
    async fn apply(&mut self, loaded: Loaded) -> Result<Vec<&'static str>, Failure> {
        let Loaded {
            config,
            secrets,
            files,
        } = loaded;
        let mut specs = secrets.specs;
        let before = &self.in_force.specs;
        keep_keys(&mut specs.single, before.fixed());
        keep_keys(&mut specs.file, before.fixed());
        keep_keys(&mut specs.dns, &before.dns);
        let mut now = InForce::new((&config, files), specs, None, self.in_force.tls.clone());
        if let (Some(ours), Some(new)) = (&self.in_force.tls, &secrets.tls) {
            ours.adopt(new);
        }
        let poll = config.poll_options();
        let patience = poll.timeout + config.timeouts.connect + RESOLVED;
        let keys = match (secrets.keys, &self.in_force.keys) {
            (Some(keys), Some(before)) => Some(keys.continuing(before)),
            (keys, _) => keys,
        };
        let sinks = (&self.control.decisions, &self.control.exports);
        let options = settings::router_options(&config, keys.clone(), sinks);
        self.control.decisions.set_rules(config.decisions.clone());
        self.control.exports.read_again(&config.telemetry)?;
        let told = config.to_json();
        self.control.set_management_keys(secrets.management);
        self.control.set_doors(Doors::new(&config, secrets.agents));
        self.control.statuses.set_tree(config.tree).await?;
        self.control.statuses.set_health(config.health).await?;
        if now.poll != self.in_force.poll {
            self.control.statuses.set_poll(Some(poll)).await?;
        }
        self.control.desk.reconfigure(options);
        let before = &self.in_force.specs;
        self.lists
            .hand_over(&self.control, before, &now.specs, patience)
            .await;
        let changed = now.needs_restart.iter().zip(&self.in_force.needs_restart);
        let needs_restart: Vec<_> = changed
            .filter(|(now, before)| now != before)
            .map(|(now, _)| now.0)
            .collect();
        self.control.set_config(told, &needs_restart);
        // What began stays in force.
        now.needs_restart = std::mem::take(&mut self.in_force.needs_restart);
        now.keys = keys;
        self.in_force = now;
        Ok(needs_restart)
    }
}
