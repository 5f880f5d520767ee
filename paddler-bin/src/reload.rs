//! How does a changed config come into force, with no request failing?
//!
//! It is read and checked as a whole before anything is changed; a fault is told, and what was in force stays. One task does
//! it, so two reloads never meet. Requests that are here go on with what they came under; upstreams that stay keep their
//! connections and what is known of them.

use std::collections::{HashMap, HashSet};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use paddler_core::Moment;
use paddler_core::config::{Config, Mode};
use paddler_core::forward::{Keys, Tls};
use paddler_core::status::{Entry, Members};
use paddler_core::upstream::http::UpstreamKey;
use paddler_core::upstream::{UpstreamId, UpstreamSpec};
use serde_json::{Value, json};
use tokio::sync::{mpsc, oneshot};
use tokio::task::spawn_blocking;
use tokio::time::{sleep, timeout};

use crate::Failure;
use crate::args::Serve;
use crate::control::{Control, Doors};
use crate::files::{self, Contents, Watched};
use crate::secrets::Specs;
use crate::settings::{self, Faulty, Loaded};
use crate::stop::Hangups;

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

/// What puts the upstreams of a config into force.
pub(crate) struct Lists {
    pub(crate) single: Members,
    /// Those of the file that lists more of them.
    pub(crate) file: Members,
    /// Those whose host is a name for several.
    pub(crate) dns: Members,
}

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
fn keep_keys(after: &mut [UpstreamSpec], before: &[UpstreamSpec]) {
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
        keep_keys(&mut specs.single, &self.in_force.specs.single);
        keep_keys(&mut specs.file, &self.in_force.specs.file);
        keep_keys(&mut specs.dns, &self.in_force.specs.dns);
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
        self.hand_over(&now.specs, patience).await;
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

    /// Puts other upstreams in the place of those before. Who leaves stays until the new ones have been asked how they are, and
    /// somebody behind new names, so that there is always somebody who is known to serve.
    async fn hand_over(&self, after: &Specs, patience: Duration) {
        let before = &self.in_force.specs;
        let (known, listed) = (by_id(before.fixed()), by_id(after.fixed()));
        // One address under two ids would get twice its share.
        let places: HashMap<_, _> = after
            .fixed()
            .filter_map(|spec| Some((spec.host_and_port().ok()?, &spec.id)))
            .collect();
        let renamed = |spec: &UpstreamSpec| {
            let place = spec.host_and_port().ok();
            place.is_some_and(|place| places.get(&place).is_some_and(|id| **id != spec.id))
        };
        let leaving = |before: &[UpstreamSpec], after: &[UpstreamSpec]| -> Vec<UpstreamSpec> {
            let stay = by_id(after);
            let leave = |spec: &&UpstreamSpec| !stay.contains_key(&spec.id) && !renamed(spec);
            before.iter().filter(leave).cloned().collect()
        };
        let single_leave = leaving(&before.single, &after.single);
        let file_leave = leaving(&before.file, &after.file);
        let leave = !(single_leave.is_empty() && file_leave.is_empty());
        let new: Vec<_> = after
            .fixed()
            .filter(|spec| !known.contains_key(&spec.id))
            .collect();
        let (old_names, names) = (by_id(&before.dns), by_id(&after.dns));
        let gone = |spec: &&UpstreamSpec| !names.contains_key(&spec.id);
        let gone: Vec<_> = before.dns.iter().filter(gone).cloned().collect();
        let new_names = after.dns.iter().any(|spec| !old_names.contains_key(&spec.id));
        if (leave || !gone.is_empty()) && (!new.is_empty() || new_names) {
            let there: HashSet<_> = self.control.ids();
            let single = after.single.iter().cloned().chain(single_leave);
            self.lists.single.set(single);
            let file = after.file.iter().cloned().chain(file_leave);
            self.lists.file.set(file);
            // Of two with one id the later one counts.
            self.lists
                .dns
                .set(gone.into_iter().chain(after.dns.iter().cloned()));
            let is_named = |entry: &Entry| {
                let id = &entry.spec().id;
                !there.contains(id) && !listed.contains_key(id)
            };
            let all_heard = self.control.until(|snapshot| {
                let answers = |spec: &&UpstreamSpec| {
                    snapshot
                        .find(spec.id.as_str())
                        .is_some_and(|entry| entry.has_answered())
                };
                let mut entries = snapshot.iter();
                new.iter().all(answers)
                    && (!new_names || entries.any(|(_, entry)| is_named(entry) && entry.has_answered()))
            });
            if timeout(patience, all_heard).await.is_err() {
                tracing::warn!("not every new upstream has said how it is");
            }
        }
        self.lists.single.set(after.single.iter().cloned());
        self.lists.file.set(after.file.iter().cloned());
        self.lists.dns.set(after.dns.iter().cloned());
    }
}
