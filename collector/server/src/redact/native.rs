//! Redacts batches of our own protocol: attributes are columns, and their texts are interned.
//! Provenance logs are files inside the batch; their items are rewritten. A log that cannot be
//! redacted, such as one of a newer version than this collector reads, is dropped.

use std::collections::HashMap;
use std::iter::Copied;
use std::slice::Iter;
use std::sync::atomic::Ordering::Relaxed;

use stroboscope_proto::v1::{AttributeKind, Attributes, Batch};
use stroboscope_provenance::{Item, rewrite_items};
use stroboscope_store::decode::Refusal;
use stroboscope_store::limits::Limits;

use super::{ALL_MASKS, Action, Place, Redaction, Verdict, pattern, whole};
use crate::line_limit::{LineLimit, Turn};

static DROPPED: LineLimit = LineLimit::new();

/// Redacts a batch. If a value was redacted, or if there are masks, empties the texts that nothing
/// references, as they may be redacted values.
pub(super) fn redact(
    redaction: &Redaction,
    batch: &mut Batch,
    limits: &Limits,
) -> Result<(), Refusal> {
    let Batch {
        process,
        strings,
        spans,
        events,
        ..
    } = batch;
    if let Some(process) = process {
        for text in [
            &mut process.service,
            &mut process.host,
            &mut process.sdk_version,
        ] {
            if let Some(masked) = redaction.masked(text, ALL_MASKS) {
                *text = masked;
            }
        }
    }
    let mut texts = Texts {
        redaction,
        verdicts: vec![None; strings.len()],
        masked: vec![Vec::new(); redaction.masks.len() + 1],
        strings,
        replacements: HashMap::new(),
    };
    let mut is_changed = !redaction.masks.is_empty();
    if let Some(spans) = spans {
        texts.mask_all(&mut spans.name_string);
        let columns = spans.attributes.as_mut();
        is_changed |= of_records(&mut texts, &mut spans.attribute_count, columns)?;
    }
    if let Some(events) = events {
        texts.mask_all(&mut events.name_string);
        let columns = events.attributes.as_mut();
        is_changed |= of_records(&mut texts, &mut events.attribute_count, columns)?;
    }
    if is_changed {
        empty_unnamed(batch);
    }
    let logs = &mut batch.provenance;
    logs.retain_mut(|log| redact_log(redaction, &mut log.log, limits.provenance_bytes_max));
    Ok(())
}

/// Redacts a provenance log. Returns false if the log must be dropped: it cannot be parsed, or its
/// hashes and masks, which may be longer than the texts they replace, lengthen it beyond the limit.
fn redact_log(redaction: &Redaction, log: &mut Vec<u8>, bytes_max: usize) -> bool {
    let (cause, reason) = match rewrite_items(log, |item| of_item(redaction, item)) {
        Ok(rewritten) if rewritten.len() <= bytes_max.max(log.len()) => {
            *log = rewritten;
            return true;
        }
        Ok(rewritten) => {
            let bytes = rewritten.len();
            (
                1,
                format!("it has {bytes} bytes after redaction, the limit is {bytes_max}"),
            )
        }
        Err(error) => (0, error.to_string()),
    };
    redaction.logs_dropped[cause].fetch_add(1, Relaxed);
    if let Some(Turn { left_out }) = DROPPED.next() {
        tracing::warn!(
            left_out,
            "dropped a provenance log that cannot be redacted: {reason}"
        );
    }
    false
}

