//! Server, network or client: the default rule for spans. Other rules are any function of a label.
//!
//! A client span's own segments are **network** time: all that it does is wait for another process. Of the other
//! spans, those below (or that are) a server's span are **server** time. What is left is **client** time, such as a
//! browser's, if there are servers at all; a service that says nothing of kinds is all server.

use crate::label::SegmentLabel;
use crate::name_rule::normalise;
use crate::record::{SpanFlags, TraceRecords};
use crate::task_path;
use rustc_hash::FxHashMap;
use std::fmt;

/// How many operations are told apart; others count as of no kind.
pub const OPERATIONS_MAX: usize = 4096;

/// Where a segment's time goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Category {
    /// A service works.
    Server,
    /// A process waits for another one.
    Network,
    /// What started the request works.
    Client,
}

impl fmt::Display for Category {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Category::Server => "server",
            Category::Network => "network",
            Category::Client => "client",
        })
    }
}

/// The kinds of the operations (`service:name`) seen so far. Merging is commutative and associative while all fit.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SpanKinds {
    flags: FxHashMap<String, u32>,
}

impl SpanKinds {
    /// Notes the kinds of a trace's spans.
    pub fn observe(&mut self, records: &TraceRecords) {
        let kinds = SpanFlags::CLIENT.with(SpanFlags::SERVER).0;
        for span in records.spans.iter().filter(|span| span.flags.0 & kinds != 0) {
            self.take(format!("{}:{}", span.service, normalise(&span.name)), span.flags.0 & kinds);
        }
    }

    /// Adds what another one has seen.
    pub fn merge(&mut self, other: &SpanKinds) {
        other.flags.iter().for_each(|(operation, flags)| self.take(operation.clone(), *flags));
    }

    fn take(&mut self, operation: String, flags: u32) {
        if self.flags.len() < OPERATIONS_MAX || self.flags.contains_key(&operation) {
            *self.flags.entry(operation).or_default() |= flags;
        }
    }

    /// The category of a segment, by the rule above.
    pub fn category(&self, label: &SegmentLabel) -> Category {
        let is = |operation: &str, kind: SpanFlags| {
            self.flags.get(operation).is_some_and(|flags| SpanFlags(*flags).contains(kind))
        };
        if is(&label.operation(), SpanFlags::CLIENT) {
            return Category::Network;
        }
        let mut path = label.task.split(task_path::JOINT).map(|component| {
            // The component alone is a task of one component.
            SegmentLabel { task: component.into(), ..label.clone() }.operation()
        });
        let no_servers = || !self.flags.values().any(|flags| SpanFlags(*flags).contains(SpanFlags::SERVER));
        if path.any(|operation| is(&operation, SpanFlags::SERVER)) || no_servers() {
            Category::Server
        } else {
            Category::Client
        }
    }
}
