//! Computes digests of 128 bits that identify structures.
//!
//! Two structures with the same digest count as equal. Among a million different structures, the
//! probability that any two collide is about 10⁻²⁷. Digests are the same on every machine and in
//! every run, so a category keeps its identifier.

/// A digest under construction: two lanes of folded multiplication (as in wyhash) of 64 bits.
#[derive(Clone, Copy, Debug)]
pub(super) struct Digest {
    lanes: (u64, u64),
}

/// Odd numbers with about as many ones as zeros: the fractions of π and e, rounded to 64 bits.
const FACTORS: (u64, u64) = (0x243f_6a88_85a3_08d3, 0xb7e1_5162_8aed_2a6b);

impl Digest {
    /// Starts an empty digest. `space` separates kinds of content: equal contents have different
    /// digests in different spaces.
    pub(super) const fn new(space: u64) -> Digest {
        Digest {
            lanes: (FACTORS.0 ^ space, FACTORS.1 ^ space.rotate_left(32)),
        }
    }

    pub(super) fn add(&mut self, word: u64) {
        let (a, b) = self.lanes;
        self.lanes = (
            fold(a ^ word, FACTORS.1).wrapping_add(b.rotate_left(23)),
            fold(b ^ word.rotate_left(29), FACTORS.0).wrapping_add(a.rotate_left(41)),
        );
    }

    pub(super) fn add_digest(&mut self, digest: u128) {
        self.add(digest as u64);
        self.add((digest >> 64) as u64);
    }

    /// Adds a text and its length, which delimits it.
    pub(super) fn add_text(&mut self, text: &str) {
        for chunk in text.as_bytes().chunks(8) {
            let mut word = [0; 8];
            word[..chunk.len()].copy_from_slice(chunk);
            self.add(u64::from_le_bytes(word));
        }
        self.add(text.len() as u64);
    }

    pub(super) fn finish(mut self) -> u128 {
        // The last word reaches every bit only after another fold.
        self.add(FACTORS.0);
        self.add(FACTORS.1);
        (u128::from(self.lanes.0) << 64) | u128::from(self.lanes.1)
    }
}

/// Combines both halves of the product, so that every bit of each factor can affect the result.
fn fold(a: u64, b: u64) -> u64 {
    let product = u128::from(a) * u128::from(b);
    (product as u64) ^ ((product >> 64) as u64)
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustc_hash::FxHashSet;

    fn of(texts: &[&str]) -> u128 {
        let mut digest = Digest::new(0);
        texts.iter().for_each(|text| digest.add_text(text));
        digest.finish()
    }

    #[test]
    fn different_things_have_different_digests() {
        let mut seen = FxHashSet::default();
        let words: Vec<String> = (0..2_000).map(|n| format!("w{n}")).collect();
        assert!(words.iter().all(|a| seen.insert(of(&[a]))));
        for a in words.iter().take(200) {
            assert!(words.iter().take(200).all(|b| seen.insert(of(&[a, b]))));
        }
        assert_ne!(of(&["ab", "c"]), of(&["a", "bc"]));
        assert_ne!(of(&["", "a"]), of(&["a", ""]));
        assert_ne!(of(&["a\0"]), of(&["a"]));
    }

    #[test]
    fn a_bit_changes_half_of_them() {
        for bit in 0..64 {
            let digest = |word: u64| {
                let mut digest = Digest::new(7);
                digest.add(word);
                digest.finish()
            };
            let differing = (digest(0) ^ digest(1 << bit)).count_ones();
            assert!((32..=96).contains(&differing), "bit {bit}: {differing}");
        }
    }

    #[test]
    fn digests_stay() {
        assert_eq!(
            format!("{:032x}", of(&["store", "read"])),
            "be8fb654889ad2214282115f2465f151",
            "categories would be called otherwise than they were"
        );
    }
}
