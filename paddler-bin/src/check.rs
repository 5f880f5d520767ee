//! Is a config file sound?

use paddler_core::config::Mode;

use crate::Failure;
use crate::args::Check;
use crate::settings;

/// Prints what the file comes to, or every fault in it.
pub(crate) fn check(check: &Check) -> Result<(), Failure> {
    let config = settings::read(&check.file, Mode::Gateway)?;
    // What the file names has to be there, too.
    settings::specs(&config)?;
    settings::keys(&config)?;
    println!("{}: sound; {} upstreams", check.file.display(), config.upstreams.len());
    print!("{:?}", config.tree.root());
    Ok(())
}
