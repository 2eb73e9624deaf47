//! Merge policy: chooses the files to merge by their names and sizes, and by the time.
//!
//! Merging is size-tiered. Within an hour that still grows, [`FAN_IN`] neighbours of a tier become
//! one file of the next tier. The range of segments in a file's name determines its tier, so
//! neighbours nearly always share a tier. Once the hour is over, its files become one file, or a
//! few if it is large. Each row is thereby rewritten about twice: once within its hour, and once
//! after it.

use std::time::Duration;

use object_store::path::Path;

use crate::tables::{Hour, Segments};

/// Number of files of a tier in one merge. With a flush every ten seconds, an hour takes 15 merges,
/// whose files are not merged again before the hour is over. With a fan-in of 16, most rows were
/// written once more.
const FAN_IN: u64 = 24;
/// Maximum number of files in one merge after an hour is over, because a merge holds a few batches
/// of rows of each file in memory. With more files, full tiers are merged first.
const FILES_MAX: usize = 64;
/// Maximum size of the inputs of a merge, in bytes.
const BYTES_MAX: u64 = 512 << 20;
/// Time after the end of an hour at which it counts as over, in ns. Services send within seconds,
/// and retries take a few more.
const QUIET_NS: i64 = 10 * 60 * 1_000_000_000;
/// Time from the end of an hour until no more of its records arrive, unless a flush is delayed for
/// more than about an hour. See `PartitionRule::received`.
pub const SETTLED: Duration = Duration::from_secs(25 * 3_600);
/// [`SETTLED`] in ns.
const SETTLED_NS: i64 = SETTLED.as_nanos() as i64;

/// Merge of files of one directory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Job {
    /// Paths and sizes in bytes, in the order of their segments.
    pub inputs: Vec<(Path, u64)>,
    /// Path of the merged file.
    pub output: Path,
}

/// Returns the next merge of visible files of one directory; `None` if none is due. `files` must be
/// in the order of their segments, and include every visible file of the directory between the
/// first and the last. `is_all` treats every hour as one for which no more records arrive.
#[must_use]
pub fn next_job(files: &[(Path, u64)], now_ns: i64, is_all: bool) -> Option<Job> {
    let (first, _) = files.first()?;
    let end_ns = Hour::of_object(first.as_ref())?.end_ns();
    let since_end_ns = now_ns.saturating_sub(end_ns);
    // If there are many files, full tiers are merged first. Otherwise, merged files would be merged
    // again with each following group.
    let many = (files.len() > FILES_MAX).then(|| tier(files)).flatten();
    let group = if many.is_some() {
        many
    } else if is_all || since_end_ns >= SETTLED_NS {
        groups(files).find(|group| group.len() > 1)
    } else if since_end_ns >= QUIET_NS {
        groups(files).find(|group| is_worth_it(group))
    } else {
        tier(files)
    }?;
    let segments = |at: Option<&(Path, u64)>| at.and_then(|(path, _)| Segments::of(path));
    let (first, last) = (segments(group.first())?, segments(group.last())?);
    let name = Segments::range(first.first, last.last).name();
    let directory = group[0].0.as_ref().rsplit_once('/')?.0;
    Some(Job {
        inputs: group.to_vec(),
        output: Path::from(format!("{directory}/{name}.parquet")),
    })
}

/// Splits neighbours into groups of at most [`FILES_MAX`] files that together have at most
/// [`BYTES_MAX`] bytes. A larger file forms a group alone.
fn groups(files: &[(Path, u64)]) -> impl Iterator<Item = &[(Path, u64)]> {
    let mut rest = files;
    std::iter::from_fn(move || {
        let mut bytes = 0u64;
        let fits = |(_, more): &&(Path, u64)| {
            bytes = bytes.saturating_add(*more);
            bytes <= BYTES_MAX
        };
        let count = rest.iter().take(FILES_MAX).take_while(fits).count().max(1);
        let (group, later) = rest.split_at_checked(count)?;
        rest = later;
        Some(group)
    })
}

/// Reports whether enough records arrived late to justify rewriting all files of a group. It must
/// have at least [`FAN_IN`] files, or its other files together must have at least a quarter of its
/// largest file's size.
fn is_worth_it(group: &[(Path, u64)]) -> bool {
    let bytes = |(_, bytes): &(Path, u64)| *bytes;
    let all: u64 = group.iter().map(bytes).sum();
    let largest = group.iter().map(bytes).max().unwrap_or(0);
    group.len() > 1
        && (group.len() as u64 >= FAN_IN || (all - largest).saturating_mul(4) >= largest)
}

