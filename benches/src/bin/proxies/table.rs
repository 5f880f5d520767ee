//! How are the rounds summed up?

use std::fmt::Write as _;

use paddler_benches::harness::figures::median;

use super::load::Workload;

/// What was measured of one proxy.
#[derive(Debug, Clone, Default)]
pub(crate) struct Measured {
    pub(crate) name: &'static str,
    /// By workload.
    pub(crate) work: [Work; Workload::ALL.len()],
    /// Milliseconds until the first byte by round, in the middle and for the slowest of a hundred.
    pub(crate) first_byte: Vec<[f64; 2]>,
    /// Answers that were missing or wrong.
    pub(crate) errors: u64,
}

/// What was measured of one proxy at one kind of work.
#[derive(Debug, Clone, Default)]
pub(crate) struct Work {
    /// Microseconds of CPU time for a request or an event, by round; NaN where nothing was answered.
    pub(crate) cpu: Vec<f64>,
    /// Requests or events a second, by round.
    pub(crate) rate: Vec<f64>,
    /// The most memory that it had held so far, in bytes.
    pub(crate) peak: u64,
}

fn number(number: f64, decimals: usize) -> String {
    if number.is_nan() {
        "-".to_owned()
    } else {
        format!("{number:.decimals$}")
    }
}

fn signed(number: f64) -> String {
    if number.is_nan() {
        "-".to_owned()
    } else {
        format!("{number:+.3}")
    }
}

/// CPU time by workload: the first one's, and for each other its own and the first one's as a share of it.
pub(crate) fn cpu(all: &[Measured]) -> String {
    let Some((own, peers)) = all.split_first() else {
        return String::new();
    };
    let mut table = format!("| CPU time | for each | {} |", own.name);
    for peer in peers {
        write!(table, " {1} | {0} / {1} |", own.name, peer.name).ok();
    }
    let columns = 3 + 2 * peers.len();
    writeln!(table, "\n|---|---|{}", "---:|".repeat(columns - 2)).ok();
    for (place, workload) in Workload::ALL.into_iter().enumerate() {
        let own = &own.work[place].cpu;
        let own_median = number(median(own.iter().copied()), 2);
        write!(
            table,
            "| {} | {} | {own_median} µs |",
            workload.name(),
            workload.unit()
        )
        .ok();
        for peer in peers {
            let cpu = &peer.work[place].cpu;
            let ratio = median(own.iter().zip(cpu).map(|(own, peer)| own / peer));
            let (cpu, ratio) = (number(median(cpu.iter().copied()), 2), number(ratio, 2));
            write!(table, " {cpu} µs | {ratio} |").ok();
        }
        table.push('\n');
    }
    table
}

/// Memory, rates and times until the first byte; what a proxy adds to those of the engine itself.
pub(crate) fn rest(all: &[Measured], direct: &[[f64; 2]]) -> String {
    let mut table = "| proxy | most memory: plain | + stream | + large | plain | large | first byte p50 | p99 | errors |\n\
                     |---|---:|---:|---:|---:|---:|---:|---:|---:|\n"
        .to_owned();
    for proxy in all {
        write!(table, "| {} |", proxy.name).ok();
        for work in &proxy.work {
            write!(
                table,
                " {} MiB |",
                number(work.peak as f64 / f64::from(1 << 20), 1)
            )
            .ok();
        }
        for work in [&proxy.work[0], &proxy.work[2]] {
            write!(table, " {}/s |", number(median(work.rate.iter().copied()), 0)).ok();
        }
        for place in [0, 1] {
            let added = proxy
                .first_byte
                .iter()
                .zip(direct)
                .map(|(with, without)| with[place] - without[place]);
            write!(table, " {} ms |", signed(median(added))).ok();
        }
        writeln!(table, " {} |", proxy.errors).ok();
    }
    table
}

#[cfg(test)]
mod tests {
    use super::*;

    fn measured(name: &'static str, cpu: &[f64]) -> Measured {
        let work = Work {
            cpu: cpu.to_vec(),
            rate: vec![1000.0],
            peak: 3 << 20,
        };
        Measured {
            name,
            work: [work.clone(), work.clone(), work],
            first_byte: vec![[1.5, 3.0]],
            errors: 0,
        }
    }

    /// Rounds are compared one by one: a machine that is slow for a while is so for all.
    #[test]
    fn a_ratio_is_the_median_of_the_rounds_ratios() {
        let all = [
            measured("paddler", &[10.0, 40.0, 12.0]),
            measured("nginx", &[20.0, 80.0, 8.0]),
        ];
        let table = cpu(&all);
        let lines: Vec<&str> = table.lines().collect();
        assert_eq!(
            lines[0],
            "| CPU time | for each | paddler | nginx | paddler / nginx |"
        );
        assert_eq!(lines[1], "|---|---|---:|---:|---:|");
        assert_eq!(lines[2], "| plain | request | 12.00 µs | 20.00 µs | 0.50 |");
        assert!(lines[3].starts_with("| stream | event |"));
        assert!(lines[4].starts_with("| large | request |"));
    }

    #[test]
    fn a_peer_that_answers_nothing_has_no_figures() {
        let table = cpu(&[measured("paddler", &[10.0]), measured("smg", &[f64::NAN])]);
        assert!(
            table.contains("| plain | request | 10.00 µs | - µs | - |"),
            "{table}"
        );
    }

    #[test]
    fn what_a_proxy_adds_is_counted_without_the_engine() {
        let table = rest(&[measured("paddler", &[1.0])], &[[1.0, 1.0]]);
        let row = "| paddler | 3.0 MiB | 3.0 MiB | 3.0 MiB | 1000/s | 1000/s | +0.500 ms | +2.000 ms | 0 |";
        assert_eq!(table.lines().last(), Some(row));
    }
}
