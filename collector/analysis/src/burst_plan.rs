//! Plans bursts for a recording goal (Ardelean et al., NSDI 2018, §3.3.1): the whole requests they
//! record, the share of requests they cut, and the share of time they take.
//!
//! A burst lasts 2ⁿ ms and recurs every 2ⁿ⁺ᵐ ms. A request that begins at any moment and lasts d is
//! whole in a burst of length B, of period P, with probability (B − d)/P; it meets one with (B +
//! d)/P.

/// Rate of requests by their length.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Arrivals {
    /// Lengths in ns with the number of requests that begin in an hour, ascending by length.
    by_length: Vec<(f64, f64)>,
}

impl Arrivals {
    /// Creates arrivals from lengths in ns, and the number of requests of each that begin in an
    /// hour. Drops negative lengths and rates that are not positive.
    pub fn new(mut by_length: Vec<(f64, f64)>) -> Arrivals {
        by_length.retain(|(length_ns, per_hour)| *length_ns >= 0.0 && *per_hour > 0.0);
        by_length.sort_unstable_by(|a, b| a.0.total_cmp(&b.0));
        Arrivals { by_length }
    }

    /// Returns the number of requests that begin in an hour.
    pub fn per_hour(&self) -> f64 {
        self.by_length.iter().map(|(_, per_hour)| per_hour).sum()
    }

    /// Returns the length in ns that this part (0 to 1) of the requests does not exceed; `None`
    /// without requests.
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
        self.by_length
            .iter()
            .take_while(move |(length_ns, _)| *length_ns <= longest_ns)
    }
}

/// Requirements that bursts are planned for.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct BurstGoal {
    /// Length of the longest requests of interest, in ns.
    pub longest_ns: f64,
    /// Maximum share of the time to record, 0 to 1.
    pub duty_max: f64,
    /// Minimum number of whole requests to record in an hour.
    pub whole_per_hour: f64,
}

/// A burst configuration and its expected yield.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct PlannedBursts {
    /// Length of a burst: 2ⁿ ms.
    pub burst_ms: u64,
    /// Period of the bursts: 2ⁿ⁺ᵐ ms. Equal to the burst's length if everything is recorded.
    pub period_ms: u64,
    /// Whole requests of interest in an hour, if recording begins and ends with the burst.
    pub whole_per_hour: f64,
    /// Whole requests of interest in an hour, if requests that begin during a burst are followed to
    /// their end.
    pub followed_per_hour: f64,
    /// Fraction of the requests of interest meeting a burst that are cut.
    pub cut_share: f64,
}

impl PlannedBursts {
    /// Returns the share of time that is recorded.
    pub fn duty(&self) -> f64 {
        self.burst_ms as f64 / self.period_ms as f64
    }

    /// Returns the burst mask. Recording is on while all of these bits are set in the wall time in
    /// ms.
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

/// Value that each part of a goal must relax to while the others stay; `None` if relaxing it does
/// not help.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct GivingWay {
    /// Bursts with the most whole requests in an hour that the rest of the goal allows.
    pub whole_per_hour: Option<PlannedBursts>,
    /// Bursts with the share of time that must be recorded.
    pub duty: Option<PlannedBursts>,
    /// Length in ns to which the requests of interest must be limited, with its bursts.
    pub longest: Option<(f64, PlannedBursts)>,
}

/// Minimum ratio of both the burst and the period to the length of a request. The period is that
/// long so that requests see bursts as far apart; the burst is, so that few requests are cut.
pub const TIMES_REQUEST: f64 = 10.0;
/// Bursts longer than 4.6 hours, or periods longer than 34 years, are not planned.
const BURST_BITS_MAX: u32 = 24;
const PERIOD_BITS_MAX: u32 = 40;
/// Maximum number of plans returned.
const REACHING_MAX: usize = 6;

/// Computes the yield of a burst configuration for requests up to this length.
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
    let giving_way = reaching.is_empty().then(|| GivingWay {
        whole_per_hour: most(arrivals, goal),
        duty: self::reaching(
            arrivals,
            &BurstGoal {
                duty_max: 1.0,
                ..*goal
            },
        )
        .first()
        .copied(),
        longest: shorter(arrivals, goal),
    });
    BurstPlans {
        reaching,
        giving_way,
    }
}

/// Returns the length, in bits, of the shortest sufficient burst, which is also the paper's least
/// period.
fn bits_of(longest_ns: f64) -> u32 {
    let wanted_ms = (longest_ns * TIMES_REQUEST / 1e6).max(1.0);
    wanted_ms.log2().ceil() as u32
}

/// Returns the rarest bursts that reach the goal, for each burst length. The first plan is the
/// shortest that cuts few requests; then come longer bursts, then shorter ones that cut more.
fn reaching(arrivals: &Arrivals, goal: &BurstGoal) -> Vec<PlannedBursts> {
    let own = bits_of(goal.longest_ns);
    let shortest = ((goal.longest_ns / 1e6).max(1.0).log2().floor() as u32).min(own);
    let lengths = (own..own + 3).chain((shortest..own).rev());
    let rarest = |burst_bits: u32| {
        let most_rare = PERIOD_BITS_MAX.min(burst_bits + 30);
        // A period must be long enough, except when the burst fills it: then everything is
        // recorded, whatever the burst's length.
        let periods = (burst_bits..=most_rare).filter(|bits| *bits >= own || *bits == burst_bits);
        let all = periods
            .rev()
            .map(|bits| planned(arrivals, goal.longest_ns, 1 << burst_bits, 1 << bits));
        let mut good = all.filter(|of| {
            of.whole_per_hour >= goal.whole_per_hour && of.duty() <= goal.duty_max * (1.0 + 1e-9)
        });
        good.next()
    };
    let mut found: Vec<PlannedBursts> = lengths
        .filter(|bits| *bits <= BURST_BITS_MAX)
        .filter_map(rarest)
        .collect();
    // All plans that record everything are equivalent, so keep only the first.
    let mut is_always_known = false;
    found.retain(|of| of.mask() != 0 || !std::mem::replace(&mut is_always_known, true));
    found.truncate(REACHING_MAX);
    found
}

/// Returns the bursts that record the most whole requests within this share of the time.
fn most(arrivals: &Arrivals, goal: &BurstGoal) -> Option<PlannedBursts> {
    let burst_bits = bits_of(goal.longest_ns);
    let ones = (1.0 / goal.duty_max.max(1e-9) * (1.0 - 1e-9))
        .log2()
        .ceil()
        .max(0.0) as u32;
    let is_possible = burst_bits <= BURST_BITS_MAX && burst_bits + ones <= PERIOD_BITS_MAX;
    let found = is_possible.then(|| {
        planned(
            arrivals,
            goal.longest_ns,
            1 << burst_bits,
            1 << (burst_bits + ones),
        )
    });
    found.filter(|of| of.whole_per_hour > 0.0)
}

/// Returns the greatest length of requests that reaches the rest of the goal. A greater length
/// includes more requests, but longer requests must also fit the bursts.
fn shorter(arrivals: &Arrivals, goal: &BurstGoal) -> Option<(f64, PlannedBursts)> {
    let lengths = arrivals.by_length.iter().map(|(length_ns, _)| *length_ns);
    let longest = lengths.fold(0.0, f64::max);
    // Start above the longest request and halve until the goal is reached.
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
