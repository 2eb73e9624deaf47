//! Ranges of trace ids: selects the pages of a file for a range, and cuts a range into ranges with
//! about equally many rows.

use parquet::arrow::arrow_reader::{RowSelection, RowSelector};
use parquet::file::metadata::{ParquetMetaData, RowGroupMetaData};
use parquet::file::page_index::column_index::ColumnIndexMetaData;
use parquet::file::statistics::Statistics;

/// Index of the column of trace ids, which is the first column of every table that has it.
const TRACE_ID: usize = 0;

/// Range of trace ids, from `from` (inclusive) to `below` (exclusive).
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct IdRange {
    pub(super) from: u128,
    /// Exclusive upper bound; `None` if there is none.
    pub(super) below: Option<u128>,
}

impl IdRange {
    /// Range of all trace ids.
    pub const ALL: Self = Self {
        from: 0,
        below: None,
    };

    /// Returns the range of one trace.
    #[must_use]
    pub const fn only(id: u128) -> Self {
        Self::from_to(id, id)
    }

    /// Returns the range between two ids, both inclusive.
    #[must_use]
    pub const fn from_to(from: u128, to: u128) -> Self {
        Self {
            from,
            below: to.checked_add(1),
        }
    }

    /// Reports whether the ranges, in this order, hold each id exactly once.
    pub fn cover_all(ranges: impl IntoIterator<Item = Self>) -> bool {
        let mut from = Some(0);
        let adjoins = ranges.into_iter().all(|range| {
            let adjoins = from == Some(range.from);
            from = range.below;
            adjoins
        });
        adjoins && from.is_none()
    }

    pub(super) fn is_all(&self) -> bool {
        *self == Self::ALL
    }

    pub(super) fn overlaps(&self, least: u128, greatest: u128) -> bool {
        self.from <= greatest && self.below.is_none_or(|below| least < below)
    }
}

/// Bounds of the trace ids of a row group, from its statistics, and its number of rows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct RowGroupIds {
    pub(super) least: u128,
    pub(super) greatest: u128,
    pub(super) rows: u64,
}

fn id(bytes: Option<&[u8]>) -> Option<u128> {
    Some(u128::from_be_bytes(bytes?.try_into().ok()?))
}

/// Returns the range of trace ids and the number of rows of each row group. Without statistics, the
/// range is unbounded.
pub(super) fn row_groups(metadata: &ParquetMetaData) -> Vec<RowGroupIds> {
    let of = |group: &RowGroupMetaData| {
        let column = group.columns().get(TRACE_ID);
        let statistics = column.and_then(|column| column.statistics());
        RowGroupIds {
            least: id(statistics.and_then(|found| found.min_bytes_opt())).unwrap_or(0),
            greatest: id(statistics.and_then(|found| found.max_bytes_opt())).unwrap_or(u128::MAX),
            rows: u64::try_from(group.num_rows()).unwrap_or(0),
        }
    };
    metadata.row_groups().iter().map(of).collect()
}

/// Returns the lowest and the highest value of a column of times in ns, from the statistics; `None`
/// if the file has no rows or lacks the column, or if a row group does not state its bounds.
pub(super) fn times_ns(metadata: &ParquetMetaData, column: &str) -> Option<(i64, i64)> {
    let at = place(metadata, column)?;
    let mut times_ns: Option<(i64, i64)> = None;
    for group in metadata.row_groups() {
        let Some(Statistics::Int64(found)) = group.columns().get(at)?.statistics() else {
            return None;
        };
        let (least, greatest) = (*found.min_opt()?, *found.max_opt()?);
        let known = times_ns.unwrap_or((least, greatest));
        times_ns = Some((known.0.min(least), known.1.max(greatest)));
    }
    times_ns
}

