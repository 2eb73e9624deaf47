//! Rows of causes, mutations, and operations with too few requests.

use schemars::JsonSchema;
use serde::Serialize;
use stroboscope_analysis::compare::{
    Cause, CauseKind, Comparison, Divergence, EdgeChange, Example, Mutation, MutationKind,
    PathDifference, Period, Place, Sides, TooFew,
};
use stroboscope_analysis::flow::{EdgeTable, Operation, PeriodFlows, Repeats};

use crate::regression::Finding;
use stroboscope_render::humanise::{counted, duration};
use stroboscope_render::rows;

/// A cause of the change between two periods.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub(super) struct CauseRow {
    rank: u64,
    kind: &'static str,
    /// Responsible service: for time on the way between two services, the one to blame; the
    /// callee's by default.
    service: String,
    /// Operation of that service, without the service.
    operation: String,
    /// Description of the change.
    what: String,
    /// Calling operation with its service, for time on the way between two services.
    caller: Option<String>,
    /// Called operation with its service.
    callee: Option<String>,
    /// True if the change shows on one link only, so its caller or callee may be responsible;
    /// `service` is then a guess.
    undecided: bool,
    /// Period, `before` or `after`, in the middle of which the changed structure begins or ends;
    /// null if the whole periods differ by more than chance, or if times changed.
    changed_within: Option<&'static str>,
    /// Edge that changed most, or the place where requests begin to diverge.
    edge: Option<String>,
    contribution_ns: f64,
    /// Share of the change; null if nothing changed.
    share: Option<f64>,
    /// Share of the later period's requests that the cause changed.
    affected: f64,
    q_value: f64,
    mutations: Vec<u64>,
    example: ExampleRow,
}

/// An operation that changed a lot, but in too few requests for a test.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub(super) struct TooFewRow {
    service: String,
    operation: String,
    requests: Counts,
    /// Contribution to the change of the mean latency of its root operation's requests, in ns.
    contribution_ns: f64,
    /// Number of requests of each period that would suffice if they differed as the recorded ones
    /// do. If those are too few for any result, assumes that all requests of one period took longer
    /// than all of the other.
    needed: u64,
}

impl TooFewRow {
    pub(super) fn of(of: &TooFew) -> Self {
        let operation = of.place.operation();
        Self {
            service: operation.service.to_string(),
            operation: operation.name.to_string(),
            requests: Counts {
                before: of.requests[0] as u64,
                after: of.requests[1] as u64,
            },
            contribution_ns: of.contribution_ns,
            needed: of.needed as u64,
        }
    }

    pub(super) fn is_slower(&self) -> bool {
        self.contribution_ns > 0.0
    }

    /// Describes the operation as a reason to doubt a verdict.
    pub(super) fn doubt(&self) -> Finding {
        Finding {
            of: format!("{}:{}", self.service, self.operation),
            text: self.text(),
        }
    }

    pub(super) fn text(&self) -> String {
        format!(
            "{}:{} {} in {} before and {} after; {} of each would tell",
            self.service,
            self.operation,
            adds(self.contribution_ns),
            counted(self.requests.before, "request"),
            self.requests.after,
            self.needed
        )
    }
}

/// Example requests, one before and one after.
#[derive(Clone, Debug, Serialize, JsonSchema)]
struct ExampleRow {
    before: Option<String>,
    after: Option<String>,
}

/// A category of requests that changed between two periods.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub(super) struct MutationRow {
    rank: u64,
    kind: &'static str,
    root: String,
    category: String,
    contribution_ns: f64,
    p_value: f64,
    q_value: f64,
    requests: Counts,
    mean_ns: Means,
    edges: Vec<EdgeRow>,
    precursors: Vec<PrecursorRow>,
    causes: Vec<u64>,
}

#[derive(Clone, Debug, Serialize, JsonSchema)]
struct Counts {
    before: u64,
    after: u64,
}

#[derive(Clone, Debug, Serialize, JsonSchema)]
struct Means {
    before: f64,
    after: f64,
}

#[derive(Clone, Debug, Serialize, JsonSchema)]
struct EdgeRow {
    service: String,
    operation: String,
    task: String,
    edge: String,
    before_ns: f64,
    after_ns: f64,
    change_ns: f64,
    p_value: f64,
    responsible: bool,
}

#[derive(Clone, Debug, Serialize, JsonSchema)]
struct PrecursorRow {
    category: String,
    distance: f64,
    /// Share of the root operation's requests that the precursor lost to the mutation.
    moved: f64,
    divergence: Option<String>,
}

fn kind(cause: &CauseKind) -> &'static str {
    match cause {
        CauseKind::ResponseTime => "response_time",
        CauseKind::Structure(PathDifference::Fails) => "failure",
        CauseKind::Structure(_) => "structure",
    }
}

