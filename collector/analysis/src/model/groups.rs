//! Fast path of counting, for requests with one tolerance for all timestamps, in which every label
//! occurs once and whose set of labels recurs. Typical requests of a service are of this kind.
//! [`contradictions`](super::contradictions) counts the others.
//!
//! *Contradictions.* Segments are in order of start. A→B is contradicted for every B that starts
//! before A ends. These labels form a prefix of the trace. Each prefix is kept as a bitset. A
//! branch-free binary search finds A's prefix, whose words are A's row. Nothing has to be sorted.
//!
//! *Other counts.* All traces of a group contain all of the set's labels. In each, two segments
//! either overlap (each starts before the other ends) or have a known order (exactly one does). So
//! overlaps(A, B) = contradictions(A, B) + contradictions(B, A) − traces, and a group counts one
//! kind of answer instead of three.
//!
//! *Counting* is vertical, as [`counts`](super::counts) explains, but for all rows of the set at
//! once. The bits of weight 2ⁱ of all counters are adjacent, so that an adder is one pass over an
//! array.
//!
//! A set of labels gets a group once `SIGHTINGS` occurrences of it are remembered, unless it alone
//! exceeds the memory bound that the groups share. A new group that would exceed the bound together
//! with the others moves their counts to the matrix.

use super::counts::{CONTRADICTED, Counts, OVERLAPPED, PerKind, TOGETHER};
use crate::segment::Segment;
use rustc_hash::{FxHashMap, FxHasher};
use std::hash::{Hash, Hasher};
use std::hint::select_unpredictable;

/// Number of traces in which a set of labels must occur to get a group. Emptying a group costs as
/// much as counting several traces by the sweep, so a group pays off only for a set that recurs.
pub(super) const SIGHTINGS: u8 = 8;
/// Maximum number of remembered sets without a group. Once it is reached, all of them are
/// forgotten.
const SETS_MAX: usize = 1 << 12;
/// Maximum size of all groups together, in words of 64 answers. Each word takes up to 192 bytes.
pub(super) const WORDS_MAX: usize = 1 << 16;
const LEVELS: usize = 12;
/// Maximum count that the levels can hold.
const STAGED_MAX: u32 = (1 << LEVELS) - 1;

/// Counters of one set of labels.
#[derive(Clone)]
struct Group {
    /// The set: one bit per label, without trailing zero words.
    set: Box<[u64]>,
    /// Non-zero words of the set: the columns.
    words: Vec<u32>,
    /// Labels in order: the rows.
    labels: Vec<u32>,
    staged: u32,
    /// Level i: the bits of weight 2ⁱ, as a sum and an input that waits for a second input.
    levels: Vec<(Vec<u64>, Vec<u64>)>,
}

/// Counters of all groups; see the [module](self).
#[derive(Clone, Default)]
pub(super) struct Groups {
    groups: Vec<Group>,
    /// Group by hash of the set. A hash collision is a miss: the sweep counts the second set.
    group_of: FxHashMap<u64, usize>,
    sightings: FxHashMap<u64, u8>,
    words: usize,
    /// Labels of the current trace, one bit per label.
    set: Vec<u64>,
    starts_ns: Vec<i64>,
    /// Column of each word of the set.
    columns: Vec<u32>,
    /// Row of each label of the set.
    row_of: Vec<u32>,
    prefixes: Vec<u64>,
    answers: Vec<u64>,
}

impl Groups {
    /// Upper bound of the memory that the counters of the present groups take, in bytes.
    pub(super) fn bytes(&self) -> usize {
        self.words * LEVELS * 2 * size_of::<u64>()
    }

    /// Releases the scratch memory that grows with the number of a trace's segments.
    pub(super) fn empty_scratch(&mut self) {
        (self.starts_ns, self.prefixes) = (Vec::new(), Vec::new());
        self.answers = Vec::new();
    }

