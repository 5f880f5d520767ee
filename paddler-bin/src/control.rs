//! What is there to be looked at and changed while it serves?

use std::collections::HashSet;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use paddler_core::agent::Agents;
use paddler_core::config::{AgentAccess, Config};
use paddler_core::forward::{Keys, Router};
use paddler_core::manage::{Decisions, Feed};
use paddler_core::observe::export::Exports;
use paddler_core::schedule::Tree;
use paddler_core::status::{LoopEnded, Members, Snapshot, StatusLoop};
use paddler_core::upstream::{UpstreamId, UpstreamSpec};
use paddler_core::{Clock, Moment};
use serde_json::{Value, json};
use tokio::sync::{mpsc, oneshot};
use tokio::time::sleep;

use crate::front::Desk;
use crate::reload::{Report, Request};

/// How often one who waits for news of the board looks: it publishes every 10 ms at most.
pub(crate) const LOOK: Duration = Duration::from_millis(10);

/// How many upstreams the API adds at most: each one more is compared with all.
pub(crate) const MOST_ADDED: usize = 4096;

/// Why an upstream was not added.
pub(crate) enum NotAdded {
    /// It is there under another id.
    IsThere(UpstreamId),
    TooMany,
}

/// Who may come to the management listener, beside those who have a key of its API.
#[derive(Default)]
pub(crate) struct Doors {
    pub(crate) agents: AgentAccess,
    pub(crate) agent_keys: Option<Keys>,
    /// The web pages that may ask.
    pub(crate) origins: Vec<String>,
}

impl Doors {
    pub(crate) fn new(config: &Config, agent_keys: Option<Keys>) -> Self {
        Self {
            agents: config.agents.access,
            agent_keys,
            origins: config.management_origins.clone(),
        }
    }
}

