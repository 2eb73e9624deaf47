//! Verdict on whether compared requests became worse, and the exit status that pipelines ask for.

use clap::{Args, ValueEnum};
use schemars::JsonSchema;
use serde::Serialize;

use crate::Status;
use crate::arguments::parse_share;
use crate::output::say;
use crate::verb::Report;
use crate::verdict_files::{JudgingReport, VerdictFiles};
use stroboscope_query::Notes;
use stroboscope_render::checks::{Check, CheckOutcome};
use stroboscope_render::humanise::{counted, percent};
use stroboscope_render::show::Doc;

/// Arguments for a verdict, and for the exit status that it results in.
#[derive(Clone, Debug, Args)]
pub struct GateArguments {
    /// Verdict to fail on. The exit status then depends on the verdict alone, and the last line of
    /// the text states the verdict
    #[arg(long, value_name = "VERDICT", value_enum)]
    fail_on: Option<FailOn>,
    /// Minimum rise of a latency to count as worse, such as 5% or 0.05, if it is also more than
    /// chance
    #[arg(long, value_name = "SHARE", default_value = "5%", value_parser = parse_share)]
    worse_by: f64,
    #[command(flatten)]
    pub files: VerdictFiles,
}

/// Verdict that a pipeline fails on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum FailOn {
    /// Exit with status 1 if a latency or the share of failed requests rose; print a warning if the
    /// data cannot tell
    Worse,
    /// Also exit with status 2 if the data cannot tell
    Unknown,
}

/// Kind of a verdict.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum RegressionVerdict {
    /// Nothing rose enough, and the data would show it.
    NoRegression,
    /// A latency rose enough, or the share of failed requests rose, by more than chance.
    Worse,
    /// The data cannot tell.
    Unknown,
}

/// Verdict on whether the later period, or the test of an experiment, is worse.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, JsonSchema)]
pub struct Regression {
    verdict: RegressionVerdict,
    /// Findings that the verdict rests on: for `worse`, the rises of latency that are large enough,
    /// the largest first, then those of failed requests; for `unknown`, all problems of the data;
    /// for `no_regression`, rises that are too small.
    reasons: Vec<String>,
}

/// Rise of a latency by more than chance.
#[derive(Clone, Debug, PartialEq)]
pub struct Rise {
    /// Metric of the latency, such as `p50`.
    pub metric: String,
    /// Requests that became slower, such as those of a root operation.
    pub of: String,
    /// Relative rise, above 0.
    pub by: f64,
    pub q_value: f64,
}

/// Name of all requests together in findings, rises and checks.
pub(crate) const ALL_REQUESTS: &str = "all requests";

/// Finding about some requests, or about all.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Finding {
    /// Requests that the finding is about, such as those of a root operation.
    pub of: String,
    pub text: String,
}

/// Figures of a report that decide its verdict.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct RegressionEvidence {
    /// Names of requests that the report judges, such as root operations.
    pub judged: Vec<String>,
    /// Rises of latencies, of any size.
    pub rises: Vec<Rise>,
    /// Descriptions of shares of failed requests that rose by more than chance.
    pub failures: Vec<Finding>,
    /// Reasons why the data cannot exclude a regression.
    pub doubts: Vec<Finding>,
}

/// A report that compares requests of two sides.
pub trait ComparingReport: Report {
    /// Returns the evidence for a verdict. Rises below `worse_by`, a share, are no regressions.
    fn evidence(&self, worse_by: f64) -> RegressionEvidence;
}

impl Rise {
    fn text(&self, worse_by: f64) -> String {
        format!(
            "{} latency of {} rose by {} (q = {:.1e}), and the limit is {}",
            self.metric,
            self.of,
            percent(self.by),
            self.q_value,
            percent(worse_by)
        )
    }
}

