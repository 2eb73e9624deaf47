//! Parses one record with a mapping.

use std::borrow::Cow;

use super::FieldMapping;
use super::csv::Csv;
use super::fields::Fields;
use super::parts::{EventInterval, KeptAttributes, MappingParts, RecordRule, What};
use super::template::{Template, lacks, needed};
use crate::BadLine;
use crate::line::{LogEvent, check, check_count};
use crate::take::Take;
use crate::time::{Times, duration_ns};
use stroboscope_store::limits::Limits;

/// Result of reading a record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum MappedLine {
    /// The record was passed on: as an event, as the two events of an interval, or as a span.
    Taken,
    /// The mapping skips this record.
    Ignored,
}

/// Buffers reused for each record.
#[derive(Debug, Default)]
pub(crate) struct Scratch {
    attributes: String,
    name: String,
}

/// A record as read from its source, before its fields are separated.
#[derive(Clone, Copy)]
pub(crate) enum RawRecord<'a> {
    /// A line without its end, or a JSON value.
    Text(&'a [u8]),
    /// Columns of a CSV record.
    Csv(&'a Csv),
}

impl FieldMapping {
    /// Reads record `number`. `take` receives its events or its span, and the names of fields that
    /// the mapping does not use.
    ///
    /// # Errors
    /// Returns the record's defect.
    pub(crate) fn read_record(
        &self,
        (number, written): (u64, RawRecord<'_>),
        times: &mut Times,
        scratch: &mut Scratch,
        limits: &Limits,
        take: &mut dyn Take,
    ) -> Result<MappedLine, BadLine> {
        let parts = &self.parts;
        let fields = match written {
            RawRecord::Text(text) => {
                let text = std::str::from_utf8(text)?;
                let ignore = parts.ignore.as_ref();
                if ignore.is_some_and(|ignore| ignore.is_match(text)) {
                    return Ok(MappedLine::Ignored);
                }
                match &parts.records {
                    RecordRule::Pattern(pattern) => {
                        Fields::of_groups(text, pattern, &parts.absent)?
                    }
                    _ => Fields::of_json(text, &parts.absent)?,
                }
            }
            RawRecord::Csv(csv) => {
                let (names, values) = csv.columns();
                let is_ignored =
                    |ignore: &regex::Regex| values.iter().any(|value| ignore.is_match(value));
                if parts.ignore.as_ref().is_some_and(is_ignored) {
                    return Ok(MappedLine::Ignored);
                }
                Fields::of_columns(names, values, &parts.absent)
            }
        };
        let trace = match parts.trace.fill(&fields)? {
            Some(trace) => trace,
            None if parts.ignores_without_trace => return Ok(MappedLine::Ignored),
            None => return Err(lacks("trace", &parts.trace)),
        };
        check("trace", &trace, limits)?;
        let host = parts.host.as_ref().map(|host| host.fill(&fields));
        let host = host.transpose()?.flatten().unwrap_or(Cow::Borrowed(""));
        check("host", &host, limits)?;
        match &parts.what {
            What::Span(span) => {
                let json = write_attributes(parts, &fields, &mut scratch.attributes, limits)?;
                let attributes = json.map(serde_json::from_str).transpose();
                let attributes = attributes.map_err(|error| BadLine::Json(error.to_string()))?;
                let (ids, attributes) = ((&*trace, &*host), attributes.unwrap_or_default());
                let span = span.span(number, &fields, times, ids, attributes)?;
                take.span(number, Ok(span));
            }
            What::Event {
                time,
                event,
                task,
                interval,
            } => {
                let filled = |what: &'static str, template: &Template| -> Result<String, BadLine> {
                    let text = needed(what, template, &fields)?;
                    check(what, &text, limits)?;
                    Ok(text.into_owned())
                };
                let (event, task) = (filled("event", event)?, filled("task", task)?);
                let time_ns = times.text(&needed("time", time, &fields)?, number)?;
                let event = LogEvent {
                    trace: &trace,
                    host: &host,
                    time_ns,
                    event: &event,
                    task: &task,
                    attributes: write_attributes(parts, &fields, &mut scratch.attributes, limits)?,
                };
                match interval {
                    None => take.event(&event),
                    Some(interval) => {
                        take_edges(interval, &fields, &event, &mut scratch.name, take)?;
                    }
                }
            }
        }
        if let Some(named) = &self.named_fields {
            fields.not_in(named, &mut |name| {
                take.not_taken(number, &format!("field {name}"), 1);
            });
        }
        Ok(MappedLine::Taken)
    }
}

/// Passes on the two ends of an interval as events. Fails if the duration is missing or invalid, or
/// if an end is out of range.
fn take_edges(
    interval: &EventInterval,
    fields: &Fields<'_>,
    event: &LogEvent<'_>,
    name: &mut String,
    take: &mut dyn Take,
) -> Result<(), BadLine> {
    let duration = needed("duration", &interval.duration, fields)?;
    let duration_ns = duration_ns(&duration, interval.unit)?;
    let (start_ns, end_ns) = if interval.is_start {
        (event.time_ns, event.time_ns.checked_add(duration_ns))
    } else {
        (event.time_ns - duration_ns, Some(event.time_ns))
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
        name.clear();
        name.extend([event.event, " ", edge]);
        // The attributes of an interval are known at its end, so only the end event has them.
        take.event(&LogEvent {
            event: name,
            time_ns,
            attributes: event.attributes.filter(|_| edge == "end"),
            ..*event
        });
    }
    Ok(())
}

fn write_attributes<'a>(
    parts: &MappingParts,
    fields: &Fields<'_>,
    json: &'a mut String,
    limits: &Limits,
) -> Result<Option<&'a str>, BadLine> {
    json.clear();
    json.push('{');
    let count = match &parts.attributes {
        KeptAttributes::None => 0,
        KeptAttributes::These(paths) => fields.write_these(paths, json),
        KeptAttributes::AllBut(used) => {
            check_count(fields.count_all_but(used), limits)?;
            fields.write_all_but(used, json)
        }
    };
    check_count(count, limits)?;
    json.push('}');
    Ok((count > 0).then_some(json))
}
