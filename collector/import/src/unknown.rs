//! Handles records of no known form.

use super::BadLine;
use super::json_shape::JsonShape;
use super::take::Take;
use stroboscope_store::limits::IMPORT_BAD_LINES_SHOWN;

/// Maximum number of keys that a description names.
const KEYS_SHOWN: usize = 8;

/// Holds back reports of records of no known form until the source, or one of its records, turns
/// out to have a known form. From then on, each such record is reported with its line. A source
/// without known forms is reported in one sentence.
#[derive(Debug, Default)]
pub(super) struct Unknown {
    is_known: bool,
    held: Vec<(u64, BadLine)>,
    /// Number of records of no known form beyond those in `held`. Only the line and the reason of
    /// the `last` of them are kept.
    more: u64,
    last: Option<(u64, BadLine)>,
    /// Description of the first record of no known form.
    first: Option<String>,
}

impl Unknown {
    /// Notes that the source, or one of its records, has a known form. The first call passes on all
    /// reports that were held back; those beyond [`IMPORT_BAD_LINES_SHOWN`] have the last one's
    /// line and reason.
    pub(super) fn known(&mut self, take: &mut dyn Take) {
        if std::mem::replace(&mut self.is_known, true) {
            return;
        }
        for (line, reason) in self.held.drain(..) {
            take.bad(line, &reason);
        }
        if let Some((line, reason)) = &self.last {
            (0..self.more).for_each(|_| take.bad(*line, reason));
        }
    }

    /// Reports a record of no known form, or holds the report back; `what` describes the record.
    pub(super) fn take(&mut self, line: u64, reason: BadLine, what: String, take: &mut dyn Take) {
        if self.is_known {
            return take.bad(line, &reason);
        }
        self.first.get_or_insert(what);
        if self.held.len() < IMPORT_BAD_LINES_SHOWN {
            self.held.push((line, reason));
        } else {
            self.more += 1;
            self.last = Some((line, reason));
        }
    }

    /// Describes the records of no known form. Returns `None` if there are none, or after a call of
    /// [`known`](Self::known).
    pub(super) fn holds(&self) -> Option<String> {
        let count = self.held.len() as u64 + self.more;
        let first = self.first.as_ref().filter(|_| !self.is_known)?;
        Some(match count {
            1 => first.clone(),
            _ => format!("{count} records, the first of them {first}"),
        })
    }
}

/// Describes a record by its first keys. Without keys, states whether it is JSON.
pub(super) fn describe(is_json: bool, shape: &JsonShape) -> String {
    if !is_json && shape.keys.is_empty() {
        return "text that is not JSON".to_owned();
    }
    let first = shape.keys.iter().take(KEYS_SHOWN);
    let keys = first.map(|(key, _)| format!("`{}`", key.escape_debug()));
    let mut keys: Vec<String> = keys.collect();
    if shape.keys.len() > KEYS_SHOWN {
        keys.push("…".to_owned());
    }
    if keys.is_empty() {
        return "JSON without any key".to_owned();
    }
    format!("a JSON object with the keys {}", keys.join(", "))
}
