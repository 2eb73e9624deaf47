//! Evidence of a comparison for a verdict on a regression.

use stroboscope_analysis::compare::Environment;
use stroboscope_render::humanise::counted;

use super::failures::FailureShiftRow;
use super::rows::TooFewRow;
use super::surroundings::MixRow;
use super::{ComparisonReport, REQUESTS_MIN, TOO_FEW_SHOWN};
use crate::regression::{ComparingReport, Finding, RegressionEvidence};

impl ComparingReport for ComparisonReport {
    fn evidence(&self, worse_by: f64) -> RegressionEvidence {
        let recorded = [&self.before, &self.after];
        let requests = recorded.map(|period| period.recorded.unwrap_or(period.requests));
        let doubts = doubts(requests, self.environment, worse_by);
        let mut doubts: Vec<Finding> = doubts.into_iter().map(Finding::of_all).collect();
        let too_few = self.too_few.iter().filter(|few| few.is_slower());
        doubts.extend(too_few.take(TOO_FEW_SHOWN).map(TooFewRow::doubt));
        let of_mix = self.mix.iter().filter_map(|row| {
            Some(Finding {
                of: row.root.clone(),
                text: row.doubt(worse_by)?,
            })
        });
        doubts.extend(of_mix);
        let judged = self.mix.iter().filter(|row| row.is_judged());
        RegressionEvidence {
            judged: judged.map(|row| row.root.clone()).collect(),
            rises: self.mix.iter().filter_map(MixRow::rise).collect(),
            failures: self
                .failures
                .iter()
                .filter_map(FailureShiftRow::rise)
                .collect(),
            doubts,
        }
    }
}

/// Returns the reasons why periods with these numbers of requests, and with this change of all
/// services, cannot exclude a regression.
fn doubts(requests: [u64; 2], environment: Option<Environment>, worse_by: f64) -> Vec<String> {
    let mut doubts = Vec::new();
    for (period, count) in ["earlier", "later"].iter().zip(requests) {
        if count < REQUESTS_MIN {
            doubts.push(format!(
                "the {period} period has {}, and {REQUESTS_MIN} are needed",
                counted(count, "request")
            ));
        }
    }
    // A change that all services share is no cause, whether machines or a release made it.
    if let Some(environment) = environment.filter(|environment| environment.within > 0) {
        let factor = environment.factor * environment.spread.exp();
        if factor >= 1.0 + worse_by {
            doubts.push(format!(
                "places of all services became slower by a factor of up to {factor:.2}, as machines and load make them"
            ));
        }
    }
    doubts
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn causes_of_a_root_operation_are_its_rise() {
        let check = |mean_before_ns: Option<f64>, caused_ns: f64, expected: Option<f64>| {
            let row = MixRow {
                root: "web:/feed".to_owned(),
                before: 0.5,
                after: 0.5,
                mean_before_ns,
                caused_ns,
                q_value: (caused_ns != 0.0).then_some(0.001),
                change_low_ns: None,
                change_high_ns: None,
                recorded: [0; 2],
            };
            assert_eq!(row.rise().map(|rise| rise.by), expected, "{row:?}");
        };
        check(Some(1e6), 25e4, Some(0.25));
        check(Some(1e6), -25e4, None);
        check(Some(1e6), 0.0, None);
        check(Some(0.0), 25e4, None);
        check(None, 25e4, None);
    }

    #[test]
    fn a_mean_that_may_have_risen_is_a_doubt() {
        let check = |recorded: [u64; 2], interval_ns: [f64; 2], expected: Option<&str>| {
            let row = MixRow {
                root: "web:/feed".to_owned(),
                before: 0.5,
                after: 0.5,
                mean_before_ns: Some(1e6),
                caused_ns: 0.0,
                q_value: None,
                change_low_ns: Some(interval_ns[0]),
                change_high_ns: Some(interval_ns[1]),
                recorded,
            };
            assert_eq!(row.doubt(0.05).as_deref(), expected, "{row:?}");
        };
        check([20, 20], [-1e5, 49e3], None);
        let text = "the mean latency of web:/feed changed by 10.0% to 120.0% (95% interval), and the limit is 5.0%";
        check([20, 20], [1e5, 12e5], Some(text));
        let few = "web:/feed has 3 requests in a period, and 20 are needed";
        check([20, 3], [1e5, 12e5], Some(few));
        check([19, 3], [1e5, 12e5], None);
        check([900, 0], [1e5, 12e5], None);
    }

    #[test]
    fn few_requests_and_a_change_of_everything_are_doubts() {
        let check = |requests: [u64; 2], factor: Option<f64>, expected: &[&str]| {
            let environment = factor.map(|factor| Environment {
                places: 9,
                factor,
                spread: 0.0,
                within: 2,
            });
            assert_eq!(doubts(requests, environment, 0.05), expected);
        };
        check([20, 20], None, &[]);
        check([20, 20], Some(1.04), &[]);
        check(
            [0, 19],
            None,
            &[
                "the earlier period has 0 requests, and 20 are needed",
                "the later period has 19 requests, and 20 are needed",
            ],
        );
        check(
            [20, 20],
            Some(1.25),
            &[
                "places of all services became slower by a factor of up to 1.25, as machines and load make them",
            ],
        );
    }
}
