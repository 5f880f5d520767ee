//! What would another tree have done with decisions that were written down?

use std::fs::File;
use std::io::{self, BufRead as _, BufReader, Read as _, Write as _};

use paddler_core::manage::Replay;

use crate::args::look::{ExplainFormat, ReplayArgs};
use crate::{Failure, tree};

/// The longest line that is read, in bytes: a snapshot of 20,000 upstreams.
const LONGEST: u64 = 256 << 20;

/// Prints what the tree of these arguments would have done with a log of decisions.
pub(crate) fn replay(args: &ReplayArgs) -> Result<(), Failure> {
    let name = args.log.display();
    let unreadable = |error: io::Error| format!("{name} (the log of decisions) cannot be read: {error}");
    let tree = tree::chosen(&args.tree)?;
    let mut log = BufReader::new(File::open(&args.log).map_err(unreadable)?);
    let (mut replay, mut line) = (Replay::new(tree), String::new());
    for number in 1_u64.. {
        line.clear();
        let read = (&mut log)
            .take(LONGEST)
            .read_line(&mut line)
            .map_err(unreadable)?;
        if read == 0 {
            break;
        }
        let is_whole = line.ends_with('\n');
        match replay.line(line.trim_end()) {
            Ok(()) => {}
            // Whoever wrote it was cut off, or still writes.
            Err(_) if !is_whole && (read as u64) < LONGEST => {
                tracing::warn!("line {number} is the last and not whole: it is left out");
            }
            Err(why) => return Err(format!("{name}, line {number}: {why}").into()),
        }
    }
    let replayed = replay.replayed();
    if replayed.decisions == 0 {
        return Err(
            format!("{name}: no decision is in it; `decisions: {{log: FILE}}` has them written").into(),
        );
    }
    let text = match args.format {
        ExplainFormat::Text => replayed.to_string(),
        ExplainFormat::Json => serde_json::to_string_pretty(&replayed)?,
    };
    Ok(writeln!(io::stdout(), "{text}")?)
}
