//! Pass that collects the attributes by which decision trees are evaluated, from all requests on
//! both sides of a change.

use std::sync::Arc;
use stroboscope_analysis::attribute::Attribute;
use stroboscope_analysis::compare::Contrast;
use stroboscope_analysis::explain::{CountedRequest, LearnedTree, Parameter, StoredRows};
use stroboscope_analysis::flow::{ERROR, FlowFinder, FlowSettings, KnownOrders};
use stroboscope_analysis::pass::{Pass, TraceView};
use stroboscope_store::tables::AttributeKeys;

use super::super::compare::says;
use super::super::notes::Notes;
use super::super::query_error::QueryError;
use super::super::study::{Question, StudyInput};

/// Asks for the attribute values that decision trees need, from all requests of a period.
pub(super) struct RowsQuestion<'a> {
    pub(super) contrast: &'a Contrast,
    pub(super) is_later: bool,
    /// The tree that separates the two sides, and the tree that separates the later requests with
    /// the partial change from the other later ones.
    pub(super) trees: [Option<&'a LearnedTree>; 2],
    pub(super) orders: &'a KnownOrders,
    pub(super) settings: FlowSettings,
    pub(super) only: Option<&'a (Attribute, String)>,
}

/// Pass that collects the rows of each tree.
pub(super) struct RowsPass<'a> {
    question: &'a RowsQuestion<'a>,
    finder: FlowFinder<'a>,
    rows: [StoredRows; 2],
}

/// Adds the rows of each tree to others of the same tree.
pub(super) fn merge_rows(
    trees: [Option<&LearnedTree>; 2],
    into: &mut [StoredRows; 2],
    rows: [StoredRows; 2],
) {
    for ((tree, into), rows) in trees.into_iter().zip(into).zip(rows) {
        if let Some(tree) = tree {
            tree.merge(into, rows);
        }
    }
}

impl Pass<TraceView<'_>> for RowsPass<'_> {
    fn observe(&mut self, seen: &TraceView<'_>) {
        let asked = self.question;
        if !says(asked.only, seen.records) {
            return;
        }
        let side = self.finder.flow_of(seen, |flow| {
            let side = asked.contrast.side_of(asked.is_later, flow)?;
            Some((side, flow.latency_ns))
        });
        let Some(((is_mutation, is_beyond), latency_ns)) = side else {
            return;
        };
        let said = asked.contrast.template.said(seen.records).into_iter();
        let said: Vec<(Parameter, Arc<str>)> =
            said.map(|said| (said.parameter, said.text)).collect();
        let classes = [Some(is_mutation), is_beyond];
        for ((tree, class), rows) in asked.trees.into_iter().zip(classes).zip(&mut self.rows) {
            if let (Some(tree), Some(class)) = (tree, class) {
                let request = CountedRequest {
                    id: seen.records.id,
                    is_mutation: class,
                    weight: seen.weight().value(),
                    latency_ns,
                };
                tree.observe(rows, request, &said);
            }
        }
    }

    fn merge(&mut self, other: Self) {
        merge_rows(self.question.trees, &mut self.rows, other.rows);
    }
}

impl Question for RowsQuestion<'_> {
    type Records = ();
    type Preparation = ();
    type Paths<'a>
        = RowsPass<'a>
    where
        Self: 'a;
    type Answer = [StoredRows; 2];

    fn what(&self) -> &'static str {
        "counting attributes"
    }

    fn records(&self) {}

    fn prepare(&self, _: StudyInput<'_>, (): ()) -> Result<(), QueryError> {
        Ok(())
    }

    fn path_keys(&self, (): &()) -> AttributeKeys {
        let recorded = self.only.and_then(|(of, _)| of.recorded_key());
        let asked = self.trees.into_iter().flatten();
        let asked = asked.flat_map(LearnedTree::keys).map(|key| key.to_string());
        let others = recorded.into_iter().chain([ERROR]).map(str::to_owned);
        AttributeKeys::of(asked.chain(others))
    }

    fn paths<'a>(&'a self, _: StudyInput<'a>, (): &'a ()) -> RowsPass<'a> {
        RowsPass {
            question: self,
            finder: FlowFinder::new(self.settings, self.orders),
            rows: Default::default(),
        }
    }

    fn answer(
        &self,
        _: StudyInput<'_>,
        (): &(),
        paths: RowsPass<'_>,
        _: Notes,
    ) -> Result<[StoredRows; 2], QueryError> {
        Ok(paths.rows)
    }
}