impl Finding {
    /// Creates a finding about all requests.
    pub fn of_all(text: impl Into<String>) -> Self {
        Self {
            of: ALL_REQUESTS.to_owned(),
            text: text.into(),
        }
    }
}

impl RegressionEvidence {
    /// Returns a check for each name that is judged, has a finding, or rose by `worse_by` or more;
    /// without such names, one check that passed.
    fn checks(&self, gate: &GateArguments) -> Vec<Check> {
        let unknown = match gate.fail_on {
            Some(FailOn::Unknown) => CheckOutcome::Error,
            Some(FailOn::Worse) | None => CheckOutcome::Skipped,
        };
        let mut checks: Vec<Check> = self.judged.iter().map(Check::passed).collect();
        let mut add = |of: &String, outcome: CheckOutcome, text: String| {
            let place = checks.iter().position(|check| check.name == *of);
            let place = place.unwrap_or_else(|| {
                checks.push(Check::passed(of));
                checks.len() - 1
            });
            let check = &mut checks[place];
            if outcome < check.outcome {
                check.outcome = outcome;
                check.reasons.clear();
            }
            if outcome == check.outcome {
                check.reasons.push(text);
            }
        };
        for rise in self.rises.iter().filter(|rise| rise.by >= gate.worse_by) {
            add(&rise.of, CheckOutcome::Failed, rise.text(gate.worse_by));
        }
        for failure in &self.failures {
            add(&failure.of, CheckOutcome::Failed, failure.text.clone());
        }
        for doubt in &self.doubts {
            add(&doubt.of, unknown, doubt.text.clone());
        }
        if checks.is_empty() {
            checks.push(Check::passed(ALL_REQUESTS));
        }
        checks
    }
}

impl Regression {
    /// Decides the verdict. Large rises and failures suffice for `Worse`, even with doubts.
    pub fn of(evidence: RegressionEvidence, worse_by: f64) -> Self {
        let mut rises = evidence.rises;
        rises.sort_by(|a, b| b.by.total_cmp(&a.by));
        let (large, small): (Vec<Rise>, Vec<Rise>) =
            rises.into_iter().partition(|rise| rise.by >= worse_by);
        let texts = |rises: &[Rise]| -> Vec<String> {
            rises.iter().map(|rise| rise.text(worse_by)).collect()
        };
        let of_findings = |findings: Vec<Finding>| -> Vec<String> {
            findings.into_iter().map(|finding| finding.text).collect()
        };
        let worse = [texts(&large), of_findings(evidence.failures)].concat();
        let (verdict, reasons) = if !worse.is_empty() {
            (RegressionVerdict::Worse, worse)
        } else if !evidence.doubts.is_empty() {
            (RegressionVerdict::Unknown, of_findings(evidence.doubts))
        } else {
            (RegressionVerdict::NoRegression, texts(&small))
        };
        Self { verdict, reasons }
    }

    fn sentence(&self) -> String {
        let verdict = match self.verdict {
            RegressionVerdict::NoRegression => "No regression",
            RegressionVerdict::Worse => "Worse",
            RegressionVerdict::Unknown => "Unknown",
        };
        match self.reasons.as_slice() {
            [] => format!("{verdict}: no latency rose by more than chance."),
            [first] => format!("{verdict}: {first}."),
            [first, more @ ..] => format!("{verdict}: {first}; and {} more.", more.len()),
        }
    }

    /// Returns the outcome for `fail_on`. Prints a warning if the data cannot tell and `fail_on`
    /// does not count that as a failure.
    fn status(&self, fail_on: FailOn) -> Status {
        match (self.verdict, fail_on) {
            (RegressionVerdict::NoRegression, _) => Status::Done,
            (RegressionVerdict::Worse, _) => Status::Regression,
            (RegressionVerdict::Unknown, FailOn::Unknown) => Status::Undecided,
            (RegressionVerdict::Unknown, FailOn::Worse) => {
                say!("warning: {}", self.sentence());
                Status::Done
            }
        }
    }
}

