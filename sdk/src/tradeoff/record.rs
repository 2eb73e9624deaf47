//! Records tradeoffs in a trace, as events of the current span.

use std::fmt::Write as _;

use stroboscope_tradeoff::Feature;

use super::identity::PointIdentity;
use crate::loss::{LOSSES, LossCause};
use crate::{gate, generation};

/// Name of the event for a tradeoff. It always has all of these attributes:
///
/// - `tradeoff.point`, `.kind` (`omit`, `default`, `low_fidelity`), `.proactive`, `.explored`,
///   `.by_model`
/// - `.items`, `.omitted`, `.omitted_by` (number by the first feature, such as `ads=12 pages=3`)
/// - `.requests_per_second`, `.under_way`, `.policy` (version; 0 if there is none, or if reactive),
///   `.cause` (empty if proactive)
pub const EVENT: &str = "stroboscope.tradeoff";
/// Name of the event for the value of items to a response. Attributes: `tradeoff_items.point`,
/// `.schema` (names of features, separated by tabs), `.rows` (one line per item: features and loss,
/// separated by tabs).
pub const ITEMS_EVENT: &str = "stroboscope.tradeoff.items";

/// Maximum length in bytes of a list of classes or rows, slightly below the maximum of a text in a
/// record.
const TEXT_BYTES: usize = 1_000;
/// Maximum number of items per response; more are sampled evenly.
const ITEMS_MAX: usize = 512;

pub(super) struct TradeoffRecord<'a> {
    pub(super) items: usize,
    pub(super) omitted: usize,
    pub(super) omitted_by: &'a str,
    pub(super) policy: u64,
    pub(super) is_explored: bool,
    pub(super) is_by_model: bool,
}

pub(super) fn made(point: &PointIdentity, made: &TradeoffRecord<'_>) {
    record(point, made, true, "");
}

pub(super) fn reacted(point: &PointIdentity, items: usize, omitted: usize, cause: &str) {
    let made = TradeoffRecord {
        items,
        omitted,
        omitted_by: "",
        policy: 0,
        is_explored: false,
        is_by_model: false,
    };
    record(point, &made, false, cause);
}

fn record(point: &PointIdentity, made: &TradeoffRecord<'_>, is_proactive: bool, cause: &str) {
    crate::event!(
        EVENT,
        tradeoff.point = point.name,
        tradeoff.kind = point.kind_name(),
        tradeoff.proactive = is_proactive,
        tradeoff.items = made.items,
        tradeoff.omitted = made.omitted,
        tradeoff.omitted_by = made.omitted_by,
        tradeoff.requests_per_second = point.requests_per_second(),
        tradeoff.under_way = point.under_way(generation::current()),
        tradeoff.policy = made.policy,
        tradeoff.explored = made.is_explored,
        tradeoff.by_model = made.is_by_model,
        tradeoff.cause = cause
    );
}

/// Counts items by their first feature, if it is discrete, in order of their first appearance:
/// `ads=12 pages=3`. Leaves out the first value that does not fit [`TEXT_BYTES`] and all later
/// ones, and counts one [`LossCause::Oversize`].
pub(super) fn counted<'a, const N: usize>(items: impl Iterator<Item = [Feature<'a>; N]>) -> String {
    let mut counts: Vec<(&str, usize)> = Vec::new();
    for item in items {
        let Some(Feature::Is(class)) = item.first() else {
            continue;
        };
        match counts.iter_mut().find(|(known, _)| known == class) {
            Some((_, count)) => *count += 1,
            None => counts.push((class, 1)),
        }
    }
    let mut text = String::new();
    for (class, count) in counts {
        let before = text.len();
        let separator = if text.is_empty() { "" } else { " " };
        let _ = write!(text, "{separator}{class}={count}");
        if text.len() > TEXT_BYTES {
            text.truncate(before);
            LOSSES.add(LossCause::Oversize, 1);
            break;
        }
    }
    text
}

/// Records the values of items, in events with texts of at most [`TEXT_BYTES`]. Records at most
/// [`ITEMS_MAX`] items, evenly spaced. Leaves out an item that alone is longer than a text, and
/// counts it as [`LossCause::Oversize`].
pub(super) fn items<'a, const N: usize>(
    point: &PointIdentity,
    items: impl ExactSizeIterator<Item = ([Feature<'a>; N], f64)>,
) {
    if gate::is_idle() {
        return;
    }
    let schema = point.features.join("\t");
    let every = items.len().div_ceil(ITEMS_MAX).max(1);
    let mut rows = String::new();
    for (features, loss) in items.step_by(every) {
        let before = rows.len();
        for feature in features {
            let _ = match feature {
                Feature::Is(value) => write!(rows, "{}\t", value.replace(['\t', '\n'], " ")),
                Feature::Measures(value) => write!(rows, "{value}\t"),
            };
        }
        let _ = writeln!(rows, "{loss}");
        if rows.len() - before > TEXT_BYTES {
            rows.truncate(before);
            LOSSES.add(LossCause::Oversize, 1);
        } else if rows.len() > TEXT_BYTES {
            let rest = rows.split_off(before);
            record_rows(point, &schema, &rows);
            rows = rest;
        }
    }
    if !rows.is_empty() {
        record_rows(point, &schema, &rows);
    }
}

fn record_rows(point: &PointIdentity, schema: &str, rows: &str) {
    crate::event!(
        ITEMS_EVENT,
        tradeoff_items.point = point.name,
        tradeoff_items.schema = schema,
        tradeoff_items.rows = rows
    );
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn features_that_are_left_out_are_counted() {
        let names: Vec<String> = (0..300).map(|number| format!("class{number}")).collect();
        let counts = |names: &[String]| counted(names.iter().map(|name| [Feature::Is(name)]));
        let lost = || LOSSES.get(LossCause::Oversize);
        let before = lost();
        assert_eq!(counts(&names[..2]), "class0=1 class1=1");
        assert_eq!(lost(), before);
        let text = counts(&names);
        assert!(
            (TEXT_BYTES - 11..=TEXT_BYTES).contains(&text.len()),
            "{text}"
        );
        assert_eq!(lost(), before + 1);
    }
}
