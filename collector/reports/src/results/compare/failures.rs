//! Failed requests before and after, and the origins of additional failures.

use crate::regression::Finding;
use schemars::JsonSchema;
use serde::Serialize;
use stroboscope_query::{FailureShift, OriginShift};
use stroboscope_render::humanise::{counted, percent};
use stroboscope_render::rows;
use stroboscope_render::show::Doc;

/// Maximum number of origins for each root operation. The table shows twice as many in all.
const ORIGINS_MAX: usize = 8;

/// Requests of a root operation, and how many of them failed. Incomplete requests count, too.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub(super) struct FailureShiftRow {
    root: String,
    requests: Counts,
    failed: Counts,
    /// Shares of failed requests, 0 to 1.
    rates: Rates,
    /// Probability that chance alone makes the shares differ this much.
    p_value: f64,
    /// True if the share changed by more than chance, and by enough to matter.
    changed: bool,
    /// At most eight origins of failures, the largest increase first.
    origins: Vec<OriginShiftRow>,
}

/// Failed requests whose failures start at one operation in one way.
#[derive(Clone, Debug, Serialize, JsonSchema)]
struct OriginShiftRow {
    #[serde(skip)]
    root: String,
    /// Operation at which the failures start.
    origin: String,
    /// Type of the error, `panic`, or the span's status; `error` if the span states none.
    kind: String,
    /// Error message, with ids replaced by `*`; empty if there is none.
    message: String,
    requests: Counts,
    /// Trace id of the first request with this failure, from the later period if it has one.
    example: Option<String>,
    /// Operations through which the failure of the example travelled, from the origin upwards; the
    /// middle of a list of more than 24 is replaced by its number of operations.
    trail: Vec<String>,
}

#[derive(Clone, Copy, Debug, Serialize, JsonSchema)]
struct Counts {
    before: u64,
    after: u64,
}

#[derive(Clone, Copy, Debug, Serialize, JsonSchema)]
struct Rates {
    before: f64,
    after: f64,
}

rows! {
    OriginShiftRow as row, "failures_compared": "Failed requests of two periods whose failures start at one operation in one way.";
    origin: Text, "failures start at" = &*row.origin;
    kind: Text, "with" = &*row.kind;
    message: Text, "message" = Some(&*row.message).filter(|message| !message.is_empty());
    before: Count, "before" = row.requests.before;
    after: Count, "after" = row.requests.after;
    example: Request, "first in" = row.example.as_deref();
    root: Text, "root operation" = &*row.root;
    trail: Text, "travelled" = &*row.trail.join(" → ");
}

impl OriginShiftRow {
    fn of(origin: &OriginShift) -> Self {
        let [before, after] = &origin.failures;
        let example = after.example.as_ref().or(before.example.as_ref()).cloned();
        let (example, trail) = example.unzip();
        Self {
            root: origin.group.root.clone(),
            origin: origin.group.origin.clone(),
            kind: origin.group.stated.kind.clone(),
            message: origin.group.stated.message.clone(),
            requests: Counts {
                before: before.requests.rounded(),
                after: after.requests.rounded(),
            },
            example: example.map(|id| id.to_string()),
            trail: trail.unwrap_or_default(),
        }
    }
}

impl FailureShiftRow {
    pub(super) fn of(shift: &FailureShift) -> Self {
        let [before, after] = shift.outcomes;
        let origins = shift.origins.iter().take(ORIGINS_MAX);
        Self {
            root: shift.root.clone(),
            requests: Counts {
                before: before.requests.rounded(),
                after: after.requests.rounded(),
            },
            failed: Counts {
                before: before.failed.rounded(),
                after: after.failed.rounded(),
            },
            rates: Rates {
                before: before.share(),
                after: after.share(),
            },
            p_value: shift.p_value,
            changed: shift.is_change,
            origins: origins.map(OriginShiftRow::of).collect(),
        }
    }

    pub(super) const fn has_changed(&self) -> bool {
        self.changed
    }

    /// Describes the rise of the share of failed requests, if it is more than chance and matters.
    pub(super) fn rise(&self) -> Option<Finding> {
        (self.changed && self.rates.after > self.rates.before).then(|| Finding {
            of: self.root.clone(),
            text: format!(
                "failed requests of {} rose from {} to {} (p = {:.1e})",
                self.root,
                percent(self.rates.before),
                percent(self.rates.after),
                self.p_value
            ),
        })
    }

    /// Describes the change and, if the share rose, the origin with the largest increase.
    fn sentence(&self) -> String {
        let change = format!(
            "Of {}, {} fail rather than {}: {} of {} after, {} of {} before",
            self.root,
            percent(self.rates.after),
            percent(self.rates.before),
            self.failed.after,
            counted(self.requests.after, "request"),
            self.failed.before,
            self.requests.before,
        );
        let more = self.origins.first();
        let more = more.filter(|_| self.rates.after > self.rates.before);
        let Some(more) = more else {
            return format!("{change}.");
        };
        let message = match &*more.message {
            "" => String::new(),
            message => format!(": {message}"),
        };
        let Counts { before, after } = more.requests;
        format!(
            "{change}. Of these failures, {after} start at {} ({}{message}), and {before} before; they travel {}.",
            more.origin,
            more.kind,
            more.trail.join(" → ")
        )
    }
}

/// Describes the changed shares of failed requests, and lists the origins of failures. Shows
/// nothing if no request failed.
pub(super) fn show(rows: &[FailureShiftRow], doc: &mut Doc) {
    for row in rows.iter().filter(|row| row.changed) {
        doc.sentence(row.sentence());
    }
    if !rows.is_empty() && !rows.iter().any(FailureShiftRow::has_changed) {
        let failed = |of: fn(&Counts) -> u64| rows.iter().map(|row| of(&row.failed)).sum::<u64>();
        doc.sentence(format!(
            "Failed: {} before, {} after; their share did not change by more than chance explains.",
            counted(failed(|of| of.before), "request"),
            failed(|of| of.after)
        ));
    }
    let origins: Vec<OriginShiftRow> = rows.iter().flat_map(|row| row.origins.clone()).collect();
    doc.table("Origins of failures", &origins, 2 * ORIGINS_MAX);
}
