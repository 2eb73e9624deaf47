//! What says which side a request is of: an attribute, or the process or host that served it.

use std::sync::Arc;

use stroboscope_analysis::attribute::Attribute;
use stroboscope_analysis::record::{SpanRecord, TraceRecords};

/// The name of what is no attribute.
const PROCESS: &str = "process";

/// What says it.
#[derive(Clone, Debug)]
pub(super) enum Assignment {
    /// What the request as a whole says.
    Attribute(Attribute),
    /// The process, or the host, that served it: of this service, or of the root span.
    Instance {
        is_process: bool,
        of: Option<String>,
    },
}

/// What a request says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Said {
    Value(Arc<str>),
    /// Several instances served it, as happens while one fails.
    Several,
    Nothing,
}

impl Assignment {
    /// By this attribute, or by the instance of a service.
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

    pub(super) fn of_request(&self, records: &TraceRecords) -> Said {
        let (is_process, of) = match self {
            Assignment::Attribute(attribute) => {
                let value = attribute.of_request(records);
                return value.map_or(Said::Nothing, Said::Value);
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
            return Said::Nothing;
        };
        let is_same = |span: &&SpanRecord| match is_process {
            true => span.process == first.process,
            false => span.host == first.host,
        };
        match spans.iter().all(is_same) {
            true if is_process => Said::Value(process_name(first.process).into()),
            true => Said::Value(first.host.clone()),
            false => Said::Several,
        }
    }
}

/// As much of an incarnation as tells it from others.
fn process_name(process: u128) -> String {
    format!("{:08x}", process >> 96)
}
