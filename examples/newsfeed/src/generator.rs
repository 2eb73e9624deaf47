//! The generators of a wide ranking: ten sources of candidates of unequal worth.

use crate::random::{mix, unit};

/// A source of candidates.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Generator {
    pub(crate) name: &'static str,
    /// Number of candidates it proposes for a request.
    pub(crate) candidates: usize,
    /// Worth of its candidates. Among several candidates, the chance that one has the largest
    /// affinity is in proportion to its worth.
    worth: f64,
}

const fn generator(name: &'static str, candidates: usize, worth: f64) -> Generator {
    Generator {
        name,
        candidates,
        worth,
    }
}

/// Generators of a wide ranking. As in real feeds, a few sources propose most of the stories that
/// people want to see. These are not the sources that propose the most stories.
pub(crate) const WIDE: [Generator; 10] = [
    generator("friends", 8, 6.0),
    generator("groups", 10, 2.0),
    generator("videos", 10, 1.5),
    generator("pages", 12, 1.0),
    generator("trending", 12, 0.5),
    generator("events", 8, 0.4),
    generator("places", 8, 0.3),
    generator("ads", 12, 0.2),
    generator("markets", 8, 0.15),
    generator("archive", 8, 0.1),
];

/// Candidate that a generator proposes, before its features are known.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Proposal {
    pub(crate) source: &'static str,
    pub(crate) id: u64,
    /// Confidence of the generator in the candidate, 0 to 1: correlated with the affinity, but not
    /// equal to it.
    pub(crate) confidence: f64,
    /// Affinity of the user to the candidate, 0 to 1, from which scoring computes the score.
    affinity: f64,
}

impl Generator {
    /// Returns the proposals for a user, from a value of the store.
    pub(crate) fn propose(&self, user: u64, value: &[u8]) -> Vec<Proposal> {
        let words = value.chunks_exact(8).take(self.candidates);
        let proposed = words.map(|word| {
            let id = word
                .iter()
                .fold(0, |number, byte| number << 8 | u64::from(*byte));
            // The chance that one of several such powers is the largest is in proportion to its
            // worth.
            let affinity = unit(mix(id ^ mix(user))).powf(1.0 / self.worth);
            let noise = unit(mix(id.wrapping_add(user)));
            Proposal {
                source: self.name,
                id,
                confidence: 0.5 * affinity + 0.5 * noise,
                affinity,
            }
        });
        proposed.collect()
    }
}

impl Proposal {
    /// Scores the candidate by its features.
    pub(crate) fn score(&self, features: &[u8]) -> f64 {
        let seed = features
            .iter()
            .take(8)
            .fold(self.id, |state, byte| mix(state ^ u64::from(*byte)));
        0.9 * self.affinity + 0.1 * unit(seed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_worthier_win_more_often_than_they_propose() {
        let mut wins = [0_u32; WIDE.len()];
        for user in 0..2_000_u64 {
            let scored = WIDE.iter().enumerate().flat_map(|(place, generator)| {
                let value: Vec<u8> = (0..1_024_u64)
                    .map(|byte| mix(mix(byte ^ user << 16) ^ place as u64) as u8)
                    .collect();
                let scored = generator.propose(user, &value).into_iter();
                scored.map(move |proposal| (place, proposal.score(&value)))
            });
            let best = scored
                .max_by(|a, b| a.1.total_cmp(&b.1))
                .expect("candidates");
            wins[best.0] += 1;
        }
        let all: usize = WIDE.iter().map(|generator| generator.candidates).sum();
        let share = |place: usize| f64::from(wins[place]) / 2_000.0;
        let proposed = |place: usize| WIDE[place].candidates as f64 / all as f64;
        assert!(share(0) > 3.0 * proposed(0), "{wins:?}");
        assert!(share(9) < 0.3 * proposed(9), "{wins:?}");
        assert!(wins[..4].is_sorted_by(|a, b| a >= b), "{wins:?}");
    }
}
