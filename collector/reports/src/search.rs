//! The `search` subcommand.

use clap::Args;
use schemars::JsonSchema;
use serde::Serialize;
use stroboscope_search::Formula;
use tokio::runtime::Runtime;

use crate::arguments::{ReadingArguments, ShowArguments, parse_formula};
use crate::assertion::{Assertion, Quantifier};
use crate::notes::NOTHING_READ;
use crate::search_plan::SearchPlanSays;
use crate::study::NamedStudy;
use crate::verb::{ReadingVerb, Report};
use crate::verdict_files::{JudgingReport, VerdictFiles};
use crate::{Failure, Status};
use stroboscope_query::{
    HELD_BYTES_MAX, Notes, SearchMatch, SearchReport, SearchSettings, WitnessSpan, search_bursts,
    search_requests,
};
use stroboscope_render::checks::Check;
use stroboscope_render::humanise::{counted, duration};
use stroboscope_render::rows;
use stroboscope_render::show::{Doc, TableSpec};

/// Find requests and bursts by what happened in them, and in which order
///
/// Selects spans as TraceQL does, and relates them in time:
///
///   { service = "store" && name = "read" && duration > 2ms }
///   { name = "read" } then { name = "read" } with the same .key within 5ms
///   always ({ name = "lock" } implies eventually within 1ms { name = "unlock" })
///   at least 3 of { name = "retry" } within 100ms
///
/// The result may be unknown for a request that a burst's edge cuts, or if hosts' clocks may err by
/// more than the time between two spans. Requests with an unknown result are counted, and listed
/// after those that certainly match.
#[derive(Debug, Args)]
#[command(verbatim_doc_comment)]
pub struct SearchVerb {
    /// Formula to search for; docs/search.md has the grammar and ten examples
    #[arg(value_parser = parse_formula)]
    formula: (String, Formula),
    #[command(flatten)]
    reading: ReadingArguments,
    #[command(flatten)]
    show: ShowArguments,
    /// Search bursts, each with all requests recorded in it, instead of single requests
    #[arg(long)]
    bursts: bool,
    /// Assert that the formula holds for all requests (or bursts), or for none. Exits with status 0
    /// if it does, 1 if there is a counterexample, and 2 if the data cannot tell. Lists
    /// counterexamples instead of matches
    #[arg(long, value_name = "QUANTIFIER", value_enum)]
    assert: Option<Quantifier>,
    #[command(flatten)]
    files: VerdictFiles,
    /// Maximum number of matches to list, and of possible matches, the earliest first; 0 only
    /// counts them
    #[arg(long, value_name = "COUNT", default_value_t = 20)]
    top: usize,
    /// Show which spans a request needs to match, and which files and row groups were skipped
    /// because they have none
    #[arg(long)]
    explain: bool,
    /// With --bursts, maximum MiB of rows to hold at a time; a larger burst is skipped and reported
    #[arg(long, value_name = "MIB", default_value_t = HELD_BYTES_MAX >> 20,
        value_parser = clap::value_parser!(u64).range(1..1 << 20))]
    memory: u64,
    /// Skip nothing: read all requests, including those that cannot match
    #[arg(long)]
    read_all: bool,
}

impl ReadingVerb for SearchVerb {
    type Report = SearchSays;
    /// Empty, because SQL cannot pass a formula.
    const TABLES: &'static [TableSpec] = &[];

    fn arguments(&self) -> (ReadingArguments, &ShowArguments) {
        (self.reading.clone(), &self.show)
    }

    fn answer(&self, study: &NamedStudy) -> Result<SearchSays, Failure> {
        let formula = self.formula.1.clone();
        let settings = SearchSettings {
            formula: match self.assert {
                Some(Quantifier::All) => formula.negated(),
                Some(Quantifier::None) | None => formula,
            },
            // The verdict names a counterexample.
            kept_max: self.top.max(usize::from(self.assert.is_some())),
            held_bytes_max: self.memory << 20,
            reads_all: self.read_all,
        };
        let search = match self.bursts {
            true => search_bursts,
            false => search_requests,
        };
        let found = search(study.source(), study.selection(), &settings).map_err(Failure::of)?;
        Ok(SearchSays::of(found, self))
    }

    fn run(&self, runtime: &Runtime) -> Result<Status, Failure> {
        if self.assert.is_none() && self.files.are_asked() {
            return Err(Failure::needs_more(
                "--junit and --markdown need --assert: without it, a search has no verdict",
            ));
        }
        self.files
            .give("search", &self.reading.from, &self.show, || {
                self.answer(&NamedStudy::of(&self.reading, runtime.handle())?)
            })
    }
}

