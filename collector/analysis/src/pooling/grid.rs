//! Samples of several processes on one time axis with equal steps.

use super::ProcessUse;

/// Maximum lag, in steps, of a correlation between two processes.
pub const STEPS_SHIFTED_MAX: usize = 30;
/// Maximum number of steps that are evaluated. If the samples cover more steps, only 16 runs of
/// consecutive steps are evaluated, which are evenly spaced over the time.
const STEPS_MAX: i64 = 16_384;
const STRETCHES: i64 = 16;

/// Use of each process in each evaluated step; NaN if the step has no sample.
#[derive(Debug)]
pub(super) struct Grid {
    step_ns: i64,
    gaps: u64,
    /// Use by index of the process; empty for a process in no pool.
    values: Vec<Vec<f64>>,
}

impl Grid {
    pub(super) fn of(uses: &[ProcessUse], pools: &[Vec<usize>]) -> Grid {
        let mut is_used = vec![false; uses.len()];
        pools
            .iter()
            .flatten()
            .for_each(|process| is_used[*process] = true);
        let times: Vec<Vec<i64>> = uses.iter().map(times).collect();
        let step_ns = usual_step(&times);
        let gap = |two: &[i64]| (two[1].saturating_sub(two[0]) / step_ns).max(1) as u64 - 1;
        let gaps = times
            .iter()
            .map(|times| times.windows(2).map(gap).sum::<u64>());
        let gaps = gaps.sum();
        let first_ns = times
            .iter()
            .filter_map(|times| times.first())
            .min()
            .copied()
            .unwrap_or(0);
        let last_ns = times
            .iter()
            .filter_map(|times| times.last())
            .max()
            .copied()
            .unwrap_or(0);
        let axis = Axis {
            first_ns,
            step_ns,
            steps: (last_ns.saturating_sub(first_ns) / step_ns).saturating_add(1),
        };
        let of = |(one, is_used): (&ProcessUse, bool)| match is_used {
            true => axis.values(one),
            false => Vec::new(),
        };
        Grid {
            step_ns,
            gaps,
            values: uses.iter().zip(is_used).map(of).collect(),
        }
    }

    pub(super) fn step_ns(&self) -> i64 {
        self.step_ns
    }

    pub(super) fn gaps(&self) -> u64 {
        self.gaps
    }

    pub(super) fn values(&self, process: usize) -> &[f64] {
        &self.values[process]
    }

    /// Returns the total use of each pool in each step in which all its processes were measured.
    pub(super) fn sums(&self, pools: &[Vec<usize>]) -> Vec<f64> {
        let steps = self.values.iter().map(Vec::len).max().unwrap_or(0);
        let of = |pool: &Vec<usize>| {
            let pool = pool.clone();
            (0..steps).map(move |step| {
                let used = pool.iter().map(|process| self.values[*process][step]);
                used.sum::<f64>()
            })
        };
        let sums = pools.iter().flat_map(of);
        sums.filter(|sum| !sum.is_nan()).collect()
    }
}

fn times(one: &ProcessUse) -> Vec<i64> {
    let mut times: Vec<i64> = one.samples.iter().map(|(at_ns, _)| *at_ns).collect();
    times.sort_unstable();
    times.dedup();
    times
}

/// Returns the median interval between consecutive samples of a process, in nanoseconds; 1 if no
/// process has samples at two times.
fn usual_step(times: &[Vec<i64>]) -> i64 {
    let apart = |times: &Vec<i64>| -> Vec<i64> {
        times
            .windows(2)
            .map(|two| two[1].saturating_sub(two[0]))
            .collect()
    };
    let mut apart: Vec<i64> = times.iter().flat_map(apart).collect();
    let middle = apart.len() / 2;
    match apart.is_empty() {
        true => 1,
        false => (*apart.select_nth_unstable(middle).1).max(1),
    }
}

/// Time axis, and the choice of the steps that are evaluated.
struct Axis {
    first_ns: i64,
    step_ns: i64,
    steps: i64,
}

impl Axis {
    /// Returns the index of a step in the list of evaluated steps; `None` if the step is not
    /// evaluated. As many empty steps as the largest shift separate two runs of consecutive steps,
    /// so that no shift compares steps of different runs.
    fn place(&self, step: i64) -> Option<usize> {
        if self.steps <= STEPS_MAX {
            return usize::try_from(step).ok();
        }
        let length = STEPS_MAX / STRETCHES;
        let every = self.steps / STRETCHES;
        let (stretch, within) = (step / every, step % every);
        let place = stretch * (length + STEPS_SHIFTED_MAX as i64) + within;
        (stretch < STRETCHES && within < length).then_some(place as usize)
    }

    fn values(&self, one: &ProcessUse) -> Vec<f64> {
        let steps = match self.steps <= STEPS_MAX {
            true => self.steps,
            false => STEPS_MAX + STRETCHES * STEPS_SHIFTED_MAX as i64,
        };
        let mut values = vec![f64::NAN; steps as usize];
        for (at_ns, value) in &one.samples {
            let step = at_ns.saturating_sub(self.first_ns) / self.step_ns;
            if let Some(place) = self.place(step) {
                values[place] = *value;
            }
        }
        values
    }
}
