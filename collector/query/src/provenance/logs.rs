//! Merge logs, and the queries across them.

use std::collections::{BTreeMap, HashMap};
use std::ops::Range;

use super::{BytesByItem, Direction, ProvenanceAnswer, ProvenanceError, ProvenanceLog, Query};
use crate::byte_ranges::ByteRanges;

/// Merge logs, with the logs that have each item.
#[derive(Debug)]
pub struct ProvenanceLogs<'a> {
    logs: Vec<ProvenanceLog<'a>>,
    /// Indexes of the logs that have an output (backward) or a source (forward), in order.
    with_item: HashMap<(Direction, u64), Vec<usize>>,
}

impl<'a> From<Vec<ProvenanceLog<'a>>> for ProvenanceLogs<'a> {
    fn from(logs: Vec<ProvenanceLog<'a>>) -> Self {
        let mut with_item: HashMap<_, Vec<usize>> = HashMap::new();
        for (number, log) in logs.iter().enumerate() {
            for item in log.items().into_keys() {
                with_item.entry(item).or_default().push(number);
            }
        }
        Self { logs, with_item }
    }
}

impl<'a> std::ops::Deref for ProvenanceLogs<'a> {
    type Target = [ProvenanceLog<'a>];

    fn deref(&self) -> &Self::Target {
        &self.logs
    }
}

impl ProvenanceLogs<'_> {
    /// Returns the logs with an item, and their indexes.
    fn with(
        &self,
        direction: Direction,
        id: u64,
    ) -> impl Iterator<Item = (usize, &ProvenanceLog<'_>)> {
        let numbers = self.with_item.get(&(direction, id)).into_iter().flatten();
        numbers.map(|number| (*number, &self.logs[*number]))
    }

    /// Answers a query about an item, or about some of its bytes.
    ///
    /// # Errors
    /// Returns an error if no log has the item, or none of the bytes.
    pub fn query(
        &self,
        direction: Direction,
        id: u64,
        bytes: Option<Range<u64>>,
    ) -> Result<ProvenanceAnswer, ProvenanceError> {
        let mut query = Query {
            direction,
            answer: ProvenanceAnswer::default(),
            waiting: BytesByItem::from([(id, self.asked(direction, id, bytes)?)]),
        };
        // Each round follows all bytes that the last one reached, in the logs with their items.
        loop {
            let fresh = query.fresh();
            if fresh.is_empty() {
                return Ok(query.finish());
            }
            let logs = fresh.keys().flat_map(|id| self.with(direction, *id));
            let mut ends = fresh.clone();
            for (number, log) in logs.collect::<BTreeMap<_, _>>() {
                query.follow(number, log, &fresh);
                for (id, bytes) in log.parts(direction) {
                    if let Some(ends) = ends.get_mut(&id) {
                        ends.remove(bytes);
                    }
                }
            }
            for (id, ends) in ends {
                let item = query.answer.items.entry(id).or_default();
                ends.iter().for_each(|bytes| item.ends.insert(bytes));
            }
        }
    }

    /// Returns the bytes to query: those of the item that a log has.
    fn asked(
        &self,
        direction: Direction,
        id: u64,
        bytes: Option<Range<u64>>,
    ) -> Result<ByteRanges, ProvenanceError> {
        let mut logs = self.with(direction, id).peekable();
        if logs.peek().is_none() {
            let items = self.with_item.keys().filter(|item| item.0 == direction);
            return Err(ProvenanceError::UnknownId {
                what: match direction {
                    Direction::Backward => "the output",
                    Direction::Forward => "the source",
                },
                id,
                known: items.map(|item| item.1).collect(),
            });
        }
        let parts = logs.flat_map(|(_, log)| log.parts(direction));
        let known: ByteRanges = parts
            .filter(|part| part.0 == id)
            .map(|part| part.1)
            .collect();
        let bytes = bytes.unwrap_or(0..u64::MAX);
        let asked: ByteRanges = known.within(bytes).collect();
        if asked.is_empty() {
            return Err(ProvenanceError::NoSuchBytes { id, known });
        }
        Ok(asked)
    }
}
