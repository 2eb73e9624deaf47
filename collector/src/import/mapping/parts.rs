//! What a mapping says, checked.

use regex::Regex;

use super::template::Template;
use crate::import::time::TimeUnit;

/// Which attributes are kept.
#[derive(Clone, Debug)]
pub(super) enum Attributes {
    None,
    These(Vec<String>),
    /// All but these fields.
    AllBut(Vec<String>),
}

/// A line that tells of a beginning and an end.
#[derive(Clone, Debug)]
pub(super) struct Interval {
    pub(super) duration: Template,
    pub(super) unit: TimeUnit,
    /// Whether the line's time is that of the beginning.
    pub(super) is_start: bool,
}

/// The parts of a mapping.
#[derive(Clone, Debug)]
pub(super) struct Parts {
    /// None: lines are JSON objects.
    pub(super) pattern: Option<Regex>,
    pub(super) trace: Template,
    pub(super) host: Option<Template>,
    pub(super) time: Template,
    pub(super) event: Template,
    pub(super) task: Template,
    pub(super) interval: Option<Interval>,
    pub(super) attributes: Attributes,
    pub(super) absent: Vec<String>,
    pub(super) ignore: Option<Regex>,
    pub(super) ignores_without_trace: bool,
}

impl Parts {
    /// The fields that something other than `attributes` names.
    pub(super) fn used_fields(&self) -> Vec<String> {
        let templates = [&self.trace, &self.time, &self.event, &self.task].into_iter();
        let duration = self.interval.as_ref().map(|interval| &interval.duration);
        let templates = templates.chain(&self.host).chain(duration);
        templates.flat_map(Template::fields).map(str::to_owned).collect()
    }
}
