//! Evidence of an experiment for a verdict on a regression.

use super::ExperimentSays;
use super::rows::{MetricRow, percent};
use crate::regression::{ComparingReport, Finding, RegressionEvidence};

impl ComparingReport for ExperimentSays {
    fn evidence(&self, worse_by: f64) -> RegressionEvidence {
        let is_unlike = |what: &str| {
            let mut balance = self.balance.iter();
            balance.any(|of| of.what == what && !of.is_balanced)
        };
        // Each of these may make the difference, instead of the change.
        let other_reasons = [
            (
                is_unlike("users"),
                "the sides have other shares of the units than were assigned",
            ),
            (
                is_unlike("load"),
                "units of one side send more requests than those of the other",
            ),
            (
                self.differed_before == Some(true),
                "the sides already differed while they were treated alike",
            ),
        ];
        let other_reasons = other_reasons.into_iter().filter(|(is_so, _)| *is_so);
        let mut doubts: Vec<String> = other_reasons.map(|(_, text)| text.to_owned()).collect();
        let is_due_to_change = doubts.is_empty();
        let is_mixed = is_unlike("mix");
        if is_mixed {
            doubts.push("the sides receive different kinds of requests".to_owned());
        }
        doubts.extend(self.too_few(worse_by));
        // Metrics of all requests depend on their kinds.
        let metrics = self.metrics.iter();
        let rises = metrics.filter(|row| is_due_to_change && (row.root.is_some() || !is_mixed));
        let rises = rises.filter_map(MetricRow::rise).collect();
        let with_result = self.metrics.iter().filter(|row| row.why_not.is_none());
        let mut judged: Vec<String> = with_result.map(MetricRow::part).collect();
        judged.sort_unstable();
        judged.dedup();
        RegressionEvidence {
            judged,
            rises,
            doubts: doubts.into_iter().map(Finding::of_all).collect(),
            ..RegressionEvidence::default()
        }
    }
}

impl ExperimentSays {
    /// Explains why the requests do not exclude that the median rose by `worse_by`; `None` if they
    /// do, or if both sides have requests but no row has the median.
    fn too_few(&self, worse_by: f64) -> Option<String> {
        for (name, side) in [("control", &self.control), ("test", &self.test)] {
            if side.requests == 0 {
                return Some(format!("the {name} has no requests"));
            }
        }
        let is_median = |row: &&MetricRow| row.root.is_none() && row.metric == "p50";
        let median = self.metrics.iter().find(is_median)?;
        if let Some(why_not) = &median.why_not {
            return Some(format!("no result on the median: {why_not}"));
        }
        let is_unsure = median.high.is_none_or(|high| high >= worse_by);
        is_unsure.then(|| {
            format!(
                "the difference of the median lies between {} and {}, which does not exclude {}",
                percent(median.low),
                percent(median.high),
                percent(Some(worse_by))
            )
        })
    }
}

#[cfg(test)]
mod tests {
    use stroboscope_query::Notes;

    use super::super::rows::{BalanceRow, SideOf};
    use super::*;
    use crate::regression::Rise;

    /// Creates a row whose interval is 2 % wide on either side.
    fn row(root: Option<&str>, metric: &str, difference: f64, differs: bool) -> MetricRow {
        MetricRow {
            root: root.map(str::to_owned),
            hour: None,
            metric: metric.to_owned(),
            control_ns: Some(1e6),
            test_ns: Some(1e6 * (1.0 + difference)),
            difference: Some(difference),
            low: Some(difference - 0.02),
            high: Some(difference + 0.02),
            p_value: Some(0.001),
            q_value: Some(0.001),
            differs,
            effective_clusters: None,
            times_for_1_percent: None,
            times_for_5_percent: None,
            times_for_20_percent: None,
            why_not: None,
        }
    }

    fn report(requests: [usize; 2], metrics: Vec<MetricRow>) -> ExperimentSays {
        let side = |requests: usize| SideOf {
            value: "a".to_owned(),
            requests,
            units: requests,
        };
        ExperimentSays {
            notes: Notes::default(),
            by: "build".to_owned(),
            unit: None,
            certainty: 0.95,
            control: side(requests[0]),
            test: side(requests[1]),
            blocks: 200,
            are_bursts: false,
            covered_ns: 1,
            hours_of_week: 1,
            is_balanced: true,
            balance: Vec::new(),
            differed_before: None,
            metrics,
            hours: Vec::new(),
            equal: Vec::new(),
            noise: Vec::new(),
            needed: Vec::new(),
            mix: Vec::new(),
            left_out: Vec::new(),
            of_no_side: 0,
            of_several: 0,
            without_unit: 0,
        }
    }

    /// Checks the rises, and that the only doubt contains `doubt`; an empty text stands for none.
    #[track_caller]
    fn check(report: &ExperimentSays, rises: &[f64], doubt: &str) {
        let found = report.evidence(0.05);
        let by: Vec<f64> = found.rises.iter().map(|rise| rise.by).collect();
        assert_eq!(by, rises, "{found:?}");
        match doubt {
            "" => assert!(found.doubts.is_empty(), "{found:?}"),
            part => assert!(
                found.doubts.len() == 1 && found.doubts[0].text.contains(part),
                "{found:?}"
            ),
        }
    }

    #[test]
    fn rises_are_significant_and_doubts_leave_room_for_them() {
        let of_median = |difference: f64, differs: bool| {
            report([500, 500], vec![row(None, "p50", difference, differs)])
        };
        check(&of_median(-0.2, true), &[], "");
        check(&of_median(0.0, false), &[], "");
        check(&of_median(0.025, true), &[0.025], "");
        check(
            &of_median(0.04, true),
            &[0.04],
            "which does not exclude 5.0 %",
        );
        check(&of_median(0.04, false), &[], "between 2.0 % and 6.0 %");
        let worse = of_median(0.12, true).evidence(0.05);
        let expected = Rise {
            metric: "p50".to_owned(),
            of: "all requests".to_owned(),
            by: 0.12,
            q_value: 0.001,
        };
        assert_eq!(worse.rises, [expected]);
        let few = MetricRow {
            why_not: Some("a side has 3 requests; 20 are needed".to_owned()),
            high: None,
            ..row(None, "p50", 0.0, false)
        };
        check(&report([500, 3], vec![few]), &[], "a side has 3 requests");
        let unknown = vec![row(None, "p50", 0.0, false)];
        check(&report([500, 0], unknown), &[], "the test has no requests");
    }

    #[test]
    fn unlike_sides_prove_nothing() {
        let unlike = |what: &'static str| ExperimentSays {
            balance: vec![BalanceRow {
                what,
                expected: None,
                found: None,
                p_value: 0.0,
                is_balanced: false,
            }],
            ..report(
                [500, 500],
                vec![
                    row(None, "mean", 0.2, true),
                    row(None, "p50", 0.0, false),
                    row(Some("web:/feed"), "p50", 0.3, true),
                ],
            )
        };
        check(&unlike("users"), &[], "other shares of the units");
        check(&unlike("load"), &[], "send more requests");
        // Each root operation can still be compared with itself.
        check(&unlike("mix"), &[0.3], "different kinds of requests");
        let before = ExperimentSays {
            differed_before: Some(true),
            ..report([500, 500], vec![row(None, "p50", 0.025, true)])
        };
        check(&before, &[], "already differed");
    }
}