    /// Counts a trace in its group. The segments must be in order of start. Returns `false` if the
    /// sweep must count the trace instead: there are no segments, a label repeats, two segments
    /// neither overlap nor have a known order, or the set of labels has no group. Counts of full
    /// groups, and of groups that give way to a new one, move to `counts`.
    pub(super) fn count(&mut self, segments: &[Segment], counts: &mut Counts) -> bool {
        if !self.read(segments) {
            return false;
        }
        let mut hasher = FxHasher::default();
        self.set.hash(&mut hasher);
        let hash = hasher.finish();
        let found = self.group_of.get(&hash).copied();
        let Some(at) = found.or_else(|| self.new_group(hash, counts)) else {
            return false;
        };
        if *self.groups[at].set != *self.set {
            return false;
        }
        self.answer(at, segments);
        let group = &mut self.groups[at];
        group.add(&mut self.answers);
        if group.staged == STAGED_MAX {
            group.empty_into(counts);
        }
        true
    }

    /// Reads the labels and starts of a trace. Returns `false` if there are no segments, a label
    /// repeats, or two segments neither overlap nor have a known order.
    fn read(&mut self, segments: &[Segment]) -> bool {
        self.set.clear();
        self.starts_ns.clear();
        let mut fits = !segments.is_empty();
        for (index, segment) in segments.iter().enumerate() {
            let (word, bit) = (segment.id.index() / 64, 1 << (segment.id.0 % 64));
            if self.set.len() <= word {
                self.set.resize(word + 1, 0);
            }
            fits &= self.set[word] & bit == 0;
            if segment.end_ns <= segment.start_ns {
                let unsure = segments[..index]
                    .iter()
                    .rev()
                    .take_while(|s| s.start_ns >= segment.end_ns);
                fits &= unsure.into_iter().all(|s| s.end_ns > segment.start_ns);
            }
            self.set[word] |= bit;
            self.starts_ns.push(segment.start_ns);
        }
        fits
    }

    fn new_group(&mut self, hash: u64, counts: &mut Counts) -> Option<usize> {
        if self.sightings.len() >= SETS_MAX {
            self.sightings.clear();
        }
        let sightings = self.sightings.entry(hash).or_default();
        *sightings += 1;
        if *sightings < SIGHTINGS {
            return None;
        }
        let words: Vec<u32> = (0..self.set.len() as u32)
            .filter(|word| self.set[*word as usize] != 0)
            .collect();
        let labels: Vec<u32> = (0..self.set.len() as u32 * 64)
            .filter(|l| self.set[*l as usize / 64] >> (l % 64) & 1 == 1)
            .collect();
        let size = words.len() * labels.len();
        if size > WORDS_MAX {
            // The sweep counts this set, and a group is not considered again for a while.
            *sightings = 0;
            return None;
        }
        self.sightings.remove(&hash);
        if self.words + size > WORDS_MAX {
            self.empty_into(counts);
        }
        self.words += size;
        self.group_of.insert(hash, self.groups.len());
        let set = self.set.clone().into();
        self.groups.push(Group {
            set,
            words,
            labels,
            staged: 0,
            levels: Vec::new(),
        });
        Some(self.groups.len() - 1)
    }

    /// Computes the answers: for each row, the labels whose segments start before the row's segment
    /// ends.
    fn answer(&mut self, at: usize, segments: &[Segment]) {
        let group = &self.groups[at];
        let width = group.words.len();
        self.columns.clear();
        let mut column = 0;
        for word in &*group.set {
            self.columns.push(column);
            column += u32::from(*word != 0);
        }
        if self.row_of.len() < group.set.len() * 64 {
            self.row_of.resize(group.set.len() * 64, 0);
        }
        for (row, label) in group.labels.iter().enumerate() {
            self.row_of[*label as usize] = row as u32;
        }
        self.prefixes.clear();
        self.prefixes.resize((segments.len() + 1) * width, 0);
        self.answers.resize(segments.len() * width, 0);
        // Rows of a constant width are copied word by word, without a function call for each row.
        match width {
            1 => self.fill::<1>(segments),
            2 => self.fill::<2>(segments),
            3 => self.fill::<3>(segments),
            4 => self.fill::<4>(segments),
            _ => self.fill_wide(segments, width),
        }
    }

