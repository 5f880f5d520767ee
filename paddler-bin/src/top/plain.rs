//! How is it printed, for a script or a log?
//!
//! Sums in the first line, then a row for each upstream with columns of fixed order. Nothing is cut off.

use super::look::{HEADS, Look, NUMBERS, Row};

/// Everything, with the upstreams that the filter finds.
pub(super) fn table(look: &Look, filter: &str) -> String {
    let rows: Vec<_> = look.found(filter).into_iter().map(Row::cells).collect();
    let width = |column: usize| {
        let cells = rows.iter().map(|row| row[column].chars().count());
        cells.chain([HEADS[column].len()]).max().unwrap_or_default()
    };
    let widths: Vec<_> = (0..HEADS.len()).map(width).collect();
    let line = |cells: &[String]| {
        let padded = cells
            .iter()
            .zip(&widths)
            .enumerate()
            .map(|(column, (cell, &width))| {
                if NUMBERS.contains(&column) {
                    format!("{cell:>width$}")
                } else {
                    format!("{cell:<width$}")
                }
            });
        format!("{}\n", padded.collect::<Vec<_>>().join("  ").trim_end())
    };
    let mut text = format!("{}\n", sums(look));
    text += &line(&HEADS.map(str::to_owned));
    text.extend(rows.iter().map(|row| line(row)));
    text
}

fn sums(look: &Look) -> String {
    let reasons: Vec<_> = look
        .refused
        .iter()
        .map(|(reason, many)| format!("{reason} {many}"))
        .collect();
    let reasons = if reasons.is_empty() {
        String::new()
    } else {
        format!(" ({})", reasons.join(", "))
    };
    format!(
        "{} of {} upstreams serve; {} requests here, {} of {} wait; {} answered, {} refused{reasons}",
        look.serving(),
        look.upstreams.len(),
        look.here,
        look.queue.waiting,
        look.queue.max_requests,
        look.answered,
        look.refusals(),
    )
}

#[cfg(test)]
mod tests {
    use super::super::look::tests::look;
    use super::*;

    #[test]
    fn a_script_can_read_it() {
        let expected = "\
1 of 2 upstreams serve; 5 requests here, 1 of 30 wait; 12 answered, 2 refused (model_not_found 2)
UPSTREAM  STATE    OPEN/LIMIT  RUNNING  WAITING   KV  REPORT  WHY
gpu-1     healthy         3/4        3        0  26%    0.3s
gpu-2     unable          0/-        -        -    -       -  3 polls failed: \u{fffd}[31mred
";
        assert_eq!(table(&look(0, 10), ""), expected);
        assert_eq!(table(&look(0, 10), "gpu-1").lines().count(), 3);
    }
}
