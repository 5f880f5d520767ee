//! Where does chance come from, so that a run can be run again?

/// Draws that depend on the seed alone (the splitmix64 generator).
#[derive(Debug, Clone)]
pub struct Draw(u64);

impl Draw {
    /// The draws of this seed.
    #[must_use]
    pub fn new(seed: u64) -> Self {
        Self(seed)
    }

    /// Draws of their own for the part of this number, whatever other parts draw.
    #[must_use]
    pub fn part(&self, number: u64) -> Self {
        let mut part = Self(self.0 ^ number.wrapping_mul(0x9e37_79b9_7f4a_7c15));
        part.number();
        part
    }

    fn number(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// From 0 to below 1.
    pub fn unit(&mut self) -> f64 {
        (self.number() >> 11) as f64 / (1_u64 << 53) as f64
    }

    /// From `low` to below `high`.
    pub fn between(&mut self, low: f64, high: f64) -> f64 {
        low + (high - low) * self.unit()
    }

    /// True with this chance.
    pub fn chance(&mut self, chance: f64) -> bool {
        self.unit() < chance
    }

    /// From 0 to below `end`; 0 where that is 0.
    pub fn below(&mut self, end: usize) -> usize {
        (self.unit() * end as f64) as usize
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn equal_seeds_give_equal_draws_and_parts_are_apart() {
        let row = |mut draw: Draw| [(); 4].map(|()| draw.below(1000));
        assert_eq!(row(Draw::new(5)), row(Draw::new(5)));
        assert_ne!(row(Draw::new(5)), row(Draw::new(6)));
        assert_ne!(row(Draw::new(5).part(1)), row(Draw::new(5).part(2)));
    }
}