/// Result of a search.
#[derive(Debug, Serialize, JsonSchema)]
pub struct SearchSays {
    #[serde(flatten)]
    notes: Notes,
    /// Number of requests or bursts searched.
    searched: u64,
    /// Number of requests or bursts that match.
    matched: u64,
    /// Number of requests or bursts with unknown results, such as those that are cut off or whose
    /// clocks err too much.
    unknown: u64,
    /// Attributes in the formula that no request has.
    absent_attributes: Vec<String>,
    /// Certain and possible matches, or counterexamples of the assertion; empty for a search of
    /// bursts.
    requests: Vec<FoundRequest>,
    /// Certain and possible matches, or counterexamples of the assertion; empty for a search of
    /// requests.
    bursts: Vec<FoundBurst>,
    /// Bursts that exceed the memory limit, and were not searched.
    too_large_bursts: Vec<TooLargeBurst>,
    /// Verdict on the assertion; null without `--assert`.
    assertion: Option<Assertion>,
    /// Data that was read and skipped; null unless requested.
    plan: Option<SearchPlanSays>,
    #[serde(skip)]
    is_of_bursts: bool,
    #[serde(skip)]
    formula: String,
}

#[derive(Debug, Serialize, JsonSchema)]
struct TooLargeBurst {
    /// Beginning of the burst, ns since the Unix epoch.
    open_ns: i64,
    close_ns: i64,
    /// Bytes of memory that the burst's rows would take.
    bytes: u64,
}

#[derive(Debug, Serialize, JsonSchema)]
struct FoundRequest {
    /// Trace id of 32 hexadecimal digits.
    trace: String,
    /// `service:name` of the request's root; without one, `(event log)` or `(no root)`.
    root: String,
    /// Beginning of the request, ns since the Unix epoch.
    start_ns: i64,
    latency_ns: i64,
    /// True for a certain match or counterexample, false for a possible one.
    sure: bool,
    /// Ids of the spans, or numbers of the log events, that show the match or the counterexample;
    /// 16 hexadecimal digits each.
    witness: Vec<String>,
    /// Description of the first spans of `witness`.
    #[serde(skip)]
    because: String,
}

#[derive(Clone, Debug, Serialize, JsonSchema)]
struct FoundBurst {
    /// Beginning of the burst, ns since the Unix epoch.
    open_ns: i64,
    close_ns: i64,
    requests: String,
    sure: bool,
    witness: Vec<BurstWitness>,
    #[serde(skip)]
    because: String,
}

#[derive(Clone, Debug, Serialize, JsonSchema)]
struct BurstWitness {
    trace: String,
    span: String,
}

/// Maximum number of spans to name in the text.
const NAMED_MAX: usize = 4;

/// Describes spans: `store:read 2.10ms, +3.40ms store:read 1.10ms`.
fn because(witness: &[WitnessSpan]) -> String {
    let first_ns = witness.first().map_or(0, |span| span.start_ns);
    let name = |span: &WitnessSpan| {
        let took = duration((span.end_ns - span.start_ns).max(0) as f64);
        let after = match span.start_ns - first_ns {
            0 => String::new(),
            ns => format!("+{} ", duration(ns.max(0) as f64)),
        };
        format!("{after}{}:{} {took}", span.service, span.name)
    };
    let mut named: Vec<String> = witness.iter().take(NAMED_MAX).map(name).collect();
    if witness.len() > NAMED_MAX {
        named.push(format!("and {} more", witness.len() - NAMED_MAX));
    }
    named.join(", ")
}

impl SearchSays {
    fn of(found: SearchReport, verb: &SearchVerb) -> Self {
        let plan = verb.explain.then(|| SearchPlanSays::of(&found));
        let is_of_bursts = verb.bursts;
        // Clocks also decide which spans a burst has.
        let needs_clocks = is_of_bursts || verb.formula.1.compares_times();
        let assertion = verb
            .assert
            .map(|quantifier| Assertion::of(&found, quantifier, noun(is_of_bursts), needs_clocks));
        let (mut requests, mut bursts) = (Vec::new(), Vec::new());
        let listed = found.matches.iter().filter(|_| verb.top > 0);
        for one in listed {
            match one.trace {
                Some(trace) => requests.push(FoundRequest::of(trace, one)),
                None => bursts.push(FoundBurst::of(one)),
            }
        }
        Self {
            notes: found.notes,
            searched: found.searched,
            matched: match verb.assert {
                Some(Quantifier::All) => found.searched - found.matched - found.unknown,
                Some(Quantifier::None) | None => found.matched,
            },
            unknown: found.unknown,
            absent_attributes: found.absent,
            requests,
            bursts,
            too_large_bursts: found
                .large
                .iter()
                .map(|large| TooLargeBurst {
                    open_ns: large.open_ns,
                    close_ns: large.close_ns,
                    bytes: large.bytes,
                })
                .collect(),
            assertion,
            plan,
            is_of_bursts,
            formula: verb.formula.0.clone(),
        }
    }
}

