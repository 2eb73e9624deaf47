//! Assignment of requests to sides, by an attribute, or by the process or host that served them.

use std::sync::Arc;

use stroboscope_analysis::attribute::Attribute;
use stroboscope_analysis::record::{SpanRecord, TraceRecords};

/// Name that selects the process instead of an attribute.
const PROCESS: &str = "process";

/// Property of a request that determines the request's side.
#[derive(Clone, Debug)]
pub(super) enum Assignment {
    /// Attribute of the request as a whole.
    Attribute(Attribute),
    /// Process or host that served the request in the service `of`. If `of` is `None`, the process
    /// of the root span counts.
    Instance {
        is_process: bool,
        of: Option<String>,
    },
}

/// Value, in one request, of the property that an [`Assignment`] reads.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum AssignmentReading {
    Value(Arc<str>),
    /// Several instances served the request, for example because one failed.
    Several,
    Nothing,
}

impl Assignment {
    /// Returns the assignment by process if `by` is `process`; by host if `by` is `host` or
    /// `host.name` and a service is given; otherwise by the attribute `by`.
    pub(super) fn of(by: &str, service: Option<&str>) -> Assignment {
        let attribute = Attribute::named(by);
        let is_process = by == PROCESS;
        match (is_process, &attribute, service) {
            (true, _, of) | (false, Attribute::Host, of @ Some(_)) => Assignment::Instance {
                is_process,
                of: of.map(str::to_owned),
            },
            _ => Assignment::Attribute(attribute),
        }
    }

    pub(super) fn of_unit(unit: &str) -> Assignment {
        Assignment::of(unit, None)
    }

    pub(super) fn recorded_key(&self) -> Option<&str> {
        match self {
            Assignment::Attribute(attribute) => attribute.recorded_key(),
            Assignment::Instance { .. } => None,
        }
    }

    pub(super) fn of_request(&self, records: &TraceRecords) -> AssignmentReading {
        let (is_process, of) = match self {
            Assignment::Attribute(attribute) => {
                let value = attribute.of_request(records);
                return value.map_or(AssignmentReading::Nothing, AssignmentReading::Value);
            }
            Assignment::Instance { is_process, of } => (*is_process, of),
        };
        let mut spans: Vec<&SpanRecord> = match of {
            Some(of) => {
                let own = |span: &&SpanRecord| *span.service == **of;
                records.spans.iter().filter(own).collect()
            }
            None => records.root().into_iter().collect(),
        };
        if is_process {
            spans.retain(|span| span.process != 0);
        }
        let Some(first) = spans.first() else {
            return AssignmentReading::Nothing;
        };
        let is_same = |span: &&SpanRecord| match is_process {
            true => span.process == first.process,
            false => span.host == first.host,
        };
        match spans.iter().all(is_same) {
            true if is_process => AssignmentReading::Value(process_name(first.process).into()),
            true => AssignmentReading::Value(first.host.clone()),
            false => AssignmentReading::Several,
        }
    }
}

/// Returns the first eight hexadecimal digits of an incarnation's id, as a short name.
fn process_name(process: u128) -> String {
    format!("{:08x}", process >> 96)
}
