//! Planted changes.

use super::random::Random;
use super::system::{Call, System};

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum FaultKind {
    /// An operation takes longer by a constant.
    Slower,
    /// An operation takes a multiple of its time.
    Times,
    /// An operation takes longer in a part of the requests.
    Share,
    /// An operation in few requests takes longer.
    Rare,
    /// Messages of the calls from one service to another take longer.
    Link,
    /// A share of an operation's executions fails after a stage of calls and skips the rest.
    BreaksOff,
    /// A share of an operation's executions no longer makes a call.
    Removed,
    /// A share of an operation's executions makes a call twice.
    Doubled,
    /// An optional call becomes more frequent, because a cache before it misses more often.
    MissCalls,
    /// Slow calls of an operation become more frequent, because a cache inside it misses more
    /// often.
    MissTimes,
}

impl FaultKind {
    pub(crate) const ALL: [FaultKind; 10] = [
        FaultKind::Slower,
        FaultKind::Times,
        FaultKind::Share,
        FaultKind::Rare,
        FaultKind::Link,
        FaultKind::BreaksOff,
        FaultKind::Removed,
        FaultKind::Doubled,
        FaultKind::MissCalls,
        FaultKind::MissTimes,
    ];

    pub(crate) fn name(self) -> &'static str {
        match self {
            FaultKind::Slower => "slower",
            FaultKind::Times => "times",
            FaultKind::Share => "share",
            FaultKind::Rare => "rare",
            FaultKind::Link => "link",
            FaultKind::BreaksOff => "breaks-off",
            FaultKind::Removed => "removed",
            FaultKind::Doubled => "doubled",
            FaultKind::MissCalls => "miss-calls",
            FaultKind::MissTimes => "miss-times",
        }
    }

    /// Returns whether the change alters the structure of requests.
    pub(crate) fn is_structural(self) -> bool {
        matches!(
            self,
            FaultKind::BreaksOff | FaultKind::Removed | FaultKind::Doubled | FaultKind::MissCalls
        )
    }

    /// Returns sizes from undetectable to obvious: fractions of the median latency, factors, or
    /// probabilities.
    pub(crate) fn sizes(self) -> [f64; LEVELS] {
        match self {
            FaultKind::Slower | FaultKind::Link => [0.005, 0.02, 0.07, 0.25, 0.8, 3.0],
            FaultKind::Times => [1.05, 1.2, 1.6, 2.5, 6.0, 30.0],
            FaultKind::Share | FaultKind::Rare => [0.03, 0.1, 0.4, 1.0, 4.0, 15.0],
            FaultKind::BreaksOff | FaultKind::Removed | FaultKind::Doubled => {
                [0.01, 0.03, 0.08, 0.2, 0.5, 1.0]
            }
            FaultKind::MissCalls | FaultKind::MissTimes => [0.01, 0.03, 0.08, 0.2, 0.4, 0.6],
        }
    }
}

/// Number of sizes of a change.
pub(crate) const LEVELS: usize = 6;

/// Position of a call: the operation that makes it, its stage, and the index in the stage.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Site {
    pub(crate) operation: usize,
    pub(crate) stage: usize,
    pub(crate) call: usize,
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct Fault {
    pub(crate) kind: FaultKind,
    /// Operation that changes and, for kinds that change a call or a link, the call.
    pub(crate) site: Site,
    /// Caller's and callee's service. A change of kind `Link` affects the calls between them.
    pub(crate) link: (usize, usize),
    /// Nanoseconds, a factor, or a probability.
    pub(crate) size: f64,
    /// Fraction of the requests that a change of kind `Share` affects; 1 for other kinds.
    pub(crate) share: f64,
}

impl Fault {
    /// Returns whether this call crosses the link that changes.
    pub(crate) fn is_link(&self, caller: usize, callee: usize) -> bool {
        self.kind == FaultKind::Link && self.link == (caller, callee)
    }

    /// Returns the increase in the share of an operation's slow calls.
    pub(crate) fn more_misses(&self, operation: usize) -> f64 {
        if self.kind == FaultKind::MissTimes && self.site.operation == operation {
            self.size
        } else {
            0.0
        }
    }

    /// Returns the changed own time of an operation that took `own_ns`, in a request with this
    /// seed.
    pub(crate) fn own_ns(&self, operation: usize, own_ns: f64, request: u64) -> f64 {
        if self.site.operation != operation {
            return own_ns;
        }
        match self.kind {
            FaultKind::Slower | FaultKind::Rare => own_ns + self.size,
            FaultKind::Share if Random::new(&[request, 77]).chance(self.share) => {
                own_ns + self.size
            }
            FaultKind::Times => own_ns * self.size,
            _ => own_ns,
        }
    }
}

/// Returns the call at a site, if the operation makes any.
pub(crate) fn call(system: &System, site: Site) -> Option<&Call> {
    let stage = system.operations[site.operation].stages.get(site.stage)?;
    stage.get(site.call)
}
