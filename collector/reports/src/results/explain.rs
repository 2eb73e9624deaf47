//! Parameters that distinguish requests, as `explain` and `compare` show them.

mod matching;

use schemars::JsonSchema;
use serde::Serialize;
use stroboscope_analysis::compare::{PartialChange, Period};
use stroboscope_analysis::explain::{
    ExplainSettings, ExplainedLeaf, LeftOut, ParameterCondition, Typical,
};

use crate::Failure;
use crate::arguments::ReadingArguments;
use crate::verb::Report;
use stroboscope_query::{AmongLater, Distinction, ExplainedChange, Notes, PeriodOf};
use stroboscope_render::humanise::{counted, duration, percent};
use stroboscope_render::rows;
use stroboscope_render::show::Doc;

use matching::RequestsLink;

/// Parameters that distinguish requests with a change from those without.
#[derive(Debug, Serialize, JsonSchema)]
pub struct ExplainedSays {
    #[serde(flatten)]
    notes: Notes,
    /// Description of the change.
    what: String,
    /// Requests distinguished by their parameters, those of the changed side first, then by recall;
    /// empty if no parameter distinguishes them. If only a part of the later requests takes another
    /// time, the leaves that distinguish that part from the other later requests come first.
    leaves: Vec<LeafRow>,
    /// Part of the later requests whose times changed, if it is only a part.
    among_later: Option<AmongLaterSays>,
    /// Number of requests of both sides.
    requests: Sides,
    /// Number of requests behind precision and recall; smaller if memory did not suffice for all,
    /// or if a request represents several.
    counted: Sides,
    /// Number of requests from which the tree was grown.
    learned_from: Sides,
    /// Number of other requests, by which the tree was judged.
    held_out: Sides,
    /// Parameters that were excluded from the search.
    left_out: Vec<LeftOutRow>,
    /// Data that was skipped because of a limit.
    unseen: Unseen,
    /// Link to the later requests that satisfy the conditions of the first leaf.
    #[serde(skip)]
    matching: Option<RequestsLink>,
}

/// Part of the later requests that shows the change.
#[derive(Debug, Serialize, JsonSchema)]
struct AmongLaterSays {
    /// Time in ns at the changed place that the changed requests exceed or, if they became faster,
    /// stay below.
    boundary_ns: u64,
    /// True if the changed requests became slower, false if they became faster.
    slower: bool,
    /// Share of the earlier requests that exceed or stay below the boundary.
    earlier_share: f64,
    /// Share of the later requests that exceed or stay below the boundary.
    later_share: f64,
    /// Number of later requests with the change, and number of the other later ones.
    requests: Sides,
    /// Number of requests behind precision and recall; smaller if memory did not suffice for all,
    /// or if a request represents several.
    counted: Sides,
    /// Number of requests from which the tree was grown.
    learned_from: Sides,
    /// Number of other requests, by which the tree was judged.
    held_out: Sides,
}

impl AmongLaterSays {
    fn of(found: &AmongLater) -> Self {
        let (partial, explanation) = (&found.partial, &found.explanation);
        Self {
            boundary_ns: partial.boundary_ns.round() as u64,
            slower: partial.is_slower,
            earlier_share: partial.shares[0],
            later_share: partial.shares[1],
            requests: Sides::of_stored(explanation.requests),
            counted: Sides::of_stored(explanation.counted),
            learned_from: Sides::of(explanation.learned_from),
            held_out: Sides::of(explanation.held_out),
        }
    }

    fn sentence(&self) -> String {
        let percent = |share: f64| format!("{:.0} %", 100.0 * share);
        format!(
            "Of the later requests, {} take {} than {} there; of the earlier ones, {}.",
            percent(self.later_share),
            if self.slower { "longer" } else { "less" },
            duration(self.boundary_ns as f64),
            percent(self.earlier_share),
        )
    }
}

/// Describes the requests outside of the changed part, and those in it.
fn sides(partial: &PartialChange) -> [String; 2] {
    let boundary = duration(partial.boundary_ns);
    let longer = format!("take longer than {boundary} there");
    let at_most = format!("take {boundary} at most there");
    let less = format!("take less than {boundary} there");
    let at_least = format!("take {boundary} at least there");
    if partial.is_slower {
        [at_most, longer]
    } else {
        [at_least, less]
    }
}

