//! Chooses the best question for a node of the tree.

use super::condition::{Condition, Test};
use super::table::{Table, Values};
use std::collections::BTreeSet;
use std::sync::Arc;

/// A yes-no question about the value of a column.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Split {
    /// Asks if the number is at most `most`.
    AtMost { column: usize, most: f64 },
    /// Asks if the text is one of these, given by their indices in [`Values::Texts`].
    OneOf {
        column: usize,
        places: BTreeSet<u32>,
    },
}

impl Split {
    /// Returns the answer for a row, or `None` if the row's value is unknown.
    pub(super) fn is_met(&self, table: &Table, row: usize) -> Option<bool> {
        match (self, &table.columns[self.column()].values) {
            (Split::AtMost { most, .. }, Values::Numbers(numbers)) => {
                numbers[row].map(|number| number <= *most)
            }
            (Split::OneOf { places: some, .. }, Values::Texts { places, .. }) => {
                places[row].map(|place| some.contains(&place))
            }
            _ => None,
        }
    }

    pub(super) fn column(&self) -> usize {
        match self {
            Split::AtMost { column, .. } | Split::OneOf { column, .. } => *column,
        }
    }

    pub(super) fn column_mut(&mut self) -> &mut usize {
        match self {
            Split::AtMost { column, .. } | Split::OneOf { column, .. } => column,
        }
    }

    /// Returns the conditions that yes and no express.
    pub(super) fn answers(&self, table: &Table) -> [Condition; 2] {
        let column = &table.columns[self.column()];
        let tests = match self {
            Split::AtMost { most, .. } => [
                Test::Between(f64::NEG_INFINITY, *most),
                Test::Between(*most, f64::INFINITY),
            ],
            Split::OneOf { places, .. } => {
                let text = |place: &u32| match &column.values {
                    Values::Texts { texts, .. } => texts.get(*place as usize).cloned(),
                    Values::Numbers(_) => None,
                };
                let texts: BTreeSet<Arc<str>> = places.iter().filter_map(text).collect();
                [Test::OneOf(texts.clone()), Test::NoneOf(texts)]
            }
        };
        tests.map(|test| Condition {
            column: self.column(),
            name: column.name.clone(),
            test,
        })
    }
}

/// The best question of one column.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Candidate {
    pub(super) split: Split,
    /// Information about the class that the answer yields, in bits per row, minus the cost of
    /// stating the question.
    pub(super) gain: f64,
    /// Gain per bit of the answer.
    pub(super) ratio: f64,
}

/// Minimum gain in bits, and difference of gains or ratios. Smaller ones are rounding errors.
const GAIN_MIN: f64 = 1e-9;

/// Returns, of the columns' best questions, the one with the best gain ratio among those with at
/// least the average gain. `None` if no column offers one.
pub(super) fn best(table: &Table, rows: &[(usize, f64)], rows_min: f64) -> Option<Split> {
    let candidates: Vec<Candidate> = (0..table.columns.len())
        .filter_map(|column| of_column(table, rows, column, rows_min))
        .collect();
    let gains = candidates.iter().map(|candidate| candidate.gain);
    let average = gains.sum::<f64>() / candidates.len().max(1) as f64;
    let mut chosen: Option<&Candidate> = None;
    for candidate in candidates.iter().filter(|of| of.gain >= average - GAIN_MIN) {
        if chosen.is_none_or(|chosen| candidate.ratio > chosen.ratio + GAIN_MIN) {
            chosen = Some(candidate);
        }
    }
    chosen.map(|candidate| candidate.split.clone())
}

/// Number of rows of each class, `false` first.
type Counts = [f64; 2];

