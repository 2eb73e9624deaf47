//! Scores candidates, which is the bottleneck of the servers of a newsfeed without faults.

use std::time::Duration;

use stroboscope::tracked::{Linkage, Tracked, TrackedBuf};

use crate::cpu::Cpu;
use crate::random::unit;
use crate::story::TrackedStory;
use crate::wire::Story;

/// Total cost of scoring the candidates of one request.
const SCORE_TIME: Duration = Duration::from_millis(10);

/// A story to rank, with its features.
#[derive(Debug, Clone)]
pub(crate) struct Candidate {
    pub(crate) source: &'static str,
    /// Eight bytes, which are also the id.
    pub(crate) features: TrackedBuf,
}

impl Candidate {
    fn number<L: Linkage>(&self) -> Tracked<u64, L> {
        self.features.calculate(|bytes| {
            let bytes = bytes.iter();
            bytes.fold(0, |number, byte| number << 8 | u64::from(*byte))
        })
    }
}

/// Evaluates the ranking model on every candidate. Returns at most `stories_max` stories, best
/// first.
///
/// Under a linkage of indices, each story also depends on the scores of all candidates, which
/// decide where it stands.
///
/// The time for one candidate is the total time divided by the number of candidates. All requests
/// therefore cost the same, as with a model that has a fixed budget.
pub(crate) fn rank<L: Linkage>(
    cpu: &Cpu,
    user: Tracked<u64, L>,
    candidates: &[Candidate],
    stories_max: usize,
) -> Vec<TrackedStory> {
    let Some(share) = u32::try_from(candidates.len())
        .ok()
        .and_then(|count| SCORE_TIME.checked_div(count))
    else {
        return Vec::new();
    };
    let scored = candidates.iter().map(|candidate| {
        let number = candidate.number::<L>();
        let score = (number ^ user).map(|seed| unit(cpu.work(share, seed)));
        (candidate, *number.get(), score)
    });
    let mut scored: Vec<_> = scored.collect();
    let place = scored
        .iter()
        .fold(Tracked::new(()), |place, (_, _, score)| {
            place.map_with(*score, |(), _| ())
        });
    scored.sort_by(|(_, a, a_score), (_, b, b_score)| {
        b_score.get().total_cmp(a_score.get()).then(a.cmp(b))
    });
    scored.truncate(stories_max);
    let stories = scored.into_iter().map(|(candidate, id, score)| {
        let mut record = TrackedBuf::with_capacity(32, 4);
        let copy = |bytes: &TrackedBuf, record: &mut TrackedBuf| {
            let bytes = (0..bytes.len()).filter_map(|number| bytes.get(number));
            bytes.for_each(|byte| record.push(place.index(|()| byte)));
        };
        copy(&candidate.features, &mut record);
        for byte in score.get().to_bits().to_be_bytes() {
            record.push(place.index(|()| score.map(|_| byte)));
        }
        copy(&candidate.source.as_bytes().into(), &mut record);
        TrackedStory {
            story: Story {
                id,
                source: candidate.source.to_owned(),
                score: score.into_inner(),
            },
            record,
        }
    });
    stories.collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use stroboscope::tracked::DataLinkage;

    fn rank(cpu: &Cpu, user: u64, candidates: &[Candidate], stories_max: usize) -> Vec<Story> {
        let user: Tracked<u64, DataLinkage> = user.into();
        let stories = super::rank(cpu, user, candidates, stories_max).into_iter();
        stories.map(|story| story.story).collect()
    }

    #[test]
    fn the_best_come_first_and_only_so_many() {
        let cpu = Cpu::calibrate();
        let candidates: Vec<Candidate> = (0..36_u64)
            .map(|id| Candidate {
                source: "pages",
                features: id.to_be_bytes().to_vec().into(),
            })
            .collect();
        let stories = rank(&cpu, 7, &candidates, 10);
        assert_eq!(stories.len(), 10);
        assert!(stories.is_sorted_by(|a, b| a.score >= b.score));
        assert_eq!(
            rank(&cpu, 7, &candidates, 10),
            stories,
            "the same question has the same answer"
        );
        assert_ne!(rank(&cpu, 8, &candidates, 10), stories, "users differ");
        assert!(rank(&cpu, 7, &[], 10).is_empty());
    }
}
