//! Chooses the attributes of a file's rows that get columns, and writes their values.

use std::collections::HashMap;
use std::sync::Arc;

use arrow_array::ArrayRef;
use arrow_array::builder::{BooleanBuilder, Float64Builder, Int64Builder, StringBuilder};

use super::COLUMNS_MAX;
use super::members::{Member, Value, find_members};
use super::name::{AttributeColumn, ValueType};
use crate::record::{BatchRow, EventRow, ProvenanceRow, SpanRow};

/// Maximum number of distinct attributes that are counted. Services that generate keys dynamically
/// may have more, which get no columns.
const COUNTED_MAX: usize = 16_384;

/// Maximum number of rows that are sampled to find frequent attributes. Checking all rows would
/// take half of the time of shredding.
const LOOKED_AT: usize = 8_192;

/// Rows that may have attributes.
pub(in crate::tables) trait HasAttributes {
    /// Returns the attributes as JSON, normally one object; `None` if there are none.
    fn attributes(&self) -> Option<&str> {
        None
    }
}

impl HasAttributes for SpanRow {
    fn attributes(&self) -> Option<&str> {
        self.attributes.as_deref()
    }
}

impl HasAttributes for EventRow {
    fn attributes(&self) -> Option<&str> {
        self.attributes.as_deref()
    }
}

impl HasAttributes for BatchRow {}

impl HasAttributes for ProvenanceRow {}

/// Numbering of attributes by key and type. Consecutive rows mostly have equal attributes at equal
/// positions, so a lookup first tries the last number at the position.
#[derive(Debug, Default)]
struct AttributeNumbers {
    columns: Vec<AttributeColumn>,
    /// Index in `columns`, by key and type.
    of_key: HashMap<Box<str>, [Option<u32>; 4]>,
    at_place: Vec<u32>,
}

impl AttributeNumbers {
    fn find(&mut self, place: usize, key: &str, value_type: ValueType) -> Option<usize> {
        let last = self.at_place.get(place).map(|&number| number as usize);
        let is_it = |number: &usize| {
            let column = &self.columns[*number];
            column.value_type == value_type && *column.key == *key
        };
        if last.as_ref().is_some_and(is_it) {
            return last;
        }
        let number = self.of_key.get(key)?[value_type as usize]?;
        if place < COLUMNS_MAX {
            let places = self.at_place.len().max(place + 1);
            self.at_place.resize(places, number);
            self.at_place[place] = number;
        }
        Some(number as usize)
    }

    fn add(&mut self, column: AttributeColumn) -> usize {
        let number = self.columns.len();
        let key = column.key.clone();
        self.of_key.entry(key).or_default()[column.value_type as usize] = Some(number as u32);
        self.columns.push(column);
        number
    }
}

/// Splits the attributes of rows into columns.
#[derive(Debug)]
pub(in crate::tables) struct Shredder {
    numbering: AttributeNumbers,
}

impl Shredder {
    /// Chooses columns for the most frequent attributes of these rows, at most [`COLUMNS_MAX`], in
    /// the order of keys and types. If there are [`LOOKED_AT`] rows or more, checks only an evenly
    /// spread sample of them. Equal rows always give equal columns.
    pub(in crate::tables) fn of(rows: &[impl HasAttributes]) -> Self {
        let mut counted = AttributeNumbers::default();
        let mut counts: Vec<u32> = Vec::new();
        let mut members = Vec::new();
        let sample = rows.iter().step_by(rows.len() / LOOKED_AT + 1);
        for json in sample.filter_map(HasAttributes::attributes) {
            if !find_members(json, &mut members) {
                continue;
            }
            for (place, member) in members.iter().enumerate() {
                let Some(value_type) = member.value.value_type() else {
                    continue;
                };
                let found = counted.find(place, &member.key, value_type);
                let number = match found {
                    Some(number) => number,
                    None if counts.len() >= COUNTED_MAX => continue,
                    None => {
                        counts.push(0);
                        let key = (*member.key).into();
                        counted.add(AttributeColumn { key, value_type })
                    }
                };
                counts[number] += 1;
            }
        }
        let mut columns: Vec<_> = counts.into_iter().zip(counted.columns).collect();
        columns.sort_unstable_by(|a, b| b.0.cmp(&a.0).then_with(|| a.1.cmp(&b.1)));
        columns.truncate(COLUMNS_MAX);
        let mut columns: Vec<_> = columns.into_iter().map(|(_, column)| column).collect();
        columns.sort_unstable();
        let mut numbering = AttributeNumbers::default();
        for column in columns {
            numbering.add(column);
        }
        Self { numbering }
    }