/// Returns the first [`FAN_IN`] adjacent files of the lowest tier that has that many. Returns
/// `None` if there is no such tier, or if these files are too large to merge into one.
fn tier(files: &[(Path, u64)]) -> Option<&[(Path, u64)]> {
    let level = |(path, _): &(Path, u64)| {
        let count = Segments::of(path).map_or(1, |of| of.last - of.first + 1);
        count.checked_ilog(FAN_IN).unwrap_or(0)
    };
    let full = files
        .chunk_by(|a, b| level(a) == level(b))
        .filter(|group| group.len() as u64 >= FAN_IN)
        .min_by_key(|group| level(&group[0]))?;
    let group = &full[..FAN_IN as usize];
    let bytes: u64 = group.iter().map(|(_, bytes)| bytes).sum();
    (bytes <= BYTES_MAX).then_some(group)
}

#[cfg(test)]
mod tests {
    use super::*;

    const HOUR_NS: i64 = 3_600_000_000_000;
    const BEGIN_NS: i64 = 1_767_322_800_000_000_000;

    fn file(segments: Segments, bytes: u64) -> (Path, u64) {
        (
            Path::from(format!(
                "spans/date=2026-01-02/hour=03/{}.parquet",
                segments.name()
            )),
            bytes,
        )
    }

    /// Simulates an hour of flushes. Returns the rewrites per row, the maximum number of files, and
    /// the final number.
    fn hour(flushes: u64, bytes: u64, is_cared_for: bool) -> (f64, usize, usize) {
        let (mut files, mut written, mut most): (Vec<(Path, u64)>, u64, usize) = (Vec::new(), 0, 0);
        let mut settle = |files: &mut Vec<(Path, u64)>, now_ns: i64| {
            while let Some(job) = next_job(files, now_ns, false) {
                let at = files
                    .iter()
                    .position(|file| *file == job.inputs[0])
                    .unwrap();
                let sum = job.inputs.iter().map(|(_, bytes)| bytes).sum();
                written += sum;
                files.splice(at..at + job.inputs.len(), [(job.output, sum)]);
            }
        };
        for flush in 0..flushes {
            files.push(file(Segments::one(flush), bytes));
            if is_cared_for {
                settle(&mut files, BEGIN_NS);
            }
            most = most.max(files.len());
        }
        settle(&mut files, BEGIN_NS + 2 * HOUR_NS);
        (written as f64 / (flushes * bytes) as f64, most, files.len())
    }

    #[test]
    fn an_hour_becomes_a_file_and_is_written_twice_more() {
        let (times, most, files) = hour(360, 200_000, true);
        assert!(
            times <= 2.0 && most <= 38 && files == 1,
            "{times} {most} {files}"
        );
        let (times, _, files) = hour(360, 200_000, false);
        assert!(
            times <= 2.0 && files == 1,
            "when all is over: {times} {files}"
        );
        let (times, most, files) = hour(3_600, 20_000, true);
        assert!(
            times <= 3.0 && most <= 58 && files == 1,
            "{times} {most} {files}"
        );
        let (times, _, files) = hour(360, 20 << 20, true);
        assert!(times <= 2.0 && files == 15, "{times} {files}");
    }

    #[test]
    fn little_that_comes_late_waits_until_nothing_comes_any_more() {
        let files = [
            file(Segments::range(0, 359), 100 << 20),
            file(Segments::one(400), 1 << 10),
        ];
        let after = |hours: i64| next_job(&files, BEGIN_NS + hours * HOUR_NS, false);
        assert_eq!((after(0), after(3)), (None, None));
        let job = after(26).unwrap();
        assert_eq!(
            job.output.filename(),
            Some("seg-0000000000-0000000400.parquet")
        );
        assert_eq!(next_job(&files, BEGIN_NS, true), Some(job));
        assert_eq!(
            next_job(&files[..1], BEGIN_NS, true),
            None,
            "there is nothing to merge it with"
        );
        let much = [
            file(Segments::one(0), 4 << 20),
            file(Segments::one(1), 1 << 20),
        ];
        assert!(next_job(&much, BEGIN_NS + 2 * HOUR_NS, false).is_some());
    }
}
