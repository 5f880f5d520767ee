//! What stands for a key in a file, so that whoever reads the file has no key?

use std::io::{self, BufRead as _, Read as _, Write as _};

use paddler_core::forward::Keys;

use crate::Failure;

/// Reads a key, and prints its hash.
pub(crate) fn hash_key() -> Result<(), Failure> {
    let mut line = String::new();
    // Longer than any header may be.
    io::stdin().lock().take(64 * 1024).read_line(&mut line)?;
    let hash =
        Keys::hash(line.trim()).ok_or("there is no key: one line of visible ASCII characters is read")?;
    writeln!(io::stdout(), "{hash}")?;
    Ok(())
}