/// Redacts the name and the content of a tracked item. If there are rules by key, only a `keep`
/// rule can keep the content, as its bytes may be secret under any name. No hash may replace it,
/// and a mask is as long as its match, because answers assign bytes of the content to sources by
/// offset.
fn of_item(redaction: &Redaction, item: &mut Item) {
    let none = Verdict {
        action: Action::Keep,
        masks: ALL_MASKS,
    };
    let verdict = |part| redaction.first_rule(|rule| rule.fits(&item.name) || rule.fits(part));
    let of_name = verdict("provenance.name").unwrap_or(none);
    let of_content = match verdict("provenance.content") {
        None if redaction.rules.is_empty() => Some(none),
        verdict => verdict.filter(|verdict| verdict.action == Action::Keep),
    };
    if !item.name.is_empty() {
        redaction.count(of_name.action);
        match of_name.action {
            Action::Keep => {
                if let Some(masked) = redaction.masked(&item.name, of_name.masks) {
                    item.name = masked.into();
                }
            }
            Action::Drop => item.name = "".into(),
            Action::Hash => item.name = redaction.hash(item.name.as_bytes()).into(),
        }
    }
    let masks = of_content.map(|verdict| redaction.masks(verdict.masks));
    let is_kept = masks.is_some_and(|masks| {
        if pattern::overwrite(masks, &mut item.content) {
            redaction.count_masked();
        }
        // A pattern may match the asterisks, or other bytes than before.
        !masks.iter().any(|mask| mask.occurs_in(&item.content))
    });
    if !is_kept && !item.content.is_empty() {
        redaction.count(Action::Drop);
        item.content = Box::default();
    }
}

struct Texts<'a> {
    redaction: &'a Redaction,
    strings: &'a mut Vec<String>,
    /// Decisions for the keys seen so far, by the index of their text.
    verdicts: Vec<Option<Verdict>>,
    /// By the number of masks that apply: for each text, the index of its masked text, or its own
    /// if no mask matches. `None` for texts that were not needed yet.
    masked: Vec<Vec<Option<u32>>>,
    /// Index of each hash and each masked text.
    replacements: HashMap<String, u32>,
}

impl Texts<'_> {
    fn verdict(&mut self, column: &'static str, at: usize, key: u32) -> Result<Verdict, Refusal> {
        let text = self.text(column, at, key)?;
        let known = self.verdicts.get(key as usize).copied().flatten();
        let verdict = known.unwrap_or_else(|| self.redaction.look_up(Place::PLAIN, text));
        if let Some(place) = self.verdicts.get_mut(key as usize) {
            *place = Some(verdict);
        }
        self.redaction.count(verdict.action);
        Ok(verdict)
    }

    fn text(&self, column: &'static str, at: usize, index: u32) -> Result<&str, Refusal> {
        let strings = self.strings.len();
        let text = self.strings.get(index as usize);
        text.map(String::as_str).ok_or(Refusal::StringIndex {
            column,
            at,
            index,
            strings,
        })
    }

    fn hashed(&mut self, value: &str) -> u32 {
        let hash = self.redaction.hash(value.as_bytes());
        self.interned(hash)
    }

    fn interned(&mut self, text: String) -> u32 {
        if let Some(index) = self.replacements.get(&text) {
            return *index;
        }
        let index = u32::try_from(self.strings.len()).unwrap_or(u32::MAX);
        self.strings.push(text.clone());
        self.replacements.insert(text, index);
        index
    }

    /// Returns the index of a text after masking: if a mask matches, that of a new text, as other
    /// attributes may keep the old one. Keeps an index out of range; the check rejects it.
    fn masked(&mut self, index: u32, masks: usize) -> u32 {
        let masks = self.redaction.masks(masks);
        let Some(text) = self
            .strings
            .get(index as usize)
            .filter(|_| !masks.is_empty())
        else {
            return index;
        };
        let known = &mut self.masked[masks.len()];
        known.resize(known.len().max(index as usize + 1), None);
        let masked = match known[index as usize] {
            Some(masked) => masked,
            None => {
                let masked = pattern::masked(masks, text).map_or(index, |text| self.interned(text));
                self.masked[masks.len()][index as usize] = Some(masked);
                masked
            }
        };
        if masked != index {
            self.redaction.count_masked();
        }
        masked
    }

    /// Returns a value as text, for its hash.
    fn plain(&self, value: Value) -> String {
        match value {
            Value::Int(int) => int.to_string(),
            Value::Bool(int) => (int != 0).to_string(),
            Value::Uint(uint) => uint.to_string(),
            Value::Double(double) => double.to_string(),
            Value::Text(index) => self
                .strings
                .get(index as usize)
                .cloned()
                .unwrap_or_default(),
        }
    }

    fn mask_all(&mut self, indices: &mut [u32]) {
        for index in indices {
            *index = self.masked(*index, ALL_MASKS);
        }
    }

    /// Returns the index of the text that replaces a value in which a mask matches.
    fn masked_value(&mut self, value: Value, masks: usize) -> Option<u32> {
        let number = match value {
            _ if self.redaction.masks(masks).is_empty() => None,
            Value::Text(index) => {
                let masked = self.masked(index, masks);
                return (masked != index).then_some(masked);
            }
            Value::Int(int) => Some(int.to_string()),
            Value::Uint(uint) => Some(uint.to_string()),
            Value::Double(double) => whole(double),
            Value::Bool(_) => None,
        };
        let masked = self.redaction.masked(&number?, masks)?;
        Some(self.interned(masked))
    }
}

