//! Scores candidates, which is the bottleneck of a newsfeed without faults.

use std::time::Duration;

use crate::cpu::Cpu;
use crate::random::unit;
use crate::wire::Story;

/// Total cost of scoring the candidates of one request.
const SCORE_TIME: Duration = Duration::from_millis(10);

/// A story to rank, with its features.
#[derive(Debug, Clone)]
pub(crate) struct Candidate {
    pub(crate) source: &'static str,
    pub(crate) features: u64,
}

/// Evaluates the ranking model on every candidate. Returns at most `stories_max` stories, best
/// first.
///
/// The time for one candidate is the total time divided by the number of candidates. All requests
/// therefore cost the same, as with a model that has a fixed budget.
pub(crate) fn rank(
    cpu: &Cpu,
    user: u64,
    candidates: &[Candidate],
    stories_max: usize,
) -> Vec<Story> {
    let Some(share) = u32::try_from(candidates.len())
        .ok()
        .and_then(|count| SCORE_TIME.checked_div(count))
    else {
        return Vec::new();
    };
    let mut stories: Vec<Story> = candidates
        .iter()
        .map(|candidate| Story {
            id: candidate.features,
            source: candidate.source.to_owned(),
            score: unit(cpu.work(share, candidate.features ^ user)),
        })
        .collect();
    stories.sort_by(|a, b| b.score.total_cmp(&a.score).then(a.id.cmp(&b.id)));
    stories.truncate(stories_max);
    stories
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_best_come_first_and_only_so_many() {
        let cpu = Cpu::calibrate();
        let candidates: Vec<Candidate> = (0..36)
            .map(|features| Candidate {
                source: "pages",
                features,
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
