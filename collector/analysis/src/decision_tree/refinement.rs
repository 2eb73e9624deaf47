//! Moves thresholds that were found in a sample to where they are best for all rows.
//!
//! A sample's threshold is a value that occurs in it: between that and the true one lie values that it has not. What the
//! question is about, and how many questions there are, stays what the sample has shown.

use super::Table;
use super::growth::Node;
use super::split::{Split, best_threshold};

pub(super) fn refine(node: &mut Node, table: &Table, rows: &[usize]) {
    let Node::Question {
        split,
        answers,
        branches,
        ..
    } = node
    else {
        return;
    };
    if let Split::AtMost { column, most } = split {
        let weighted: Vec<(usize, f64)> = rows.iter().map(|row| (*row, 1.0)).collect();
        if let Some(best) = best_threshold(table, &weighted, *column) {
            *most = best;
        }
        **answers = split.answers(table);
    }
    let of = |is: bool| -> Vec<usize> {
        let known = rows
            .iter()
            .filter(|row| split.is_met(table, **row) == Some(is));
        known.copied().collect()
    };
    let (yes, no) = (of(true), of(false));
    let [if_yes, if_no] = &mut **branches;
    refine(if_yes, table, &yes);
    refine(if_no, table, &no);
}
