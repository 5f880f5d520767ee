//! Is a config file sound?

use std::io::{self, Write};

use paddler_core::config::{ConfigFaults, Mode};

use crate::Failure;
use crate::args::{Check, For};
use crate::settings;

/// Says that there may be more, where the config itself could not be read.
fn and_files(faults: Failure) -> Failure {
    if faults.is::<ConfigFaults>() {
        format!("{faults}\nthe files that it names (keys, certificates) are checked once it has no fault")
            .into()
    } else {
        faults
    }
}

/// Prints what the file comes to, or every fault in it.
pub(crate) fn check(check: &Check) -> Result<(), Failure> {
    let mode = match check.r#for {
        For::Gateway => Mode::Gateway,
        For::Balancer => Mode::Balancer,
    };
    if settings::keys_of(&check.file)? {
        writeln!(
            io::stdout(),
            "{}: sound; a file of clients' keys",
            check.file.display()
        )?;
        return Ok(());
    }
    let config = settings::read(&check.file, mode).map_err(and_files)?;
    settings::not_itself(&config)?;
    // What the file names has to be there, too.
    settings::secrets(&config)?;
    let file = check.file.display();
    let upstreams = match config.upstreams.len() {
        0 => "no upstream, so --upstream is needed".to_owned(),
        1 => "1 upstream".to_owned(),
        many => format!("{many} upstreams"),
    };
    write!(io::stdout(), "{file}: sound; {upstreams}\n{}", config.tree)?;
    Ok(())
}
