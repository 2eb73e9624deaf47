//! Verdict on whether a formula holds for all searched requests or bursts, or for none of them.

use clap::ValueEnum;
use schemars::JsonSchema;
use serde::Serialize;
use stroboscope_query::{SearchMatch, SearchReport};
use stroboscope_render::checks::{Check, CheckOutcome};
use stroboscope_render::humanise::{are, counted, instant};

use crate::Status;
use crate::regression::{clock_doubt, doubts};

/// Requests or bursts for which a pipeline asserts that a formula holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Quantifier {
    /// The formula holds for every request or burst
    All,
    /// The formula holds for no request or burst
    None,
}

/// Kind of a verdict on an assertion.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum AssertionVerdict {
    /// There is no counterexample, and the data would show it.
    Holds,
    /// There is a counterexample.
    Violated,
    /// The data cannot tell.
    Unknown,
}

/// Verdict on an assertion.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, JsonSchema)]
pub struct Assertion {
    verdict: AssertionVerdict,
    /// Findings that the verdict rests on: for `violated`, the number of counterexamples and the
    /// first one; for `unknown`, all reasons why the data cannot tell; empty for `holds`.
    reasons: Vec<String>,
    #[serde(skip)]
    claim: String,
    #[serde(skip)]
    quantifier: String,
}

impl Assertion {
    /// Judges the search for counterexamples. `one` is the noun for them: `request` or `burst`.
    /// `needs_clocks` is true if the results depend on the clocks of several hosts.
    pub fn of(found: &SearchReport, quantifier: Quantifier, one: &str, needs_clocks: bool) -> Self {
        let of_all = counted(found.searched, one);
        let (quantifier, does) = match quantifier {
            Quantifier::All => ("all", "does not hold"),
            Quantifier::None => ("none", "holds"),
        };
        let first = |is_sure| {
            let first = found.matches.iter().find(|one| one.is_sure == is_sure);
            first.map_or_else(String::new, |first| format!(", first for {}", named(first)))
        };
        let violation = format!(
            "the formula {does} for {} of {of_all}{}",
            found.matched,
            first(true)
        );
        let mut unknown = doubts_of(found, one, &first(false));
        unknown.extend(clock_doubt(&found.notes).filter(|_| needs_clocks));
        let (verdict, reasons) = if found.matched > 0 {
            (AssertionVerdict::Violated, vec![violation])
        } else if unknown.is_empty() {
            (AssertionVerdict::Holds, Vec::new())
        } else {
            (AssertionVerdict::Unknown, unknown)
        };
        Self {
            verdict,
            reasons,
            claim: format!("for {quantifier} of {of_all}"),
            quantifier: format!("{quantifier} of the {one}s"),
        }
    }

    pub fn sentence(&self) -> String {
        let verdict = match self.verdict {
            AssertionVerdict::Holds => return format!("Holds {}.", self.claim),
            AssertionVerdict::Violated => "Violated",
            AssertionVerdict::Unknown => "Unknown",
        };
        format!("{verdict}: {}.", self.reasons.join("; "))
    }

    /// Returns the check of the formula.
    pub fn check(&self, formula: &str) -> Check {
        Check {
            name: format!("{}: {formula}", self.quantifier),
            outcome: match self.verdict {
                AssertionVerdict::Holds => CheckOutcome::Passed,
                AssertionVerdict::Violated => CheckOutcome::Failed,
                AssertionVerdict::Unknown => CheckOutcome::Error,
            },
            reasons: self.reasons.clone(),
        }
    }

    pub const fn status(&self) -> Status {
        match self.verdict {
            AssertionVerdict::Holds => Status::Done,
            AssertionVerdict::Violated => Status::Regression,
            AssertionVerdict::Unknown => Status::Undecided,
        }
    }
}

/// Names a request, or a burst with a request in it if there is one.
fn named(found: &SearchMatch) -> String {
    let (at, what) = (instant(found.start_ns), &found.what);
    match (found.trace, found.example) {
        (Some(trace), _) => format!("{trace:032x} {what}"),
        (None, Some(example)) => format!("the burst at {at} with {what}, {example:032x}"),
        (None, None) => format!("the burst at {at} with {what}"),
    }
}

/// Returns the reasons why a search without a counterexample does not exclude one. `first` is text
/// that names the first request or burst with an unknown result.
fn doubts_of(found: &SearchReport, one: &str, first: &str) -> Vec<String> {
    let mut reasons = Vec::new();
    // Bursts without a request satisfy no formula, and are no counterexamples.
    if found.searched == 0 || found.notes.traces == 0 {
        reasons.push("no request was searched".to_owned());
    }
    if found.unknown > 0 {
        reasons.push(format!(
            "the result is unknown for {}{first}",
            counted(found.unknown, one)
        ));
    }
    if !found.large.is_empty() {
        let large = found.large.len() as u64;
        reasons.push(format!("{} did not fit into memory", counted(large, one)));
    }
    let notes = &found.notes;
    reasons.extend(doubts(notes));
    if notes.unflushed_bytes > 0 {
        reasons.push(format!(
            "{} of the running collector {} not in the store yet",
            counted(notes.unflushed_bytes, "byte"),
            are(notes.unflushed_bytes)
        ));
    }
    let left = notes.left_out;
    for (count, what) in [
        (left.over_trace_limit, "exceeded the limit of a trace"),
        (left.span_missing, "belong to spans that are missing"),
        (left.unreadable_attributes, "have unreadable attributes"),
    ] {
        if count > 0 {
            reasons.push(format!("{} {what}", counted(count, "record")));
        }
    }
    reasons
}