/// Returns the question of largest gain about one column. Tries only sets of texts that have the
/// largest shares of class `true`. `None` if no question with at least `rows_min` rows for each
/// answer gains more than the cost of stating it.
pub(super) fn of_column(
    table: &Table,
    rows: &[(usize, f64)],
    column: usize,
    rows_min: f64,
) -> Option<Candidate> {
    let groups = match &table.columns[column].values {
        Values::Numbers(numbers) => by_number(table, rows, numbers),
        Values::Texts { places, .. } => by_share(table, rows, places),
    };
    let all: f64 = rows.iter().map(|(_, part)| part).sum();
    let (last, gain, of_answer) = best_of(&groups, all, rows_min)?;
    // There are n - 1 thresholds between n groups in order, and 2^(n - 1) - 1 ways to divide n
    // groups into two sets.
    let choices = groups.len() as f64 - 1.0;
    let (cost, split) = match &table.columns[column].values {
        Values::Numbers(_) => {
            let most = groups[last].number;
            (choices.log2(), Split::AtMost { column, most })
        }
        Values::Texts { texts, .. } => {
            let sides = groups.split_at(last + 1);
            let places = said(sides, texts.len() as u32);
            let cost = (choices.exp2() - 1.0).log2();
            (cost, Split::OneOf { column, places })
        }
    };
    // Add the cost of stating the column.
    let cost = cost + (table.columns.len() as f64).log2();
    let gain = gain - cost / all;
    (gain > GAIN_MIN).then_some(Candidate {
        split,
        gain,
        ratio: gain / of_answer,
    })
}

/// Finds the best threshold among groups in order. Returns the index of the last group up to it,
/// the gain, and the entropy of the answer in bits. `None` if no threshold has enough rows on both
/// sides.
fn best_of(groups: &[Group], all: f64, rows_min: f64) -> Option<(usize, f64, f64)> {
    let counts = groups.iter().map(|group| group.counts);
    let known = counts.fold([0.0; 2], add);
    let mut yes: Counts = [0.0; 2];
    let mut most: Option<(usize, f64, f64)> = None;
    let (_, thresholds) = groups.split_last()?;
    for (last, group) in thresholds.iter().enumerate() {
        yes = add(yes, group.counts);
        let no = [known[0] - yes[0], known[1] - yes[1]];
        if yes[0] + yes[1] < rows_min || no[0] + no[1] < rows_min {
            continue;
        }
        let (gain, of_answer) = gain(yes, no, all);
        if most.is_none_or(|(_, most, _)| gain > most + GAIN_MIN) {
            most = Some((last, gain, of_answer));
        }
    }
    most
}

/// Returns the threshold of a column with the largest gain for these rows, or `None` if no
/// threshold gains anything.
pub(super) fn best_threshold(table: &Table, rows: &[(usize, f64)], column: usize) -> Option<f64> {
    let Values::Numbers(numbers) = &table.columns[column].values else {
        return None;
    };
    let groups = by_number(table, rows, numbers);
    let (last, gain, _) = best_of(&groups, rows.len() as f64, 1.0)?;
    (gain > GAIN_MIN).then(|| groups[last].number)
}

/// Rows with one value of a column.
struct Group {
    number: f64,
    place: u32,
    counts: Counts,
}

fn add(a: Counts, b: Counts) -> Counts {
    [a[0] + b[0], a[1] + b[1]]
}

fn by_number(table: &Table, rows: &[(usize, f64)], numbers: &[Option<f64>]) -> Vec<Group> {
    let of = |(row, part): &(usize, f64)| Some((numbers[*row]?, table.classes[*row], *part));
    let known = rows.iter().filter_map(of);
    let mut known: Vec<(f64, bool, f64)> = known.collect();
    // Sorts by class and part too, so that the order of rows does not affect the sums.
    known.sort_by(|a, b| {
        a.0.total_cmp(&b.0)
            .then(a.1.cmp(&b.1))
            .then(a.2.total_cmp(&b.2))
    });
    let groups = known.chunk_by(|a, b| a.0 == b.0).map(|alike| {
        let mut counts = [0.0; 2];
        for (_, class, part) in alike {
            counts[usize::from(*class)] += part;
        }
        Group {
            number: alike[0].0,
            place: 0,
            counts,
        }
    });
    groups.collect()
}

/// Groups rows by text, in descending order of the share of class `true`.
fn by_share(table: &Table, rows: &[(usize, f64)], places: &[Option<u32>]) -> Vec<Group> {
    let mut counts: Vec<Counts> = Vec::new();
    for (row, part) in rows {
        if let Some(place) = places[*row] {
            let place = place as usize;
            if counts.len() <= place {
                counts.resize(place + 1, [0.0; 2]);
            }
            counts[place][usize::from(table.classes[*row])] += part;
        }
    }
    let groups = (0u32..).zip(counts).map(|(place, counts)| Group {
        number: 0.0,
        place,
        counts,
    });
    let some = groups.filter(|group| group.counts[0] + group.counts[1] > 0.0);
    let mut groups: Vec<Group> = some.collect();
    let share = |group: &Group| group.counts[1] / (group.counts[0] + group.counts[1]);
    groups.sort_by(|a, b| {
        let by_share = share(b).total_cmp(&share(a));
        by_share.then_with(|| a.place.cmp(&b.place))
    });
    groups
}

