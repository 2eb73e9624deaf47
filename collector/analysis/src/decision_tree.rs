//! What tells two classes of rows apart, as a tree of questions: C4.5 (Quinlan, C4.5: Programs for machine learning, 1993).
//!
//! As there: the question with the best gain ratio among those with at least the average gain; numbers are asked about by
//! one threshold, a value that occurs, whose gain is reduced by what it costs to say which (Quinlan, Improved use of continuous
//! attributes in C4.5, 1996); a row of which the answer is unknown goes both ways by parts; pessimistic pruning.
//!
//! Otherwise than there: of texts is asked whether they are among some, and not which they are. With two classes the best
//! such set is found among those that have the largest shares of one class (Breiman et al., Classification and regression
//! trees, 1984, theorem 4.5); its gain is reduced by what it costs to say which set. What it costs to say which column reduces
//! all gains: of many columns some seem to tell something. The bound on the errors of a leaf is exact, not C4.5's
//! approximation; no subtree takes its parent's place.
//!
//! The same rows in another order give the same tree, as long as no row is taken by parts; and then but for rounding.

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

/// How a tree is grown.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct TreeSettings {
    /// Each side of a question has at least so many rows.
    pub rows_min: f64,
    /// At most so many questions on the way to a leaf.
    pub depth_max: usize,
    /// The confidence of pruning: less prunes more.
    pub confidence: f64,
}

impl Default for TreeSettings {
    /// C4.5's confidence; more rows than its 2, as requests are many.
    fn default() -> Self {
        Self {
            rows_min: 5.0,
            depth_max: 6,
            confidence: 0.25,
        }
    }
}

/// Questions that tell two classes apart.
#[derive(Clone, Debug, PartialEq)]
pub struct DecisionTree {
    root: Node,
}

/// Rows that give the same answers.
#[derive(Clone, Debug, PartialEq)]
pub struct Leaf {
    /// The answers, one or two a column, in the order in which columns were first asked about.
    pub conditions: Vec<Condition>,
    /// The class that most of its rows are of.
    pub class: bool,
    /// How many of the rows that the tree was grown from are of each class, `false` first; rows with unknown answers count by
    /// parts.
    pub rows: [f64; 2],
}

impl DecisionTree {
    /// The tree that tells apart these rows of a table.
    pub fn grow(table: &Table, rows: &[usize], settings: &TreeSettings) -> DecisionTree {
        let weighted = rows.iter().map(|row| (*row, 1.0)).collect::<Vec<_>>();
        let mut root = growth::grow(table, &weighted, settings, 0);
        pruning::prune(&mut root, settings.confidence);
        DecisionTree { root }
    }

    /// The leaves, in the order of their answers. Without a question that helps it is one, without conditions.
    pub fn leaves(&self) -> Vec<Leaf> {
        let mut leaves = Vec::new();
        self.root.leaves(&mut Vec::new(), &mut leaves);
        leaves
    }

    /// Moves each threshold to the value that tells most of these rows' classes, in a table of the same columns: of the rows that
    /// reach it. What is asked stays as it is.
    pub fn refine(&mut self, table: &Table, rows: &[usize]) {
        refinement::refine(&mut self.root, table, rows);
    }

    /// Numbers the columns that are asked about anew, from 0 in their order; the numbers that they had.
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

    /// The place of the leaf all of whose conditions a row meets; none, if an answer is unknown.
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

    /// The place of a row's leaf among the [leaves](Self::leaves). Where its answer is unknown it goes with most rows.
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
