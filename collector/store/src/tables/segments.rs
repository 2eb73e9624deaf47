//! Log segments of a file, parsed from its name, and the files that another file covers.
//!
//! `seg-N` contains the rows of segment N of the log for its table and hour. A compacted file is
//! `seg-A-B`. It *covers* the files of the same directory whose segments are only a part of A to B,
//! because it contains their rows. Readers ignore covered files. A compacted file therefore
//! replaces its inputs at the moment it appears, and a crash before they are removed duplicates
//! nothing.
//!
//! `seg-N-thinned` and `seg-A-B-thinned` are files without the requests that thinning dropped. They
//! also cover the file of the same segments that is not thinned.

use std::collections::BTreeMap;

use object_store::path::Path;

/// End of the names of thinned files, before the extension.
const THINNED: &str = "-thinned";

/// Range of log segments, from `first` to `last`, both inclusive.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Segments {
    pub first: u64,
    pub last: u64,
    /// True if the file lacks the requests that thinning dropped.
    pub is_thinned: bool,
}

impl Segments {
    /// Returns the range of one segment.
    #[must_use]
    pub fn one(number: u64) -> Self {
        Self::range(number, number)
    }

    /// Returns the range of the segments from `first` to `last`.
    #[must_use]
    pub fn range(first: u64, last: u64) -> Self {
        Self {
            first,
            last,
            is_thinned: false,
        }
    }

    /// Returns the name of files with the rows of these segments, without the extension.
    #[must_use]
    pub fn name(self) -> String {
        let end = if self.is_thinned { THINNED } else { "" };
        if self.first < self.last {
            format!("seg-{:010}-{:010}{end}", self.first, self.last)
        } else {
            format!("seg-{:010}{end}", self.first)
        }
    }

    /// Parses the segments of a file from its name. Returns `None` for other files, such as
    /// imports.
    #[must_use]
    pub fn of(path: &Path) -> Option<Self> {
        let name = path.filename()?.strip_prefix("seg-")?;
        let name = name.strip_suffix(".parquet")?;
        let thinned = name.strip_suffix(THINNED);
        let is_thinned = thinned.is_some();
        let numbers = thinned.unwrap_or(name);
        let number = |digits: &str| {
            let is_number = digits.bytes().all(|byte| byte.is_ascii_digit());
            digits.parse().ok().filter(|_| is_number)
        };
        let found = match numbers.split_once('-') {
            None => number(numbers).map(Self::one)?,
            Some((first, last)) => {
                let (first, last) = (number(first)?, number(last)?);
                (first < last).then_some(Self::range(first, last))?
            }
        };
        Some(Self {
            is_thinned,
            ..found
        })
    }

    /// Determines by a file's name whether it lacks the requests that thinning dropped.
    #[must_use]
    pub fn are_thinned(path: &Path) -> bool {
        Self::of(path).is_some_and(|of| of.is_thinned)
    }

    /// Reports whether a file of these segments was made from others: merged or thinned.
    #[must_use]
    pub fn is_compacted(self) -> bool {
        self.first < self.last || self.is_thinned
    }

    /// Reports whether a file of these segments covers a file of `other` in the same directory.
    #[must_use]
    pub fn covers(self, other: Self) -> bool {
        let is_wider = (self.first, self.last) != (other.first, other.last);
        self != other
            && self.is_compacted()
            && (is_wider || self.is_thinned)
            && self.first <= other.first
            && other.last <= self.last
    }
}

/// Returns the covered files among `files`, each with a file that covers it.
#[must_use]
pub(super) fn covered<'a>(files: impl Iterator<Item = &'a Path>) -> BTreeMap<&'a Path, &'a Path> {
    let mut directories: BTreeMap<&str, Vec<(Segments, &Path)>> = BTreeMap::new();
    for path in files {
        if let Some(segments) = Segments::of(path) {
            let parts = path.as_ref().rsplit_once('/');
            let directory = parts.map_or("", |(directory, _)| directory);
            let files = directories.entry(directory).or_default();
            files.push((segments, path));
        }
    }
    let mut covered = BTreeMap::new();
    for mut files in directories.into_values() {
        // Sorts a covering file before the files that it covers.
        files.sort_by_key(|(segments, _)| {
            let widest_first = std::cmp::Reverse((segments.last, segments.is_thinned));
            (segments.first, widest_first)
        });
        let mut widest: Option<(Segments, &Path)> = None;
        for (segments, path) in files {
            match widest {
                Some((by, cover)) if by.covers(segments) => {
                    covered.insert(path, cover);
                }
                _ if segments.is_compacted() => widest = Some((segments, path)),
                _ => {}
            }
        }
    }
    covered
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn path(hour: u8, segments: Segments) -> Path {
        Path::from(format!(
            "spans/date=2026-01-02/hour={hour:02}/{}.parquet",
            segments.name()
        ))
    }

    #[test]
    fn names_say_which_segments() {
        for segments in [
            Segments::one(0),
            Segments::one(12_345_678_901),
            Segments::range(3, 17),
            Segments {
                is_thinned: true,
                ..Segments::one(3)
            },
            Segments {
                is_thinned: true,
                ..Segments::range(3, 17)
            },
        ] {
            assert_eq!(Segments::of(&path(3, segments)), Some(segments));
        }
        for other in [
            "import-ab-0.parquet",
            "seg-1-x.parquet",
            "seg-.parquet",
            "seg-5-5.parquet",
            "seg-9-3.parquet",
            "seg-+1.parquet",
            "seg-0000000001.parquet.part",
            "seg-1-2-3.parquet",
            "seg-thinned.parquet",
            "seg-1-2-thinned-thinned.parquet",
        ] {
            assert_eq!(Segments::of(&Path::from(other)), None, "{other}");
        }
    }

    proptest! {
        /// Compares the sweep with the definition, on ranges that are nested like those of a store.
        /// Here their widths are powers of four.
        #[test]
        fn covered_files_are_those_that_lie_in_another(
            files in proptest::collection::btree_set(
                (0_u8..2, 0_u32..4, 0_u64..64, proptest::bool::ANY),
                0..20,
            ),
        ) {
            let paths: Vec<Path> = files
                .into_iter()
                .map(|(hour, level, at, is_thinned)| {
                    let width = 4_u64.pow(level);
                    let first = at / width * width;
                    path(hour, Segments { is_thinned, ..Segments::range(first, first + width - 1) })
                })
                .collect::<std::collections::BTreeSet<_>>()
                .into_iter()
                .collect();
            let found = covered(paths.iter());
            for path in &paths {
                let directory = |path: &Path| path.as_ref().rsplit_once('/').unwrap().0.to_owned();
                let is_covered = paths.iter().any(|other| {
                    directory(other) == directory(path)
                        && Segments::of(other).unwrap().covers(Segments::of(path).unwrap())
                });
                prop_assert_eq!(found.contains_key(path), is_covered, "{}", path);
            }
        }
    }
}
