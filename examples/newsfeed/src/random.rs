//! Small seeded random numbers, so that a run can be repeated exactly.

/// A SplitMix64 generator: one addition and two multiplications per number.
#[derive(Debug, Clone)]
pub(crate) struct Random {
    state: u64,
}

impl Random {
    pub(crate) fn new(seed: u64) -> Self {
        Self { state: seed }
    }

    pub(crate) fn next_u64(&mut self) -> u64 {
        self.state = self.state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        mix(self.state)
    }

    /// Returns the next number, uniform in `[0, 1)`.
    pub(crate) fn next_unit(&mut self) -> f64 {
        unit(self.next_u64())
    }
}

/// Spreads the bits of a number over all 64, by SplitMix64's finaliser.
pub(crate) fn mix(number: u64) -> u64 {
    let mut z = number;
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

/// Converts the top 53 bits of `bits` to a number in `[0, 1)`.
pub(crate) fn unit(bits: u64) -> f64 {
    (bits >> 11) as f64 / (1_u64 << 53) as f64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_same_seed_gives_the_same_numbers() {
        let (mut a, mut b) = (Random::new(7), Random::new(7));
        assert!((0..100).all(|_| a.next_u64() == b.next_u64()));
        assert_ne!(Random::new(7).next_u64(), Random::new(8).next_u64());
    }

    #[test]
    fn units_fill_the_interval_evenly() {
        let mut random = Random::new(1);
        let draws: Vec<f64> = (0..10_000).map(|_| random.next_unit()).collect();
        assert!(draws.iter().all(|draw| (0.0..1.0).contains(draw)));
        let mean = draws.iter().sum::<f64>() / draws.len() as f64;
        assert!((mean - 0.5).abs() < 0.02, "mean {mean}");
    }
}
