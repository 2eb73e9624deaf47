//! Grows a tree by adding questions until none helps or the maximum depth is reached.

use super::condition::Condition;
use super::split::{self, Split};
use super::{Leaf, Table, TreeSettings};

/// A question, or a leaf.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Node {
    /// Number of rows of each class. A row with an unknown answer counts as a fraction.
    Leaf([f64; 2]),
    /// A question. The branch for yes comes first.
    Question {
        split: Split,
        rows: [f64; 2],
        /// Conditions that the two answers express, yes first.
        answers: Box<[Condition; 2]>,
        branches: Box<[Node; 2]>,
    },
}

impl Node {
    pub(super) fn rows(&self) -> [f64; 2] {
        match self {
            Node::Leaf(rows) | Node::Question { rows, .. } => *rows,
        }
    }

    pub(super) fn total(&self) -> f64 {
        self.rows().iter().sum()
    }

    pub(super) fn leaf_count(&self) -> usize {
        match self {
            Node::Leaf(_) => 1,
            Node::Question { branches, .. } => branches.iter().map(Node::leaf_count).sum(),
        }
    }

    /// Reports whether a question below this one asks about the column.
    pub(super) fn asks_again(&self, column: usize) -> bool {
        let asks = |branch: &Node| match branch {
            Node::Question { split, .. } => split.column() == column || branch.asks_again(column),
            Node::Leaf(_) => false,
        };
        matches!(self, Node::Question { branches, .. } if branches.iter().any(asks))
    }

    pub(super) fn for_each_question(
        &mut self,
        visit: &mut impl FnMut(&mut Split, &mut [Condition; 2]),
    ) {
        if let Node::Question {
            split,
            answers,
            branches,
            ..
        } = self
        {
            visit(split, answers);
            for branch in branches.iter_mut() {
                branch.for_each_question(visit);
            }
        }
    }

    pub(super) fn leaves(&self, path: &mut Vec<Condition>, into: &mut Vec<Leaf>) {
        match self {
            Node::Leaf(rows) => {
                let mut conditions = Vec::new();
                for answer in path.iter() {
                    answer.clone().add_to(&mut conditions);
                }
                into.push(Leaf {
                    conditions,
                    class: rows[1] > rows[0],
                    rows: *rows,
                });
            }
            Node::Question {
                answers, branches, ..
            } => {
                for (answer, branch) in answers.iter().zip(branches.iter()) {
                    path.push(answer.clone());
                    branch.leaves(path, into);
                    path.pop();
                }
            }
        }
    }
}

/// Smallest fraction of a row that a branch takes, and smallest count of a class in a node that is
/// divided. Smaller ones hardly affect which question is best.
const PART_MIN: f64 = 1e-3;

pub(super) fn grow(
    table: &Table,
    rows: &[(usize, f64)],
    settings: &TreeSettings,
    depth: usize,
) -> Node {
    let mut counts = [0.0; 2];
    for (row, part) in rows {
        counts[usize::from(table.classes[*row])] += part;
    }
    let is_pure = counts.iter().any(|count| *count < PART_MIN);
    if is_pure || depth >= settings.depth_max {
        return Node::Leaf(counts);
    }
    let Some(split) = split::best(table, rows, settings.rows_min) else {
        return Node::Leaf(counts);
    };
    let met = rows.iter().map(|(row, _)| split.is_met(table, *row));
    let met: Vec<Option<bool>> = met.collect();
    let known = |is: bool| -> f64 {
        let of = rows.iter().zip(&met).filter(|(_, met)| **met == Some(is));
        of.map(|((_, part), _)| part).sum()
    };
    let (yes, no) = (known(true), known(false));
    let branch = |is: bool, share: f64| {
        let parts = rows.iter().zip(&met).filter_map(|((row, part), met)| {
            let part = match met {
                Some(met) if *met == is => *part,
                Some(_) => return None,
                None => part * share,
            };
            (part >= PART_MIN).then_some((*row, part))
        });
        grow(table, &parts.collect::<Vec<_>>(), settings, depth + 1)
    };
    let branches = [(true, yes), (false, no)].map(|(is, of)| branch(is, of / (yes + no)));
    Node::Question {
        answers: Box::new(split.answers(table)),
        split,
        rows: counts,
        branches: Box::new(branches),
    }
}
