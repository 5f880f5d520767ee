//! What can be asked for, and within what?

use std::path::PathBuf;

use clap::{Parser, ValueEnum};
use paddler_benches::harness::flags::{seconds, whole};

/// Measures what was to be reached, and prints it beside the goals.
#[derive(Debug, Parser)]
pub(crate) struct Arguments {
    /// Measure these parts alone, with commas between; without it, all of them.
    #[arg(long, value_delimiter = ',')]
    pub(crate) only: Vec<Part>,
    /// Rounds of whatever is measured in CPU time of this process (`picks`, `threads`, `reading`, `growth`), of which the median is
    /// told: from 1 to 10000.
    #[arg(long, default_value_t = 51, value_parser = whole::<10_000>, allow_negative_numbers = true)]
    pub(crate) rounds: usize,
    /// Seconds for which the router is watched while it polls (`polls`, `growth`), and for which events are read through it, and as
    /// long without it (`events`): from 0.5 to 3600.
    #[arg(long, default_value_t = 10.0, value_parser = seconds, allow_negative_numbers = true)]
    pub(crate) seconds: f64,
    /// Engines that the router polls (`polls`, `growth`), each at an address of its own of this machine: from 1 to 65535.
    #[arg(long, default_value_t = 1_000, value_parser = whole::<65_535>, allow_negative_numbers = true)]
    pub(crate) upstreams: usize,
    /// Times that the router is started (`start`), of which the median is told: from 1 to 1000.
    #[arg(long, default_value_t = 10, value_parser = whole::<1_000>, allow_negative_numbers = true)]
    pub(crate) starts: usize,
    /// Idle streams that the router holds (`streams`), each from a port of its own of this machine: from 1 to 20000.
    #[arg(long, default_value_t = 1_000, value_parser = whole::<20_000>, allow_negative_numbers = true)]
    pub(crate) streams: usize,
    /// Different prompts that are sent before the router's memory is looked at, and as many other ones before it is looked at again
    /// (`flat`): from 1 to 10000000.
    #[arg(long, default_value_t = 200_000, value_parser = whole::<10_000_000>, allow_negative_numbers = true)]
    pub(crate) prompts: usize,
    /// Different names of models that nobody has, which are asked for before the router's memory is looked at, and as many other ones
    /// before it is looked at again (`flat`): from 1 to 10000000.
    #[arg(long, default_value_t = 100_000, value_parser = whole::<10_000_000>, allow_negative_numbers = true)]
    pub(crate) names: usize,
    /// The program `paddler` [default: this workspace's, built in the profile of this program].
    #[arg(long)]
    pub(crate) paddler: Option<PathBuf>,
}

/// What is measured together.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Part {
    /// A pick with each built-in tree, as in the bench `scheduling`; nothing is reserved.
    Picks,
    /// How fast each of two threads picks, of what one alone does, while snapshots are published.
    Threads,
    /// Facts from bodies, and an engine's page.
    Reading,
    /// The router's CPU time for polling `--upstreams` engines four times a second, as it would be were all asked in time; and its
    /// memory for each.
    Polls,
    /// The time from the start of the router until it has answered a chat, with one engine; and the size of its file.
    Start,
    /// The router's memory for a stream that waits for its next event.
    Streams,
    /// How late an event comes through the router, beside how late without.
    Events,
    /// Memory that the router has more after many prompts and names, each of which comes once.
    Flat,
    /// Crates that are compiled for an embedder.
    Crates,
    /// Tables of their own: how costs grow, what is fixed and what each upstream, model, filter or KiB more adds; and what follows for a
    /// router, and for 100 of them over 100,000 upstreams.
    Growth,
}

impl Arguments {
    /// The parts that are asked for, in the order of the table.
    pub(crate) fn parts(&self) -> impl Iterator<Item = Part> {
        let is_wanted = |part: &Part| self.only.is_empty() || self.only.contains(part);
        Part::value_variants().iter().copied().filter(is_wanted)
    }
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory as _;

    use super::*;

    /// Each flag, and its least and its greatest value.
    const FLAGS: [(&str, &str, &str); 7] = [
        ("rounds", "1", "10000"),
        ("seconds", "0.5", "3600"),
        ("upstreams", "1", "65535"),
        ("starts", "1", "1000"),
        ("streams", "1", "20000"),
        ("prompts", "1", "10000000"),
        ("names", "1", "10000000"),
    ];

    fn parsed(flag: &str, value: &str) -> Result<Arguments, String> {
        let parsed = Arguments::try_parse_from(["goals", &format!("--{flag}"), value]);
        parsed.map_err(|error| error.to_string())
    }

    #[test]
    fn what_is_beyond_a_flags_range_is_an_error_that_tells_both() {
        for (flag, least, most) in FLAGS {
            let range = format!("from {least} to {most}");
            for edge in [least, most] {
                assert!(parsed(flag, edge).is_ok(), "--{flag} {edge}");
            }
            let over = format!("{most}1");
            for beyond in ["0", "-1", "-0.5", "NaN", "inf", "", "1e99", "many", &over] {
                let error = parsed(flag, beyond).map(drop).unwrap_err();
                assert!(
                    error.contains(&range) && error.contains(&format!("--{flag}")),
                    "{flag} {beyond}: {error}"
                );
            }
        }
        for beyond in ["0.499", "3600.001"] {
            assert!(parsed("seconds", beyond).is_err(), "{beyond}");
        }
        for beyond in ["65536", "1.5"] {
            assert!(parsed("upstreams", beyond).is_err(), "{beyond}");
        }
    }

    #[test]
    fn each_flag_tells_its_range_and_each_part_what_it_is() {
        let command = Arguments::command();
        for (flag, least, most) in FLAGS {
            let argument = command.get_arguments().find(|argument| argument.get_id() == flag);
            let help = argument.and_then(|argument| argument.get_help()).unwrap();
            let help = help.to_string();
            assert!(help.ends_with(&format!("from {least} to {most}")), "{help}");
        }
        for part in Part::value_variants() {
            let told = part.to_possible_value();
            assert!(told.is_some_and(|told| told.get_help().is_some()), "{part:?}");
        }
    }

    #[test]
    fn parts_come_in_the_order_of_the_table_and_once() {
        let parts = |arguments: &[&str]| -> Vec<Part> { Arguments::parse_from(arguments).parts().collect() };
        assert_eq!(parts(&["goals"]), Part::value_variants());
        assert_eq!(
            parts(&["goals", "--only", "crates,picks,crates"]),
            [Part::Picks, Part::Crates]
        );
    }
}