fn repeats(repeats: Repeats) -> String {
    match (repeats.from, repeats.to) {
        (from, to) if from == to => format!("{from}×"),
        (_, u32::MAX) => "any number of times".to_owned(),
        (from, to) => format!("{from}–{to}×"),
    }
}

fn difference(of: &PathDifference) -> String {
    match of {
        PathDifference::Added(what) => format!("now also does {what}"),
        PathDifference::BreaksOff(what) => format!("breaks off after {what}"),
        PathDifference::Removed(what) => format!("no longer does {what}"),
        PathDifference::Replaced { before, after } => format!("does {after} instead of {before}"),
        PathDifference::Repeated {
            what,
            before,
            after,
        } => format!(
            "does {what} {} instead of {}",
            repeats(*after),
            repeats(*before)
        ),
        PathDifference::Fails => "fails".to_owned(),
        PathDifference::Succeeds => "fails no longer".to_owned(),
        PathDifference::Reordered => "does the same in another order".to_owned(),
    }
}

fn divergence(of: &Divergence) -> String {
    let at = of
        .operation()
        .map_or_else(String::new, Operation::to_string);
    format!("{at} {}", difference(&of.difference))
}

fn what(cause: &Cause) -> String {
    let direction = if cause.contribution_ns < 0.0 {
        "faster"
    } else {
        "slower"
    };
    match (&cause.kind, &cause.place) {
        (CauseKind::Structure(of), Some(Place::Own(at))) if *at != cause.operation => {
            format!("as {at} {}", difference(of))
        }
        (CauseKind::Structure(of), _) => difference(of),
        (CauseKind::ResponseTime, Some(Place::Link { caller, callee })) => {
            let unsure = if cause.is_undecided {
                " (caller or callee: undecided)"
            } else {
                ""
            };
            format!("{direction} on the way from {caller} to {callee} and back{unsure}")
        }
        (CauseKind::ResponseTime, _) => format!("{direction} by itself"),
    }
}

/// Describes the cause of this rank; empty if there is none.
pub fn cause_in_words(of: &Comparison, rank: usize) -> String {
    let cause = rank.checked_sub(1).and_then(|at| of.causes.get(at));
    cause.map_or_else(String::new, |cause| {
        format!(
            "Cause {rank}: {} {}, {}",
            cause.operation,
            what(cause),
            adds(cause.contribution_ns)
        )
    })
}

/// Describes the mutation of this rank; empty if there is none.
pub fn mutation_in_words(of: &Comparison, rank: usize) -> String {
    let mutation = rank.checked_sub(1).and_then(|at| of.mutations.get(at));
    mutation.map_or_else(String::new, |mutation| {
        let kind = match mutation.kind {
            MutationKind::ResponseTime => "takes another time",
            MutationKind::Structural => "is more frequent",
        };
        format!(
            "Mutation {rank}: category {} of {} {kind}, {}",
            mutation.category,
            mutation.root,
            adds(mutation.contribution_ns)
        )
    })
}

/// Describes a cause whose structure begins or ends within a period, with the number of requests
/// of each period that have the structure; `None` for other causes. `name` stands for the cause.
pub(super) fn within_period(
    cause: &Cause,
    name: &str,
    periods: [&PeriodFlows; 2],
) -> Option<String> {
    let within = cause.changed_within?;
    let requests = periods.map(|flows| {
        let of_side = |side: &Sides| {
            let (root, ids) = (
                flows.roots.get(&side.root)?,
                match within {
                    Period::Before => &side.former,
                    Period::After => &side.changed,
                },
            );
            let categories = ids.iter().filter_map(|id| root.categories.get(id));
            Some(
                categories
                    .map(|category| category.count.rounded())
                    .sum::<u64>(),
            )
        };
        cause.sides.iter().filter_map(of_side).sum::<u64>()
    });
    let (structure, period) = match within {
        Period::Before => ("former", "earlier"),
        Period::After => ("new", "later"),
    };
    Some(format!(
        "{name}: {} of {} requests before and {} of {} after have the {structure} structure. It also begins or ends within the \
         {period} period, so what separates the periods need not be the reason.",
        requests[0],
        periods[0].count().rounded(),
        requests[1],
        periods[1].count().rounded(),
    ))
}

fn adds(contribution_ns: f64) -> String {
    let size = duration(contribution_ns.abs());
    if contribution_ns < 0.0 {
        format!("which takes {size} off the mean latency")
    } else {
        format!("which adds {size} to the mean latency")
    }
}

fn example(of: Option<&Example>) -> Option<String> {
    of.map(|example| {
        example
            .name
            .as_ref()
            .map_or_else(|| example.id.to_string(), ToString::to_string)
    })
}