/// Value of an attribute.
#[derive(Clone, Copy)]
enum Value {
    Int(i64),
    /// The number that was sent; 0 means false.
    Bool(i64),
    Uint(u64),
    Double(f64),
    /// Index of the text.
    Text(u32),
}

/// Returns the next element of a column of values.
fn next<T: Copy>(
    values: &mut Copied<Iter<'_, T>>,
    column: &'static str,
    got: usize,
) -> Result<T, Refusal> {
    let expected = got + 1;
    values.next().ok_or(Refusal::ColumnLength {
        column,
        got,
        expected,
    })
}

/// Redacts the attributes of all records. Returns true if a rule drops or hashes the value of an
/// attribute.
fn of_records(
    texts: &mut Texts<'_>,
    counts: &mut [u32],
    columns: Option<&mut Attributes>,
) -> Result<bool, Refusal> {
    let Some(columns) = columns else {
        return Ok(false);
    };
    let told: usize = counts.iter().map(|count| *count as usize).sum();
    let got = columns.key_string.len();
    for (column, length) in [
        ("attributes.key_string", told),
        ("attributes.kind", columns.kind.len()),
    ] {
        if length != got {
            return Err(Refusal::ColumnLength {
                column,
                got,
                expected: length,
            });
        }
    }
    let old = columns.clone();
    let mut new = Attributes::default();
    let mut ints = old.int_values.iter().copied();
    let mut uints = old.uint_values.iter().copied();
    let mut doubles = old.double_values.iter().copied();
    let mut strings = old.string_values.iter().copied();
    let mut attributes = old.key_string.iter().zip(&old.kind).enumerate();
    let mut is_changed = false;
    for count in counts.iter_mut() {
        let mut kept = 0;
        for (at, (&key, &kind)) in attributes.by_ref().take(*count as usize) {
            let known =
                AttributeKind::try_from(kind).map_err(|_| Refusal::AttributeKind { kind })?;
            let Verdict { action, masks } = texts.verdict("attributes.key_string", at, key)?;
            is_changed |= action != Action::Keep;
            let value = match known {
                AttributeKind::Int | AttributeKind::Bool => {
                    let int = next(&mut ints, "attributes.int_values", old.int_values.len())?;
                    match known {
                        AttributeKind::Bool => Value::Bool(int),
                        _ => Value::Int(int),
                    }
                }
                AttributeKind::Uint => {
                    let got = old.uint_values.len();
                    Value::Uint(next(&mut uints, "attributes.uint_values", got)?)
                }
                AttributeKind::Double => {
                    let got = old.double_values.len();
                    Value::Double(next(&mut doubles, "attributes.double_values", got)?)
                }
                AttributeKind::String => {
                    let column = "attributes.string_values";
                    let index = next(&mut strings, column, old.string_values.len())?;
                    texts.text(column, at, index)?;
                    Value::Text(index)
                }
            };
            let replacement = match action {
                Action::Drop => continue,
                Action::Hash => Some(texts.hashed(&texts.plain(value))),
                Action::Keep => texts.masked_value(value, masks),
            };
            let key = texts.masked(key, masks);
            kept += 1;
            new.key_string.push(key);
            if let Some(index) = replacement {
                new.kind.push(AttributeKind::String as i32);
                new.string_values.push(index);
                continue;
            }
            new.kind.push(kind);
            match value {
                Value::Int(int) | Value::Bool(int) => new.int_values.push(int),
                Value::Uint(uint) => new.uint_values.push(uint),
                Value::Double(double) => new.double_values.push(double),
                Value::Text(index) => new.string_values.push(index),
            }
        }
        *count = kept;
    }
    // Keeps values that belong to no attribute, so that the check rejects the batch for them.
    new.int_values.extend(ints);
    new.uint_values.extend(uints);
    new.double_values.extend(doubles);
    new.string_values.extend(strings);
    *columns = new;
    Ok(is_changed)
}

