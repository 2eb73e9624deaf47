//! The values of the store, in a real file that is read at given offsets.

use std::fs::{self, File, OpenOptions};
use std::io::{self, BufWriter, Write};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use crate::index::Place;
use crate::random::{Random, mix};

/// Length of every value, in bytes.
pub(crate) const VALUE_BYTES: u32 = 1_024;

/// An open file of values.
#[derive(Debug)]
pub(crate) struct Values {
    file: File,
}

/// Error for a file of values that could not be created.
#[derive(Debug, thiserror::Error)]
#[error("cannot write the store's values to {path}: {source}; choose another directory with --directory", path = path.display())]
pub struct ValuesError {
    path: PathBuf,
    source: io::Error,
}

impl Values {
    /// Writes one value for each key to a new file in `directory` and returns the place of each.
    ///
    /// The file has no name once it is open, so nothing is left on disk, regardless of how the
    /// process ends.
    ///
    /// # Errors
    /// Returns an error if the file cannot be created, written or unlinked.
    pub(crate) fn create(
        directory: &Path,
        keys: impl Iterator<Item = String>,
    ) -> Result<(Self, Vec<(String, Place)>), ValuesError> {
        let path = directory.join(format!("newsfeed-store-{}", std::process::id()));
        write(&path, keys).map_err(|source| ValuesError { path, source })
    }

    /// Reads the value at `place`.
    pub(crate) fn read(&self, place: Place) -> io::Result<Vec<u8>> {
        let mut value = vec![0; place.len_bytes as usize];
        self.file.read_exact_at(&mut value, place.offset_bytes)?;
        Ok(value)
    }

    /// Replaces the value at `place` by `value`, which has the same length.
    pub(crate) fn write(&self, place: Place, value: &[u8]) -> io::Result<()> {
        self.file.write_all_at(value, place.offset_bytes)
    }
}

fn write(
    path: &Path,
    keys: impl Iterator<Item = String>,
) -> io::Result<(Values, Vec<(String, Place)>)> {
    let file = OpenOptions::new()
        .read(true)
        .write(true)
        .create_new(true)
        .open(path)?;
    fs::remove_file(path)?;
    let mut writer = BufWriter::new(file);
    let mut places = Vec::new();
    for (number, key) in keys.enumerate() {
        let number = number as u64;
        writer.write_all(&value(number))?;
        places.push((
            key,
            Place {
                offset_bytes: number * u64::from(VALUE_BYTES),
                len_bytes: VALUE_BYTES,
            },
        ));
    }
    let file = writer
        .into_inner()
        .map_err(io::IntoInnerError::into_error)?;
    Ok((Values { file }, places))
}

fn value(number: u64) -> Vec<u8> {
    let mut random = Random::new(mix(number));
    (0..VALUE_BYTES / 8)
        .flat_map(|_| random.next_u64().to_le_bytes())
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_value_is_read_back_and_no_file_is_left() {
        let directory = tempfile::tempdir().expect("a temporary directory");
        let keys = ["a", "b", "c"].map(str::to_owned);
        let (values, places) = Values::create(directory.path(), keys.into_iter()).expect("created");
        for (number, (_, place)) in places.iter().enumerate() {
            assert_eq!(values.read(*place).expect("read"), value(number as u64));
        }
        let (_, second) = &places[1];
        values
            .write(*second, &value(7))
            .expect("the second is replaced");
        for ((_, place), number) in places.iter().zip([0, 7, 2]) {
            assert_eq!(values.read(*place).expect("read"), value(number));
        }
        let beyond = Place {
            offset_bytes: 3 * u64::from(VALUE_BYTES),
            len_bytes: VALUE_BYTES,
        };
        assert!(values.read(beyond).is_err());
        assert_eq!(fs::read_dir(directory.path()).expect("readable").count(), 0);
    }

    #[test]
    fn an_unwritable_directory_is_named() {
        let error = Values::create(Path::new("/nonexistent/directory"), std::iter::empty())
            .expect_err("no directory");
        assert!(
            error
                .to_string()
                .contains("/nonexistent/directory/newsfeed-store-"),
            "{error}"
        );
        assert!(error.to_string().contains("--directory"), "{error}");
    }
}
