//! C4.5 decision tree that separates two classes of rows (Quinlan, C4.5: Programs for machine
//! learning, 1993).
//!
//! These parts follow C4.5: the tree asks the question with the best gain ratio among those with at
//! least the average gain. It splits numbers at one threshold, a value that occurs, whose gain is
//! reduced by the cost of stating which (Quinlan, Improved use of continuous attributes in C4.5,
//! 1996). A row with an unknown answer goes both ways by parts. Pruning is pessimistic.
//!
//! These parts differ: the tree splits texts by membership in a set, not into one branch for each.
//! With two classes, the best such set is among those with the largest shares of one class (Breiman
//! et al., Classification and regression trees, 1984, theorem 4.5); its gain is reduced by the cost
//! of stating which set. The cost of stating which column reduces all gains, as among many columns
//! some seem informative by chance. The bound on the errors of a leaf is exact, not C4.5's
//! approximation. No subtree takes its parent's place.
//!
//! The order of rows does not change the tree, as long as no row is taken by parts; and otherwise
//! changes it only by rounding.

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
    /// Minimum number of rows on each side of a question.
    pub rows_min: f64,
    /// Maximum number of questions on the path to a leaf.
    pub depth_max: usize,
    /// Confidence of pruning. A lower value prunes more.
    pub confidence: f64,
}

impl Default for TreeSettings {
    /// Returns C4.5's confidence, and a larger minimum of rows than its 2, as requests are many.
    fn default() -> Self {
        Self {
            rows_min: 5.0,
            depth_max: 6,
            confidence: 0.25,
        }
    }
}

/// Tree of questions that separates two classes.
#[derive(Clone, Debug, PartialEq)]
pub struct DecisionTree {
    root: Node,
}

/// Rows that give the same answers.
#[derive(Clone, Debug, PartialEq)]
pub struct Leaf {
    /// The answers, one or two a column, in the order in which columns were first asked about.
    pub conditions: Vec<Condition>,
    /// The class of most of its rows.
    pub class: bool,
    /// Number of the training rows in each class, `false` first. Rows with unknown answers count by
    /// parts.
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

    /// Returns the leaves, in the order of their answers. A tree without a useful question has one
    /// leaf, without conditions.
    pub fn leaves(&self) -> Vec<Leaf> {
        let mut leaves = Vec::new();
        self.root.leaves(&mut Vec::new(), &mut leaves);
        leaves
    }

    /// Moves each threshold to the value that best separates the classes of these rows that reach
    /// it, in a table of the same columns. The questions stay the same otherwise.
    pub fn refine(&mut self, table: &Table, rows: &[usize]) {
        refinement::refine(&mut self.root, table, rows);
    }

    /// Renumbers the columns asked about from 0, in their order. Returns their former numbers.
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

    /// Returns the index of the leaf whose conditions a row meets; `None` if an answer is unknown.
    pub fn leaf_met(&self, table: &Table, row: usize) -> Option<usize> {
        let (mut node, mut before) = (&self.root, 0);
        while let Node::Question {
            split, branches, ..
        } = node
        {
            let [yes, no] = &**branches;
            let is_met = split.is_met(table, row)?;
            if !is_met {
                before += yes.leaf_count();
            }
            node = if is_met { yes } else { no };
        }
        Some(before)
    }

    /// Returns the index of a row's leaf among the [leaves](Self::leaves). A row with an unknown
    /// answer follows most rows.
    pub fn leaf_of(&self, table: &Table, row: usize) -> usize {
        let (mut node, mut before) = (&self.root, 0);
        while let Node::Question {
            split, branches, ..
        } = node
        {
            let [yes, no] = &**branches;
            let goes_on = split
                .is_met(table, row)
                .unwrap_or(yes.total() >= no.total());
            if !goes_on {
                before += yes.leaf_count();
            }
            node = if goes_on { yes } else { no };
        }
        before
    }
}

#[cfg(test)]
mod tests;
