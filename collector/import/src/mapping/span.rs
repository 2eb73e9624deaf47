//! Builds spans with a mapping.

use std::borrow::Cow;

use serde::Deserialize;
use stroboscope_proto::v1::SpanFlag;
use toml::Spanned;

use super::fields::Fields;
use super::template::{Template, needed};
use super::{Wrong, unit};
use crate::BadLine;
use crate::time::{TimeUnit, Times, duration_ns};
use stroboscope_otlp::{Attributes, ForeignSpan, own_span_id, span_number};

/// Keys of the section `[span]` as deserialized from TOML, before they are validated.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct SpanTable {
    id: Option<Spanned<String>>,
    parent: Option<Spanned<String>>,
    name: Option<Spanned<String>>,
    service: Option<Spanned<String>>,
    kind: Option<Spanned<String>>,
    start: Option<Spanned<String>>,
    end: Option<Spanned<String>>,
    duration: Option<Spanned<String>>,
    duration_unit: Option<Spanned<String>>,
}

/// Templates for two of a span's start, end and duration.
#[derive(Clone, Debug)]
enum SpanInterval {
    StartEnd(Template, Template),
    StartDuration(Template, Template, TimeUnit),
    EndDuration(Template, Template, TimeUnit),
}

/// Templates for the parts of a span.
#[derive(Clone, Debug)]
pub(super) struct SpanParts {
    id: Template,
    parent: Option<Template>,
    name: Template,
    service: Option<Template>,
    kind: Option<Template>,
    interval: SpanInterval,
}

/// Makes a template from the value of a key; the last argument is an example for the error message.
type MakeTemplate<'a> = dyn Fn(&str, Option<Spanned<String>>, &str) -> Result<Template, Wrong> + 'a;

impl SpanParts {
    /// Validates the section that begins at byte `at`. `template` makes a template from the value
    /// of a key. Fails if a required key is missing, if a key is invalid, or if `start`, `end` and
    /// `duration` are all given.
    pub(super) fn new(
        table: SpanTable,
        at: usize,
        template: &MakeTemplate<'_>,
    ) -> Result<Self, Wrong> {
        let missing = |key: &str, example: &str| Wrong {
            at,
            what: format!("`{key}` is missing in [span]; write for example {key} = \"{example}\""),
        };
        let of = |key: &str, value: Option<Spanned<String>>, example: &str| match value {
            Some(_) => template(key, value, example),
            None => Err(missing(key, example)),
        };
        let maybe = |key: &str, value: Option<Spanned<String>>| {
            let template = value.map(|value| template(key, Some(value), ""));
            template.transpose()
        };
        let duration_unit = table.duration_unit.as_ref().map(unit).transpose()?;
        let duration_unit = || duration_unit.ok_or_else(|| missing("duration_unit", "ms"));
        let (start, end) = (maybe("start", table.start)?, maybe("end", table.end)?);
        let interval = match (start, end, maybe("duration", table.duration)?) {
            (Some(start), Some(end), None) => SpanInterval::StartEnd(start, end),
            (Some(start), None, Some(length)) => {
                SpanInterval::StartDuration(start, length, duration_unit()?)
            }
            (None, Some(end), Some(length)) => {
                SpanInterval::EndDuration(end, length, duration_unit()?)
            }
            _ => {
                let what = "[span] needs two of `start`, `end` and `duration`".to_owned();
                return Err(Wrong { at, what });
            }
        };
        Ok(Self {
            id: of("id", table.id, "{span_id}")?,
            parent: maybe("parent", table.parent)?,
            name: of("name", table.name, "{name}")?,
            service: maybe("service", table.service)?,
            kind: maybe("kind", table.kind)?,
            interval,
        })
    }

