//! Validated contents of a mapping.

use regex::Regex;

use super::span::SpanParts;
use super::template::Template;
use crate::time::TimeUnit;

/// Choice of the fields that become attributes.
#[derive(Clone, Debug)]
pub(super) enum KeptAttributes {
    None,
    These(Vec<String>),
    /// Keeps each field except these.
    AllBut(Vec<String>),
}

/// Interval that a line describes by its time and its duration.
#[derive(Clone, Debug)]
pub(super) struct EventInterval {
    pub(super) duration: Template,
    pub(super) unit: TimeUnit,
    /// True if the line's time is that of the beginning, false if it is that of the end.
    pub(super) is_start: bool,
}

/// Rule that separates records.
#[derive(Clone, Debug)]
pub(super) enum RecordRule {
    /// Lines that are JSON objects.
    Lines,
    /// Lines that a pattern matches.
    Pattern(Regex),
    /// Lines of CSV with this delimiter.
    Csv(u8),
    /// Values at this path in JSON documents: an object, or the elements of a list.
    Path(Vec<String>),
}

/// Kind of a record, with its templates.
#[derive(Clone, Debug)]
pub(super) enum What {
    Event {
        time: Template,
        event: Template,
        task: Template,
        interval: Option<EventInterval>,
    },
    Span(SpanParts),
}

/// The parts of a mapping.
#[derive(Clone, Debug)]
pub(super) struct MappingParts {
    pub(super) records: RecordRule,
    pub(super) trace: Template,
    pub(super) host: Option<Template>,
    pub(super) what: What,
    pub(super) attributes: KeptAttributes,
    pub(super) absent: Vec<String>,
    pub(super) ignore: Option<Regex>,
    pub(super) ignores_without_trace: bool,
}

impl MappingParts {
    /// Returns the fields that keys other than `attributes` name.
    pub(super) fn used_fields(&self) -> Vec<String> {
        let of_what = match &self.what {
            What::Event {
                time,
                event,
                task,
                interval,
            } => {
                let duration = interval.as_ref().map(|interval| &interval.duration);
                [time, event, task].into_iter().chain(duration).collect()
            }
            What::Span(span) => span.templates(),
        };
        let templates = [&self.trace].into_iter().chain(&self.host).chain(of_what);
        let fields = templates.flat_map(Template::fields);
        fields.map(str::to_owned).collect()
    }

    /// Returns the fields that the mapping names, or `None` if its `attributes` are `"*"`.
    pub(super) fn named_fields(&self) -> Option<Vec<String>> {
        let named: &[String] = match &self.attributes {
            KeptAttributes::AllBut(_) => return None,
            KeptAttributes::None => &[],
            KeptAttributes::These(fields) => fields,
        };
        let mut fields = self.used_fields();
        fields.extend_from_slice(named);
        Some(fields)
    }
}