/// Returns the reasons to doubt any verdict on this data.
pub(crate) fn doubts(notes: &Notes) -> Vec<String> {
    let mut doubts = Vec::new();
    let damaged = notes.damage.len() as u64;
    if damaged > 0 {
        doubts.push(format!(
            "{} could not be read whole",
            counted(damaged, "file")
        ));
    }
    if notes.left_out.large_traces > 0 {
        doubts.push(format!(
            "{} did not fit into memory",
            counted(notes.left_out.large_traces, "trace")
        ));
    }
    doubts
}

/// Returns the reason to doubt a verdict that depends on the clocks of several hosts.
pub(crate) fn clock_doubt(notes: &Notes) -> Option<String> {
    let hosts = &notes.unsynchronised;
    (!hosts.is_empty()).then(|| format!("nothing synchronises the clocks of {}", hosts.join(", ")))
}

/// A report with the verdict on it.
#[derive(Debug, Serialize, JsonSchema)]
pub struct GatedReport<R> {
    #[serde(flatten)]
    report: R,
    regression: Regression,
    #[serde(skip)]
    checks: Vec<Check>,
    #[serde(skip)]
    fail_on: Option<FailOn>,
}

impl<R: ComparingReport> GatedReport<R> {
    /// Adds the verdict to a report.
    pub fn of(report: R, gate: &GateArguments) -> Self {
        let mut evidence = report.evidence(gate.worse_by);
        let notes = report.notes();
        let doubts = doubts(notes).into_iter().chain(clock_doubt(notes));
        evidence.doubts.extend(doubts.map(Finding::of_all));
        Self {
            report,
            checks: evidence.checks(gate),
            regression: Regression::of(evidence, gate.worse_by),
            fail_on: gate.fail_on,
        }
    }
}

impl<R: ComparingReport> Report for GatedReport<R> {
    fn notes(&self) -> &Notes {
        self.report.notes()
    }

    fn show(&self, doc: &mut Doc) {
        self.report.show(doc);
        if self.fail_on.is_some() {
            doc.sentence(self.regression.sentence());
        }
    }

    fn status(&self, read: Status) -> Status {
        self.fail_on
            .map_or(read, |fail_on| self.regression.status(fail_on))
    }
}

impl<R: ComparingReport> JudgingReport for GatedReport<R> {
    fn verdict(&self) -> (String, Vec<Check>) {
        (self.regression.sentence(), self.checks.clone())
    }
}

#[cfg(test)]
mod tests {
    use stroboscope_store::tables::Damage;

    use super::*;

    fn rise(of: &str, by: f64) -> Rise {
        Rise {
            metric: "p50".to_owned(),
            of: of.to_owned(),
            by,
            q_value: 0.003,
        }
    }

    #[test]
    fn a_verdict_follows_from_the_evidence() {
        let check = |evidence: RegressionEvidence, statuses: [Status; 2], sentence: &str| {
            let found = Regression::of(evidence, 0.05);
            assert_eq!(found.sentence(), sentence);
            let now = [FailOn::Worse, FailOn::Unknown].map(|fail_on| found.status(fail_on));
            assert_eq!(now, statuses, "{sentence}");
        };
        let nothing = RegressionEvidence::default;
        let texts = |texts: &[&str]| -> Vec<Finding> {
            texts.iter().map(|text| Finding::of_all(*text)).collect()
        };
        check(
            nothing(),
            [Status::Done; 2],
            "No regression: no latency rose by more than chance.",
        );
        check(
            RegressionEvidence {
                rises: vec![rise("web:/feed", 0.12)],
                ..nothing()
            },
            [Status::Regression; 2],
            "Worse: p50 latency of web:/feed rose by 12.0% (q = 3.0e-3), and the limit is 5.0%.",
        );
        // The largest rise comes first, and rises below the limit do not count.
        check(
            RegressionEvidence {
                rises: vec![rise("a:a", 0.04), rise("a:b", 0.05), rise("a:c", 0.5)],
                ..nothing()
            },
            [Status::Regression; 2],
            "Worse: p50 latency of a:c rose by 50.0% (q = 3.0e-3), and the limit is 5.0%; and 1 more.",
        );
        check(
            RegressionEvidence {
                rises: vec![rise("web:/feed", 0.04)],
                ..nothing()
            },
            [Status::Done; 2],
            "No regression: p50 latency of web:/feed rose by 4.0% (q = 3.0e-3), and the limit is 5.0%.",
        );
        check(
            RegressionEvidence {
                failures: texts(&["many fail"]),
                doubts: texts(&["a file is damaged"]),
                ..nothing()
            },
            [Status::Regression; 2],
            "Worse: many fail.",
        );
        check(
            RegressionEvidence {
                rises: vec![rise("web:/feed", 0.04)],
                doubts: texts(&["a file is damaged", "few requests"]),
                ..nothing()
            },
            [Status::Done, Status::Undecided],
            "Unknown: a file is damaged; and 1 more.",
        );
    }

