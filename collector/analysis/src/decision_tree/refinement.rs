//! Moves thresholds that were found in a sample to the best values for all rows.
//!
//! A threshold from a sample is a value that occurs in the sample, which may lack values closer to
//! the true threshold. The number of questions and their columns stay as found in the sample.

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