fn empty_unnamed(batch: &mut Batch) {
    let mut is_named = vec![false; batch.strings.len()];
    let mut name = |indices: &[u32]| {
        for index in indices {
            if let Some(is_named) = is_named.get_mut(*index as usize) {
                *is_named = true;
            }
        }
    };
    let spans = batch.spans.as_ref();
    let events = batch.events.as_ref();
    let names = [
        spans.map(|spans| &spans.name_string),
        events.map(|events| &events.name_string),
    ];
    names.into_iter().flatten().for_each(|names| name(names));
    let columns = [
        spans.and_then(|spans| spans.attributes.as_ref()),
        events.and_then(|events| events.attributes.as_ref()),
    ];
    for columns in columns.into_iter().flatten() {
        name(&columns.key_string);
        name(&columns.string_values);
    }
    for (text, is_named) in batch.strings.iter_mut().zip(is_named) {
        if !is_named {
            *text = String::new();
        }
    }
}

#[cfg(test)]
mod tests {
    use stroboscope_fixtures::batches::provenance_log;
    use stroboscope_proto::v1::ProvenanceLog;
    use stroboscope_provenance::{LogFile, ReadLog as _};

    use super::*;

    #[test]
    fn masks_keep_the_offsets_of_contents() {
        let check = |rules: &[&str], expected: [(&str, &[u8]); 3], counts: [u64; 3]| {
            let rules = rules.iter().map(|rule| rule.parse().unwrap()).collect();
            let redaction = Redaction::new(rules, b"key").unwrap();
            let sent = [
                ("row of a@xyz", &b"\xff12345."[..]),
                ("", b"to: a@xyz;"),
                ("total", b"7"),
            ];
            let mut batch = Batch {
                provenance: vec![ProvenanceLog {
                    log: provenance_log(&sent),
                    ..ProvenanceLog::default()
                }],
                ..Batch::default()
            };
            redaction.batch(&mut batch, &Limits::default()).unwrap();
            let file = LogFile::parse(&batch.provenance[0].log).unwrap();
            let items = file
                .items()
                .iter()
                .map(|item| (&*item.name, &*item.content));
            assert_eq!(items.collect::<Vec<_>>(), expected);
            let counted = redaction.counts.each_ref().map(|count| count.load(Relaxed));
            assert_eq!(counted, counts);
        };
        let [named, other, total] = [
            ("row of ****", &b"\xff12345."[..]),
            ("", &b"to: *****;"[..]),
            ("total", &b"7"[..]),
        ];
        check(&["mask:[a-z]@xyz"], [named, other, total], [0, 0, 2]);
        // A match is left, so the content is dropped.
        check(
            &["mask:[a-z]@xyz", "mask:[^t]{6}"],
            [("****", b""), ("", b""), total],
            [2, 0, 3],
        );
        let masks_kept = ["mask:[a-z]@xyz", "keep:provenance.content", "drop:*row*"];
        check(&masks_kept, [("", named.1), other, total], [1, 0, 1]);
        check(
            &["drop:x", "mask:[a-z]@xyz"],
            [("row of ****", b""), ("", b""), ("total", b"")],
            [3, 0, 1],
        );
    }
}
