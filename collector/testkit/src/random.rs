//! Reproducible random numbers.

/// A small generator (splitmix64); for tests only.
#[derive(Clone, Debug, Default)]
pub struct Random(pub u64);

impl Random {
    pub fn next_u64(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// Returns a number below `bound`, or 0 for a bound of 0.
    pub fn below(&mut self, bound: usize) -> usize {
        (self.next_u64() % bound.max(1) as u64) as usize
    }

    /// Returns true with a probability of `per_mille` in a thousand.
    pub fn happens(&mut self, per_mille: usize) -> bool {
        self.below(1_000) < per_mille
    }
}
