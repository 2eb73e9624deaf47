//! Readers stay within their memory limit, whatever the store contains.

use std::path::Path;

use stroboscope_fixtures::poisoned::{LARGE, Poison};
use stroboscope_query::timeline::of_trace;
use stroboscope_query::{
    InferSettings, QueryError, RequestAsked, Selection, Source, Study, request,
};
use stroboscope_store::query_memory::{QueryLack, QueryMemory};
use stroboscope_store::tables::{AttributeKeys, PartitionRule, Store, write_rows};
use tempfile::TempDir;
use tokio::runtime::Runtime;

const MIB: usize = 1 << 20;
const SPANS: usize = 40_000;

fn poisoned(runtime: &Runtime) -> TempDir {
    let directory = tempfile::tempdir().unwrap();
    let store = Store::local(directory.path(), runtime.handle().clone()).unwrap();
    let poison = Poison {
        services: 10,
        operations: 80,
        spans_of_large: SPANS,
        depth: 100,
    };
    let rows = poison.rows();
    let at_ns = rows.batches[0].received_ns;
    let rule = PartitionRule::received(at_ns, at_ns);
    write_rows(&store, "seg-0000000001", rows, &rule).unwrap();
    directory
}

fn study(data: &Path, runtime: &Runtime, memory: &QueryMemory) -> Study {
    let source = Source::open_cached(data, runtime.handle().clone()).unwrap();
    let source = source.with_memory(memory);
    Study::new(source, Selection::default(), InferSettings::default())
}

#[test]
fn a_large_trace_is_left_out_and_counted_and_its_memory_comes_back() {
    let runtime = Runtime::new().unwrap();
    let directory = poisoned(&runtime);
    // The second round uses what the first one cached.
    for _ in 0..2 {
        // 40,000 records take more than a quarter of 64 MiB, and less than a quarter of 256 MiB.
        for (all_mib, large) in [(64, 1), (256, 0)] {
            let memory = QueryMemory::new(all_mib * MIB);
            let study = study(directory.path(), &runtime, &memory);
            let notes = &study.inference().unwrap().notes;
            let found = (notes.left_out.large_traces, notes.traces);
            assert_eq!(found, (large, 22 - large), "{all_mib} MiB");
            assert!(memory.lent() > 0, "the model is in it");
            drop(study);
            assert_eq!(memory.lent(), 0);
        }
    }
}

#[test]
fn a_reading_for_which_there_is_none_is_refused() {
    let runtime = Runtime::new().unwrap();
    let directory = poisoned(&runtime);
    let memory = QueryMemory::new(96 * MIB);
    let mut others = [memory.share(), memory.share()];
    for share in &mut others {
        share.take(47 * MIB).unwrap();
    }
    let refused = study(directory.path(), &runtime, &memory).into_inference();
    let is_busy = |error: &QueryError| {
        let busy = matches!(error, QueryError::Memory { lack, .. } if *lack == QueryLack::All);
        busy && error.to_string().ends_with("try again later")
    };
    assert!(refused.as_ref().is_err_and(is_busy), "{refused:?}");
    drop(others);
    assert!(
        study(directory.path(), &runtime, &memory)
            .inference()
            .is_ok()
    );
}

#[test]
fn a_large_request_is_given_in_part() {
    let runtime = Runtime::new().unwrap();
    let directory = poisoned(&runtime);
    let memory = QueryMemory::new(64 * MIB);
    let source = Source::open(directory.path(), runtime.handle().clone()).unwrap();
    let source = source.with_memory(&memory);
    let ask = |spans_max| {
        let asked = RequestAsked {
            id: LARGE,
            spans_max,
        };
        request(&source, None, asked)
    };
    let refused = ask(None).unwrap_err().to_string();
    assert!(
        refused.contains("has 40000 spans: it needs more than the 32 MiB"),
        "{refused}"
    );
    assert!(refused.contains(&format!("{LARGE:032x}")), "{refused}");
    let of_path = source.trace(LARGE, Selection::default(), &AttributeKeys::none());
    let of_timeline = of_trace(&source, LARGE, "it");
    for refused in [of_path.unwrap_err(), of_timeline.unwrap_err()] {
        assert!(matches!(&refused, QueryError::LargeTrace { spans, .. } if *spans == SPANS as u64));
    }
    assert_eq!(memory.lent(), 0);
    let part = ask(Some(1_000)).unwrap().unwrap();
    let recorded = &part.recorded.spans;
    assert_eq!((recorded.len(), part.spans_in_store), (1_000, SPANS as u64));
    assert!(
        recorded.iter().all(|span| span.span_id <= 1_000),
        "they begin first"
    );
    assert!(memory.lent() > 0);
    drop(part);
    assert_eq!(memory.lent(), 0);
}
