//! Tables with typed columns, for people and for machines.

use std::borrow::Cow;

use super::names::SegmentName;

/// Kind of a column's cells: their format for people, and their type for machines.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// A text, treated as untrusted; `Utf8`.
    Text,
    /// A segment; `Utf8`, with its full path.
    Segment,
    /// The id of a request; `Utf8`. Pages link to it; terminals show enough of it to find it again.
    Request,
    /// A count; `UInt64`.
    Count,
    /// An instant in ns since the Unix epoch, shown in UTC; `Timestamp(Nanosecond, UTC)`.
    Instant,
    /// A duration in ns; `Float64`.
    DurationNs,
    /// A difference of times in ns, with its sign; `Float64`.
    DifferenceNs,
    /// A ratio, such as a part of a whole or a relative difference, shown in percent; `Float64`.
    Share,
    /// A number that may be negative, with its sign and two decimals; `Float64`.
    Number,
    /// A number that cannot be negative, such as a mean of counts, shown without a plus sign and
    /// with at most two decimals; `Float64`.
    Mean,
    /// A probability, shown in scientific notation; `Float64`.
    Probability,
    /// A flag, shown only if true; `Boolean`.
    Flag,
}

/// One column of a table.
#[derive(Clone, Debug)]
pub struct Column {
    /// Name for machines, with the unit of a duration.
    pub name: Cow<'static, str>,
    /// Head for people; empty if the column is for machines only.
    pub head: Cow<'static, str>,
    /// Kind of the column's cells.
    pub kind: Kind,
}

impl Column {
    /// Creates a column with fixed names.
    pub const fn new(name: &'static str, head: &'static str, kind: Kind) -> Self {
        Self {
            name: Cow::Borrowed(name),
            head: Cow::Borrowed(head),
            kind,
        }
    }

    /// Creates a column whose name depends on the data.
    pub fn named(name: String, head: String, kind: Kind) -> Self {
        Self {
            name: Cow::Owned(name),
            head: Cow::Owned(head),
            kind,
        }
    }
}

/// Maximum number of nesting levels that spaces show.
const LEVELS_INDENTED: usize = 24;

/// Returns the indentation of a nested text. Levels deeper than [`LEVELS_INDENTED`] add a number
/// instead of spaces: a request of 20,000 nested calls would print 400 MB of spaces.
pub(crate) fn indentation(depth: usize) -> String {
    let spaces = "  ".repeat(depth.min(LEVELS_INDENTED));
    match depth > LEVELS_INDENTED {
        true => format!("{spaces}({depth}) "),
        false => spaces,
    }
}

/// One value of a table.
#[derive(Clone, Debug, PartialEq)]
pub enum Cell {
    /// A missing value, such as an unknown one.
    None,
    /// A value of [`Kind::Text`] or [`Kind::Request`].
    Text(String),
    /// A value of [`Kind::Text`] with its depth of nesting; machines get the text alone.
    Nested(usize, String),
    /// A value of [`Kind::Text`], and the path of a page on a site to which the text links.
    Linked(String, String),
    /// A value of [`Kind::Segment`].
    Segment(SegmentName),
    /// A value of [`Kind::Count`].
    Count(u64),
    /// A value of [`Kind::Instant`].
    Instant(i64),
    /// A value of [`Kind::DurationNs`], [`Kind::DifferenceNs`], [`Kind::Share`], [`Kind::Number`],
    /// [`Kind::Mean`] or [`Kind::Probability`].
    Real(f64),
    /// A value of [`Kind::Flag`].
    Flag(bool),
}

impl Cell {
    /// Converts a whole number to the cell of a column of real numbers, such as durations.
    #[must_use]
    pub fn of_kind(self, kind: Kind) -> Self {
        use Kind::{DifferenceNs, DurationNs, Mean, Number, Probability, Share};
        let is_real = matches!(
            kind,
            DurationNs | DifferenceNs | Share | Number | Mean | Probability
        );
        match self {
            Self::Count(whole) if is_real => Self::Real(whole as f64),
            Self::Instant(whole) if is_real => Self::Real(whole as f64),
            cell => cell,
        }
    }
}

