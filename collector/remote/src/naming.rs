//! Determines from the names of files which files are covered by others.

use std::collections::{BTreeMap, BTreeSet};

use object_store::path::Path;
use stroboscope_store::tables::{Hour, Segments};

use crate::manifest::PublishedFile;

/// Returns the files that no other of these files covers.
pub(crate) fn without_covered<'a>(
    files: impl Iterator<Item = &'a PublishedFile>,
) -> Vec<PublishedFile> {
    let mut directories: BTreeMap<&str, Vec<&PublishedFile>> = BTreeMap::new();
    for file in files {
        let directory = directory(&file.path).unwrap_or_default();
        directories.entry(directory).or_default().push(file);
    }
    let mut named = Vec::new();
    for of_directory in directories.into_values() {
        let is_covered = |file: &PublishedFile| {
            let mut others = of_directory.iter();
            others.any(|other| covers(&other.path, &file.path))
        };
        let kept = of_directory.iter().filter(|file| !is_covered(file));
        named.extend(kept.map(|file| (*file).clone()));
    }
    named
}

/// Returns the paths of the thinned files in `files` that `published` lacks, for each hour whose
/// thinned files are not all in `uploaded`. They are published once all thinned files of the hour
/// are uploaded, so that readers see the hour thinned in all tables or in none.
pub(crate) fn half_thinned(
    files: &[PublishedFile],
    published: &[PublishedFile],
    uploaded: &BTreeMap<&str, &PublishedFile>,
) -> BTreeSet<String> {
    let published: BTreeSet<&str> = published.iter().map(|file| &*file.path).collect();
    let thinned = || {
        let paths = files.iter().map(|file| &*file.path);
        let new = paths.filter(|path| !published.contains(path));
        new.filter(|path| Segments::are_thinned(&Path::from(*path)))
    };
    let missing = thinned().filter(|path| !uploaded.contains_key(path));
    let hours: BTreeSet<Hour> = missing.filter_map(Hour::of_object).collect();
    let is_waiting = |path: &&str| Hour::of_object(path).is_some_and(|hour| hours.contains(&hour));
    thinned().filter(is_waiting).map(str::to_owned).collect()
}

/// Reports whether the file at path `file` covers the file at path `other`.
pub(crate) fn covers(file: &str, other: &str) -> bool {
    let of = |path: &str| Segments::of(&Path::from(path));
    let segments = of(file).zip(of(other));
    directory(file) == directory(other) && segments.is_some_and(|(file, other)| file.covers(other))
}

fn directory(path: &str) -> Option<&str> {
    Some(path.rsplit_once('/')?.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_hour_waits_until_all_its_thinned_files_are_uploaded() {
        let file = |path: &str| PublishedFile {
            path: path.to_owned(),
            object: path.to_owned(),
            bytes: 1,
        };
        let local = [
            "spans/date=2026-01-02/hour=03/seg-0000000001-thinned.parquet",
            "events/date=2026-01-02/hour=03/seg-0000000001-thinned.parquet",
            "batches/date=2026-01-02/hour=03/seg-0000000001.parquet",
            "spans/date=2026-01-02/hour=04/seg-0000000002-thinned.parquet",
        ]
        .map(file);
        let check = |uploaded: &[usize], expected: &[usize]| {
            let files = uploaded.iter().map(|at| (&*local[*at].path, &local[*at]));
            let expected = expected.iter().map(|at| local[*at].path.clone());
            let waiting = half_thinned(&local, &[], &files.collect());
            assert_eq!(waiting, expected.collect::<BTreeSet<_>>(), "{uploaded:?}");
        };
        check(&[], &[0, 1, 3]);
        check(&[0, 2], &[0, 1, 3]);
        check(&[0, 3], &[0, 1]);
        check(&[0, 1, 3], &[]);
        // A thinned file covers the whole file, and not the reverse.
        let whole = "spans/date=2026-01-02/hour=03/seg-0000000001.parquet";
        assert!(covers(&local[0].path, whole) && !covers(whole, &local[0].path));
    }
}
