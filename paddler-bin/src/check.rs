//! Is a config file sound?

use std::io::{self, Write};

use paddler_core::config::{Config, Mode};

use crate::args::look::Check;
use crate::written::{Told, Written};
use crate::{Failure, secrets, settings};

/// Prints what the file comes to, or every fault in it.
pub(crate) fn check(check: &Check) -> Result<(), Failure> {
    // Once: it may be a pipe.
    let text = settings::text(&check.file, "the config")?;
    let file = check.file.display();
    if settings::keys_of(&check.file, &text)? {
        writeln!(io::stdout(), "{file}: sound; a file of clients' keys")?;
        return Ok(());
    }
    if let Some(keys) = settings::plain_keys(&text) {
        writeln!(
            io::stdout(),
            "{file}: sound, if it is a file of keys, one a line; it has {keys}"
        )?;
        return Ok(());
    }
    let config = sound(check, &text, check.r#for.mode())?;
    let listed = settings::list(&config)?.map_or(Vec::new(), |listed| listed.upstreams);
    if config.upstreams.len() + listed.len() > 0 {
        for (name, model) in config.vain_fallbacks(&listed) {
            tracing::warn!(
                "{file}: models.{name}.fallback: no upstream of it has {model:?}; unless an agent or the API brings one, nobody falls back to it"
            );
        }
    }
    let upstreams = match config.upstreams.len() + listed.len() {
        0 if config.upstreams_file.is_some() => "no upstream in its list yet".to_owned(),
        0 => "no upstream, so --upstream is needed".to_owned(),
        1 => "1 upstream".to_owned(),
        many => format!("{many} upstreams"),
    };
    write!(io::stdout(), "{file}: sound; {upstreams}\n{}", config.tree)?;
    Ok(())
}

/// The config, if nothing is wrong with it and with the files that it names.
fn sound(check: &Check, text: &str, mode: Mode) -> Result<Config, Failure> {
    let (config, faults) = settings::read(&check.file, text, mode);
    let name = check.file.display();
    let mut told: Vec<Told> = Vec::new();
    let mut more = 0;
    if let Some(faults) = faults {
        more = faults.more;
        let line = |at| format!("{name}:{at}");
        told.extend(faults.faults.into_iter().map(|fault| match fault.place {
            Some(place) => (fault.place, line(format!("{place}: {fault}"))),
            None => (None, line(format!(" {fault}"))),
        }));
    } else if let Err(itself) = settings::not_itself(&config) {
        told.push((None, itself.to_string()));
    }
    let missing = Written::new(&check.file, text).missing(&config);
    let (missing, of_missing): (Vec<_>, Vec<_>) = missing.into_iter().unzip();
    told.extend(of_missing);
    if let Err(faults) = secrets::read(&config, &missing) {
        told.extend(faults.into_iter().map(|line| (None, line)));
    }
    if let Err(faults) = secrets::of_list(&config, &missing, &mut Vec::new()) {
        told.extend(faults.into_iter().map(|line| (None, line)));
    }
    if told.is_empty() {
        return Ok(config);
    }
    let mut lines = settings::lines(told);
    if more > 0 {
        lines.push_str(&format!("\nand {more} more"));
    }
    Err(lines.into())
}