const fn noun(is_of_bursts: bool) -> &'static str {
    match is_of_bursts {
        true => "burst",
        false => "request",
    }
}

impl FoundRequest {
    fn of(trace: u128, found: &SearchMatch) -> Self {
        let ids = found.witness.iter();
        Self {
            trace: format!("{trace:032x}"),
            root: found.what.clone(),
            start_ns: found.start_ns,
            latency_ns: found.end_ns - found.start_ns,
            sure: found.is_sure,
            witness: ids.map(|span| format!("{:016x}", span.span_id)).collect(),
            because: because(&found.witness),
        }
    }
}

impl FoundBurst {
    fn of(found: &SearchMatch) -> Self {
        let ids = found.witness.iter();
        Self {
            open_ns: found.start_ns,
            close_ns: found.end_ns,
            requests: found.what.clone(),
            sure: found.is_sure,
            witness: ids
                .map(|span| BurstWitness {
                    trace: format!("{:032x}", span.trace),
                    span: format!("{:016x}", span.span_id),
                })
                .collect(),
            because: because(&found.witness),
        }
    }
}

rows! {
    FoundRequest as row, "found_requests": "A request that a formula matches, or may match, and the matching spans.";
    trace: Request, "request" = &*row.trace;
    latency_ns: DurationNs, "latency" = row.latency_ns;
    because: Text, "because of" = &*row.because;
    sure: Flag, "sure" = row.sure;
    root: Text, "root" = &*row.root;
}

rows! {
    FoundBurst as row, "found_bursts": "A burst that a formula matches, or may match, and the matching spans.";
    open_ns: DurationNs, "since the first" = row.open_ns;
    length_ns: DurationNs, "length" = (row.close_ns - row.open_ns) as f64;
    requests: Text, "has" = &*row.requests;
    because: Text, "because of" = &*row.because;
    sure: Flag, "sure" = row.sure;
}

impl Report for SearchSays {
    fn notes(&self) -> &Notes {
        &self.notes
    }

    fn show(&self, doc: &mut Doc) {
        doc.heading("Search");
        let what = noun(self.is_of_bursts);
        let unknown = match self.unknown {
            0 => String::new(),
            unknown => format!(
                "; for {} it is unknown: cut off before, or within the error of clocks",
                counted(unknown, what)
            ),
        };
        doc.sentence(match self.searched {
            0 => NOTHING_READ.to_owned(),
            searched => format!(
                "It holds of {} of {}{unknown}.",
                self.matched,
                counted(searched, what)
            ),
        });
        if let Some(largest) = self.too_large_bursts.iter().map(|burst| burst.bytes).max() {
            doc.sentence(format!(
                "Not searched: {} of more rows than may be held at a time; the largest takes {} MiB (--memory MIB).",
                counted(self.too_large_bursts.len() as u64, "burst"),
                largest.div_ceil(1 << 20)
            ));
        }
        for absent in &self.absent_attributes {
            doc.sentence(format!(
                "No span has the attribute .{absent}; `predict` lists those that there are."
            ));
        }
        doc.table("Requests", &self.requests, usize::MAX);
        let first_ns = self.bursts.iter().map(|burst| burst.open_ns).min();
        let bursts = self.bursts.iter().map(|burst| FoundBurst {
            open_ns: burst.open_ns - first_ns.unwrap_or_default(),
            close_ns: burst.close_ns - first_ns.unwrap_or_default(),
            ..burst.clone()
        });
        doc.table("Bursts", &bursts.collect::<Vec<_>>(), usize::MAX);
        if let Some(plan) = &self.plan {
            plan.show(doc);
        }
        doc.sentences(self.assertion.as_ref().map(Assertion::sentence));
    }

    fn status(&self, read: Status) -> Status {
        self.assertion.as_ref().map_or(read, Assertion::status)
    }
}

impl JudgingReport for SearchSays {
    fn verdict(&self) -> (String, Vec<Check>) {
        let verdict = self.assertion.as_ref();
        verdict.map_or_else(Default::default, |assertion| {
            (assertion.sentence(), vec![assertion.check(&self.formula)])
        })
    }
}