/// Number of requests with the change, and of the requests that they are distinguished from.
#[derive(Debug, Serialize, JsonSchema)]
struct Sides {
    changed: u64,
    others: u64,
}

impl Sides {
    fn of(counts: [usize; 2]) -> Self {
        Self::of_stored(counts.map(|count| count as u64))
    }

    fn of_stored([others, changed]: [u64; 2]) -> Self {
        Self { changed, others }
    }
}

/// Requests of one side, distinguished by their parameters.
#[derive(Debug, Serialize, JsonSchema)]
pub struct LeafRow {
    /// Conditions that all requests of the leaf satisfy.
    conditions: Vec<String>,
    /// True if the leaf's side is the changed one.
    changed: bool,
    /// True if both sides are of the later period: requests that show the change, and the others.
    /// If neither this nor `among_earlier` is true, the sides are those of the change; if times
    /// changed, these are all requests of the later and of the earlier period.
    among_later: bool,
    /// True if both sides are of the earlier period, because a structure vanished. The changed side
    /// consists of the requests that have it.
    among_earlier: bool,
    /// Share of all stored requests with these conditions that belong to the leaf's side.
    precision: f64,
    /// Share of the stored requests of the leaf's side that satisfy the conditions.
    recall: f64,
    /// Number of requests of both sides that satisfy the conditions.
    requests: u64,
    /// Number of held-out requests in the leaf, before its thresholds were refined.
    held_out: u64,
    /// Probability that chance alone separates the requests this clearly.
    p_value: f64,
    /// Share of the requests with these conditions that have the change.
    changed_share: f64,
    /// Number of all other compared requests.
    others: u64,
    others_changed_share: f64,
    latency: Option<TypicalSays>,
    others_latency: Option<TypicalSays>,
    /// Latency of the sampled earlier requests that satisfy the conditions. The other latencies are
    /// of all stored requests. Null unless both sides are from the later period.
    earlier_latency: Option<TypicalSays>,
    pub sentence: String,
    #[serde(skip)]
    tests: Vec<ParameterCondition>,
}

/// Median and 95th percentile of the latency of some requests.
#[derive(Debug, Serialize, JsonSchema)]
struct TypicalSays {
    p50_ns: u64,
    p95_ns: u64,
}

impl From<Typical> for TypicalSays {
    fn from(Typical { p50_ns, p95_ns }: Typical) -> Self {
        Self { p50_ns, p95_ns }
    }
}

/// Describes requests of a side. `is_earlier` is true if both sides are of the earlier period.
fn has_change(is_earlier: bool, is_changed: bool) -> &'static str {
    match (is_earlier, is_changed) {
        (false, true) => "have the change",
        (false, false) => "do not have the change",
        (true, true) => "have the structure that vanished",
        (true, false) => "do not have the structure that vanished",
    }
}

impl LeafRow {
    /// Converts all leaves. Leaves among later requests come first: they distinguish affected
    /// requests, while others may distinguish only the time of the change.
    pub fn all(telling: &Distinction) -> Vec<Self> {
        let among_later = telling.among_later.iter().flat_map(|found| {
            let [others, changed] = sides(&found.partial);
            found.explanation.leaves.iter().map(move |leaf| Self {
                among_later: true,
                sentence: leaf.sentence_among_later([&others, &changed]),
                ..Self::of(leaf, Some(Period::After))
            })
        });
        let leaves = telling.explanation.leaves.iter();
        let leaves = leaves.map(|leaf| Self::of(leaf, telling.within));
        among_later.chain(leaves).collect()
    }

