//! Determines from the names of files which files are covered by others.

use std::collections::BTreeMap;

use object_store::path::Path;
use stroboscope_store::tables::Segments;

use crate::manifest::PublishedFile;

/// Returns the files that no other of these files covers.
pub(crate) fn without_covered<'a>(
    files: impl Iterator<Item = &'a PublishedFile>,
) -> Vec<PublishedFile> {
    let mut directories: BTreeMap<&str, Vec<&PublishedFile>> = BTreeMap::new();
    for file in files {
        let directory = file
            .path
            .rsplit_once('/')
            .map_or("", |(directory, _)| directory);
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

/// Reports whether the file at path `file` covers the file at path `other`.
pub(crate) fn covers(file: &str, other: &str) -> bool {
    let directory = |path: &str| {
        path.rsplit_once('/')
            .map(|(directory, _)| directory.to_owned())
    };
    let of = |path: &str| Segments::of(&Path::from(path));
    directory(file) == directory(other)
        && of(file)
            .zip(of(other))
            .is_some_and(|(file, other)| file.covers(other))
}
