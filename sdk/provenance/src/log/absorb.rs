//! Union of logs, such as those of threads that worked for one request.

use alloc::vec::Vec;

use super::MergeLog;
use crate::label::{Label, LabelKind};
use crate::node::Parents;
use crate::read::ReadLog;
use crate::source::{Labels, Output};

/// Labels of an absorbed log, as labels of the log that absorbed it.
#[derive(Debug)]
pub struct Translation {
    inputs: Labels,
    count: u32,
    /// Labels of the absorbed log's nodes.
    nodes: Vec<Label>,
}

impl Translation {
    /// Returns a label of the absorbed log as one of the absorbing log; [`Label::ALL`] if the
    /// absorbed log did not have it.
    pub fn label(&self, label: Label) -> Label {
        match label.kind() {
            LabelKind::Null => Label::NULL,
            LabelKind::Input(input) if input < self.count => self.inputs.at(input as usize),
            LabelKind::Node(index) => {
                let node = self.nodes.get(index as usize);
                node.copied().unwrap_or(Label::ALL)
            }
            LabelKind::Block { first, last } if first < self.count => {
                let last = last.min(self.count - 1) as usize;
                match (
                    self.inputs.at(first as usize).span(),
                    self.inputs.at(last).span(),
                ) {
                    (Some((first, _)), Some((_, last))) => Label::block(first, last),
                    _ => Label::ALL,
                }
            }
            LabelKind::Input(_) | LabelKind::Block { .. } => Label::ALL,
        }
    }

    /// Returns labels of bytes of the absorbed log as labels of the absorbing log.
    pub fn labels(&self, labels: Labels) -> Labels {
        match (labels, self.inputs) {
            (Labels::Inputs(first), Labels::Inputs(_)) => Labels::Inputs(self.label(first)),
            (labels, _) => Labels::Shared(self.label(labels.at(0))),
        }
    }
}

impl MergeLog {
    /// Adds the inputs, nodes, outputs and items of another log, such as that of a thread that
    /// ended.
    pub fn absorb(&mut self, other: &impl ReadLog) -> Translation {
        let mut translation = Translation {
            inputs: self.absorb_inputs(other),
            count: other.inputs(),
            nodes: Vec::new(),
        };
        // Without memory, each node gets the label of all inputs.
        if translation
            .nodes
            .try_reserve_exact(other.nodes() as usize)
            .is_err()
        {
            self.losses.coarse_merges += u64::from(other.nodes());
        } else {
            for node in (0..other.nodes()).filter_map(|index| other.node(index)) {
                let label = match node.parents() {
                    Parents::Union(a, b) => {
                        let a = self.absorbed(other, &translation, a);
                        let b = self.absorbed(other, &translation, b);
                        self.merge(a, b)
                    }
                    Parents::Range(first, last) => self.absorbed_range(&translation, first, last),
                };
                translation.nodes.push(label);
            }
        }
        for output in other.outputs() {
            let Output {
                id,
                offset,
                count,
                labels,
            } = *output;
            let labels = match labels {
                Labels::Shared(label) => Labels::Shared(self.absorbed(other, &translation, label)),
                Labels::Inputs(_) => translation.labels(labels),
            };
            self.output(id, offset, count, labels);
        }
        for item in other.items() {
            self.describe(item.clone());
        }
        translation
    }

    /// Assigns as many inputs as the other log has, and returns their labels; the shared label if
    /// there is no room.
    fn absorb_inputs(&mut self, other: &impl ReadLog) -> Labels {
        let first = self.inputs;
        let left = (self.limits.inputs - 1).saturating_sub(first);
        let sources = other.sources();
        let room = (self.limits.sources as usize).saturating_sub(self.sources.len());
        let is_full = other.inputs() > left || sources.len() > room;
        if is_full || self.sources.try_reserve(sources.len()).is_err() {
            return self.share_inputs(other.inputs().into());
        }
        for source in sources {
            let mut source = *source;
            source.first += first;
            self.sources.push(source);
        }
        self.inputs += other.inputs();
        Labels::Inputs(Label::input(first))
    }

    fn absorbed(&mut self, other: &impl ReadLog, to: &Translation, label: Label) -> Label {
        match label.kind() {
            LabelKind::Block { first, last } if first < to.count => {
                self.absorbed_range(to, first, last.min(other.inputs() - 1))
            }
            _ => to.label(label),
        }
    }

    fn absorbed_range(&mut self, to: &Translation, first: u32, last: u32) -> Label {
        let ends = (to.label(Label::input(first)), to.label(Label::input(last)));
        match (to.inputs, ends.0.span(), ends.1.span()) {
            (Labels::Inputs(_), Some((first, _)), Some((last, _))) => self.range(first, last),
            _ => self.merge(ends.0, ends.1),
        }
    }
}
