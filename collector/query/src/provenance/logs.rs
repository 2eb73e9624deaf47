//! Merge logs, and the queries across them.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::ops::Range;

use super::{BytesByItem, Direction, ProvenanceAnswer, ProvenanceError, ProvenanceLog, Query};
use crate::byte_ranges::ByteRanges;

/// Bytes of sources on which outputs depend.
#[derive(Debug, Default)]
pub struct ProvenanceMap {
    /// Outputs in the order of the logs, each with its sources.
    pub outputs: Vec<(u64, BytesByItem)>,
    /// Number of flows that were not followed, because one log's outputs have too many.
    pub left_out: u64,
    /// Number of ranges of inputs without a source, because a log reached a limit.
    pub unknown: u64,
}

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
        let asked = self.asked(direction, id, bytes)?;
        Ok(self.follow(direction, BytesByItem::from([(id, asked)])))
    }

    /// Returns the bytes of sources on which outputs depend, for each output.
    ///
    /// Takes the outputs that `is_output` accepts, or those that no log read, and the sources that
    /// `is_source` accepts, or those that no log wrote. The outputs of one log are one query, whose
    /// sweep over the log computes each set once.
    #[must_use]
    pub fn map(
        &self,
        is_output: Option<&dyn Fn(u64) -> bool>,
        is_source: Option<&dyn Fn(u64) -> bool>,
    ) -> ProvenanceMap {
        let is_unread = |id| !self.with_item.contains_key(&(Direction::Forward, id));
        let is_output = is_output.unwrap_or(&is_unread);
        let mut map = ProvenanceMap::default();
        let mut known = HashSet::new();
        for log in &self.logs {
            let items = log.items().into_keys();
            let outputs = items.filter(|(direction, id)| {
                *direction == Direction::Backward && is_output(*id) && known.insert(*id)
            });
            let asked: BytesByItem = outputs
                .filter_map(|(_, id)| Some((id, self.asked(Direction::Backward, id, None).ok()?)))
                .collect();
            if asked.is_empty() {
                continue;
            }
            let ids: Vec<u64> = asked.keys().copied().collect();
            let answer = self.follow(Direction::Backward, asked);
            map.outputs.extend(answer.sources_of(ids, is_source));
            map.left_out += answer.left_out;
            map.unknown += answer.unknown;
        }
        map
    }

    /// Follows bytes of items to the ends of the logs.
    fn follow(&self, direction: Direction, asked: BytesByItem) -> ProvenanceAnswer {
        let mut query = Query {
            direction,
            answer: ProvenanceAnswer::default(),
            waiting: asked,
        };
        // Each round follows all bytes that the last one reached, in the logs with their items.
        loop {
            let fresh = query.fresh();
            if fresh.is_empty() {
                return query.finish();
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
