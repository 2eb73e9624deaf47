//! Counts for each pair of segments: traces that contain both, traces that contradict their order,
//! and traces in which they overlap.
//!
//! The matrix consists of blocks of one row and 64 columns. A block is created for the first trace
//! that contains its row's label and the label of one of its columns. Memory therefore grows with
//! the number of pairs that share requests, not with the square of the number of labels.
//!
//! Counting is *vertical*. A trace gives 64 yes-or-no answers of each kind per block. Adding each
//! answer to a counter of its own would cost 64 additions. Instead, one word ("level `i`") has bit
//! `i` of 64 counters. A carry-save adder of five operations adds a word to all 64 counters at
//! once. Each level takes its inputs in pairs: the first waits in `carry`, and the second makes the
//! adder send a carry to the next level. So a trace costs one adder per block and kind on average,
//! however high the counts are. After [`STAGED_MAX`] traces, the levels are added to plain 64-bit
//! totals.

/// Index of the first kind of answer: the trace contains both segments.
pub(super) const TOGETHER: usize = 0;
/// Index of the second kind: start(column) < end(row) for some instances, so the trace contradicts
/// row→column.
pub(super) const CONTRADICTED: usize = 1;
/// Index of the third kind: the two segments overlap for some instances. A trace counts for each
/// unordered pair on only one side of the diagonal.
pub(super) const OVERLAPPED: usize = 2;
const KINDS: usize = 3;

/// One count, or one word of 64 answers, per kind of answer.
pub(super) type PerKind = [u64; KINDS];

const LEVELS: usize = 12;
/// Maximum count that the levels can hold.
const STAGED_MAX: u32 = (1 << LEVELS) - 1;

#[derive(Clone, Copy, Default)]
struct Level {
    sum: PerKind,
    carry: PerKind,
}

/// Counters of each kind for one row and 64 columns.
#[derive(Clone)]
struct Block {
    staged: u32,
    levels: [Level; LEVELS],
    totals: [[u64; 64]; KINDS],
}

impl Block {
    fn new() -> Box<Block> {
        Box::new(Block {
            staged: 0,
            levels: [Level::default(); LEVELS],
            totals: [[0; 64]; KINDS],
        })
    }

    #[inline]
    fn add(&mut self, bits: PerKind) {
        let mut input = bits;
        let mut waiting = self.staged;
        for level in &mut self.levels {
            if waiting & 1 == 0 {
                level.carry = input;
                break;
            }
            for (kind, bits) in input.iter_mut().enumerate() {
                let (sum, carry) = (level.sum[kind], level.carry[kind]);
                let half = sum ^ carry;
                level.sum[kind] = half ^ *bits;
                *bits = (sum & carry) | (half & *bits);
                level.carry[kind] = 0;
            }
            waiting >>= 1;
        }
        self.staged += 1;
        if self.staged == STAGED_MAX {
            self.totals = self.resolved();
            self.levels = [Level::default(); LEVELS];
            self.staged = 0;
        }
    }

    /// Returns the totals, including the counts that the levels hold in carry-save form.
    fn resolved(&self) -> [[u64; 64]; KINDS] {
        let mut totals = self.totals;
        for (weight, level) in self.in_use().iter().enumerate() {
            for (kind, totals) in totals.iter_mut().enumerate() {
                for bits in [level.sum[kind], level.carry[kind]] {
                    for (column, total) in totals.iter_mut().enumerate() {
                        *total += ((bits >> column) & 1) << weight;
                    }
                }
            }
        }
        totals
    }

    /// Returns the levels that may hold counts. The others are zero.
    fn in_use(&self) -> &[Level] {
        &self.levels[..(u32::BITS - self.staged.leading_zeros()) as usize]
    }

    fn cell(&self, column: usize) -> PerKind {
        std::array::from_fn(|kind| {
            let staged = self.in_use().iter().enumerate().map(|(weight, level)| {
                (((level.sum[kind] >> column) & 1) + ((level.carry[kind] >> column) & 1)) << weight
            });
            self.totals[kind][column] + staged.sum::<u64>()
        })
    }
}

/// Matrix of the counts of all pairs. Segment ids are the indices of rows and columns.
#[derive(Clone, Default)]
pub(super) struct Counts {
    rows: Vec<Vec<Option<Box<Block>>>>,
    blocks: usize,
}

/// Memory of a block and of its pointer in a row, in bytes.
pub(super) const BLOCK_BYTES: usize = size_of::<Block>() + size_of::<usize>();

impl Counts {
    /// Adds one trace's answers for the 64 columns of a row that begin at `word * 64`.
    #[inline]
    pub(super) fn add_word(&mut self, row: usize, word: usize, bits: PerKind) {
        self.block_mut(row, word).add(bits);
    }