    /// Returns the templates of all keys that are set.
    pub(super) fn templates(&self) -> Vec<&Template> {
        let (one, other) = match &self.interval {
            SpanInterval::StartEnd(one, other)
            | SpanInterval::StartDuration(one, other, _)
            | SpanInterval::EndDuration(one, other, _) => (one, other),
        };
        let maybe = [&self.parent, &self.service, &self.kind].into_iter();
        let always = [&self.id, &self.name, one, other].into_iter();
        always.chain(maybe.flatten()).collect()
    }

    /// Builds the span of the record `number`.
    ///
    /// # Errors
    /// Returns the missing part or the record's defect.
    pub(super) fn span(
        &self,
        number: u64,
        fields: &Fields<'_>,
        times: &mut Times,
        (trace, host): (&str, &str),
        attributes: Attributes,
    ) -> Result<ForeignSpan, BadLine> {
        let needed = |what: &'static str, template: &Template| -> Result<String, BadLine> {
            needed(what, template, fields).map(Cow::into_owned)
        };
        let maybe = |template: &Option<Template>| -> Result<Option<String>, BadLine> {
            let filled = template.as_ref().map(|template| template.fill(fields));
            Ok(filled.transpose()?.flatten().map(Cow::into_owned))
        };
        let (start_ns, end_ns) = match &self.interval {
            SpanInterval::StartEnd(start, end) => (
                times.text(&needed("start", start)?, number)?,
                times.text(&needed("end", end)?, number)?,
            ),
            SpanInterval::StartDuration(start, length, unit) => {
                let start_ns = times.text(&needed("start", start)?, number)?;
                let text = needed("duration", length)?;
                let end_ns = start_ns.checked_add(duration_ns(&text, *unit)?);
                (start_ns, end_ns.ok_or_else(|| out(text, *unit))?)
            }
            SpanInterval::EndDuration(end, length, unit) => {
                let end_ns = times.text(&needed("end", end)?, number)?;
                let text = needed("duration", length)?;
                let start_ns = end_ns - duration_ns(&text, *unit)?;
                if start_ns < 0 {
                    return Err(out(text, *unit));
                }
                (start_ns, end_ns)
            }
        };
        let mut span = ForeignSpan {
            trace: plain_id(trace).to_owned(),
            span_id: own_span_id(plain_id(&needed("id", &self.id)?))?,
            parent_id: span_number(plain_id(&maybe(&self.parent)?.unwrap_or_default())),
            service: maybe(&self.service)?.unwrap_or_default(),
            name: needed("name", &self.name)?,
            host: host.to_owned(),
            start_ns,
            end_ns,
            attributes,
            ..ForeignSpan::default()
        };
        if let Some(kind) = maybe(&self.kind)? {
            set_kind(&mut span, &kind);
        }
        Ok(span)
    }
}

fn out(duration: String, unit: TimeUnit) -> BadLine {
    BadLine::IntervalOutOfRange {
        duration,
        unit: unit.name(),
    }
}

/// Strips the prefix `0x` from an id of 16 or 32 hexadecimal digits, because both notations mean
/// the same id.
fn plain_id(text: &str) -> &str {
    let is_id = |digits: &&str| {
        [16, 32].contains(&digits.len()) && digits.bytes().all(|byte| byte.is_ascii_hexdigit())
    };
    text.strip_prefix("0x").filter(is_id).unwrap_or(text)
}

/// Sets the kind, in the notations of OpenTelemetry's programs: `client`, `SPAN_KIND_CLIENT`,
/// `SpanKind.CLIENT`. Kinds other than client and server become the attribute `span.kind`.
fn set_kind(span: &mut ForeignSpan, written: &str) {
    let lower = written.to_ascii_lowercase();
    let mut prefixes = ["span_kind_", "spankind."].into_iter();
    let kind = prefixes.find_map(|prefix| lower.strip_prefix(prefix));
    match kind.unwrap_or(&lower) {
        "client" => span.flags |= SpanFlag::Client as u32,
        "server" => span.flags |= SpanFlag::Server as u32,
        kind => {
            span.attributes.insert("span.kind".to_owned(), kind.into());
        }
    }
}
