//! Which bursts to record by, for what is wanted of them (004 §3.3.1): how many whole requests they bring, how many are cut,
//! and what share of the time they take.
//!
//! A burst lasts 2ⁿ ms and comes every 2ⁿ⁺ᵐ ms. A request that begins at any moment and lasts d is whole in a burst of length
//! B, of period P, with probability (B − d)/P; it meets one with (B + d)/P.

/// Requests by how long they take, as they come: of each length, so many begin in an hour.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Arrivals {
    /// Ascending by length.
    by_length: Vec<(f64, f64)>,
}

impl Arrivals {
    /// Of lengths in ns, and how many of each begin in an hour.
    pub fn new(mut by_length: Vec<(f64, f64)>) -> Arrivals {
        by_length.retain(|(length_ns, per_hour)| *length_ns >= 0.0 && *per_hour > 0.0);
        by_length.sort_unstable_by(|a, b| a.0.total_cmp(&b.0));
        Arrivals { by_length }
    }

    /// So many begin in an hour.
    pub fn per_hour(&self) -> f64 {
        self.by_length.iter().map(|(_, per_hour)| per_hour).sum()
    }

    /// This part of them is no longer than that, ns; none of none.
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

/// What is wanted of bursts.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct BurstGoal {
    /// Requests up to this length are of interest.
    pub longest_ns: f64,
    /// At most this share of the time is recorded.
    pub duty_max: f64,
    /// So many whole ones are to be recorded in an hour.
    pub whole_per_hour: f64,
}

/// Bursts, and what they bring.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct PlannedBursts {
    /// 2ⁿ ms.
    pub burst_ms: u64,
    /// 2ⁿ⁺ᵐ ms; as long as the burst, if everything is recorded.
    pub period_ms: u64,
    /// Whole requests of interest in an hour, if records begin and end with the burst.
    pub whole_per_hour: f64,
    /// The same, if who enters during a burst is followed to its end.
    pub followed_per_hour: f64,
    /// Of requests of interest that meet a burst, the part that is cut.
    pub cut_share: f64,
}

impl PlannedBursts {
    /// The share of time that is recorded.
    pub fn duty(&self) -> f64 {
        self.burst_ms as f64 / self.period_ms as f64
    }

    /// The mask: recording is on at a time in ms if all of these bits are set in it.
    pub fn mask(&self) -> u64 {
        self.period_ms - self.burst_ms
    }
}

/// What is to be done.
#[derive(Clone, Debug, PartialEq)]
pub struct BurstPlans {
    /// Bursts that reach the goal, the best one first; empty, if none does.
    pub reaching: Vec<PlannedBursts>,
    /// Where none does: what each of the goals would have to be, if the others stay.
    pub giving_way: Option<GivingWay>,
}

/// What a goal would have to be so that the others can stay; none, if that does not help.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct GivingWay {
    /// So many whole requests can be had in an hour.
    pub whole_per_hour: Option<PlannedBursts>,
    /// So much of the time must be recorded.
    pub duty: Option<PlannedBursts>,
    /// With requests up to this length.
    pub longest: Option<(f64, PlannedBursts)>,
}

/// Both the burst and the period are to be so many times as long as a request: the period, so that bursts are far from each
/// other as requests see it; the burst, so that few are cut.
pub const TIMES_REQUEST: f64 = 10.0;
/// Bursts of more than 4.6 hours, or periods of more than 34 years, are not planned.
const BURST_BITS_MAX: u32 = 24;
const PERIOD_BITS_MAX: u32 = 40;
/// Of bursts that reach the goal, so many are shown.
const REACHING_MAX: usize = 6;

/// What such bursts bring of requests up to this length.
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

/// Bursts that reach a goal, or what would have to give way.
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

/// The shortest burst that is long enough, and the paper's least period, in bits.
fn bits_of(longest_ns: f64) -> u32 {
    let wanted_ms = (longest_ns * TIMES_REQUEST / 1e6).max(1.0);
    wanted_ms.log2().ceil() as u32
}

/// Of each length of burst the rarest ones that reach the goal. The first is as short as one may be of which few requests are
/// cut; then longer ones, then those that cut more.
fn reaching(arrivals: &Arrivals, goal: &BurstGoal) -> Vec<PlannedBursts> {
    let own = bits_of(goal.longest_ns);
    let shortest = ((goal.longest_ns / 1e6).max(1.0).log2().floor() as u32).min(own);
    let lengths = (own..own + 3).chain((shortest..own).rev());
    let rarest = |burst_bits: u32| {
        let most_rare = PERIOD_BITS_MAX.min(burst_bits + 30);
        // The period is long enough; and everything is one burst, whatever its length is.
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
    // Everything is everything, by whatever burst it is.
    let mut is_always_known = false;
    found.retain(|of| of.mask() != 0 || !std::mem::replace(&mut is_always_known, true));
    found.truncate(REACHING_MAX);
    found
}

/// As many whole requests as can be had in this share of the time.
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

/// The longest requests that may be asked for with the rest of the goal: with more of them there are more, but they are to fit.
fn shorter(arrivals: &Arrivals, goal: &BurstGoal) -> Option<(f64, PlannedBursts)> {
    let lengths = arrivals.by_length.iter().map(|(length_ns, _)| *length_ns);
    let longest = lengths.fold(0.0, f64::max);
    // Halved until it is reached, from above what there is.
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