#[cfg(test)]
mod tests {
    use stroboscope_query::{LargeBurst, Notes};
    use stroboscope_store::tables::LeftOut;

    use super::*;

    fn notes(traces: u64) -> Notes {
        Notes {
            traces,
            ..Notes::default()
        }
    }

    fn found(searched: u64, matched: u64, unknown: u64) -> SearchReport {
        let one = |number: u64, is_sure: bool| SearchMatch {
            start_ns: 0,
            end_ns: 1,
            trace: Some(number.into()),
            example: Some(number.into()),
            what: "web:page".to_owned(),
            is_sure,
            witness: Vec::new(),
        };
        let sure = (0..matched).map(|number| one(0xa + number, true));
        let unsure = (0..unknown).map(|number| one(0x7 + number, false));
        SearchReport {
            searched,
            matched,
            unknown,
            matches: sure.chain(unsure).collect(),
            notes: notes(searched),
            ..SearchReport::default()
        }
    }

    #[track_caller]
    fn check(found: &SearchReport, quantifier: Quantifier, status: Status, sentence: &str) {
        let verdict = Assertion::of(found, quantifier, "request", true);
        assert_eq!(verdict.sentence(), sentence);
        assert_eq!(verdict.status(), status, "{sentence}");
    }

    #[test]
    fn a_counterexample_decides_and_doubts_exclude_success() {
        let (all, none) = (Quantifier::All, Quantifier::None);
        check(
            &found(3, 0, 0),
            all,
            Status::Done,
            "Holds for all of 3 requests.",
        );
        check(
            &found(3, 0, 0),
            none,
            Status::Done,
            "Holds for none of 3 requests.",
        );
        let violated = "Violated: the formula does not hold for 2 of 3 requests, first for \
                        0000000000000000000000000000000a web:page.";
        check(&found(3, 2, 1), all, Status::Regression, violated);
        let violated = "Violated: the formula holds for 1 of 1 request, first for \
                        0000000000000000000000000000000a web:page.";
        check(&found(1, 1, 0), none, Status::Regression, violated);
        let unknown = "Unknown: the result is unknown for 2 requests, first for \
                       00000000000000000000000000000007 web:page.";
        check(&found(3, 0, 2), all, Status::Undecided, unknown);
        let unknown = "Unknown: no request was searched.";
        check(&found(0, 0, 0), none, Status::Undecided, unknown);
    }

    #[test]
    fn a_burst_without_a_witness_is_named_with_a_request() {
        let mut burst = found(1, 1, 0).matches.remove(0);
        burst.trace = None;
        let text = "the burst at 1970-01-01 00:00:00.000000 with web:page, \
                    0000000000000000000000000000000a";
        assert_eq!(named(&burst), text);
    }

    #[test]
    fn data_that_was_not_searched_is_a_doubt() {
        let of = |notes: Notes| SearchReport {
            notes,
            ..found(3, 0, 0)
        };
        let left_out = |left_out: LeftOut| {
            of(Notes {
                left_out,
                ..notes(3)
            })
        };
        let large = LargeBurst {
            open_ns: 0,
            close_ns: 1,
            bytes: 1,
        };
        let all = [
            SearchReport {
                large: vec![large],
                ..found(3, 0, 0)
            },
            of(notes(0)),
            of(Notes {
                unflushed_bytes: 1,
                ..notes(3)
            }),
            of(Notes {
                unsynchronised: vec!["a".into()],
                ..notes(3)
            }),
            left_out(LeftOut {
                large_traces: 1,
                ..LeftOut::default()
            }),
            left_out(LeftOut {
                over_trace_limit: 1,
                ..LeftOut::default()
            }),
            left_out(LeftOut {
                span_missing: 1,
                ..LeftOut::default()
            }),
            left_out(LeftOut {
                unreadable_attributes: 1,
                ..LeftOut::default()
            }),
        ];
        for found in &all {
            let verdict = Assertion::of(found, Quantifier::All, "burst", true);
            assert_eq!(verdict.status(), Status::Undecided, "{found:?}");
            assert_eq!(verdict.reasons.len(), 1, "{verdict:?}");
        }
        let unsynchronised = of(Notes {
            unsynchronised: vec!["a".into()],
            ..notes(3)
        });
        let verdict = Assertion::of(&unsynchronised, Quantifier::All, "request", false);
        assert_eq!(verdict.status(), Status::Done);
    }
}