    pub(in crate::tables) fn columns(&self) -> &[AttributeColumn] {
        &self.numbering.columns
    }

    /// Returns the attribute columns for some of the rows, and a JSON column with the rest of their
    /// attributes.
    pub(in crate::tables) fn shred(
        &mut self,
        rows: &[impl HasAttributes],
    ) -> (Vec<ArrayRef>, ArrayRef) {
        let mut values: Vec<_> = self.columns().iter().map(Values::of).collect();
        let mut rest = StringBuilder::new();
        let mut members = Vec::new();
        let mut kept = String::new();
        for (row, attributes) in rows.iter().map(HasAttributes::attributes).enumerate() {
            let Some(json) = attributes else {
                rest.append_null();
                continue;
            };
            if !find_members(json, &mut members) {
                // Readers report attributes that are not an object.
                rest.append_value(json);
                continue;
            }
            kept.clear();
            let mut shredded = 0;
            for (place, member) in members.iter().enumerate() {
                let value_type = member.value.value_type();
                let column = value_type.and_then(|of| self.numbering.find(place, &member.key, of));
                if column.is_some_and(|column| values[column].push(row, member)) {
                    shredded += 1;
                } else {
                    kept.push(if kept.is_empty() { '{' } else { ',' });
                    kept.push_str(member.text);
                }
            }
            if shredded == 0 {
                rest.append_value(json);
            } else if kept.is_empty() {
                rest.append_null();
            } else {
                kept.push('}');
                rest.append_value(&kept);
            }
        }
        let columns = values.into_iter().map(|values| values.finish(rows.len()));
        (columns.collect(), Arc::new(rest.finish()))
    }
}

/// Values of a column so far. Nulls of the latest rows are added later.
#[derive(Debug)]
enum Values {
    Bool(BooleanBuilder),
    Int(Int64Builder),
    Real(Float64Builder),
    Text(StringBuilder),
}

impl Values {
    fn of(column: &AttributeColumn) -> Self {
        match column.value_type {
            ValueType::Bool => Self::Bool(BooleanBuilder::new()),
            ValueType::Int => Self::Int(Int64Builder::new()),
            ValueType::Real => Self::Real(Float64Builder::new()),
            ValueType::Text => Self::Text(StringBuilder::new()),
        }
    }

    fn len(&self) -> usize {
        use arrow_array::builder::ArrayBuilder as _;
        match self {
            Self::Bool(values) => values.len(),
            Self::Int(values) => values.len(),
            Self::Real(values) => values.len(),
            Self::Text(values) => values.len(),
        }
    }

    fn pad(&mut self, rows: usize) {
        let nulls = rows.saturating_sub(self.len());
        match self {
            Self::Bool(values) => values.append_nulls(nulls),
            Self::Int(values) => values.append_nulls(nulls),
            Self::Real(values) => values.append_nulls(nulls),
            Self::Text(values) => values.append_nulls(nulls),
        }
    }

    /// Adds the value of `row`. Returns false if the row already has a value, or if the value is of
    /// another type.
    fn push(&mut self, row: usize, member: &Member<'_>) -> bool {
        if self.len() > row {
            return false;
        }
        self.pad(row);
        match (self, &member.value) {
            (Self::Bool(values), Value::Bool(value)) => values.append_value(*value),
            (Self::Int(values), Value::Int(value)) => values.append_value(*value),
            (Self::Real(values), Value::Real(value)) => values.append_value(*value),
            (Self::Text(values), Value::Text(value)) => values.append_value(value),
            _ => return false,
        }
        true
    }

    fn finish(mut self, rows: usize) -> ArrayRef {
        self.pad(rows);
        match self {
            Self::Bool(mut values) => Arc::new(values.finish()),
            Self::Int(mut values) => Arc::new(values.finish()),
            Self::Real(mut values) => Arc::new(values.finish()),
            Self::Text(mut values) => Arc::new(values.finish()),
        }
    }
}