/// Returns the texts that a question lists: those of the shorter side. If one side contains the
/// group of all undistinguished texts, whose index is `other`, returns the texts of the opposite
/// side.
fn said((one, rest): (&[Group], &[Group]), other: u32) -> BTreeSet<u32> {
    let has_other = |side: &[Group]| side.iter().any(|group| group.place >= other);
    let is_one = has_other(rest) || (!has_other(one) && one.len() <= rest.len());
    let side = if is_one { one } else { rest };
    side.iter().map(|group| group.place).collect()
}

/// Returns the bits per row that an answer yields about the class, and those of the answer itself,
/// for `all` rows. Rows with unknown values yield nothing, but count as a third answer.
fn gain(yes: Counts, no: Counts, all: f64) -> (f64, f64) {
    let (of_yes, of_no) = (yes[0] + yes[1], no[0] + no[1]);
    let known = of_yes + of_no;
    let apart = of_yes / known * entropy(&yes) + of_no / known * entropy(&no);
    let gain = known / all * (entropy(&add(yes, no)) - apart);
    (gain, entropy(&[of_yes, of_no, (all - known).max(0.0)]))
}

/// Returns the entropy in bits.
pub(super) fn entropy(counts: &[f64]) -> f64 {
    let all: f64 = counts.iter().sum();
    let bits = |count: &f64| {
        let share = count / all;
        match share > 0.0 {
            true => -share * share.log2(),
            false => 0.0,
        }
    };
    counts.iter().map(bits).sum()
}

#[cfg(test)]
mod tests {
    use super::super::table::Column;
    use super::*;
    use proptest::prelude::*;

    const ROWS_MIN: f64 = 2.0;

    fn bits(rows: &[(bool, Option<bool>)], of: impl Fn(&(bool, Option<bool>)) -> u8) -> f64 {
        let count = |which| rows.iter().filter(|row| of(row) == which).count() as f64;
        let all = rows.len() as f64;
        (0..4)
            .map(count)
            .filter(|count| *count > 0.0)
            .map(|count| -(count / all) * (count / all).log2())
            .sum()
    }

    /// Gain of a question, from the answers of all rows; `None` if a side has too few.
    fn gain_of(rows: &[(bool, Option<bool>)], rows_min: f64) -> Option<(f64, f64)> {
        let known: Vec<_> = rows.iter().filter(|row| row.1.is_some()).copied().collect();
        let side = |is| -> Vec<_> {
            let of = known.iter().filter(|row| row.1 == Some(is));
            of.copied().collect()
        };
        let (yes, no) = (side(true), side(false));
        if (yes.len().min(no.len()) as f64) < rows_min {
            return None;
        }
        let class = |row: &(bool, Option<bool>)| u8::from(row.0);
        let part = |side: &[_]| side.len() as f64 / known.len() as f64 * bits(side, class);
        let told = bits(&known, class) - part(&yes) - part(&no);
        let answer = |row: &(bool, Option<bool>)| row.1.map_or(2, u8::from);
        Some((
            told * known.len() as f64 / rows.len() as f64,
            bits(rows, answer),
        ))
    }

    /// Searches all thresholds, or all sets of values, of one column.
    fn by_search(
        classes: &[bool],
        values: &[Option<u8>],
        is_number: bool,
        rows_min: f64,
    ) -> Option<(f64, f64)> {
        let distinct: BTreeSet<u8> = values.iter().flatten().copied().collect();
        let questions: Vec<BTreeSet<u8>> = if is_number {
            distinct
                .iter()
                .map(|most| distinct.range(..=most).copied().collect())
                .collect()
        } else {
            (0u32..1 << distinct.len())
                .map(|set| {
                    let chosen = distinct.iter().enumerate();
                    let chosen = chosen.filter(|(at, _)| set >> at & 1 == 1);
                    chosen.map(|(_, value)| *value).collect()
                })
                .collect()
        };
        let best = questions
            .iter()
            .filter_map(|set| {
                let answer = |value: &Option<u8>| value.map(|value| set.contains(&value));
                let rows: Vec<_> = classes
                    .iter()
                    .zip(values)
                    .map(|(class, value)| (*class, answer(value)))
                    .collect();
                gain_of(&rows, rows_min)
            })
            .max_by(|a, b| a.0.total_cmp(&b.0))?;
        let choices = if is_number {
            distinct.len() - 1
        } else {
            (1 << (distinct.len() - 1)) - 1
        };
        let gain = best.0 - (choices as f64).log2() / classes.len() as f64;
        (gain > GAIN_MIN).then_some((gain, best.1))
    }