/// Returns the number of nulls of a column; `None` if the file lacks the column, or does not state
/// the number.
pub(super) fn nulls(metadata: &ParquetMetaData, column: &str) -> Option<u64> {
    let at = place(metadata, column)?;
    let of_group =
        |group: &RowGroupMetaData| group.columns().get(at)?.statistics()?.null_count_opt();
    metadata.row_groups().iter().map(of_group).sum()
}

fn place(metadata: &ParquetMetaData, column: &str) -> Option<usize> {
    let columns = metadata.file_metadata().schema_descr().columns();
    columns.iter().position(|known| known.name() == column)
}

/// Selects the row groups, and in them the rows of pages, that may contain ids of the range.
///
/// With `wanted`, an ordered list of ids, selects only groups and pages that may contain one of
/// these.
pub(super) fn selection(
    metadata: &ParquetMetaData,
    range: &IdRange,
    wanted: Option<&[u128]>,
) -> (Vec<usize>, RowSelection) {
    let overlaps = |least: u128, greatest: u128| {
        let is_wanted = wanted.is_none_or(|wanted| {
            let at = wanted.partition_point(|id| *id < least);
            wanted.get(at).is_some_and(|id| *id <= greatest)
        });
        is_wanted && range.overlaps(least, greatest)
    };
    let (mut groups, mut rows) = (Vec::new(), Vec::new());
    for (group, ids) in row_groups(metadata).iter().enumerate() {
        if overlaps(ids.least, ids.greatest) {
            groups.push(group);
            match pages(metadata, group, ids.rows as usize, &overlaps) {
                Some(selectors) => rows.extend(selectors),
                None => rows.push(RowSelector::select(ids.rows as usize)),
            }
        }
    }
    (groups, rows.into())
}

/// Returns the selected rows of a row group by its pages; `None` if the file has no page index of
/// the trace ids.
fn pages(
    metadata: &ParquetMetaData,
    group: usize,
    rows: usize,
    overlaps: &impl Fn(u128, u128) -> bool,
) -> Option<Vec<RowSelector>> {
    let ColumnIndexMetaData::FIXED_LEN_BYTE_ARRAY(ids) =
        metadata.column_index()?.get(group)?.get(TRACE_ID)?
    else {
        return None;
    };
    let index = metadata.offset_index()?.get(group)?.get(TRACE_ID)?;
    let pages = index.page_locations().iter();
    let begins = pages.map(|page| usize::try_from(page.first_row_index).unwrap_or(0));
    let ends = begins.clone().skip(1).chain([rows]);
    let selector = |(page, (begin, end)): (usize, (usize, usize))| {
        let (least, greatest) = (id(ids.min_value(page)), id(ids.max_value(page)));
        RowSelector {
            row_count: end.saturating_sub(begin),
            skip: !overlaps(least.unwrap_or(0), greatest.unwrap_or(u128::MAX)),
        }
    };
    Some(begins.zip(ends).enumerate().map(selector).collect())
}

/// Estimates the number of rows with ids below `id` from the row groups.
fn rows_below(groups: &[RowGroupIds], id: u128) -> f64 {
    let part = |group: &RowGroupIds| match group {
        group if id <= group.least => 0.0,
        group if id > group.greatest => group.rows as f64,
        group => {
            let width = (group.greatest - group.least) as f64 + 1.0;
            group.rows as f64 * ((id - group.least) as f64 / width)
        }
    };
    groups.iter().map(part).sum()
}

/// Returns the lowest id of `within` with at least `rows` rows below it, as estimated from the row
/// groups. If there is none, returns the end of `within`.
pub(super) fn id_above(groups: &[RowGroupIds], within: &IdRange, rows: f64) -> u128 {
    let (mut low, mut high) = (within.from, within.below.unwrap_or(u128::MAX));
    while low < high {
        let middle = low + (high - low) / 2;
        if rows_below(groups, middle) < rows {
            low = middle + 1;
        } else {
            high = middle;
        }
    }
    low
}

