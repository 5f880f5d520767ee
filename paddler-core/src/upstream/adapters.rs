//! Which adapters have open leases at an upstream?

use crate::upstream::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// A model or adapter name, as a number that is never given to another name.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Hash)]
pub(crate) struct NameId(pub(crate) u32);

/// How many distinct adapters can be told apart at one upstream. Engines run few at once (vLLM's `max_loras` is 1 by
/// default); a lease beyond that is counted as a request, but not as a use of its adapter.
pub(crate) const CELLS: usize = 16;

/// Each cell packs an adapter (high half) and its open leases (low half).
#[derive(Default)]
#[repr(align(64))]
pub(crate) struct AdapterCells([AtomicU64; CELLS]);

/// The cell that a lease counts in.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Cell(u8);

fn unpack(word: u64) -> (NameId, u32) {
    (NameId((word >> 32) as u32), word as u32)
}

fn pack(name: NameId, leases: u32) -> u64 {
    (u64::from(name.0) << 32) | u64::from(leases)
}

impl AdapterCells {
    /// Counts a lease. Two threads may open the same new adapter in two cells; readers look at names, not at cells.
    pub(crate) fn open(&self, name: NameId) -> Option<Cell> {
        self.claim(|cell| cell.0 == name && cell.1 > 0, name)
            .or_else(|| self.claim(|cell| cell.1 == 0, name))
    }

    fn claim(&self, fits: impl Fn((NameId, u32)) -> bool, name: NameId) -> Option<Cell> {
        let one_more = |word| fits(unpack(word)).then(|| pack(name, unpack(word).1 + 1));
        let claimed = |cell: &AtomicU64| cell.fetch_update(Relaxed, Relaxed, one_more).is_ok();
        self.0.iter().position(claimed).map(|index| Cell(index as u8))
    }

    /// Ends a lease that was counted in this cell. The name cannot have changed: it only does at zero leases.
    pub(crate) fn close(&self, cell: Cell) {
        self.0[usize::from(cell.0)].fetch_sub(1, Relaxed);
    }

    /// Calls `each` with the adapters that have open leases. All cells are looked at: how many leases there are was counted at
    /// another moment.
    pub(crate) fn for_each_open(&self, mut each: impl FnMut(NameId)) {
        for cell in &self.0 {
            let (name, here) = unpack(cell.load(Relaxed));
            if here > 0 {
                each(name);
            }
        }
    }
}
