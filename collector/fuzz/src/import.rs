//! Targets that import every format and read mapping files.

use std::path::Path;
use std::sync::LazyLock;

use stroboscope_import::{
    FieldMapping, Format, ImportError, ImportOutcome, Importer, MappingError,
};
use stroboscope_store::data_dir::DataDir;
use stroboscope_store::tables::{Store, TraceReader};
use tempfile::TempDir;
use tokio::runtime::Runtime;

static RUNTIME: LazyLock<Runtime> = LazyLock::new(|| {
    tokio::runtime::Builder::new_multi_thread()
        .worker_threads(1)
        .build()
        .expect("a runtime")
});

/// Formats of a file, by its first byte; for other bytes the format is detected.
const FORMATS: [Format; 9] = [
    Format::Events,
    Format::Jaeger,
    Format::Zipkin,
    Format::OtlpJson,
    Format::OtlpProtobuf,
    Format::Chrome,
    Format::Kutrace,
    Format::PerfScript,
    Format::Strace,
];

/// Creates a directory in memory if possible, because nothing in it must last.
pub(crate) fn directory() -> TempDir {
    let memory = Path::new("/dev/shm");
    if memory.is_dir() {
        tempfile::tempdir_in(memory).expect("a directory")
    } else {
        tempfile::tempdir().expect("a directory")
    }
}

/// Imports a file: a byte for the format, and the content.
pub(crate) fn import(bytes: &[u8]) {
    let Some((first, content)) = bytes.split_first() else {
        return;
    };
    take(content, |importer| match FORMATS.get(usize::from(*first)) {
        Some(format) => importer.with_format(*format),
        None => importer,
    });
}

/// Reads a mapping and, behind a NUL, the content for it.
pub(crate) fn mapping(bytes: &[u8]) {
    let (text, content) = match bytes.iter().position(|byte| *byte == 0) {
        Some(at) => (&bytes[..at], &bytes[at + 1..]),
        None => (bytes, &b"2026-01-02T03:04:05Z a=1 trace=7 task=t\n"[..]),
    };
    let directory = directory();
    let path = directory.path().join("mapping.toml");
    std::fs::write(&path, text).expect("written");
    match FieldMapping::read(&path) {
        Ok(mapping) => take(content, |importer| importer.with_mapping(mapping.clone())),
        Err(MappingError::Wrong { line, what, .. }) => {
            let lines = text.iter().filter(|byte| **byte == b'\n').count();
            assert!((1..=lines + 1).contains(&line) && !what.is_empty());
        }
        // The text is not UTF-8.
        Err(MappingError::Unreadable { .. }) => {}
    }
}

/// Imports a content. Bad lines are reported, and the rest is in the store.
fn take(content: &[u8], with: impl Fn(Importer) -> Importer) {
    let directory = directory();
    let store = || Store::local(directory.path(), RUNTIME.handle().clone()).expect("a store");
    let data = DataDir::create(directory.path()).expect("a data directory");
    let importer = with(Importer::new(data, store()));
    let mut told = 0;
    let imported = importer.stream("case", content, &mut |_, reason| {
        assert!(!reason.to_string().is_empty());
        told += 1;
    });
    match imported {
        Ok(ImportOutcome::Now(summary)) => {
            assert_eq!(summary.bad_lines, told);
            let mut reader = TraceReader::open(&store()).expect("it opens");
            let (mut spans, mut events) = (0, 0);
            for trace in reader.by_ref() {
                let inside = trace.spans.iter().map(|span| span.events.len());
                events += (trace.events.len() + inside.sum::<usize>()) as u64;
                spans += trace.spans.len() as u64;
            }
            let left = reader.left_out();
            let left = left.span_missing + left.no_span_no_task + left.copies;
            // Events of the kernel are in a table of their own.
            let of_kernel = directory.path().join("kernel").is_dir();
            assert!(
                spans + events + left == summary.spans + summary.events || of_kernel,
                "{spans} + {events} + {left}, {summary:?}"
            );
            assert!(reader.damage().is_empty());
        }
        Ok(_) => panic!("an empty store knows it"),
        Err(ImportError::UnknownForm { .. }) => {}
        Err(error) => assert!(!error.to_string().is_empty()),
    }
}
