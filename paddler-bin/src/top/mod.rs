//! What is going on, for somebody at a terminal?
//!
//! `--once` prints a table, for scripts; else it is shown and kept up to date until somebody leaves.

#[cfg(feature = "top")]
mod app;
#[cfg_attr(
    not(feature = "top"),
    allow(dead_code, reason = "only the terminal view drains, and tells rates")
)]
mod ask;
#[cfg(feature = "top")]
mod draw;
#[cfg_attr(
    not(feature = "top"),
    allow(dead_code, reason = "only the terminal view drains, and tells rates")
)]
mod look;
mod plain;
#[cfg(feature = "top")]
mod screen;

use std::io::{self, Write as _};

use ask::Management;

use crate::Failure;
use crate::args::look::Top;

/// Shows what the management listener of these arguments tells.
pub(crate) async fn top(args: Top) -> Result<(), Failure> {
    let management = Management::at(&args.management, args.key_file.as_deref())?;
    if args.once {
        let look = management.look().await?;
        let table = plain::table(&look, &args.filter);
        // Who reads it may have read enough.
        return match io::stdout().write_all(table.as_bytes()) {
            Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Ok(()),
            written => Ok(written?),
        };
    }
    #[cfg(feature = "top")]
    return screen::show(management, args.filter).await;
    #[cfg(not(feature = "top"))]
    Err(
        "this program is built without its terminal view: say --once, or build it with `--features top`"
            .into(),
    )
}
