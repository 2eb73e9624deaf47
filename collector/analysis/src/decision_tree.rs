//! C4.5 decision tree that separates two classes of rows (Quinlan, C4.5: Programs for machine
//! learning, 1993).
//!
//! These parts follow C4.5. Each column offers its question of largest gain. Of the questions with
//! at least the average gain, the tree asks the one with the best gain ratio. It splits numbers at
//! one threshold, which is a value that occurs. The cost of stating the threshold reduces the gain
//! (Quinlan, Improved use of continuous attributes in C4.5, 1996). A row with an unknown answer is
//! divided between both branches. Pruning is pessimistic.
//!
//! These parts differ from C4.5. The tree splits texts by membership in a set, not into one branch
//! for each text. With two classes, the best set consists of the texts with the largest shares of
//! one class (Breiman et al., Classification and regression trees, 1984, theorem 4.5). The cost of
//! stating the set reduces its gain. The cost of stating the column reduces all gains, because
//! among many columns some seem informative by chance. The bound on the errors of a leaf is exact,
//! not C4.5's approximation. Pruning does not replace a node by one of its subtrees.
//!
//! The order of rows does not change the tree, except by rounding if rows are divided between
//! branches.

mod condition;
mod growth;
mod pruning;
mod refinement;
mod split;
mod table;

pub use condition::{Condition, Test};
pub use table::{Column, Table, TableError, VALUES_MAX, Values};

use growth::Node;
use std::collections::BTreeSet;

/// Limits on the growth of a tree.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct TreeSettings {
    /// Minimum number of rows with each answer to a question. Unknown answers do not count.
    pub rows_min: f64,
    /// Maximum number of questions on the path to a leaf.
    pub depth_max: usize,
    /// Confidence level of pruning, 0 to 1. A lower value prunes more.
    pub confidence: f64,
}

impl Default for TreeSettings {
    /// Returns settings with C4.5's confidence level. The minimum of rows is larger than C4.5's 2,
    /// as there are many requests.
    fn default() -> Self {
        Self {
            rows_min: 5.0,
            depth_max: 6,
            confidence: 0.25,
        }
    }
}

/// Tree of yes-no questions that separates two classes of rows.
#[derive(Clone, Debug, PartialEq)]
pub struct DecisionTree {
    root: Node,
}

/// A leaf of the tree, which covers the rows that give the same answers.
#[derive(Clone, Debug, PartialEq)]
pub struct Leaf {
    /// The conditions that the answers express, one for each column asked about, in the order in
    /// which the tree first asks about the columns.
    pub conditions: Vec<Condition>,
    /// The class of the majority of the leaf's rows; `false` at a tie.
    pub class: bool,
    /// Number of training rows in each class, `false` first. A row of unknown answer is divided.
    pub rows: [f64; 2],
}

impl DecisionTree {
    /// Grows a tree that separates these rows of a table by class, and prunes it.
    pub fn grow(table: &Table, rows: &[usize], settings: &TreeSettings) -> DecisionTree {
        let weighted = rows.iter().map(|row| (*row, 1.0)).collect::<Vec<_>>();
        let mut root = growth::grow(table, &weighted, settings, 0);
        pruning::prune(&mut root, settings.confidence);
        DecisionTree { root }
    }

    /// Returns the leaves in tree order, the branch for yes first. A tree without questions has one
    /// leaf, without conditions.
    pub fn leaves(&self) -> Vec<Leaf> {
        let mut leaves = Vec::new();
        self.root.leaves(&mut Vec::new(), &mut leaves);
        leaves
    }

    /// Moves thresholds to the values that best separate the classes of the given rows that reach
    /// them. If a question below asks about the same column, the threshold moves only if that
    /// reduces the total uncertainty. `table` must have the same columns as the original, with the
    /// same [texts](Values::Texts). The method changes nothing else in the questions, and leaves
    /// [`Leaf::rows`] unchanged.
    pub fn refine(&mut self, table: &Table, rows: &[usize]) {
        refinement::refine(&mut self.root, table, rows);
    }

    /// Renumbers the columns that the tree asks about in their order, starting from 0. Returns
    /// their former numbers.
    pub fn only_columns_asked(&mut self) -> Vec<usize> {
        let mut columns = BTreeSet::new();
        self.root.for_each_question(&mut |split, _| {
            columns.insert(split.column());
        });
        let columns: Vec<usize> = columns.into_iter().collect();
        let place = |of: usize| columns.binary_search(&of).unwrap_or_default();
        self.root.for_each_question(&mut |split, answers| {
            *split.column_mut() = place(split.column());
            for answer in answers {
                answer.column = place(answer.column);
            }
        });
        columns
    }

    /// Returns the index of the leaf whose conditions a row meets, among the
    /// [leaves](Self::leaves). Returns `None` if an answer is unknown.
    pub fn leaf_met(&self, table: &Table, row: usize) -> Option<usize> {
        self.leaf(table, row, |_| None)
    }

    /// Returns the index of a row's leaf among the [leaves](Self::leaves). A row with an unknown
    /// answer follows the branch of most training rows.
    pub fn leaf_of(&self, table: &Table, row: usize) -> usize {
        let of_most = |[yes, no]: &[Node; 2]| Some(yes.total() >= no.total());
        self.leaf(table, row, of_most).unwrap_or_default()
    }

    /// Returns the index of a row's leaf. `if_unknown` chooses a branch, true for yes, if an answer
    /// is unknown. Returns `None` if it chooses none.
    fn leaf(
        &self,
        table: &Table,
        row: usize,
        if_unknown: impl Fn(&[Node; 2]) -> Option<bool>,
    ) -> Option<usize> {
        let (mut node, mut before) = (&self.root, 0);
        while let Node::Question {
            split, branches, ..
        } = node
        {
            let is_met = split.is_met(table, row).or_else(|| if_unknown(branches))?;
            let [yes, no] = &**branches;
            if !is_met {
                before += yes.leaf_count();
            }
            node = if is_met { yes } else { no };
        }
        Some(before)
    }
}

#[cfg(test)]
mod tests;