impl From<u64> for Cell {
    fn from(count: u64) -> Self {
        Self::Count(count)
    }
}

impl From<i64> for Cell {
    fn from(at_ns: i64) -> Self {
        Self::Instant(at_ns)
    }
}

impl From<f64> for Cell {
    fn from(value: f64) -> Self {
        Self::Real(value)
    }
}

impl From<&str> for Cell {
    fn from(text: &str) -> Self {
        Self::Text(text.to_owned())
    }
}

impl From<&SegmentName> for Cell {
    fn from(name: &SegmentName) -> Self {
        Self::Segment(name.clone())
    }
}

impl From<bool> for Cell {
    fn from(flag: bool) -> Self {
        Self::Flag(flag)
    }
}

impl<T: Into<Self>> From<Option<T>> for Cell {
    fn from(value: Option<T>) -> Self {
        value.map_or(Self::None, Into::into)
    }
}

/// Definition of a table without rows: its name and columns for SQL and Parquet.
#[derive(Clone, Debug)]
pub struct TableSpec {
    /// Name of the table.
    pub name: &'static str,
    /// Description of a row.
    pub about: &'static str,
    /// Columns, the most important first.
    pub columns: Cow<'static, [Column]>,
}

/// A type whose values are rows of a table.
pub trait Row {
    const TABLE: TableSpec;

    /// Returns the cells, one for each column.
    fn cells(&self) -> Vec<Cell>;
}

/// Declares the table of a row type, with a line for each column: its name for machines, its kind,
/// its head for people, and its cell. Statements in braces before the columns can compute values
/// that several cells share.
///
/// ```
/// use stroboscope_render::rows;
/// use stroboscope_render::show::Row as _;
///
/// struct Visit<'a>(&'a str, u64);
///
/// rows! {
///     Visit<'_> as row, "visits": "Visits of a place.";
///     place: Text, "place" = row.0;
///     visits: Count, "visits" = row.1;
/// }
///
/// assert_eq!(Visit::TABLE.columns[1].name, "visits");
/// assert_eq!(Visit("here", 7).cells()[1], 7_u64.into());
/// ```
#[macro_export]
macro_rules! rows {
    (
        $Row:ty as $row:ident, $name:literal: $about:literal;
        $({ $($setup:tt)* })?
        $($column:ident: $kind:ident, $head:literal = $cell:expr;)*
    ) => {
        impl $crate::show::Row for $Row {
            const TABLE: $crate::show::TableSpec = $crate::show::TableSpec {
                name: $name,
                about: $about,
                columns: ::std::borrow::Cow::Borrowed(&[$(
                    $crate::show::Column::new(stringify!($column), $head, $crate::show::Kind::$kind),
                )*]),
            };

            fn cells(&self) -> ::std::vec::Vec<$crate::show::Cell> {
                let $row = self;
                $($($setup)*)?
                vec![$($crate::show::Cell::from($cell).of_kind($crate::show::Kind::$kind)),*]
            }
        }
    };
}

/// A table: its definition, title and rows.
#[derive(Clone, Debug)]
pub struct Table {
    /// Name and columns.
    pub spec: TableSpec,
    /// Text above the table.
    pub title: String,
    /// Rows in order, including those that people are not shown.
    pub rows: Vec<Vec<Cell>>,
    /// Number of rows to show to people. Pages of a site may show another number.
    pub shown: usize,
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Visit(u64);

    rows! {
        Visit as row, "visits": "Visits of a place.";
        visits: Count, "visits" = row.0;
        longest_ns: DurationNs, "longest" = Some(row.0);
    }

    #[test]
    fn whole_nanoseconds_are_durations() {
        assert_eq!(Visit(7).cells(), [Cell::Count(7), Cell::Real(7.0)]);
    }

    #[test]
    fn deep_levels_are_numbered() {
        assert_eq!(indentation(2), "    ");
        let [last, deeper] = [LEVELS_INDENTED, 20_000].map(indentation);
        assert_eq!(deeper, format!("{last}(20000) "));
    }
}