    fn fill<const WIDTH: usize>(&mut self, segments: &[Segment]) {
        let mut prefixes = std::mem::take(&mut self.prefixes);
        let mut answers = std::mem::take(&mut self.answers);
        let rows = prefixes.as_chunks_mut::<WIDTH>().0;
        let mut prefix = [0; WIDTH];
        for (row, segment) in rows[1..].iter_mut().zip(segments) {
            let (own, bit) = (
                self.columns[segment.id.index() / 64] as usize,
                1 << (segment.id.0 % 64),
            );
            // Equal operations on all words keep them in registers.
            for (column, word) in prefix.iter_mut().enumerate() {
                *word |= if column == own { bit } else { 0 };
            }
            *row = prefix;
        }
        let found = answers.as_chunks_mut::<WIDTH>().0;
        for segment in segments {
            let row = self.row_of[segment.id.index()] as usize;
            found[row] = rows[count_below(&self.starts_ns, segment.end_ns)];
        }
        (self.prefixes, self.answers) = (prefixes, answers);
    }

    fn fill_wide(&mut self, segments: &[Segment], width: usize) {
        let mut rest = &mut self.prefixes[..];
        for segment in segments {
            let (before, after) = rest.split_at_mut(width);
            after[..width].copy_from_slice(before);
            let column = self.columns[segment.id.index() / 64] as usize;
            after[column] |= 1 << (segment.id.0 % 64);
            rest = after;
        }
        for segment in segments {
            let earlier = count_below(&self.starts_ns, segment.end_ns) * width;
            let row = self.row_of[segment.id.index()] as usize * width;
            self.answers[row..row + width]
                .copy_from_slice(&self.prefixes[earlier..earlier + width]);
        }
    }

    /// Moves the counts of all groups to `counts`, and drops the groups.
    fn empty_into(&mut self, counts: &mut Counts) {
        self.groups
            .drain(..)
            .for_each(|mut group| group.empty_into(counts));
        self.group_of.clear();
        self.words = 0;
    }

    /// Returns the counts that the groups hold.
    pub(super) fn counts(&self) -> Counts {
        let mut counts = Counts::default();
        self.groups
            .iter()
            .for_each(|group| group.add_to(&mut counts));
        counts
    }

    /// Returns the groups' counts of one pair.
    pub(super) fn cell(&self, a: usize, b: usize) -> PerKind {
        let mut numbers = PerKind::default();
        for group in self.groups.iter().filter(|_| a != b) {
            let row = |label: usize| group.labels.binary_search(&(label as u32)).ok();
            let (Some(row_a), Some(row_b)) = (row(a), row(b)) else {
                continue;
            };
            let (before, after) = (group.cell(row_a, b), group.cell(row_b, a));
            numbers[TOGETHER] += u64::from(group.staged);
            numbers[CONTRADICTED] += before;
            // Overlaps of a pair are counted on only one side of the diagonal, as in `counts`.
            numbers[OVERLAPPED] += if a < b {
                before + after - u64::from(group.staged)
            } else {
                0
            };
        }
        numbers
    }
}

/// Returns the number of values below `bound`. The values must be sorted.
#[inline]
fn count_below(values: &[i64], bound: i64) -> usize {
    let (mut from, mut size) = (0, values.len());
    while size > 1 {
        let half = size / 2;
        from = select_unpredictable(values[from + half - 1] < bound, from + half, from);
        size -= half;
    }
    from + usize::from(size == 1 && values[from] < bound)
}

impl Group {
    /// Adds the answers of one trace. Leaves arbitrary values in `answers`.
    #[inline]
    fn add(&mut self, answers: &mut Vec<u64>) {
        let mut waiting = self.staged;
        let mut level = 0;
        loop {
            if self.levels.len() <= level {
                self.levels
                    .push((vec![0; answers.len()], vec![0; answers.len()]));
            }
            let (sums, inputs) = &mut self.levels[level];
            if waiting & 1 == 0 {
                if answers.capacity() > inputs.capacity() {
                    // A swap would give this group the memory of a larger one.
                    inputs.copy_from_slice(answers);
                } else {
                    std::mem::swap(inputs, answers);
                }
                break;
            }
            for ((sum, input), answer) in sums.iter_mut().zip(&*inputs).zip(answers.iter_mut()) {
                let half = *sum ^ input;
                let carry = (*sum & input) | (half & *answer);
                *sum = half ^ *answer;
                *answer = carry;
            }
            waiting >>= 1;
            level += 1;
        }
        self.staged += 1;
    }

