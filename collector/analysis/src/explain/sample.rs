//! Chooses the requests from which a tree is grown, and those that test its leaves.

use super::ExplainedRequest;
use crate::record::TraceId;

/// Minimum number of requests taken from a category, if it has that many.
pub const SAMPLE_MIN: usize = 100;
/// Weight of a category per request taken from it, unless one of the limits determines the number.
const SAMPLE_PART: f64 = 10.0;
/// Maximum number of requests taken from a category.
pub const SAMPLE_MAX: usize = 4_096;
/// Maximum ratio of one category's sampled requests to the other's, unless the former are at most
/// [`SAMPLE_MIN`].
pub const IMBALANCE_MAX: usize = 3;
/// Inverse of the fraction of sampled requests that is held out.
const HELD_OUT_EACH: usize = 3;

/// Sampled requests of both categories. `learn` and `held_out` are indices into `requests`.
pub(super) struct ExplainSample<'a> {
    pub(super) requests: Vec<&'a ExplainedRequest>,
    pub(super) learn: Vec<usize>,
    pub(super) held_out: Vec<usize>,
}

impl<'a> ExplainSample<'a> {
    pub(super) fn of(requests: &'a [ExplainedRequest], seed: u64) -> ExplainSample<'a> {
        let mut counts = [0; 2];
        let mut stored = [0.0; 2];
        for request in requests {
            let class = usize::from(request.is_mutation);
            counts[class] += 1;
            stored[class] += request.weight;
        }
        let sizes = sizes(counts, stored);
        let mut sample = ExplainSample {
            requests: Vec::with_capacity(sizes[0] + sizes[1]),
            learn: Vec::new(),
            held_out: Vec::new(),
        };
        for (class, size) in [false, true].into_iter().zip(sizes) {
            let of_class = requests.iter().filter(|of| of.is_mutation == class);
            let mut of_class: Vec<&ExplainedRequest> = of_class.collect();
            of_class.sort_by(|a, b| {
                let key = |of: &ExplainedRequest| drawn_at(place_of(of.id, seed), of.weight);
                let by_key = key(a).total_cmp(&key(b));
                by_key.then_with(|| (a.id, a.start_ns).cmp(&(b.id, b.start_ns)))
            });
            of_class.truncate(size);
            for (at, request) in of_class.into_iter().enumerate() {
                let place = sample.requests.len();
                sample.requests.push(request);
                match at % HELD_OUT_EACH == HELD_OUT_EACH - 1 {
                    true => sample.held_out.push(place),
                    false => sample.learn.push(place),
                }
            }
        }
        sample
    }

    /// Returns the numbers of requests without and with the change at these indices.
    pub(super) fn count(&self, places: &[usize]) -> [usize; 2] {
        let is_mutation = |place: &&usize| self.requests[**place].is_mutation;
        let mutation = places.iter().filter(is_mutation).count();
        [places.len() - mutation, mutation]
    }
}

/// Returns the number of requests to take from each category. `stored` is the total weight of each
/// category's requests.
fn sizes(counts: [usize; 2], stored: [f64; 2]) -> [usize; 2] {
    let own = [0, 1].map(|class| {
        let part = (stored[class] / SAMPLE_PART) as usize;
        counts[class].min(part.clamp(SAMPLE_MIN, SAMPLE_MAX))
    });
    let most = |other: usize| (IMBALANCE_MAX * other).max(SAMPLE_MIN);
    [own[0].min(most(own[1])), own[1].min(most(own[0]))]
}

/// Returns the sort key of a request with this weight in a random order. The first requests in that
/// order form a sample in which the chance of each request grows with its weight (Efraimidis and
/// Spirakis, 2006).
fn drawn_at(hash: u64, weight: f64) -> f64 {
    let chance = (hash as f64 + 0.5) / (u64::MAX as f64 + 1.0);
    -(-chance).ln_1p() / weight.max(f64::MIN_POSITIVE)
}

/// Returns the sort key of a request in a random order of all requests. It is a hash (finaliser of
/// splitmix64), as a source may assign ids in order.
pub fn place_of(id: TraceId, seed: u64) -> u64 {
    let mixed = (id.0 ^ (id.0 >> 64)) as u64 ^ seed.wrapping_mul(0x9e37_79b9_7f4a_7c15);
    let mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    mixed ^ (mixed >> 31)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_sample_is_of_a_tenth_or_a_hundred() {
        let whole = |counts: [usize; 2]| sizes(counts, counts.map(|count| count as f64));
        assert_eq!(whole([50, 80]), [50, 80]);
        assert_eq!(whole([900, 2_000]), [100, 200]);
        assert_eq!(whole([1_000_000, 3_000]), [900, 300]);
        assert_eq!(whole([20, 1_000_000]), [20, 100]);
        assert_eq!(whole([1_000_000, 1_000_000]), [SAMPLE_MAX; 2]);
        // A larger store: a tenth of it is taken, but no more than the requests at hand.
        assert_eq!(sizes([2_048, 2_048], [30_000.0, 9_000.0]), [2_048, 900]);
    }
}