    /// Converts a leaf. Both of its sides are of the period `within`; with `None`, they are of both
    /// periods.
    fn of(leaf: &ExplainedLeaf, within: Option<Period>) -> Self {
        let requests = leaf.stored.iter().sum();
        let [changed_share, others_changed_share] = leaf.changed_shares();
        Self {
            changed_share,
            others_changed_share,
            others: leaf.stored_all.iter().sum::<u64>().saturating_sub(requests),
            latency: leaf.matching.map(Into::into),
            others_latency: leaf.others.map(Into::into),
            earlier_latency: leaf.earlier.map(Into::into),
            tests: leaf.conditions.clone(),
            among_later: within == Some(Period::After),
            among_earlier: within == Some(Period::Before),
            conditions: leaf.conditions.iter().map(ToString::to_string).collect(),
            changed: leaf.is_mutation,
            precision: leaf.precision(),
            recall: leaf.recall(),
            requests,
            held_out: leaf.held_out.iter().sum::<usize>() as u64,
            p_value: leaf.p_value,
            sentence: leaf.sentence_of(
                match within {
                    None => "requests of both periods",
                    Some(Period::Before) => "of the earlier requests, those",
                    Some(Period::After) => "of the later requests, those",
                },
                has_change(within == Some(Period::Before), leaf.is_mutation),
            ),
        }
    }

    /// Describes the requests and their behaviour in short. `slower` is true if affected later
    /// requests are slower, false if they are faster, and `None` if the change is not partial.
    fn headline(&self, slower: Option<bool>) -> String {
        let does = match (slower.filter(|_| self.among_later), self.changed) {
            (Some(true), true) => "are slower",
            (Some(false), true) => "are faster",
            (_, changed) => has_change(self.among_earlier, changed),
        };
        let tests = self.tests.iter().map(ParameterCondition::without_operation);
        let tests: Vec<String> = tests.collect();
        format!("Requests with {} {does}", tests.join(" and "))
    }

    /// Describes the effects of the change on the leaf's requests, and on the others.
    fn harm(&self) -> String {
        let of = match (self.among_later, self.among_earlier) {
            (true, _) => "of the later period",
            (false, true) => "of the earlier period",
            (false, false) => "of both periods",
        };
        let times = match (&self.latency, &self.others_latency) {
            (Some(own), Some(others)) => {
                let times = |of: &TypicalSays| [of.p50_ns, of.p95_ns].map(|ns| duration(ns as f64));
                let ([p50, p95], [p50_others, p95_others]) = (times(own), times(others));
                let before = self.earlier_latency.as_ref().map(times);
                let before = before.map_or_else(String::new, |[p50, p95]| {
                    format!(" instead of {p50} and {p95} before")
                });
                format!(
                    "These {} take {p50} (p50) and {p95} (p95){before}; the {} others {of} {p50_others} and {p95_others}. ",
                    counted(self.requests, "request"),
                    self.others,
                )
            }
            _ => String::new(),
        };
        format!(
            "{times}{} of them {}, and {} of the others{}.",
            percent(self.changed_share),
            has_change(self.among_earlier, true),
            percent(self.others_changed_share),
            if self.among_later || self.among_earlier {
                ""
            } else {
                "; both periods count"
            }
        )
    }
}

/// A parameter that was excluded from the search.
#[derive(Debug, Serialize, JsonSchema)]
struct LeftOutRow {
    parameter: String,
    why: String,
}

impl LeftOutRow {
    fn of(of: &LeftOut) -> Self {
        Self {
            parameter: of.parameter.to_string(),
            why: of.why.to_string(),
        }
    }
}

/// Data that was skipped because of a limit.
#[derive(Debug, Serialize, JsonSchema)]
struct Unseen {
    /// Number of parameters beyond the limit: those with the fewest recorded values.
    parameters: u64,
    /// Number of text values of parameters beyond the limit, which are not distinguished.
    texts: u64,
    /// Number of times that a request has several texts of one parameter; these are skipped.
    several_values: u64,
}

