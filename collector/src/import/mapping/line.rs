//! One line by a mapping.

use std::borrow::Cow;

use super::Mapping;
use super::fields::Fields;
use super::parts::{Attributes, Parts};
use super::template::Template;
use crate::import::BadLine;
use crate::import::line::{LogEvent, check, check_count};
use crate::import::time::{Times, duration_ns};
use crate::limits::Limits;

/// What a line was.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::import) enum MappedLine {
    /// One event, or an interval's two.
    Taken,
    /// None, as the mapping says.
    Ignored,
}

/// Memory used again for each line.
#[derive(Debug, Default)]
pub(in crate::import) struct Scratch {
    attributes: String,
    name: String,
}

impl Mapping {
    /// Reads line `number`, without its end; `take` gets its events.
    ///
    /// # Errors
    /// What is wrong with it.
    pub(in crate::import) fn read_line(
        &self,
        (number, line): (u64, &[u8]),
        times: &mut Times,
        scratch: &mut Scratch,
        limits: &Limits,
        take: &mut dyn FnMut(&LogEvent<'_>),
    ) -> Result<MappedLine, BadLine> {
        let parts = &self.parts;
        let line =
            std::str::from_utf8(line).map_err(|error| BadLine::NotUtf8 { valid: error.valid_up_to() })?;
        if parts.ignore.as_ref().is_some_and(|ignore| ignore.is_match(line)) {
            return Ok(MappedLine::Ignored);
        }
        let fields = match &parts.pattern {
            Some(pattern) => Fields::of_groups(line, pattern, &parts.absent)?,
            None => Fields::of_json(line, &parts.absent)?,
        };
        let trace = match parts.trace.fill(&fields)? {
            Some(trace) => trace,
            None if parts.ignores_without_trace => return Ok(MappedLine::Ignored),
            None => return Err(lacks("trace", &parts.trace)),
        };
        let filled = |what: &'static str, template: &'_ Template| -> Result<String, BadLine> {
            let text = template.fill(&fields)?.ok_or_else(|| lacks(what, template))?;
            check(what, &text, limits)?;
            Ok(text.into_owned())
        };
        check("trace", &trace, limits)?;
        let (event, task) = (filled("event", &parts.event)?, filled("task", &parts.task)?);
        let host = parts
            .host
            .as_ref()
            .map(|host| host.fill(&fields))
            .transpose()?
            .flatten()
            .unwrap_or(Cow::Borrowed(""));
        check("host", &host, limits)?;
        let time = parts.time.fill(&fields)?.ok_or_else(|| lacks("time", &parts.time))?;
        let time_ns = times.text(&time, number)?;
        let attributes = write_attributes(parts, &fields, &mut scratch.attributes, limits)?;
        let event = LogEvent { trace: &trace, host: &host, time_ns, event: &event, task: &task, attributes };
        let Some(interval) = &parts.interval else {
            take(&event);
            return Ok(MappedLine::Taken);
        };
        let duration =
            interval.duration.fill(&fields)?.ok_or_else(|| lacks("duration", &interval.duration))?;
        let duration_ns = duration_ns(&duration, interval.unit)?;
        let (start_ns, end_ns) = if interval.is_start {
            (time_ns, time_ns.checked_add(duration_ns))
        } else {
            (time_ns - duration_ns, Some(time_ns))
        };
        let (start_ns, end_ns) = match (u64::try_from(start_ns), end_ns) {
            (Ok(_), Some(end_ns)) => (start_ns, end_ns),
            _ => {
                return Err(BadLine::IntervalOutOfRange {
                    duration: duration.into_owned(),
                    unit: interval.unit.name(),
                });
            }
        };
        for (edge, time_ns) in [("begin", start_ns), ("end", end_ns)] {
            scratch.name.clear();
            scratch.name.extend([event.event, " ", edge]);
            // What is known of an interval is known when it is over, and is told once.
            let attributes = event.attributes.filter(|_| edge == "end");
            take(&LogEvent { event: &scratch.name, time_ns, attributes, ..event });
        }
        Ok(MappedLine::Taken)
    }
}

fn lacks(what: &'static str, template: &Template) -> BadLine {
    BadLine::Lacks { what, fields: template.fields().map(|field| format!("`{field}`")).collect() }
}

fn write_attributes<'a>(
    parts: &Parts,
    fields: &Fields<'_>,
    json: &'a mut String,
    limits: &Limits,
) -> Result<Option<&'a str>, BadLine> {
    json.clear();
    json.push('{');
    let count = match &parts.attributes {
        Attributes::None => 0,
        Attributes::These(paths) => fields.write_these(paths, json),
        Attributes::AllBut(used) => {
            check_count(fields.count().saturating_sub(used.len()), limits)?;
            fields.write_all_but(used, json)
        }
    };
    check_count(count, limits)?;
    json.push('}');
    Ok((count > 0).then_some(json))
}
