//! What has a process used, with all its threads and all processes below it?

use std::collections::HashSet;
use std::fs;
use std::net::SocketAddr;
use std::time::Duration;

use paddler_benches::harness::Failure;
use paddler_benches::harness::programs::Program;
use rustix::param::clock_ticks_per_second;
use rustix::process::{Pid, Signal, kill_process};
use tokio::time::{Instant, sleep, timeout};

use super::load::answers;

/// The longest that a proxy may take to serve: one in Python loads a lot.
const START: Duration = Duration::from_secs(60);

/// How long one may take to end by itself.
const END: Duration = Duration::from_millis(500);

/// A proxy that runs. Dropped, it is killed with all processes below it.
#[derive(Debug)]
pub(crate) struct Proxy {
    pub(crate) name: &'static str,
    pub(crate) address: SocketAddr,
    program: Program,
}

impl Proxy {
    /// Waits until this program gives the engine's answers at this address.
    pub(crate) async fn serving(
        name: &'static str,
        address: SocketAddr,
        mut program: Program,
    ) -> Result<Self, Failure> {
        let mut last = None;
        let started = timeout(START, async {
            while program.runs() {
                match answers(address).await {
                    Ok(()) => return true,
                    Err(error) => last = Some(error),
                }
                sleep(Duration::from_millis(50)).await;
            }
            false
        });
        let proxy = if started.await == Ok(true) {
            Ok(())
        } else {
            let (log, said) = (program.log(), program.said());
            let lines: Vec<&String> = log.iter().chain(&said).rev().take(10).collect();
            Err(format!(
                "it does not serve: {}: {lines:#?}",
                last.map_or_else(|| "it ended".into(), |e| e.to_string())
            ))
        };
        // Also when it does not serve: dropped below, it takes its children with it.
        let running = Self {
            name,
            address,
            program,
        };
        proxy?;
        Ok(running)
    }

    /// The CPU time that it has used so far.
    pub(crate) fn cpu(&self) -> Duration {
        let ticks: u64 = self
            .processes()
            .iter()
            .filter_map(|pid| stat(*pid))
            .map(|stat| stat.ticks)
            .sum();
        Duration::from_secs_f64(ticks as f64 / clock_ticks_per_second() as f64)
    }

    /// The most memory that it has held so far, in bytes: the sum of its processes' peaks.
    pub(crate) fn peak_memory(&self) -> u64 {
        let status = |pid: &u32| fs::read_to_string(format!("/proc/{pid}/status")).ok();
        self.processes()
            .iter()
            .filter_map(status)
            .filter_map(|status| peak(&status))
            .sum()
    }

    /// Its processes, the first one first.
    fn processes(&self) -> Vec<u32> {
        let all: Vec<(u32, Stat)> = fs::read_dir("/proc")
            .into_iter()
            .flatten()
            .filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok())
            .filter_map(|pid| Some((pid, stat(pid)?)))
            .collect();
        below(self.program.id(), &all)
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        // Told to end, a master ends its workers itself, and waits for them; some take their time.
        let all = self.processes();
        let until = Instant::now() + END;
        let told = self.program.signal(Signal::TERM).is_ok();
        while told && self.program.runs() && Instant::now() < until {
            std::thread::sleep(Duration::from_millis(5));
        }
        // Whoever is left would outlive a master that is killed.
        for pid in all.into_iter().skip(1) {
            if let Some(pid) = i32::try_from(pid).ok().and_then(Pid::from_raw) {
                // It may have ended by itself.
                kill_process(pid, Signal::KILL).ok();
            }
        }
    }
}

/// A line of `/proc/PID/stat`, as far as it is used.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Stat {
    parent: u32,
    /// In user and system mode, over all threads, and of children that have ended.
    ticks: u64,
}

fn stat(pid: u32) -> Option<Stat> {
    parse(&fs::read_to_string(format!("/proc/{pid}/stat")).ok()?)
}

fn parse(line: &str) -> Option<Stat> {
    // The name is in parentheses and may hold anything, such as these and spaces.
    let (_, rest) = line.rsplit_once(')')?;
    let fields: Vec<&str> = rest.split_whitespace().collect();
    let ticks = fields.get(11..15)?.iter().map(|field| field.parse::<u64>());
    Some(Stat {
        parent: fields.get(1)?.parse().ok()?,
        ticks: ticks.sum::<Result<u64, _>>().ok()?,
    })
}

fn below(root: u32, all: &[(u32, Stat)]) -> Vec<u32> {
    let (mut found, mut seen) = (vec![root], HashSet::from([root]));
    let mut at = 0;
    while let Some(parent) = found.get(at).copied() {
        let children = all.iter().filter(|(_, stat)| stat.parent == parent);
        found.extend(children.map(|(pid, _)| *pid).filter(|pid| seen.insert(*pid)));
        at += 1;
    }
    found
}

fn peak(status: &str) -> Option<u64> {
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"))?;
    Some(line.trim().strip_suffix("kB")?.trim().parse::<u64>().ok()? * 1024)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_is_read_whatever_the_name_holds() {
        let line = "42 (a) b (c) S 7 42 42 0 -1 4194304 1 2 3 4 100 20 3 1 20 0 9 0 77 88 99";
        assert_eq!(
            parse(line),
            Some(Stat {
                parent: 7,
                ticks: 124
            })
        );
        assert_eq!(parse("42 (cut) S 7"), None);
        assert!(stat(std::process::id()).is_some());
    }

    #[test]
    fn children_and_theirs_belong_to_a_process_and_no_others() {
        let of = |parent| Stat { parent, ticks: 0 };
        let all = [
            (1, of(0)),
            (2, of(1)),
            (3, of(2)),
            (4, of(0)),
            (5, of(1)),
            (6, of(4)),
        ];
        assert_eq!(below(1, &all), [1, 2, 5, 3]);
        assert_eq!(below(9, &all), [9]);
    }

    #[test]
    fn a_peak_is_in_bytes() {
        assert_eq!(
            peak("Name:\tx\nVmHWM:\t    2048 kB\nVmRSS:\t 1 kB\n"),
            Some(2 << 20)
        );
        assert_eq!(peak("Name:\tx\n"), None);
    }
}
