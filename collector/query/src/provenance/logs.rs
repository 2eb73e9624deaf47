//! Merge logs, and the queries across them.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::ops::Range;

use super::{BytesByItem, Direction, ProvenanceAnswer, ProvenanceError, ProvenanceLog, Query};
use crate::byte_ranges::ByteRanges;
use crate::query_error::QueryError;
use stroboscope_store::query_memory::QueryShare;

/// Memory that a report needs for an output and one of its sources, in bytes.
const PAIR_BYTES: usize = 1_024;
/// Memory that a report needs for a range of a source's bytes, in bytes.
const RANGE_BYTES: usize = 48;
/// Maximum number of logs with problems that an error lists.
const PROBLEMS_MAX: usize = 5;

/// Bytes of sources on which outputs depend.
#[derive(Debug, Default)]
pub struct ProvenanceMap {
    /// Outputs in the order of the logs, each with its sources.
    pub outputs: Vec<(u64, BytesByItem)>,
    /// Number of flows that were left out, because an output has too many.
    pub left_out: u64,
    /// Number of ranges that contain inputs without a source, because a log reached a limit.
    pub unknown: u64,
}

/// Merge logs, indexed by the items that they have.
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
    /// Returns the ids of all outputs (backward) or sources (forward).
    pub fn ids(&self, direction: Direction) -> impl Iterator<Item = u64> {
        let items = self.with_item.keys();
        let own = items.filter(move |item| item.0 == direction);
        own.map(|item| item.1)
    }

    /// Returns the logs with an item, and their indexes.
    fn with(
        &self,
        direction: Direction,
        id: u64,
    ) -> impl Iterator<Item = (usize, &ProvenanceLog<'_>)> {
        let numbers = self.with_item.get(&(direction, id)).into_iter().flatten();
        numbers.map(|number| (*number, &self.logs[*number]))
    }

    /// Reports whether a log has an item as an output (backward) or as a source (forward).
    #[must_use]
    pub fn has(&self, direction: Direction, id: u64) -> bool {
        self.with_item.contains_key(&(direction, id))
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

    /// Returns the bytes of sources on which outputs depend, for each output that `is_output`
    /// accepts.
    ///
    /// Sources are the items at which the query of an output ends or, with `is_source`, the items
    /// that it accepts, wherever they are. The outputs of one log that no earlier log has form one
    /// query, unless it has too many flows. Its sweep over the log computes each set once.
    ///
    /// # Errors
    /// Returns an error if the result needs more memory than `share` allows.
    pub fn map(
        &self,
        is_output: &dyn Fn(u64) -> bool,
        is_source: Option<&dyn Fn(u64) -> bool>,
        share: &mut QueryShare,
    ) -> Result<ProvenanceMap, QueryError> {
        let mut map = ProvenanceMap::default();
        let mut known = HashSet::new();
        for log in &self.logs {
            let ids = log.parts(Direction::Backward).map(|(id, _)| id);
            let ids: HashSet<u64> = ids.filter(|id| is_output(*id)).collect();
            let ids: HashSet<u64> = ids.into_iter().filter(|id| known.insert(*id)).collect();
            let logs = ids
                .iter()
                .flat_map(|id| self.with(Direction::Backward, *id));
            let mut asked = BytesByItem::new();
            for (_, log) in logs.collect::<BTreeMap<_, _>>() {
                let parts = log.parts(Direction::Backward);
                for (id, bytes) in parts.filter(|(id, _)| ids.contains(id)) {
                    asked.entry(id).or_default().insert(bytes);
                }
            }
            self.add_outputs(asked, is_source, share, &mut map)?;
        }
        Ok(map)
    }

    /// Adds outputs and their sources to a map.
    fn add_outputs(
        &self,
        mut asked: BytesByItem,
        is_source: Option<&dyn Fn(u64) -> bool>,
        share: &mut QueryShare,
        map: &mut ProvenanceMap,
    ) -> Result<(), QueryError> {
        let ids: Vec<u64> = asked.keys().copied().collect();
        let answer = self.follow(Direction::Backward, asked.clone());
        if answer.left_out > 0 && ids.len() > 1 {
            // The flows of half as many outputs may fit.
            let others = asked.split_off(&ids[ids.len() / 2]);
            self.add_outputs(asked, is_source, share, map)?;
            return self.add_outputs(others, is_source, share, map);
        }
        map.left_out += answer.left_out;
        map.unknown += answer.unknown;
        for (output, sources) in answer.sources_of(ids, is_source) {
            let ranges = sources.values().map(|of| of.iter().count());
            let bytes = PAIR_BYTES * sources.len().max(1) + RANGE_BYTES * ranges.sum::<usize>();
            share.take(bytes).map_err(|lack| QueryError::Provenance {
                what: "the sources of all outputs",
                lack,
            })?;
            map.outputs.push((output, sources));
        }
        Ok(())
    }

    /// Follows bytes of items through the logs, until a round reaches no new bytes.
    fn follow(&self, direction: Direction, asked: BytesByItem) -> ProvenanceAnswer {
        let mut query = Query {
            direction,
            answer: ProvenanceAnswer::default(),
            waiting: asked,
        };
        // Each round follows all new bytes that the last one reached, in the logs with their items.
        loop {
            let fresh = query.fresh();
            if fresh.is_empty() {
                return query.finish();
            }
            let logs = fresh.keys().flat_map(|id| self.with(direction, *id));
            let mut ends = fresh.clone();
            for (number, log) in logs.collect::<BTreeMap<_, _>>() {
                // If the log breaks off, its problem reports that flows are missing.
                let _ = query.follow(number, log, &fresh);
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

    /// Returns the bytes to query: the requested bytes of the item, as far as logs have them.
    fn asked(
        &self,
        direction: Direction,
        id: u64,
        bytes: Option<Range<u64>>,
    ) -> Result<ByteRanges, ProvenanceError> {
        let mut logs = self.with(direction, id).peekable();
        if logs.peek().is_none() {
            return Err(ProvenanceError::UnknownId {
                what: match direction {
                    Direction::Backward => "the output",
                    Direction::Forward => "the source",
                },
                id,
                known: self.ids(direction).collect(),
                problems: self.problems(),
            });
        }
        let parts = logs.flat_map(|(_, log)| log.parts(direction));
        let own = parts.filter(|part| part.0 == id);
        let known: ByteRanges = own.map(|part| part.1).collect();
        let bytes = bytes.unwrap_or(0..u64::MAX);
        let asked: ByteRanges = known.within(bytes).collect();
        if asked.is_empty() {
            return Err(ProvenanceError::NoSuchBytes {
                id,
                known,
                problems: self.problems(),
            });
        }
        Ok(asked)
    }

    /// Describes the first logs with problems, for the end of an error: they may have the item.
    fn problems(&self) -> String {
        let damaged = self.logs.iter().filter_map(|log| {
            let problem = log.problem()?;
            Some(format!("; {}: {problem}", log.name))
        });
        damaged.take(PROBLEMS_MAX).collect()
    }
}