impl CauseRow {
    pub(super) fn of(cause: &Cause, rank: u64, change_ns: f64, edges: &EdgeTable) -> Self {
        let edge = match &cause.kind {
            CauseKind::ResponseTime => cause.edge.map(|edge| edges.get(edge).to_string()),
            CauseKind::Structure(of) => {
                let at = match &cause.place {
                    Some(Place::Own(at)) => at,
                    _ => &cause.operation,
                };
                Some(format!("{at} {}", difference(of)))
            }
        };
        let way = match &cause.place {
            Some(Place::Link { caller, callee }) => Some((caller, callee)),
            _ => None,
        };
        Self {
            rank,
            kind: kind(&cause.kind),
            service: cause.operation.service.to_string(),
            operation: cause.operation.name.to_string(),
            what: what(cause),
            caller: way.map(|(caller, _)| caller.to_string()),
            callee: way.map(|(_, callee)| callee.to_string()),
            undecided: cause.is_undecided,
            changed_within: cause.changed_within.map(|period| match period {
                Period::Before => "before",
                Period::After => "after",
            }),
            edge,
            contribution_ns: cause.contribution_ns,
            share: (change_ns != 0.0).then(|| cause.contribution_ns / change_ns),
            affected: cause.affected,
            q_value: cause.q_value,
            mutations: cause.mutations.iter().map(|at| *at as u64 + 1).collect(),
            example: ExampleRow {
                before: example(cause.examples[0].as_ref()),
                after: example(cause.examples[1].as_ref()),
            },
        }
    }
}

impl MutationRow {
    pub(super) fn of(mutation: &Mutation, rank: u64, edges: &EdgeTable) -> Self {
        let edge = |change: &EdgeChange| {
            let edge = edges.get(change.edge);
            let operation = edge.operation();
            EdgeRow {
                service: operation.service.to_string(),
                operation: operation.name.to_string(),
                task: edge.task.to_string(),
                edge: format!("{} … {}", edge.start, edge.end),
                before_ns: change.before_ns,
                after_ns: change.after_ns,
                change_ns: change.change_ns(),
                p_value: change.p_value,
                responsible: change.is_responsible,
            }
        };
        Self {
            rank,
            kind: match mutation.kind {
                MutationKind::ResponseTime => "response_time",
                MutationKind::Structural => "structural",
            },
            root: mutation.root.clone(),
            category: mutation.category.to_string(),
            contribution_ns: mutation.contribution_ns,
            p_value: mutation.p_value,
            q_value: mutation.q_value,
            requests: Counts {
                before: mutation.requests[0],
                after: mutation.requests[1],
            },
            mean_ns: Means {
                before: mutation.means_ns[0],
                after: mutation.means_ns[1],
            },
            edges: mutation.edges.iter().map(edge).collect(),
            precursors: mutation
                .precursors
                .iter()
                .map(|precursor| PrecursorRow {
                    category: precursor.category.to_string(),
                    distance: precursor.distance,
                    moved: precursor.moved,
                    divergence: precursor.divergence.as_ref().map(divergence),
                })
                .collect(),
            causes: mutation.causes.iter().map(|at| *at as u64 + 1).collect(),
        }
    }
}

rows! {
    CauseRow as row, "causes": "Something that made requests change between two periods.";
    rank: Count, "#" = row.rank;
    contribution_ns: DifferenceNs, "adds" = row.contribution_ns;
    share: Share, "" = row.share;
    operation: Text, "operation" = &*format!("{}:{}", row.service, row.operation);
    what: Text, "what" = &*row.what;
    caller: Text, "caller" = row.caller.as_deref();
    callee: Text, "callee" = row.callee.as_deref();
    undecided: Text, "undecided" = if row.undecided { "caller or callee" } else { "" };
    affected: Share, "in" = row.affected;
    q_value: Probability, "q" = row.q_value;
    example_before: Request, "for example, before" = row.example.before.as_deref();
    example_after: Request, "after" = row.example.after.as_deref();
}

rows! {
    MutationRow as row, "mutations": "A category of requests that changed between two periods.";
    rank: Count, "#" = row.rank;
    kind: Text, "kind" = row.kind;
    contribution_ns: DifferenceNs, "adds" = row.contribution_ns;
    root: Text, "root operation" = &*row.root;
    category: Text, "category" = &*row.category;
    requests_before: Count, "before" = row.requests.before;
    requests_after: Count, "after" = row.requests.after;
    mean_before_ns: DurationNs, "mean before" = row.mean_ns.before;
    mean_after_ns: DurationNs, "mean after" = row.mean_ns.after;
    q_value: Probability, "q" = row.q_value;
    cause: Count, "cause" = row.causes.first().copied();
}