/// What the management API and reloads share.
pub(crate) struct Control {
    pub(crate) router: Router,
    pub(crate) desk: Desk,
    pub(crate) statuses: StatusLoop,
    clock: Clock,
    /// The keys that the API wants, if it wants any.
    keys: Mutex<Option<Arc<Keys>>>,
    doors: Mutex<Arc<Doors>>,
    pub(crate) agents: Agents,
    /// When an agent was last refused, and it was said.
    refused: Mutex<Option<Moment>>,
    last: Mutex<Option<Report>>,
    reloads: mpsc::Sender<Request>,
    /// The last decisions.
    pub(crate) decisions: Arc<Decisions>,
    /// What changes is told here.
    pub(crate) feed: Feed,
    /// The settings in force, and which of those that were read wait for a restart.
    config: Mutex<(Value, Vec<&'static str>)>,
    /// The tree that the API has put in force last.
    put: Mutex<Option<Arc<Tree>>>,
    /// The upstreams that the API has added.
    added: Members,
    /// Where figures and trails go.
    pub(crate) exports: Exports,
}

fn lock<T>(cell: &Mutex<T>) -> MutexGuard<'_, T> {
    cell.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Control {
    /// `config`: the settings in force. `reloads`: to the one who reloads, if somebody does. `added`: what puts the upstreams into force that the API adds.
    pub(crate) fn new(
        desk: Desk,
        statuses: StatusLoop,
        clock: Clock,
        (keys, doors): (Option<Keys>, Doors),
        (added, agents, reloads): (Members, Agents, mpsc::Sender<Request>),
        (config, decisions, feed): (Value, Arc<Decisions>, Feed),
        exports: Exports,
    ) -> Self {
        Self {
            router: desk.router().clone(),
            desk,
            statuses,
            clock,
            keys: Mutex::new(keys.map(Arc::new)),
            doors: Mutex::new(Arc::new(doors)),
            agents,
            refused: Mutex::default(),
            last: Mutex::default(),
            reloads,
            decisions,
            feed,
            config: Mutex::new((config, Vec::new())),
            put: Mutex::default(),
            added,
            exports,
        }
    }

    pub(crate) fn now(&self) -> Moment {
        self.clock.now()
    }

    pub(crate) fn management_keys(&self) -> Option<Arc<Keys>> {
        lock(&self.keys).clone()
    }

    pub(crate) fn set_management_keys(&self, keys: Option<Keys>) {
        *lock(&self.keys) = keys.map(Arc::new);
    }

    pub(crate) fn doors(&self) -> Arc<Doors> {
        lock(&self.doors).clone()
    }

    pub(crate) fn set_doors(&self, doors: Doors) {
        *lock(&self.doors) = Arc::new(doors);
    }

    /// An agent was refused. True: it is to be said, once a minute for all.
    pub(crate) fn is_news_that_refused(&self) -> bool {
        let now = self.now();
        let mut last = lock(&self.refused);
        let is_news = last.is_none_or(|last| now.since(last) >= Duration::from_secs(60));
        if is_news {
            *last = Some(now);
        }
        is_news
    }

    /// How the last reload went, if there was one.
    pub(crate) fn last_reload(&self) -> Option<Report> {
        lock(&self.last).clone()
    }

    pub(crate) fn reloaded(&self, report: Report) {
        self.router
            .metrics()
            .config_read_again(report.is_sound(), self.now());
        self.feed.tell("config.reloaded", &report.json(self.now()));
        *lock(&self.last) = Some(report);
    }

    /// The settings in force, and which of those that were read wait for a restart.
    pub(crate) fn config(&self) -> Value {
        let (config, needs_restart) = lock(&self.config).clone();
        json!({"config": config, "needs_restart": needs_restart})
    }

    /// These settings were read and are in force, but for those that wait for a restart.
    pub(crate) fn set_config(&self, mut read: Value, needs_restart: &[&'static str]) {
        let mut config = lock(&self.config);
        for setting in needs_restart {
            keep(&mut read, &config.0, setting);
        }
        *config = (read, needs_restart.to_vec());
    }

    /// Puts another tree in force, in the place of the config's.
    pub(crate) async fn put_tree(&self, tree: Arc<Tree>) -> Result<(), LoopEnded> {
        *lock(&self.put) = Some(tree.clone());
        self.statuses.set_tree(tree).await?;
        self.feed.tell("tree.replaced", &json!({"source": "api"}));
        Ok(())
    }

    /// Where a tree that is in force comes from: `api` or `config`.
    pub(crate) fn tree_source(&self, tree: &Arc<Tree>) -> &'static str {
        let put = lock(&self.put);
        let is_put = put.as_ref().is_some_and(|put| Arc::ptr_eq(put, tree));
        if is_put { "api" } else { "config" }
    }

    /// Reads the config again. `None`: nobody does that here.
    pub(crate) async fn reload(&self) -> Option<Report> {
        let (tell, told) = oneshot::channel();
        self.reloads.send(tell).await.ok()?;
        told.await.ok()
    }

    /// Adds an upstream, in the place of one that was added under its id. False: there was none.
    ///
    /// # Errors
    /// Another one was added that is at the same place, or there are as many as may be.
    pub(crate) fn add(&self, spec: UpstreamSpec) -> Result<bool, NotAdded> {
        let mut done = Ok(false);
        self.added.edit(|added| {
            let twin = |one: &&UpstreamSpec| one.id != spec.id && one.same_place(&spec);
            if let Some(twin) = added.iter().find(twin) {
                done = Err(NotAdded::IsThere(twin.id.clone()));
                return;
            }
            let many = added.len();
            added.retain(|one| one.id != spec.id);
            done = Ok(added.len() < many);
            if added.len() >= MOST_ADDED {
                done = Err(NotAdded::TooMany);
                return;
            }
            added.push(spec);
        });
        done
    }

    /// All upstreams that are there.
    pub(crate) fn ids(&self) -> HashSet<UpstreamId> {
        let there = self.router.published().load();
        there.iter().map(|(_, entry)| entry.spec().id.clone()).collect()
    }

    /// Takes an upstream away that was added. False: it was not.
    pub(crate) fn remove(&self, id: &UpstreamId) -> bool {
        let mut removed = false;
        self.added.edit(|added| {
            let many = added.len();
            added.retain(|spec| spec.id != *id);
            removed = added.len() < many;
        });
        removed
    }

    /// Done once this holds of the state in force.
    pub(crate) async fn until(&self, holds: impl Fn(&Snapshot) -> bool) {
        while !holds(&self.router.published().load()) {
            sleep(LOOK).await;
        }
    }
}

/// Has a setting be what it was before.
fn keep(now: &mut Value, before: &Value, setting: &str) {
    let (section, key) = setting.split_once('.').unwrap_or(("", setting));
    let within = |config: &Value| {
        if section.is_empty() {
            config.clone()
        } else {
            config[section].clone()
        }
    };
    let was = within(before).get(key).cloned();
    let Some(now) = (if section.is_empty() {
        Some(now)
    } else {
        now.get_mut(section)
    }) else {
        return;
    };
    match (was, now.get_mut(key)) {
        // What its files hold was read again.
        (Some(was), Some(tls)) if setting == "tls" => {
            for key in ["handshake_timeout", "handshakes", "management"] {
                tls[key] = was[key].clone();
            }
        }
        (Some(was), _) => now[key] = was,
        (None, Some(_)) => {
            now.as_object_mut().map(|map| map.remove(key));
        }
        (None, None) => {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_waits_for_a_restart_is_told_as_it_was() {
        let before = json!({"listen": "a", "limits": {"streams": 1, "body": 1}, "shutdown": {"grace": "1s"}});
        let mut now = json!({"listen": "b", "limits": {"streams": 2, "body": 2}, "shutdown": {"grace": "2s"}, "tls": {"key": "k"}});
        for setting in ["listen", "limits.streams", "shutdown", "tls"] {
            keep(&mut now, &before, setting);
        }
        assert_eq!(
            now,
            json!({"listen": "a", "limits": {"streams": 1, "body": 2}, "shutdown": {"grace": "1s"}})
        );
        let before =
            json!({"tls": {"key": "a", "handshakes": 1, "handshake_timeout": "1s", "management": "tls"}});
        let mut now =
            json!({"tls": {"key": "b", "handshakes": 2, "handshake_timeout": "2s", "management": "plain"}});
        keep(&mut now, &before, "tls");
        assert_eq!(
            now["tls"],
            json!({"key": "b", "handshakes": 1, "handshake_timeout": "1s", "management": "tls"})
        );
    }
}
