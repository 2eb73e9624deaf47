//! Typed tables.

use std::borrow::Cow;

use super::names::SegmentName;

/// What a column's cells are: how they are written for people, and what type they have for machines.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// A text of anybody; `Utf8`.
    Text,
    /// A segment; `Utf8`, with its full path.
    Segment,
    /// The id of a request; `Utf8`. Pages link to it, terminals show as much of it as finds it again.
    Request,
    /// How many; `UInt64`.
    Count,
    /// An instant in ns since the Unix epoch, for people in UTC; `Timestamp(Nanosecond, UTC)`.
    Instant,
    /// A duration in ns; `Float64`.
    DurationNs,
    /// A difference of times in ns, with its sign; `Float64`.
    DifferenceNs,
    /// A part of a whole, 0 to 1, for people in percent; `Float64`.
    Share,
    /// A number that may be negative, with its sign and two decimals; `Float64`.
    Number,
    /// A number that cannot be negative, such as a mean of counts; three digits and no sign; `Float64`.
    Mean,
    /// A probability, in powers of ten; `Float64`.
    Probability,
    /// A yes or nothing; `Boolean`.
    Flag,
}

/// One column of a table.
#[derive(Clone, Debug)]
pub struct Column {
    /// Its name for machines, with its unit.
    pub name: Cow<'static, str>,
    /// What stands above it for people; empty, if it is for machines only.
    pub head: Cow<'static, str>,
    /// What its cells are.
    pub kind: Kind,
}

impl Column {
    /// A column.
    #[must_use]
    pub const fn new(name: &'static str, head: &'static str, kind: Kind) -> Self {
        Self {
            name: Cow::Borrowed(name),
            head: Cow::Borrowed(head),
            kind,
        }
    }

    /// A column whose name only the data know.
    #[must_use]
    pub fn named(name: String, head: String, kind: Kind) -> Self {
        Self {
            name: Cow::Owned(name),
            head: Cow::Owned(head),
            kind,
        }
    }
}

/// One value.
#[derive(Clone, Debug, PartialEq)]
pub enum Cell {
    /// Nothing is known.
    None,
    /// Of [`Kind::Text`] and [`Kind::Request`].
    Text(String),
    /// Of [`Kind::Text`], inside so many others; machines get the text alone.
    Nested(usize, String),
    /// Of [`Kind::Text`]; on a site a link to this path of it, which our own program wrote.
    Linked(String, String),
    /// Of [`Kind::Segment`].
    Segment(SegmentName),
    /// Of [`Kind::Count`].
    Count(u64),
    /// A value of [`Kind::Instant`].
    Instant(i64),
    /// Of [`Kind::DurationNs`], [`Kind::DifferenceNs`], [`Kind::Share`], [`Kind::Number`], [`Kind::Mean`] and
    /// [`Kind::Probability`].
    Real(f64),
    /// Of [`Kind::Flag`].
    Flag(bool),
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

/// What is known of a table before it has rows: its name and columns for SQL and Parquet.
#[derive(Clone, Debug)]
pub struct TableSpec {
    /// Its name.
    pub name: &'static str,
    /// What a row is.
    pub about: &'static str,
    /// Its columns, the most important first.
    pub columns: Cow<'static, [Column]>,
}

/// Something that is one row of a table.
pub trait Row {
    const TABLE: TableSpec;

    /// Its cells, one for each column.
    fn cells(&self) -> Vec<Cell>;
}

/// Declares the table of a type of rows, a line for each column: its name for machines, its kind, its head for people, and its
/// cell. Statements in braces before the columns are for several of them.
///
/// ```
/// use stroboscope_present::rows;
/// use stroboscope_present::show::Row as _;
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
                vec![$($crate::show::Cell::from($cell)),*]
            }
        }
    };
}

/// A table with its rows.
#[derive(Clone, Debug)]
pub struct Table {
    /// Its name and columns.
    pub spec: TableSpec,
    /// What stands above it.
    pub title: String,
    /// Its rows, the most important first; all of them.
    pub rows: Vec<Vec<Cell>>,
    /// How many are shown to people.
    pub shown: usize,
}