    #[test]
    fn each_root_operation_is_a_check() {
        let about = |of: &str, text: &str| Finding {
            of: of.to_owned(),
            text: text.to_owned(),
        };
        let evidence = RegressionEvidence {
            judged: ["a:good", "a:slow", "a:doubted"]
                .map(str::to_owned)
                .to_vec(),
            rises: vec![rise("a:slow", 0.5), rise("a:good", 0.04)],
            failures: vec![about("a:failing", "many fail")],
            doubts: vec![
                about("a:slow", "few"),
                about("a:doubted", "few"),
                about("a:doubted", "unequal"),
                Finding::of_all("damaged"),
            ],
        };
        let checks = |evidence: &RegressionEvidence, fail_on| -> Vec<String> {
            let gate = GateArguments {
                fail_on,
                worse_by: 0.05,
                files: VerdictFiles::default(),
            };
            let checks = evidence.checks(&gate).into_iter();
            let text = |check: Check| {
                format!(
                    "{} {:?} {}",
                    check.name,
                    check.outcome,
                    check.reasons.join(", ")
                )
            };
            checks.map(text).collect()
        };
        for (fail_on, unknown) in [
            (None, "Skipped"),
            (Some(FailOn::Worse), "Skipped"),
            (Some(FailOn::Unknown), "Error"),
        ] {
            let found = checks(&evidence, fail_on);
            assert_eq!(found[0], "a:good Passed ");
            assert!(
                found[1].starts_with("a:slow Failed p50 latency of a:slow rose by 50.0%"),
                "{found:?}"
            );
            assert_eq!(found[2], format!("a:doubted {unknown} few, unequal"));
            assert_eq!(found[3], "a:failing Failed many fail");
            assert_eq!(found[4], format!("all requests {unknown} damaged"));
            assert_eq!(found.len(), 5);
        }
        let nothing = RegressionEvidence::default();
        assert_eq!(checks(&nothing, None), ["all requests Passed "]);
    }

    #[test]
    fn data_that_was_not_read_is_a_doubt() {
        assert_eq!(doubts(&Notes::default()), Vec::<String>::new());
        let damage = Damage {
            file: "spans/1.parquet".to_owned(),
            reason: "cut".to_owned(),
            rows_read: 7,
        };
        let notes = Notes {
            unsynchronised: vec!["a".into(), "b".into()],
            ..Notes::of_unread(vec![damage], 2)
        };
        assert_eq!(
            doubts(&notes),
            [
                "1 file could not be read whole",
                "2 traces did not fit into memory",
            ]
        );
        let clocks = "nothing synchronises the clocks of a, b";
        assert_eq!(clock_doubt(&notes).as_deref(), Some(clocks));
        assert_eq!(clock_doubt(&Notes::default()), None);
    }
}
