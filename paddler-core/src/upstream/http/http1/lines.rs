//! Where do the lines of a head, or of trailers, end?
//!
//! At an empty line. Each line ends with CR LF and holds neither of them: readers differ in what they make of one alone.

use super::Malformed;

/// The most bytes of a head: more than any engine says, and what hyper read here before.
pub(super) const MOST_BYTES: usize = 256 * 1024;

/// The most lines: far more than the 100 of most readers, and few enough to hold.
pub(super) const MOST_LINES: usize = 1024;

/// How far the lines have been looked through.
#[derive(Debug, Default)]
pub(super) struct Lines {
    seen: usize,
    /// Bytes of the line that is open.
    open: usize,
    after_cr: bool,
    count: usize,
}

impl Lines {
    /// Behind the empty line, once it is there. `bytes` are those of the call before, and more.
    pub(super) fn end(&mut self, bytes: &[u8]) -> Result<Option<usize>, Malformed> {
        loop {
            let rest = &bytes[self.seen..];
            if !self.after_cr {
                let run = rest.iter().position(|byte| matches!(byte, b'\r' | b'\n'));
                let run = run.unwrap_or(rest.len());
                (self.seen, self.open) = (self.seen + run, self.open + run);
            }
            let Some(byte) = bytes.get(self.seen) else { break };
            self.seen += 1;
            if self.seen > MOST_BYTES {
                break;
            }
            match (self.after_cr, byte) {
                (true, b'\n') if self.open == 0 => return Ok(Some(self.seen)),
                (true, b'\n') => {
                    (self.after_cr, self.open) = (false, 0);
                    self.count += 1;
                    if self.count > MOST_LINES {
                        return Err(Malformed::from("its head has more than 1024 lines"));
                    }
                }
                (true, _) => return Err(Malformed::from("a CR stands alone")),
                (false, b'\r') => self.after_cr = true,
                // The run before it ends at nothing else.
                (false, _) => return Err(Malformed::from("an LF stands alone")),
            }
        }
        if self.seen > MOST_BYTES {
            return Err(Malformed::from("its head is longer than 256 KiB"));
        }
        Ok(None)
    }

    /// How many there were before the empty one.
    pub(super) fn count(&self) -> usize {
        self.count
    }
}