/// Cuts the ids of `within` into at most `parts` ranges, at least one. They have about equally many
/// rows, as estimated from the row groups, unless single traces have too many.
pub(super) fn cut(groups: &[RowGroupIds], within: &IdRange, parts: usize) -> Vec<IdRange> {
    let total: u64 = groups.iter().map(|group| group.rows).sum();
    let before = rows_below(groups, within.from);
    let below = |below| rows_below(groups, below);
    let inside = within.below.map_or(total as f64, below) - before;
    let wanted = (1..parts).map(|part| before + inside * part as f64 / parts as f64);
    let cuts = wanted.map(|rows| id_above(groups, within, rows)).collect();
    between(within, cuts)
}

/// Cuts `within` at these ids, which must be in order. Ignores ids outside of it.
pub(super) fn between(within: &IdRange, mut cuts: Vec<u128>) -> Vec<IdRange> {
    cuts.dedup();
    cuts.retain(|cut| *cut > within.from && within.below.is_none_or(|below| *cut < below));
    let froms = [within.from].into_iter().chain(cuts.iter().copied());
    let belows = cuts.iter().copied().map(Some).chain([within.below]);
    let ranges = froms.zip(belows);
    ranges
        .map(|(from, below)| IdRange { from, below })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(groups: &[(u128, u128, u64)], parts: usize, cuts: &[u128]) {
        check_within(groups, IdRange::ALL, parts, cuts);
    }

    fn check_within(groups: &[(u128, u128, u64)], within: IdRange, parts: usize, cuts: &[u128]) {
        let groups: Vec<_> = groups
            .iter()
            .map(|&(least, greatest, rows)| RowGroupIds {
                least,
                greatest,
                rows,
            })
            .collect();
        let ranges = cut(&groups, &within, parts);
        assert_eq!(
            (ranges[0].from, ranges.last().and_then(|range| range.below)),
            (within.from, within.below)
        );
        assert!(
            ranges
                .windows(2)
                .all(|pair| pair[0].below == Some(pair[1].from))
        );
        assert_eq!(IdRange::cover_all(ranges.iter().copied()), within.is_all());
        assert_eq!(
            ranges
                .iter()
                .skip(1)
                .map(|range| range.from)
                .collect::<Vec<_>>(),
            cuts
        );
    }

    #[test]
    fn ranges_hold_equally_much_and_leave_nothing_out() {
        check(&[], 4, &[]);
        check(&[(0, 99, 100)], 1, &[]);
        check(&[(0, 99, 100)], 2, &[50]);
        check(&[(0, 99, 100), (50, 149, 100)], 4, &[50, 75, 100]);
        check(&[(1000, 1999, 300), (5000, 5999, 100)], 2, &[1667]);
        // One trace cannot be cut.
        check(&[(7, 7, 1_000_000)], 3, &[8]);
        let inner = IdRange::from_to(50, 149);
        check_within(&[(0, 199, 200)], inner, 2, &[100]);
        check_within(&[(0, 49, 100), (60, 99, 40)], inner, 4, &[70, 80, 90]);
        check_within(&[(0, 99, 100)], IdRange::from_to(7, 7), 3, &[]);
        check_within(&[], inner, 3, &[]);
    }

    #[test]
    fn ranges_that_overlap_or_leave_gaps_do_not_cover_all() {
        let range = |from, below| IdRange { from, below };
        let check = |ranges: &[IdRange], covers: bool| {
            assert_eq!(IdRange::cover_all(ranges.iter().copied()), covers);
        };
        check(&[IdRange::ALL], true);
        check(&[range(0, Some(5)), range(5, None)], true);
        check(&[], false);
        check(&[range(0, Some(5))], false);
        check(&[range(1, None)], false);
        check(&[range(0, Some(5)), range(6, None)], false);
        check(&[range(0, Some(6)), range(5, None)], false);
        check(&[range(5, None), range(0, Some(5))], false);
        check(&[IdRange::ALL, IdRange::ALL], false);
    }
}
