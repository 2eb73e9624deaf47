//! Makes damaged copies of valid content.

use crate::random::Random;

/// Damages content in one to three places: cuts, doubles, rotates and overwrites pieces of it, and
/// inserts `tokens` that are significant to its readers, and pieces of `others`.
///
/// # Panics
/// Panics without tokens or others.
pub fn mutate(random: &mut Random, content: &mut Vec<u8>, tokens: &[&[u8]], others: &[Vec<u8>]) {
    for _ in 0..=random.below(3) {
        let at = random.below(content.len() + 1);
        let to = (at + random.below(40)).min(content.len());
        match random.below(9) {
            0 => content.truncate(at),
            1 => drop(content.drain(at..to)),
            2 => {
                let piece = content[at..to].to_vec();
                content.splice(at..at, piece);
            }
            3 | 4 => {
                let token = tokens[random.below(tokens.len())];
                let to = to.min(at + random.below(3));
                content.splice(at..to, token.iter().copied());
            }
            5 => {
                let other = &others[random.below(others.len())];
                let from = random.below(other.len());
                let until = (from + random.below(200)).min(other.len());
                content.splice(at..at, other[from..until].iter().copied());
            }
            6 => content.rotate_left(at),
            _ => {
                let byte = random.next_u64() as u8;
                let bit = 1 << random.below(8);
                let is_new = random.below(2) == 0;
                if let Some(place) = content.get_mut(at) {
                    *place = if is_new { byte } else { *place ^ bit };
                }
            }
        }
    }
}
