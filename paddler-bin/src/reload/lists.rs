//! How do other upstreams come in the place of those before, with nobody away in between?
//!
//! Who leaves stays until the new ones have been asked how they are, and somebody is behind new names, so that there is always
//! somebody who is known to serve. Whom another list has from now on is told of there before he is not here any more.

use std::collections::HashSet;
use std::time::Duration;

use paddler_core::status::{Entry, Members};
use paddler_core::upstream::UpstreamSpec;
use tokio::time::{sleep, timeout};

use super::by_id;
use crate::control::{Control, LOOK};
use crate::secrets::Specs;

/// What puts the upstreams of a config into force.
pub(crate) struct Lists {
    pub(crate) single: Members,
    /// Those of the file that lists more of them.
    pub(crate) file: Members,
    /// Those whose host is a name for several.
    pub(crate) dns: Members,
}

impl Lists {
    /// Puts these upstreams in the place of those before. `patience`: how long the new ones may take to be heard from.
    pub(super) async fn hand_over(
        &self,
        control: &Control,
        before: &Specs,
        after: &Specs,
        patience: Duration,
    ) {
        let leave = [
            leaving(&before.single, &after.single),
            leaving(&before.file, &after.file),
        ];
        let (old_names, names) = (by_id(&before.dns), by_id(&after.dns));
        let gone = |spec: &&UpstreamSpec| !names.contains_key(&spec.id);
        let gone: Vec<_> = before.dns.iter().filter(gone).cloned().collect();
        let new_names = after.dns.iter().any(|spec| !old_names.contains_key(&spec.id));
        let known = by_id(before.fixed());
        let new: Vec<_> = after
            .fixed()
            .filter(|spec| !known.contains_key(&spec.id))
            .collect();
        let [single_leave, file_leave] = leave;
        let moved = [
            ("config", moved(&file_leave, &after.single)),
            ("file", moved(&single_leave, &after.file)),
        ];
        let comes = !new.is_empty() || new_names || moved.iter().any(|(_, specs)| !specs.is_empty());
        let leaves = !(single_leave.is_empty() && file_leave.is_empty() && gone.is_empty());
        if leaves && comes {
            let there: HashSet<_> = control.ids();
            // One that takes over a place is there when that is free.
            let waits: HashSet<_> = moved
                .iter()
                .flat_map(|(_, all)| all)
                .map(|spec| &spec.id)
                .collect();
            let new: Vec<_> = new.into_iter().filter(|spec| !waits.contains(&spec.id)).collect();
            let single = after.single.iter().cloned().chain(single_leave.iter().cloned());
            self.single.set(single);
            self.file
                .set(after.file.iter().cloned().chain(file_leave.iter().cloned()));
            // Of two with one id the later one counts.
            self.dns.set(gone.into_iter().chain(after.dns.iter().cloned()));
            let listed = by_id(after.fixed());
            let is_named = |entry: &Entry| {
                let id = &entry.spec().id;
                !there.contains(id) && !listed.contains_key(id)
            };
            let all_heard = control.until(|snapshot| {
                let answers = |spec: &&UpstreamSpec| {
                    snapshot
                        .find(spec.id.as_str())
                        .is_some_and(|entry| entry.has_answered())
                };
                let mut entries = snapshot.iter();
                new.iter().all(answers)
                    && (!new_names || entries.any(|(_, entry)| is_named(entry) && entry.has_answered()))
            });
            let all_told = async {
                for (source, specs) in &moved {
                    for spec in specs {
                        told(control, spec, source).await;
                    }
                }
            };
            if timeout(patience, async { tokio::join!(all_heard, all_told) })
                .await
                .is_err()
            {
                tracing::warn!("not every new upstream has said how it is");
            }
        }
        self.single.set(after.single.iter().cloned());
        self.file.set(after.file.iter().cloned());
        self.dns.set(after.dns.iter().cloned());
    }
}

/// Who is not in a list any more, and under no other id either: one place under two ids of one list would get twice its share.
fn leaving(before: &[UpstreamSpec], after: &[UpstreamSpec]) -> Vec<UpstreamSpec> {
    let stay = by_id(after);
    let places: HashSet<_> = after.iter().filter_map(UpstreamSpec::place).collect();
    let is_renamed = |spec: &UpstreamSpec| spec.place().is_some_and(|place| places.contains(&place));
    let leaves = |spec: &&UpstreamSpec| !stay.contains_key(&spec.id) && !is_renamed(spec);
    before.iter().filter(leaves).cloned().collect()
}

/// Who of one list takes over from those who leave another: under the same id, or at the same place.
fn moved<'s>(leave: &[UpstreamSpec], after: &'s [UpstreamSpec]) -> Vec<&'s UpstreamSpec> {
    let ids = by_id(leave);
    let places: HashSet<_> = leave.iter().filter_map(UpstreamSpec::place).collect();
    let takes_over = |spec: &&UpstreamSpec| {
        ids.contains_key(&spec.id) || spec.place().is_some_and(|place| places.contains(&place))
    };
    after.iter().filter(takes_over).collect()
}

/// Done once this source has told of an upstream.
async fn told(control: &Control, spec: &UpstreamSpec, source: &'static str) {
    // Where nobody keeps the statuses any more there is nothing to wait for.
    while let Ok(false) = control.statuses.is_told_by(spec.id.clone(), source).await {
        sleep(LOOK).await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_host_with_two_paths_is_two() {
        let spec = |id: &str, url: &str| [UpstreamSpec::new(id, url).unwrap()];
        let (before, after) = (spec("a", "http://host/a/v1"), spec("b", "http://host/b/v1"));
        assert_eq!(
            leaving(&before, &after).len(),
            1,
            "it waits for the other to be heard from"
        );
        assert!(moved(&before, &after).is_empty());
        let renamed = spec("b", "http://host/a/v1");
        assert_eq!(
            (leaving(&before, &renamed).len(), moved(&before, &renamed).len()),
            (0, 1)
        );
    }
}
