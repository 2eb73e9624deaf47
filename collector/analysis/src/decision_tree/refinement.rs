//! Moves thresholds that were found in a sample to the best values for all rows.
//!
//! A threshold from a sample is a value that occurs in the sample, which may lack values closer to
//! the true threshold. The number of questions and their columns stay as found in the sample.
//!
//! Two questions about one column may enclose a range of values. If the first of them moved to the
//! other end of the range, the range would become empty: `item > 2` and then `item <= 3` enclose 3,
//! but `item > 3` may separate more by itself. Such a threshold moves only if the questions
//! together then leave less uncertainty.

use super::Table;
use super::growth::Node;
use super::split::{Split, best_threshold, entropy};

/// Refines the thresholds. Returns the uncertainty about the rows' classes, in bits, that the
/// answers leave.
pub(super) fn refine(node: &mut Node, table: &Table, rows: &[usize]) -> f64 {
    let Node::Question { split, .. } = node else {
        return uncertainty_bits(table, rows);
    };
    let Split::AtMost { column, most } = split else {
        return refine_branches(node, table, rows);
    };
    let (column, found) = (*column, *most);
    let weighted: Vec<(usize, f64)> = rows.iter().map(|row| (*row, 1.0)).collect();
    let best = best_threshold(table, &weighted, column).filter(|best| *best != found);
    let Some(best) = best else {
        return refine_branches(node, table, rows);
    };
    let as_found = node.asks_again(column).then(|| {
        let mut as_found = node.clone();
        let bits = refine_branches(&mut as_found, table, rows);
        (as_found, bits)
    });
    if let Node::Question { split, .. } = node {
        *split = Split::AtMost { column, most: best };
    }
    let moved_bits = refine_branches(node, table, rows);
    match as_found {
        Some((as_found, bits)) if bits <= moved_bits => {
            *node = as_found;
            bits
        }
        _ => moved_bits,
    }
}

/// Refines the branches of a question, whose own threshold stays.
fn refine_branches(node: &mut Node, table: &Table, rows: &[usize]) -> f64 {
    let Node::Question {
        split,
        answers,
        branches,
        ..
    } = node
    else {
        return uncertainty_bits(table, rows);
    };
    if matches!(split, Split::AtMost { .. }) {
        **answers = split.answers(table);
    }
    let of = |is: Option<bool>| -> Vec<usize> {
        let met = rows.iter().filter(|row| split.is_met(table, **row) == is);
        met.copied().collect()
    };
    let (yes, no, unknown) = (of(Some(true)), of(Some(false)), of(None));
    let [if_yes, if_no] = &mut **branches;
    refine(if_yes, table, &yes) + refine(if_no, table, &no) + uncertainty_bits(table, &unknown)
}

fn uncertainty_bits(table: &Table, rows: &[usize]) -> f64 {
    let changed = rows.iter().filter(|row| table.classes[**row]).count() as f64;
    let all = rows.len() as f64;
    if all == 0.0 {
        return 0.0;
    }
    all * entropy(&[changed, all - changed])
}
