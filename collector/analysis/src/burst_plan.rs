//! Plans bursts for a recording goal (Ardelean et al., NSDI 2018, §3.3.1). Predicts how many
//! requests the bursts record whole, how many they cut, and what share of time they record.
//!
//! A burst lasts 2ⁿ ms and recurs every 2ⁿ⁺ᵐ ms. Let bursts have length B and period P, and let a
//! request last d and begin at a random moment. If B < P, a burst records it whole with probability
//! (B − d)/P, or 0 if d > B, and overlaps it with probability (B + d)/P, at most 1.

/// Rate at which requests of each length begin.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Arrivals {
    /// Lengths in ns with the number of requests that begin in an hour, ascending by length.
    by_length: Vec<(f64, f64)>,
}

impl Arrivals {
    /// Creates arrivals from pairs of a length in ns and the number of requests of that length that
    /// begin in an hour. Keeps only pairs whose length is at least 0 and whose number is above 0.
    pub fn new(mut by_length: Vec<(f64, f64)>) -> Arrivals {
        by_length.retain(|(length_ns, per_hour)| *length_ns >= 0.0 && *per_hour > 0.0);
        by_length.sort_unstable_by(|a, b| a.0.total_cmp(&b.0));
        Arrivals { by_length }
    }

    /// Returns the number of requests that begin in an hour.
    pub fn per_hour(&self) -> f64 {
        self.by_length.iter().map(|(_, per_hour)| per_hour).sum()
    }

    /// Returns the length in ns that this part (0 to 1) of the requests does not exceed, or `None`
    /// if there are no requests.
    pub fn percentile_ns(&self, part: f64) -> Option<f64> {
        let mut seen = 0.0;
        let all = self.per_hour();
        let found = self.by_length.iter().find(|(_, per_hour)| {
            seen += per_hour;
            seen >= part * all * (1.0 - 1e-12)
        });
        found.map(|(length_ns, _)| *length_ns)
    }

    fn up_to(&self, longest_ns: f64) -> impl Iterator<Item = &(f64, f64)> {
        let all = self.by_length.iter();
        all.take_while(move |(length_ns, _)| *length_ns <= longest_ns)
    }
}

/// Requirements that planned bursts must meet.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct BurstGoal {
    /// Length of the longest requests of interest, in ns.
    pub longest_ns: f64,
    /// Maximum share of the time to record, 0 to 1.
    pub duty_max: f64,
    /// Bound on the share of the time that stays if `duty_max` is relaxed; 1 if there is none.
    pub duty_max_relaxed: f64,
    /// Minimum number of whole requests to record in an hour.
    pub whole_per_hour: f64,
}

/// A burst configuration and its expected yield.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct PlannedBursts {
    /// Length of a burst: 2ⁿ ms.
    pub burst_ms: u64,
    /// Time between the starts of bursts: 2ⁿ⁺ᵐ ms. Equal to `burst_ms` if all is recorded.
    pub period_ms: u64,
    /// Whole requests of interest recorded in an hour, if recording begins and ends with the burst.
    pub whole_per_hour: f64,
    /// Whole requests of interest recorded in an hour, if recording follows requests that begin
    /// during a burst to their end.
    pub followed_per_hour: f64,
    /// Fraction that bursts cut of the requests of interest that overlap one; 0 if none overlaps.
    pub cut_share: f64,
}

impl PlannedBursts {
    /// Returns the share of time that is recorded, 0 to 1.
    pub fn duty(&self) -> f64 {
        self.burst_ms as f64 / self.period_ms as f64
    }

    /// Returns the burst-config mask. Processes record while the wall time in ms has all its bits.
    pub fn mask(&self) -> u64 {
        self.period_ms - self.burst_ms
    }
}

/// Plans for a goal, or the ways to relax it.
#[derive(Clone, Debug, PartialEq)]
pub struct BurstPlans {
    /// Bursts that reach the goal, the best one first; empty if none does.
    pub reaching: Vec<PlannedBursts>,
    /// Relaxations of the goal, if no bursts reach it.
    pub giving_way: Option<GivingWay>,
}

/// Relaxations of a goal. Each field relaxes one requirement and keeps the others. A field is
/// `None` if its relaxation does not help.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct GivingWay {
    /// Bursts that record the largest share of time, 2⁻ᵐ, that the goal allows, but fewer whole
    /// requests than the goal requires. The share is at least 2⁻³⁰.
    pub whole_per_hour: Option<PlannedBursts>,
    /// Bursts that reach the other requirements with the relaxed maximum share of time.
    pub duty: Option<PlannedBursts>,
    /// Another length of the longest requests of interest, in ns, which may exceed the goal's, and
    /// the bursts for it.
    pub longest: Option<(f64, PlannedBursts)>,
}

/// Minimum ratio of the period to the length of the longest requests of interest, unless everything
/// is recorded. No request of interest then overlaps two bursts. The constant is also the preferred
/// minimum ratio of the burst to that length, as bursts of that length cut few requests. Shorter
/// bursts are planned too, but after the preferred ones.
pub const TIMES_REQUEST: f64 = 10.0;
/// Maximum length of a planned burst: 2²⁴ ms, 4.7 hours.
const BURST_BITS_MAX: u32 = 24;
/// Maximum planned period: 2⁴⁰ ms, 35 years.
const PERIOD_BITS_MAX: u32 = 40;
/// Maximum number of plans returned.
const REACHING_MAX: usize = 6;

