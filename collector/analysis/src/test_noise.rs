//! Random numbers for tests.

/// Random-number generator xorshift64 (Marsaglia, 2003). Equal seeds yield equal numbers. The seed
/// must not be 0.
pub(crate) struct Noise(pub(crate) u64);

impl Noise {
    /// Returns a number above 0, at most 1.
    pub(crate) fn uniform(&mut self) -> f64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        ((self.0 >> 11) as f64 + 0.5) / (1u64 << 53) as f64
    }
}
