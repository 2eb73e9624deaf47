//! Computes the edit distance of two sequences.
//!
//! The edit distance (Levenshtein) is the minimum number of insertions, deletions and replacements
//! that turn one sequence into the other. The *normalised* distance is divided by the length of the
//! longer sequence: 0 for equal sequences and 1 for those that share nothing (Spectroscope, §5.2).
//!
//! The algorithm computes 64 rows at a time in the bits of a word (Myers, A fast bit-vector
//! algorithm for approximate string matching based on dynamic programming, 1999, with Hyyrö's
//! formulas for the distance, 2003). For n ≤ m elements, it takes ⌈n/64⌉·m steps of some fifteen
//! operations, and memory for n + m elements. A common prefix or suffix costs one comparison per
//! element.

use rustc_hash::FxHashMap;
use std::hash::Hash;

/// Returns the edit distance of two sequences.
pub fn edit_distance<T: Copy + Eq + Hash>(a: &[T], b: &[T]) -> usize {
    let (a, b) = without_ends(a, b);
    // The shorter sequence forms the rows, which needs fewer words.
    let (rows, columns) = if a.len() <= b.len() { (a, b) } else { (b, a) };
    let (rows, columns, symbols) = numbered(rows, columns);
    // Difference of each distance from that of the previous column, in the row above.
    let mut steps: Vec<i8> = vec![1; columns.len()];
    // Bits of the rows with each symbol, in the current block.
    let mut places = vec![0u64; symbols + 1];
    for block in rows.chunks(u64::BITS as usize) {
        for (bit, symbol) in block.iter().enumerate() {
            places[*symbol as usize] |= 1 << bit;
        }
        block_of_rows(&places, &columns, &mut steps, block.len());
        for symbol in block {
            places[*symbol as usize] = 0;
        }
    }
    let of_steps: isize = steps.into_iter().map(isize::from).sum();
    rows.len().saturating_add_signed(of_steps)
}

/// Returns the edit distance as a fraction (0 to 1) of the longer length; 0 if both are empty.
pub fn normalised_edit_distance<T: Copy + Eq + Hash>(a: &[T], b: &[T]) -> f64 {
    edit_distance(a, b) as f64 / a.len().max(b.len()).max(1) as f64
}

/// Strips the common prefix and suffix, which do not change the distance.
fn without_ends<'a, T: Eq>(a: &'a [T], b: &'a [T]) -> (&'a [T], &'a [T]) {
    let alike = |(x, y): &(&T, &T)| x == y;
    let start = a.iter().zip(b).take_while(alike).count();
    let (a, b) = (&a[start..], &b[start..]);
    let end = a.iter().rev().zip(b.iter().rev()).take_while(alike).count();
    (&a[..a.len() - end], &b[..b.len() - end])
}

/// Maps the elements of both sequences to small numbers. The distinct elements of `rows` have the
/// lowest numbers. Their count is the third value returned.
fn numbered<T: Copy + Eq + Hash>(rows: &[T], columns: &[T]) -> (Vec<u32>, Vec<u32>, usize) {
    let mut numbers: FxHashMap<T, u32> = FxHashMap::default();
    let row = |element: &T| {
        let next = numbers.len() as u32;
        *numbers.entry(*element).or_insert(next)
    };
    let rows: Vec<u32> = rows.iter().map(row).collect();
    let symbols = numbers.len();
    // All elements that are not in the rows share one number, as they equal nothing there.
    let column = |element: &T| numbers.get(element).copied().unwrap_or(symbols as u32);
    (rows, columns.iter().map(column).collect(), symbols)
}

/// Updates `steps` from the row above a block of rows to the block's last row.
fn block_of_rows(places: &[u64], columns: &[u32], steps: &mut [i8], height: usize) {
    let last = 1u64 << (height - 1);
    // Bits of the rows whose distance is one more, or one less, than that of the row above.
    let (mut more, mut less) = (u64::MAX, 0u64);
    for (symbol, step) in columns.iter().zip(steps) {
        let (from_more, from_less) = (u64::from(*step > 0), u64::from(*step < 0));
        let equal = places[*symbol as usize];
        let vertical = equal | less;
        let equal = equal | from_less;
        let diagonal = ((equal & more).wrapping_add(more) ^ more) | equal;
        let right_more = less | !(diagonal | more);
        let right_less = more & diagonal;
        *step = i8::from(right_more & last != 0) - i8::from(right_less & last != 0);
        let right_more = right_more << 1 | from_more;
        let right_less = right_less << 1 | from_less;
        more = right_less | !(vertical | right_more);
        less = right_more & vertical;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// Computes the whole matrix, as the reference implementation.
    pub(super) fn naive(a: &[u32], b: &[u32]) -> usize {
        let mut matrix = vec![vec![0; b.len() + 1]; a.len() + 1];
        for i in 0..=a.len() {
            for j in 0..=b.len() {
                matrix[i][j] = if i == 0 || j == 0 {
                    i + j
                } else {
                    let replaced = matrix[i - 1][j - 1] + usize::from(a[i - 1] != b[j - 1]);
                    replaced.min(matrix[i - 1][j] + 1).min(matrix[i][j - 1] + 1)
                };
            }
        }
        matrix[a.len()][b.len()]
    }

    /// Pairs of sequences of up to four words: random ones of few or many symbols, and edits of
    /// each other.
    pub(super) fn pairs() -> impl Strategy<Value = (Vec<u32>, Vec<u32>)> {
        let of = |symbols: u32| {
            let one = prop::collection::vec(0..symbols, 0..200);
            (one.clone(), one)
        };
        let edits = prop::collection::vec((any::<prop::sample::Index>(), 0u32..9, 0u8..3), 0..9);
        let edited = (prop::collection::vec(0u32..8, 1..200), edits).prop_map(|(a, edits)| {
            let mut b = a.clone();
            for (at, symbol, kind) in edits {
                let at = at.index(b.len() + 1);
                match kind {
                    0 => b.insert(at, symbol),
                    1 if at < b.len() => b[at] = symbol,
                    _ if at < b.len() => {
                        b.remove(at);
                    }
                    _ => {}
                }
            }
            (a, b)
        });
        prop_oneof![of(3), of(1000), edited]
    }

    proptest! {
        #[test]
        fn it_is_that_of_the_whole_matrix((a, b) in pairs()) {
            let expected = naive(&a, &b);
            prop_assert_eq!(edit_distance(&a, &b), expected);
            prop_assert_eq!(edit_distance(&b, &a), expected);
            prop_assert!((0.0..=1.0).contains(&normalised_edit_distance(&a, &b)));
        }
    }

    #[test]
    fn what_shares_nothing_is_as_far_as_can_be() {
        assert_eq!(normalised_edit_distance::<u32>(&[], &[]), 0.0);
        assert_eq!(normalised_edit_distance(&[1, 2, 3], &[]), 1.0);
        assert_eq!(normalised_edit_distance(&[1, 2, 3], &[4, 5, 6, 7]), 1.0);
        assert_eq!(normalised_edit_distance(&[1, 2, 3, 4], &[1, 3, 4]), 0.25);
        let (kitten, sitting) = ("kitten".as_bytes(), "sitting".as_bytes());
        assert_eq!(edit_distance(kitten, sitting), 3);
    }
}