impl ExplainedSays {
    /// Converts an explanation.
    ///
    /// # Errors
    /// Returns an error if a parameter to leave out is not among the excluded ones.
    pub fn of(
        found: ExplainedChange,
        settings: &ExplainSettings,
        (later, reading): (&PeriodOf, &ReadingArguments),
    ) -> Result<Self, Failure> {
        let explanation = &found.telling.explanation;
        if let Some(unknown) = settings.without.iter().find(|name| {
            let is_it = |of: &LeftOut| {
                let recorded = of.parameter.recorded();
                [&of.parameter, &recorded]
                    .iter()
                    .any(|of| *of.key == ***name || of.to_string() == ***name)
            };
            !explanation.left_out.iter().any(is_it)
        }) {
            let known = explanation.parameters.iter().map(ToString::to_string);
            let known: Vec<String> = known.take(LISTED_MAX).collect();
            return Err(Failure::unknown(format!(
                "--without {unknown}: no request has that; available are {}",
                known.join(", ")
            )));
        }
        let leaves = LeafRow::all(&found.telling);
        let link = |leaf: &LeafRow| RequestsLink::of(&leaf.tests, later.selection.range, reading);
        // The link is to later requests.
        let first = leaves
            .first()
            .filter(|leaf| later.only.is_none() && !leaf.among_earlier);
        Ok(Self {
            notes: found.notes,
            what: found.what,
            matching: first.and_then(link),
            leaves,
            among_later: found.telling.among_later.as_ref().map(AmongLaterSays::of),
            requests: Sides::of_stored(explanation.requests),
            counted: Sides::of_stored(explanation.counted),
            learned_from: Sides::of(explanation.learned_from),
            held_out: Sides::of(explanation.held_out),
            left_out: explanation.left_out.iter().map(LeftOutRow::of).collect(),
            unseen: Unseen {
                parameters: explanation.unseen.parameters as u64,
                texts: explanation.unseen.texts as u64,
                several_values: explanation.unseen.several_values as u64,
            },
        })
    }
}

/// Maximum number of parameters that an error lists.
const LISTED_MAX: usize = 20;

rows! {
    LeafRow as row, "leaves": "Requests that represent one side of a change.";
    conditions: Text, "requests with" = &*row.conditions.join(" and ");
    changed: Text, "are" = if row.changed { "changed" } else { "others" };
    among_later: Text, "compared with" =
        match (row.among_later, row.changed) { _ if row.among_earlier => "other earlier ones", (true, true) => "later ones that did not change", (true, false) => "later ones that changed", (false, true) => "all others", (false, false) => "all changed", };
    precision: Share, "precision" = row.precision;
    recall: Share, "recall" = row.recall;
    requests: Count, "requests" = row.requests;
    held_out: Count, "held out" = row.held_out;
    p_value: Probability, "p" = row.p_value;
}

rows! {
    LeftOutRow as row, "left_out": "A parameter that was left out.";
    parameter: Text, "parameter" = &*row.parameter;
    why: Text, "why" = &*row.why;
}

impl Report for ExplainedSays {
    fn notes(&self) -> &Notes {
        &self.notes
    }

    fn show(&self, doc: &mut Doc) {
        if let Some(leaf) = self.leaves.first() {
            let slower = self.among_later.as_ref().map(|later| later.slower);
            doc.heading(leaf.headline(slower)).sentence(leaf.harm());
        } else {
            doc.heading("No attribute distinguishes requests with the change from others")
                .sentence(
                    "Where times changed, requests with the change are all of the later period; `critical-path --by` an attribute \
                     shows times value by value.",
                );
        }
        if let Some(RequestsLink { path, command }) = &self.matching {
            doc.link("List these requests", path, command);
        }
        doc.sentence(format!("{}.", self.what));
        doc.sentences(self.among_later.as_ref().map(AmongLaterSays::sentence));
        doc.sentence(format!(
            "Learned from {} {} and {} without; judged by {} and {} others.",
            counted(self.learned_from.changed, "request"),
            if self.leaves.first().is_some_and(|leaf| leaf.among_earlier) {
                "with the structure that vanished"
            } else {
                "with the change"
            },
            self.learned_from.others,
            self.held_out.changed,
            self.held_out.others
        ));
        if !self.leaves.is_empty() {
            doc.table("Conditions", &self.leaves, self.leaves.len());
        }
        if !self.left_out.is_empty() {
            doc.table("Left out", &self.left_out, self.left_out.len());
        }
    }
}