    /// Adds `numbers` to the counts of one pair.
    pub(super) fn add_cell(&mut self, row: usize, column: usize, numbers: PerKind) {
        let block = self.block_mut(row, column / 64);
        for (totals, number) in block.totals.iter_mut().zip(numbers) {
            totals[column % 64] += number;
        }
    }

    /// Returns the counts of one pair; zeros if the pair never occurred together.
    pub(super) fn cell(&self, row: usize, column: usize) -> PerKind {
        self.block(row, column / 64)
            .map_or([0; KINDS], |block| block.cell(column % 64))
    }

    /// Visits every pair that occurred together, in order of row and column. Passes the sum of the
    /// counts in `self` and in `other`.
    pub(super) fn for_each_together_with(
        &self,
        other: &Counts,
        mut visit: impl FnMut(usize, usize, PerKind),
    ) {
        for row in 0..self.rows.len().max(other.rows.len()) {
            let words = |counts: &Counts| counts.rows.get(row).map_or(0, Vec::len);
            for word in 0..words(self).max(words(other)) {
                let totals = match (self.block(row, word), other.block(row, word)) {
                    (None, None) => continue,
                    (Some(one), None) | (None, Some(one)) => one.resolved(),
                    (Some(a), Some(b)) => {
                        let mut totals = a.resolved();
                        let more = b.resolved();
                        totals
                            .iter_mut()
                            .flatten()
                            .zip(more.iter().flatten())
                            .for_each(|(a, b)| *a += b);
                        totals
                    }
                };
                for column in (0..64).filter(|column| totals[TOGETHER][*column] > 0) {
                    let numbers = std::array::from_fn(|kind| totals[kind][column]);
                    visit(row, word * 64 + column, numbers);
                }
            }
        }
    }

    /// Returns the number of blocks in memory.
    pub(super) fn blocks(&self) -> usize {
        self.blocks
    }

    /// Reports whether a block exists for this row and the 64 columns that begin at `word * 64`.
    pub(super) fn has(&self, row: usize, word: usize) -> bool {
        self.block(row, word).is_some()
    }

    fn block(&self, row: usize, word: usize) -> Option<&Block> {
        self.rows.get(row)?.get(word)?.as_deref()
    }

    #[inline]
    fn block_mut(&mut self, row: usize, word: usize) -> &mut Block {
        if self.rows.len() <= row {
            self.rows.resize_with(row + 1, Vec::new);
        }
        let blocks = &mut self.rows[row];
        if blocks.len() <= word {
            blocks.resize_with(word + 1, || None);
        }
        let block = &mut blocks[word];
        self.blocks += usize::from(block.is_none());
        block.get_or_insert_with(Block::new)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(24))]
        /// Vertical counters equal one addition per bit, below, at and past the point where they
        /// are emptied.
        #[test]
        fn vertical_counts_equal_plain_ones(seed in any::<u64>(), adds in 0u32..(3 * STAGED_MAX)) {
            let mut counts = Counts::default();
            let mut plain = [[0u64; 64]; KINDS];
            let mut state = seed | 1;
            for _ in 0..adds {
                let bits: PerKind = std::array::from_fn(|_| {
                    state ^= state << 13;
                    state ^= state >> 7;
                    state ^= state << 17;
                    state
                });
                counts.add_word(3, 1, bits);
                for (plain, bits) in plain.iter_mut().zip(bits) {
                    for (column, plain) in plain.iter_mut().enumerate() {
                        *plain += (bits >> column) & 1;
                    }
                }
            }
            let expected = |column: usize| -> PerKind { std::array::from_fn(|kind| plain[kind][column]) };
            for column in 0..64 {
                prop_assert_eq!(counts.cell(3, 64 + column), expected(column));
            }
            let mut visited = 0;
            counts.for_each_together_with(&Counts::default(), |row, column, numbers| {
                assert_eq!((row, numbers), (3, expected(column - 64)));
                visited += 1;
            });
            prop_assert_eq!(visited, plain[TOGETHER].iter().filter(|n| **n > 0).count());
        }
    }

    #[test]
    fn a_full_stage_is_emptied_without_loss() {
        let mut counts = Counts::default();
        for _ in 0..u64::from(STAGED_MAX) * 2 + 1 {
            counts.add_word(0, 0, [u64::MAX; KINDS]);
        }
        assert_eq!(counts.cell(0, 63), [u64::from(STAGED_MAX) * 2 + 1; KINDS]);
        counts.add_cell(0, 63, [1, 2, 3]);
        assert_eq!(
            counts.cell(0, 63)[OVERLAPPED],
            u64::from(STAGED_MAX) * 2 + 4
        );
    }
}