/// Computes the yield of a burst configuration for requests up to `longest_ns` long.
pub fn planned(
    arrivals: &Arrivals,
    longest_ns: f64,
    burst_ms: u64,
    period_ms: u64,
) -> PlannedBursts {
    let is_always = burst_ms == period_ms;
    let (burst_ns, period_ns) = (burst_ms as f64 * 1e6, period_ms as f64 * 1e6);
    let (mut whole, mut followed, mut meeting) = (0.0, 0.0, 0.0);
    for (length_ns, per_hour) in arrivals.up_to(longest_ns) {
        let (fits, begins, meets) = match is_always {
            true => (1.0, 1.0, 1.0),
            false => (
                (burst_ns - length_ns).max(0.0) / period_ns,
                burst_ns / period_ns,
                ((burst_ns + length_ns) / period_ns).min(1.0),
            ),
        };
        whole += per_hour * fits;
        followed += per_hour * begins;
        meeting += per_hour * meets;
    }
    PlannedBursts {
        burst_ms,
        period_ms,
        whole_per_hour: whole,
        followed_per_hour: followed,
        cut_share: match meeting > 0.0 {
            true => 1.0 - whole / meeting,
            false => 0.0,
        },
    }
}

/// Finds the bursts that reach a goal, or else the relaxations that make it reachable.
pub fn plan_bursts(arrivals: &Arrivals, goal: &BurstGoal) -> BurstPlans {
    let reaching = reaching(arrivals, goal);
    let relaxed = BurstGoal {
        duty_max: goal.duty_max_relaxed,
        ..*goal
    };
    let giving_way = reaching.is_empty().then(|| GivingWay {
        whole_per_hour: most(arrivals, goal),
        duty: self::reaching(arrivals, &relaxed).first().copied(),
        longest: shorter(arrivals, goal),
    });
    BurstPlans {
        reaching,
        giving_way,
    }
}

/// Returns the exponent n of the shortest burst, 2ⁿ ms, that is at least [`TIMES_REQUEST`] times as
/// long as a request of `longest_ns`. The paper requires periods of at least this length.
fn bits_of(longest_ns: f64) -> u32 {
    let wanted_ms = (longest_ns * TIMES_REQUEST / 1e6).max(1.0);
    wanted_ms.log2().ceil() as u32
}

/// Returns at most [`REACHING_MAX`] plans: for each tried burst length, the bursts with the longest
/// period that reach the goal, but only one plan that records everything. The shortest bursts that
/// cut few requests come first, then longer ones, then shorter ones that cut more.
fn reaching(arrivals: &Arrivals, goal: &BurstGoal) -> Vec<PlannedBursts> {
    let own = bits_of(goal.longest_ns);
    let shortest = ((goal.longest_ns / 1e6).max(1.0).log2().floor() as u32).min(own);
    let lengths = (own..own + 3).chain((shortest..own).rev());
    let rarest = |burst_bits: u32| {
        let most_rare = PERIOD_BITS_MAX.min(burst_bits + 30);
        // A period must have the minimum length, unless the burst fills it. Then everything is
        // recorded, and the burst's length does not matter.
        let periods = (burst_bits..=most_rare).filter(|bits| *bits >= own || *bits == burst_bits);
        let all = periods.rev();
        let mut all =
            all.map(|bits| planned(arrivals, goal.longest_ns, 1 << burst_bits, 1 << bits));
        all.find(|of| {
            of.whole_per_hour >= goal.whole_per_hour && of.duty() <= goal.duty_max * (1.0 + 1e-9)
        })
    };
    let lengths = lengths.filter(|bits| *bits <= BURST_BITS_MAX);
    let mut found: Vec<PlannedBursts> = lengths.filter_map(rarest).collect();
    // All plans that record everything are equivalent, so keep only the first.
    let mut is_always_known = false;
    found.retain(|of| of.mask() != 0 || !std::mem::replace(&mut is_always_known, true));
    found.truncate(REACHING_MAX);
    found
}

/// Returns the shortest bursts of at least [`TIMES_REQUEST`] times the longest request, with the
/// shortest period within the goal's share of time, but at most 2³⁰ times as long. `None` if they
/// would exceed the limits on lengths and periods, or record no whole request.
fn most(arrivals: &Arrivals, goal: &BurstGoal) -> Option<PlannedBursts> {
    let burst_bits = bits_of(goal.longest_ns);
    let times = 1.0 / goal.duty_max.max(1e-9) * (1.0 - 1e-9);
    let period_bits = burst_bits + times.log2().ceil().max(0.0) as u32;
    let is_possible = burst_bits <= BURST_BITS_MAX && period_bits <= PERIOD_BITS_MAX;
    let planned = || planned(arrivals, goal.longest_ns, 1 << burst_bits, 1 << period_bits);
    let found = is_possible.then(planned);
    found.filter(|of| of.whole_per_hour > 0.0)
}

/// Returns the greatest tried length of requests of interest for which bursts meet the goal's other
/// requirements, and these bursts. A greater length includes more requests, but the bursts must
/// also be longer. `None` if no tried length helps.
fn shorter(arrivals: &Arrivals, goal: &BurstGoal) -> Option<(f64, PlannedBursts)> {
    let lengths = arrivals.by_length.iter().map(|(length_ns, _)| *length_ns);
    let longest = lengths.fold(0.0, f64::max);
    // Start at the longest request, or at the goal's length if longer, and halve up to 23 times.
    let mut wanted_ns = longest.max(goal.longest_ns);
    for _ in 0..24 {
        let other = BurstGoal {
            longest_ns: wanted_ns,
            ..*goal
        };
        if let Some(found) = reaching(arrivals, &other).first() {
            return Some((wanted_ns, *found));
        }
        wanted_ns /= 2.0;
    }
    None
}

#[cfg(test)]
mod tests;
