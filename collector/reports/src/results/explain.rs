//! What tells requests apart, as `explain` says it.

mod matching;

use schemars::JsonSchema;
use serde::Serialize;
use stroboscope_analysis::compare::PartialChange;
use stroboscope_analysis::explain::{
    ExplainSettings, ExplainedLeaf, LeftOut, ParameterCondition, Typical,
};

use crate::Failure;
use crate::arguments::ReadingArguments;
use crate::verb::Report;
use stroboscope_present::humanise::{counted, duration, percent};
use stroboscope_present::rows;
use stroboscope_present::show::Doc;
use stroboscope_query::{AmongLater, ExplainedChange, Notes, PeriodOf, Telling};

use matching::RequestsLink;

/// What tells requests with a change from those without.
#[derive(Debug, Serialize, JsonSchema)]
pub struct ExplainedSays {
    #[serde(flatten)]
    notes: Notes,
    /// The change.
    what: String,
    /// What tells them apart, the largest part first; empty, if no parameter does. Where only a part of the later requests
    /// takes another time, what tells that part from the other later ones comes first.
    leaves: Vec<LeafRow>,
    /// Where times of a part of the later requests changed only: which part.
    among_later: Option<AmongLaterSays>,
    /// Requests of both sides.
    requests: Sides,
    /// How many of these precision and recall are of: fewer, where there was no room for all.
    counted: Sides,
    /// Those that the tree was grown from.
    learned_from: Sides,
    /// Those that judged it.
    held_out: Sides,
    /// Parameters that were not asked about.
    left_out: Vec<LeftOutRow>,
    /// What was not looked at because of a bound.
    unseen: Unseen,
    /// The later requests that the conditions of the first leaf hold of.
    #[serde(skip)]
    matching: Option<RequestsLink>,
}

/// The part of the later requests that a change is seen in.
#[derive(Debug, Serialize, JsonSchema)]
struct AmongLaterSays {
    /// They take longer than this where it changed, or less where they became faster.
    boundary_ns: u64,
    /// Whether they take longer.
    slower: bool,
    /// The part of the earlier requests that do.
    earlier_share: f64,
    /// The part of the later requests that do.
    later_share: f64,
    /// Later requests with the change, and the other later ones.
    requests: Sides,
    /// How many of these precision and recall are of: fewer, where there was no room for all.
    counted: Sides,
    /// Those that the tree was grown from.
    learned_from: Sides,
    /// Those that judged it.
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

    /// Which they are, as a sentence.
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

/// What requests do that are not of the changed part, and those that are.
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

/// Requests with the change, and those that they are told from.
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

/// Requests that one side is told by.
#[derive(Debug, Serialize, JsonSchema)]
pub struct LeafRow {
    /// All of these are true of them.
    conditions: Vec<String>,
    /// Whether they are of the changed side.
    changed: bool,
    /// Whether both sides are of the later period: those that a change is seen in, and the others. Otherwise they are the two
    /// sides of the change: where times changed, all requests of the later and of the earlier period.
    among_later: bool,
    /// The part of such requests that is of that side, of all that the store has.
    precision: f64,
    /// The part of that side's requests that are such, of all that the store has.
    recall: f64,
    /// How many requests of both sides are such.
    requests: u64,
    /// How many of those that judged the tree are such.
    held_out: u64,
    /// How probable it is that so many are told by chance.
    p_value: f64,
    /// The part of such requests that has the change.
    changed_share: f64,
    /// All other requests that were compared.
    others: u64,
    others_changed_share: f64,
    latency: Option<TypicalSays>,
    others_latency: Option<TypicalSays>,
    pub sentence: String,
    #[serde(skip)]
    tests: Vec<ParameterCondition>,
}

/// Latency of requests.
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

impl LeafRow {
    /// All of them, those of later requests first: whom a change hits is nearer to its reason than when it came.
    pub fn all(telling: &Telling) -> Vec<Self> {
        let among_later = telling.among_later.iter().flat_map(|found| {
            let [others, changed] = sides(&found.partial);
            found.explanation.leaves.iter().map(move |leaf| Self {
                among_later: true,
                sentence: leaf.sentence_among_later([&others, &changed]),
                ..Self::of(leaf)
            })
        });
        let leaves = telling.explanation.leaves.iter().map(Self::of);
        among_later.chain(leaves).collect()
    }

