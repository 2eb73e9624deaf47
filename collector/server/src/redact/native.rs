//! Redacts batches of our own protocol: attributes are columns, and their texts are interned.
//! Provenance logs are files inside of the batch, whose items are rewritten. A log that cannot be
//! redacted is dropped, such as one of a newer version than this collector reads.

use std::collections::HashMap;
use std::iter::Copied;
use std::slice::Iter;
use std::sync::atomic::Ordering::Relaxed;

use stroboscope_proto::v1::{AttributeKind, Attributes, Batch};
use stroboscope_provenance::{Item, rewrite_items};
use stroboscope_store::decode::Refusal;
use stroboscope_store::limits::Limits;

use super::{Action, Place, Redaction};
use crate::line_limit::{LineLimit, Turn};

static DROPPED: LineLimit = LineLimit::new();

/// Redacts a batch. If a value was redacted, empties the texts that are no longer referenced, as
/// they may be redacted values.
pub(super) fn redact(
    redaction: &Redaction,
    batch: &mut Batch,
    limits: &Limits,
) -> Result<(), Refusal> {
    let Batch {
        strings,
        spans,
        events,
        ..
    } = batch;
    let mut texts = Texts {
        redaction,
        actions: vec![None; strings.len()],
        strings,
        hashes: HashMap::new(),
    };
    let mut is_changed = false;
    if let Some(spans) = spans {
        let columns = spans.attributes.as_mut();
        is_changed |= of_records(&mut texts, &mut spans.attribute_count, columns)?;
    }
    if let Some(events) = events {
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

/// Redacts a provenance log. Returns false if the log must be dropped: it cannot be parsed, or
/// hashes, which may be longer than the names they replace, made it longer than the limit.
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
                format!("it has {bytes} bytes with the hashes, the limit is {bytes_max}"),
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

/// Redacts the name and the content of a tracked item. A rule by key does not tell which bytes a
/// content has, so only a `keep` rule keeps it. A hash cannot replace it, as answers assign its
/// bytes to sources by their offsets.
fn of_item(redaction: &Redaction, item: &mut Item) {
    let action = |part| {
        let mut rules = redaction.rules.iter();
        let rule = rules.find(|rule| rule.fits(&item.name) || rule.fits(part));
        rule.map(|rule| rule.action)
    };
    let of_name = action("provenance.name").unwrap_or(Action::Keep);
    let keeps_content = action("provenance.content") == Some(Action::Keep);
    if !item.name.is_empty() {
        redaction.count(of_name);
        match of_name {
            Action::Keep => {}
            Action::Drop => item.name = "".into(),
            Action::Hash => item.name = redaction.hash(item.name.as_bytes()).into(),
        }
    }
    if !keeps_content && !item.content.is_empty() {
        redaction.count(Action::Drop);
        item.content = Box::default();
    }
}

struct Texts<'a> {
    redaction: &'a Redaction,
    strings: &'a mut Vec<String>,
    /// Actions for the keys seen so far, by the index of their text.
    actions: Vec<Option<Action>>,
    /// Index of each hash among the texts.
    hashes: HashMap<String, u32>,
}

impl Texts<'_> {
    fn action(&mut self, column: &'static str, at: usize, key: u32) -> Result<Action, Refusal> {
        let text = self.text(column, at, key)?;
        let known = self.actions.get(key as usize).copied().flatten();
        let action = known.unwrap_or_else(|| self.redaction.look_up(Place::PLAIN, text));
        if let Some(place) = self.actions.get_mut(key as usize) {
            *place = Some(action);
        }
        self.redaction.count(action);
        Ok(action)
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
        if let Some(index) = self.hashes.get(&hash) {
            return *index;
        }
        let index = u32::try_from(self.strings.len()).unwrap_or(u32::MAX);
        self.strings.push(hash.clone());
        self.hashes.insert(hash, index);
        index
    }
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

/// Redacts the attributes of all records. Returns true if there was something to redact.
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
            let action = texts.action("attributes.key_string", at, key)?;
            is_changed |= action != Action::Keep;
            let mut value = String::new();
            match known {
                AttributeKind::Int | AttributeKind::Bool => {
                    let int = next(&mut ints, "attributes.int_values", old.int_values.len())?;
                    match action {
                        Action::Keep => new.int_values.push(int),
                        _ if known == AttributeKind::Bool => value = (int != 0).to_string(),
                        _ => value = int.to_string(),
                    }
                }
                AttributeKind::Uint => {
                    let uint = next(&mut uints, "attributes.uint_values", old.uint_values.len())?;
                    match action {
                        Action::Keep => new.uint_values.push(uint),
                        _ => value = uint.to_string(),
                    }
                }
                AttributeKind::Double => {
                    let double = next(
                        &mut doubles,
                        "attributes.double_values",
                        old.double_values.len(),
                    )?;
                    match action {
                        Action::Keep => new.double_values.push(double),
                        _ => value = double.to_string(),
                    }
                }
                AttributeKind::String => {
                    let column = "attributes.string_values";
                    let index = next(&mut strings, column, old.string_values.len())?;
                    let text = texts.text(column, at, index)?;
                    match action {
                        Action::Keep => new.string_values.push(index),
                        _ => value = text.to_owned(),
                    }
                }
            }
            if action == Action::Drop {
                continue;
            }
            kept += 1;
            new.key_string.push(key);
            if action == Action::Hash {
                new.kind.push(AttributeKind::String as i32);
                new.string_values.push(texts.hashed(&value));
            } else {
                new.kind.push(kind);
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