    /// Returns each level's exponent, its sums and its waiting input. An input waits at level `i`
    /// if `staged` has bit `i`; otherwise, it is `None`.
    fn in_use(&self) -> impl Iterator<Item = (usize, &[u64], Option<&[u64]>)> {
        self.levels
            .iter()
            .enumerate()
            .map(|(weight, (sums, inputs))| {
                (
                    weight,
                    &sums[..],
                    (self.staged >> weight & 1 == 1).then_some(&inputs[..]),
                )
            })
    }

    fn cell(&self, row: usize, label: usize) -> u64 {
        let Ok(column) = self.words.binary_search(&(label as u32 / 64)) else {
            return 0;
        };
        let at = row * self.words.len() + column;
        let bit = |words: &[u64]| words[at] >> (label % 64) & 1;
        self.in_use()
            .map(|(weight, sums, inputs)| (bit(sums) + inputs.map_or(0, bit)) << weight)
            .sum()
    }

    /// Returns the contradictions of all ordered pairs of the group's labels, row by row.
    fn contradictions(&self) -> Vec<u64> {
        let (size, width) = (self.labels.len(), self.words.len());
        let mut numbers = vec![0; size * size];
        let mut label = 0;
        let places: Vec<(usize, u32)> = (0..width)
            .flat_map(|column| {
                let of_word = self.labels[label..]
                    .iter()
                    .take_while(|l| *l / 64 == self.words[column]);
                let bits: Vec<_> = of_word.map(|l| (column, l % 64)).collect();
                label += bits.len();
                bits
            })
            .collect();
        for (weight, sums, inputs) in self.in_use() {
            for (row, numbers) in numbers.chunks_exact_mut(size).enumerate() {
                let row = row * width;
                for (number, (column, bit)) in numbers.iter_mut().zip(&places) {
                    let waiting = inputs.map_or(0, |inputs| inputs[row + column] >> bit & 1);
                    *number += ((sums[row + column] >> bit & 1) + waiting) << weight;
                }
            }
        }
        numbers
    }

    fn add_to(&self, counts: &mut Counts) {
        if self.staged == 0 {
            return;
        }
        let (numbers, size, traces) = (
            self.contradictions(),
            self.labels.len(),
            u64::from(self.staged),
        );
        for (i, a) in self.labels.iter().enumerate() {
            for (j, b) in self.labels.iter().enumerate().filter(|(j, _)| *j != i) {
                let (before, after) = (numbers[i * size + j], numbers[j * size + i]);
                let overlaps = if i < j { before + after - traces } else { 0 };
                let mut cell = PerKind::default();
                (cell[TOGETHER], cell[CONTRADICTED], cell[OVERLAPPED]) = (traces, before, overlaps);
                counts.add_cell(*a as usize, *b as usize, cell);
            }
        }
    }

    fn empty_into(&mut self, counts: &mut Counts) {
        self.add_to(counts);
        self.staged = 0;
        for (sums, _) in &mut self.levels {
            sums.fill(0);
        }
    }
}

/// Combined counts of blocks and groups, for reading.
pub(super) struct ResolvedCounts<'a> {
    counts: &'a Counts,
    groups: Counts,
}

impl<'a> ResolvedCounts<'a> {
    pub(super) fn of(counts: &'a Counts, groups: &Groups) -> ResolvedCounts<'a> {
        ResolvedCounts {
            counts,
            groups: groups.counts(),
        }
    }

    /// Returns the counts of one pair; zeros if the pair never occurred together.
    pub(super) fn cell(&self, row: usize, column: usize) -> PerKind {
        let (a, b) = (self.counts.cell(row, column), self.groups.cell(row, column));
        std::array::from_fn(|kind| a[kind] + b[kind])
    }

    /// Visits every pair that occurred together, in order of row and column.
    pub(super) fn for_each_together(&self, visit: impl FnMut(usize, usize, PerKind)) {
        self.counts.for_each_together_with(&self.groups, visit);
    }
}

#[cfg(test)]
mod tests;
