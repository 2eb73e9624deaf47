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
    // No distance is more than the longer length.
    edit_distance_within(a, b, a.len().max(b.len())).unwrap_or_default()
}

/// Returns the edit distance of two sequences if it is at most `most`, and `None` otherwise. Stops
/// early if the distance is certain to exceed `most` after a block of 64 elements.
pub fn edit_distance_within<T: Copy + Eq + Hash>(a: &[T], b: &[T], most: usize) -> Option<usize> {
    let (a, b) = without_ends(a, b);
    if a.len().abs_diff(b.len()) > most {
        return None;
    }
    if a.is_empty() || b.is_empty() {
        return Some(a.len().max(b.len()));
    }
    // The shorter sequence forms the rows, which needs fewer words.
    let (rows, columns) = if a.len() <= b.len() { (a, b) } else { (b, a) };
    let (rows, columns, symbols) = numbered(rows, columns);
    let distance = last_row(&rows, &columns, symbols, most)?
        .last()
        .copied()
        .unwrap_or_default();
    (distance <= most).then_some(distance)
}

/// Returns the edit distance as a fraction (0 to 1) of the longer length; 0 for two empty
/// sequences.
pub fn normalised_edit_distance<T: Copy + Eq + Hash>(a: &[T], b: &[T]) -> f64 {
    normalised(edit_distance(a, b), a.len().max(b.len()))
}

/// Returns the normalised edit distance if it is at most `most`, and `None` otherwise. Stops early
/// like [`edit_distance_within`].
pub fn normalised_edit_distance_within<T: Copy + Eq + Hash>(
    a: &[T],
    b: &[T],
    most: f64,
) -> Option<f64> {
    let longer = a.len().max(b.len());
    // The product is rounded, so the bound allows one edit more. The last comparison is exact.
    let most_edits = (most.clamp(0.0, 1.0) * longer as f64) as usize + 1;
    let distance = normalised(edit_distance_within(a, b, most_edits)?, longer);
    (distance <= most).then_some(distance)
}

fn normalised(distance: usize, longer: usize) -> f64 {
    distance as f64 / longer.max(1) as f64
}

/// Strips the common prefix and suffix, which do not change the distance.
fn without_ends<'a, T: Eq>(a: &'a [T], b: &'a [T]) -> (&'a [T], &'a [T]) {
    let start = common_start(a, b);
    let (a, b) = (&a[start..], &b[start..]);
    let alike = |(x, y): &(&T, &T)| x == y;
    let end = a.iter().rev().zip(b.iter().rev()).take_while(alike).count();
    (&a[..a.len() - end], &b[..b.len() - end])
}

fn common_start<T: Eq>(a: &[T], b: &[T]) -> usize {
    a.iter().zip(b).take_while(|(x, y)| x == y).count()
}

/// Maps the elements of both sequences to small numbers. The distinct elements of `rows` have the
/// lowest numbers. Their count is the third value returned.
fn numbered<T: Copy + Eq + Hash>(rows: &[T], columns: &[T]) -> (Vec<u32>, Vec<u32>, usize) {
    let mut numbers: FxHashMap<T, u32> = FxHashMap::default();
    let rows: Vec<u32> = rows
        .iter()
        .map(|element| {
            let next = numbers.len() as u32;
            *numbers.entry(*element).or_insert(next)
        })
        .collect();
    let symbols = numbers.len();
    // All elements that are not in the rows share one number, as they equal nothing there.
    let other = symbols as u32;
    let columns = columns
        .iter()
        .map(|element| numbers.get(element).copied().unwrap_or(other))
        .collect();
    (rows, columns, symbols)
}

const WORD_BITS: usize = u64::BITS as usize;

/// Returns the distances between `rows` and each prefix of `columns`, the empty prefix first.
/// Returns `None` if the distance between `rows` and `columns` is certain to exceed `most`.
///
/// Numbers below `symbols` are elements of `rows`.
fn last_row(rows: &[u32], columns: &[u32], symbols: usize, most: usize) -> Option<Vec<usize>> {
    // Difference of each distance from that of the previous column, in the row above.
    let mut steps: Vec<i8> = vec![1; columns.len()];
    let mut places = vec![0u64; symbols + 1];
    for (block, word) in rows.chunks(WORD_BITS).enumerate() {
        for (bit, symbol) in word.iter().enumerate() {
            places[*symbol as usize] |= 1 << bit;
        }
        block_of_rows(&places, columns, &mut steps, word.len());
        for symbol in word {
            places[*symbol as usize] = 0;
        }
        let done = block * WORD_BITS + word.len();
        if least_distance(done, &steps, rows.len(), columns.len()) > most {
            return None;
        }
    }
    let mut row = Vec::with_capacity(columns.len() + 1);
    let mut distance = rows.len();
    row.push(distance);
    for step in steps {
        distance = distance.wrapping_add_signed(isize::from(step));
        row.push(distance);
    }
    Some(row)
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

/// Returns a lower bound of the final distance, given the row after `done` rows. At each position
/// of the row, the remaining sequences differ in length, which requires at least as many edits.
fn least_distance(done: usize, steps: &[i8], rows: usize, columns: usize) -> usize {
    let left = rows - done;
    let mut distance = done;
    let mut least = distance + left.abs_diff(columns);
    for (at, step) in steps.iter().enumerate() {
        distance = distance.wrapping_add_signed(isize::from(*step));
        least = least.min(distance + left.abs_diff(columns - at - 1));
    }
    least
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
        fn it_is_that_of_the_whole_matrix((a, b) in pairs(), most in 0usize..60) {
            let expected = naive(&a, &b);
            prop_assert_eq!(edit_distance(&a, &b), expected);
            prop_assert_eq!(edit_distance(&b, &a), expected);
            let within = (expected <= most).then_some(expected);
            prop_assert_eq!(edit_distance_within(&a, &b, most), within);
        }

        #[test]
        fn rows_are_distances_to_beginnings((a, b) in pairs()) {
            let (rows, columns, symbols) = numbered(&a, &b);
            let expected: Vec<usize> = (0..=b.len()).map(|end| naive(&a, &b[..end])).collect();
            let found = last_row(&rows, &columns, symbols, usize::MAX);
            prop_assert_eq!(found, Some(expected));
        }

        #[test]
        fn the_bound_of_a_part_is_kept((a, b) in pairs(), most in 0.0..1.0f64) {
            let distance = normalised_edit_distance(&a, &b);
            prop_assert!((0.0..=1.0).contains(&distance));
            let within = normalised_edit_distance_within(&a, &b, most);
            prop_assert_eq!(within, (distance <= most).then_some(distance));
            prop_assert_eq!(normalised_edit_distance_within(&a, &b, distance), Some(distance));
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
