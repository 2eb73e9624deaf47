//! Estimates the variance of the difference of two means from clusters of requests.

use super::ClusteredRequest;
use crate::statistics::student_two_sided;

/// Number of requests, and sum of their values, on each side.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Count {
    control: f64,
    control_sum: f64,
    test: f64,
    test_sum: f64,
}

impl Count {
    pub(super) fn of_control(value: f64) -> Count {
        Count {
            control: 1.0,
            control_sum: value,
            ..Count::default()
        }
    }

    pub(super) fn of_test(value: f64) -> Count {
        Count {
            test: 1.0,
            test_sum: value,
            ..Count::default()
        }
    }

    fn add(&mut self, other: &Count) {
        self.control += other.control;
        self.control_sum += other.control_sum;
        self.test += other.test;
        self.test_sum += other.test_sum;
    }

    fn without(&self, other: &Count) -> Count {
        Count {
            control: self.control - other.control,
            control_sum: self.control_sum - other.control_sum,
            test: self.test - other.test,
            test_sum: self.test_sum - other.test_sum,
        }
    }

    /// Returns the mean of the test minus the mean of the control, or `None` if a side has no
    /// requests.
    fn difference(&self) -> Option<f64> {
        (self.control > 0.5 && self.test > 0.5)
            .then(|| self.test_sum / self.test - self.control_sum / self.control)
    }
}

/// Difference of the sides' means, and its precision.
#[derive(Clone, Copy, Debug)]
pub(super) struct Spread {
    difference: f64,
    variance: f64,
    /// Effective number of units: the number of equal units with the same variation.
    pub(super) units: f64,
    /// Effective number of bursts, defined likewise.
    pub(super) bursts: f64,
}

impl Spread {
    /// Returns the degrees of freedom: one less than the smaller of the two effective numbers of
    /// clusters, and at least 1.
    pub(super) fn freedom(&self) -> f64 {
        (self.units.min(self.bursts) - 1.0).max(1.0)
    }

    #[cfg(test)]
    pub(super) fn variance(&self) -> f64 {
        self.variance
    }

    pub(super) fn p_value(&self) -> f64 {
        if self.difference == 0.0 {
            return 1.0;
        }
        student_two_sided(self.difference / self.variance.sqrt(), self.freedom())
    }
}

/// Counts of requests by unit, by burst, and by unit and burst.
#[derive(Debug)]
pub(super) struct Clusters {
    all: Count,
    units: Vec<Count>,
    bursts: Vec<Count>,
    cells: Vec<Count>,
}

impl Clusters {
    pub(super) fn new(units: usize, bursts: usize, cells: usize) -> Clusters {
        Clusters {
            all: Count::default(),
            units: vec![Count::default(); units],
            bursts: vec![Count::default(); bursts],
            cells: vec![Count::default(); cells],
        }
    }

    pub(super) fn add(&mut self, request: &ClusteredRequest, count: Count) {
        self.all.add(&count);
        self.units[request.unit as usize].add(&count);
        self.bursts[request.burst as usize].add(&count);
        self.cells[request.cell as usize].add(&count);
    }

    pub(super) fn spread(&self) -> Spread {
        let Some(difference) = self.all.difference() else {
            return Spread {
                difference: 0.0,
                variance: f64::INFINITY,
                units: 0.0,
                bursts: 0.0,
            };
        };
        let (of_units, units) = jackknife(&self.all, difference, &self.units);
        let (of_bursts, bursts) = jackknife(&self.all, difference, &self.bursts);
        let (of_cells, _) = jackknife(&self.all, difference, &self.cells);
        // By chance, the sum may be less than one of its terms, or negative.
        let variance = (of_units + of_bursts - of_cells)
            .max(of_units)
            .max(of_bursts);
        Spread {
            difference,
            variance,
            units,
            bursts,
        }
    }
}

/// Returns the variance of a difference by leaving out one cluster at a time, and the effective
/// number of clusters. The latter is half of the degrees of freedom of a sum of squares
/// (Satterthwaite, 1946), estimated from the sample's kurtosis, and at most the number of clusters.
/// It is only half, because a sample with heavy tails shows less kurtosis than its distribution
/// has. With the full number, 5.2 % of 4,000 simulated experiments without effect had different
/// medians at the 5 % level.
fn jackknife(all: &Count, difference: f64, clusters: &[Count]) -> (f64, f64) {
    let (mut squares, mut fourths) = (0.0, 0.0);
    for cluster in clusters {
        let Some(without) = all.without(cluster).difference() else {
            // One cluster holds all requests of a side.
            return (f64::INFINITY, 1.0);
        };
        let square = (without - difference).powi(2);
        squares += square;
        fourths += square * square;
    }
    let count = clusters.len() as f64;
    let beyond = fourths - squares * squares / count;
    let effective = match beyond > 0.0 {
        true => (squares * squares / beyond).min(count),
        false => count,
    };
    ((count - 1.0) / count * squares, effective)
}