    fn of(leaf: &ExplainedLeaf) -> Self {
        let requests = leaf.stored.iter().sum();
        let [changed_share, others_changed_share] = leaf.changed_shares();
        Self {
            changed_share,
            others_changed_share,
            others: leaf.stored_all.iter().sum::<u64>().saturating_sub(requests),
            latency: leaf.matching.map(Into::into),
            others_latency: leaf.others.map(Into::into),
            tests: leaf.conditions.clone(),
            among_later: false,
            conditions: leaf.conditions.iter().map(ToString::to_string).collect(),
            changed: leaf.is_mutation,
            precision: leaf.precision(),
            recall: leaf.recall(),
            requests,
            held_out: leaf.held_out.iter().sum::<usize>() as u64,
            p_value: leaf.p_value,
            sentence: leaf.sentence(),
        }
    }

    /// The requests in short, and what they do, where later ones are `slower`, or faster.
    fn headline(&self, slower: Option<bool>) -> String {
        let does = match (slower.filter(|_| self.among_later), self.changed) {
            (Some(true), true) => "are slower",
            (Some(false), true) => "are faster",
            (_, true) => "have the change",
            (_, false) => "do not have the change",
        };
        let tests = self.tests.iter().map(ParameterCondition::without_operation);
        let tests: Vec<String> = tests.collect();
        format!("Requests with {} {does}", tests.join(" and "))
    }

    /// Effects of the change on these requests, and on the others.
    fn harm(&self) -> String {
        let of = match self.among_later {
            true => "of the later period",
            false => "of both periods",
        };
        let times = match (&self.latency, &self.others_latency) {
            (Some(own), Some(others)) => {
                let [p50, p95] = [own.p50_ns, own.p95_ns].map(|ns| duration(ns as f64));
                let [p50_others, p95_others] =
                    [others.p50_ns, others.p95_ns].map(|ns| duration(ns as f64));
                format!(
                    "These {} take {p50} (p50) and {p95} (p95); the {} others {of} {p50_others} and {p95_others}. ",
                    counted(self.requests, "request"),
                    self.others,
                )
            }
            _ => String::new(),
        };
        format!(
            "{times}{} of them have the change, and {} of the others.",
            percent(self.changed_share),
            percent(self.others_changed_share)
        )
    }
}

/// A parameter that was not asked about.
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

/// What was not looked at because of a bound.
#[derive(Debug, Serialize, JsonSchema)]
struct Unseen {
    /// Parameters that fewest requests say.
    parameters: u64,
    /// Texts of a parameter that are not told apart.
    texts: u64,
    /// Texts that requests do not agree with themselves on.
    several_values: u64,
}

impl ExplainedSays {
    /// Of what was found.
    ///
    /// # Errors
    /// When a parameter is to be left out that nothing says.
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
            let known: Vec<String> = explanation
                .parameters
                .iter()
                .take(LISTED_MAX)
                .map(ToString::to_string)
                .collect();
            return Err(Failure::new(format!(
                "--without {unknown}: no request says that; asked about are {}",
                known.join(", ")
            )));
        }
        let leaves = LeafRow::all(&found.telling);
        let link = |leaf: &LeafRow| RequestsLink::of(&leaf.tests, later.selection.range, reading);
        let first = leaves.first().filter(|_| later.only.is_none());
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

/// Most parameters that an error lists.
const LISTED_MAX: usize = 20;

rows! {
    LeafRow as row, "leaves": "Requests that one side of a change is told by.";
    conditions: Text, "requests with" = &*row.conditions.join(" and ");
    changed: Text, "are" = if row.changed { "changed" } else { "others" };
    among_later: Text, "told from" =
        match (row.among_later, row.changed) { (true, true) => "later ones that did not change", (true, false) => "later ones that changed", (false, true) => "all others", (false, false) => "all changed", };
    precision: Share, "precision" = row.precision;
    recall: Share, "recall" = row.recall;
    requests: Count, "requests" = row.requests;
    held_out: Count, "held out" = row.held_out;
    p_value: Probability, "p" = row.p_value;
}

rows! {
    LeftOutRow as row, "left_out": "A parameter that was not asked about.";
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
            doc.heading("No attribute tells requests with the change from others")
                .sentence(
                    "Where times changed, requests with the change are all of the later period; `critical-path --by` an attribute \
                     shows times value by value.",
                );
        }
        if let Some(RequestsLink { path, command }) = &self.matching {
            doc.link("List these requests", path, command);
        }
        doc.sentence(format!("{}.", self.what));
        if let Some(among_later) = &self.among_later {
            doc.sentence(among_later.sentence());
        }
        doc.sentence(format!(
            "Learned from {} with the change and {} without; judged by {} and {} others.",
            counted(self.learned_from.changed, "request"),
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