    fn column(values: &[Option<u8>], is_number: bool) -> Column {
        let values = if is_number {
            Values::Numbers(values.iter().map(|value| value.map(f64::from)).collect())
        } else {
            let texts: Vec<Option<Arc<str>>> = values
                .iter()
                .map(|value| value.map(|value| value.to_string().into()))
                .collect();
            Values::of_texts(&texts).0
        };
        Column {
            name: "c".into(),
            values,
        }
    }

    proptest! {
        #[test]
        fn no_question_of_a_column_gains_more(
            rows in prop::collection::vec((any::<bool>(), prop::option::weighted(0.9, 0u8..8)), 4..60),
            is_number: bool,
        ) {
            let (classes, values): (Vec<bool>, Vec<Option<u8>>) = rows.into_iter().unzip();
            let expected = by_search(&classes, &values, is_number, ROWS_MIN);
            // `of_column` tries texts in order of their shares. It finds the best set unless that
            // set has too few rows.
            let free = by_search(&classes, &values, is_number, 1.0);
            let is_bound = !is_number
                && free.is_some_and(|free| expected.is_none_or(|gain| free.0 > gain.0 + 1e-9));
            let table = Table::new(vec![column(&values, is_number)], classes).expect("a table");
            let all: Vec<(usize, f64)> = (0..values.len()).map(|row| (row, 1.0)).collect();
            let found = of_column(&table, &all, 0, ROWS_MIN);
            match (&found, expected) {
                (Some(found), Some((gain, _))) => {
                    let is_best = (found.gain - gain).abs() < 1e-9;
                    prop_assert!(is_best || (is_bound && found.gain < gain), "{} {gain}", found.gain);
                    // The chosen question gains at least its stated gain.
                    let rows: Vec<_> = (0..values.len())
                        .map(|row| (table.classes[row], found.split.is_met(&table, row)))
                        .collect();
                    let (said, of_answer) = gain_of(&rows, ROWS_MIN).expect("enough rows on both sides");
                    prop_assert!(said >= found.gain - 1e-9);
                    prop_assert!((found.ratio - found.gain / of_answer).abs() < 1e-9);
                }
                (None, None) => {}
                (None, Some(_)) if is_bound => {}
                _ => prop_assert!(false, "{found:?} {expected:?}"),
            }
        }

        #[test]
        fn the_best_ratio_of_those_with_the_average_gain_is_chosen(
            rows in prop::collection::vec((any::<bool>(), [0u8..3, 0u8..4, 0u8..6, 0u8..9]), 8..60),
        ) {
            let classes: Vec<bool> = rows.iter().map(|row| row.0).collect();
            let columns = (0..4).map(|at| {
                let values: Vec<Option<u8>> = rows.iter().map(|row| Some(row.1[at])).collect();
                column(&values, at % 2 == 0)
            });
            let table = Table::new(columns.collect(), classes).expect("a table");
            let all: Vec<(usize, f64)> = (0..rows.len()).map(|row| (row, 1.0)).collect();
            let each: Vec<Candidate> =
                (0..4).filter_map(|column| of_column(&table, &all, column, ROWS_MIN)).collect();
            let chosen = best(&table, &all, ROWS_MIN);
            prop_assert_eq!(chosen.is_some(), !each.is_empty());
            if let Some(chosen) = chosen {
                let average = each.iter().map(|one| one.gain).sum::<f64>() / each.len() as f64;
                let of_chosen = each.iter().find(|one| one.split == chosen).expect("one of them");
                prop_assert!(of_chosen.gain >= average - 2.0 * GAIN_MIN);
                for other in each.iter().filter(|one| one.gain >= average + GAIN_MIN) {
                    prop_assert!(of_chosen.ratio >= other.ratio - 5.0 * GAIN_MIN);
                }
            }
        }
    }
}
