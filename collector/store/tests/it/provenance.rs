//! Provenance logs of batches are stored in pieces, and read as they were sent.

use std::ops::ControlFlow;

use proptest::prelude::*;
use stroboscope_fixtures::batches::{EPOCH_NS, batch};
use stroboscope_proto::v1::ProvenanceLog;
use stroboscope_store::decode::{CheckedBatch, Refusal};
use stroboscope_store::limits::Limits;
use stroboscope_store::tables::{
    Damage, IdRange, PartitionRule, RetriedSpans, Store, StoreTable, StoredProvenance, merge_files,
    read_provenance, write_rows,
};

use crate::tables::{Fixture, rows, write};

const PIECE: usize = 32 << 10;

/// A log of span 1, whose bytes depend on `seed`.
fn log(trace: u128, time_ns: u64, seed: u64, bytes: usize) -> ProvenanceLog {
    ProvenanceLog {
        trace_id: trace.to_be_bytes().to_vec(),
        span_id: 1,
        time_ns: EPOCH_NS + time_ns,
        log: (0..bytes)
            .map(|at| (at * 7 + at / 251) as u8 ^ seed as u8)
            .collect(),
    }
}

fn read(store: &Store, range: IdRange) -> (Vec<StoredProvenance>, Vec<Damage>) {
    let mut logs = Vec::new();
    let damage = read_provenance(store, &range, &mut |log| {
        logs.push(log);
        ControlFlow::Continue(())
    });
    logs.sort_by_key(|log| {
        let batch = (log.process, log.sequence, log.number);
        (log.trace_id, log.time_ns, batch)
    });
    (logs, damage.unwrap())
}

/// Sent batch of two logs: process, trace, time, sequence and bytes. All logs are of one span, and
/// many begin at the same time.
type Sent = (u64, u128, u64, u64, usize);

fn seed(sequence: u64, number: u32) -> u64 {
    2 * sequence + u64::from(number)
}

fn expected(sent: &[Sent], of: impl Fn(u128) -> bool) -> Vec<StoredProvenance> {
    let mut logs: Vec<_> = sent
        .iter()
        .filter(|sent| of(sent.1) && sent.4 > 0)
        .flat_map(|(process, trace, time_ns, sequence, bytes)| {
            (0..2).map(move |number| StoredProvenance {
                trace_id: *trace,
                time_ns: (EPOCH_NS + time_ns) as i64,
                span_id: 1,
                process: u128::from(*process),
                sequence: *sequence,
                number,
                service: "web".into(),
                log: log(*trace, *time_ns, seed(*sequence, number), *bytes).log,
            })
        })
        .collect();
    logs.sort_by_key(|log| {
        let batch = (log.process, log.sequence, log.number);
        (log.trace_id, log.time_ns, batch)
    });
    logs
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(40))]

    #[test]
    fn logs_are_read_as_they_were_sent(
        sizes in prop::collection::vec(
            (1..3_u64, 1..4_u128, 0..3_u64,
             prop::sample::select(vec![0, 1, PIECE - 1, PIECE, PIECE + 1, 3 * PIECE])),
            1..12,
        ),
        files in 1..4_usize,
    ) {
        let sent: Vec<Sent> = (1..)
            .zip(sizes)
            .map(|(sequence, (process, trace, time_ns, bytes))| (process, trace, time_ns, sequence, bytes))
            .collect();
        let fixture = Fixture::new();
        let store = fixture.store();
        for (file, sent) in sent.chunks(sent.len().div_ceil(files)).enumerate() {
            let batches = sent.iter().map(|(process, trace, time_ns, sequence, bytes)| {
                let mut batch = batch(u128::from(*process), *sequence, 0);
                let logs = [0, 1].map(|number| seed(*sequence, number));
                batch.provenance = logs.map(|seed| log(*trace, *time_ns, seed, *bytes)).into();
                batch
            });
            write(&store, &format!("seg-000000000{file}"), rows(batches));
        }
        let all = expected(&sent, |_| true);
        prop_assert_eq!(&read(&store, IdRange::ALL).0, &all);
        let second = read(&store, IdRange::only(2)).0;
        prop_assert_eq!(second, expected(&sent, |trace| trace == 2));

        // Compaction keeps all logs whole.
        let files = store.list(StoreTable::Provenance).unwrap();
        if let Some((first, _)) = files.first() {
            let merged = first.to_string().replace("seg-0000000000", "seg-0000000000-0000000009");
            let merged = object_store::path::Path::from(merged);
            merge_files(
                &store, StoreTable::Provenance, &files, &merged,
                &mut RetriedSpans::default(), &|| true,
            )
            .unwrap()
            .publish().unwrap();
            let whole = std::fs::read(store.display(&merged)).unwrap();
            let of_merged = Fixture::new();
            of_merged.store().put(&merged, whole).unwrap();
            prop_assert_eq!(&read(&of_merged.store(), IdRange::ALL).0, &all);
        }
    }
}

#[test]
fn a_damaged_file_loses_only_its_own_logs() {
    let fixture = Fixture::new();
    let store = fixture.store();
    for (at, trace) in [(0, 1), (1, 2)] {
        let mut batch = batch(1, at, 0);
        batch.provenance = vec![log(trace, 0, 1, 100)];
        write(&store, &format!("seg-000000000{at}"), rows([batch]));
    }
    let path = fixture.path("provenance", "seg-0000000000");
    let mut bytes = std::fs::read(&path).unwrap();
    bytes.truncate(bytes.len() / 2);
    std::fs::write(&path, bytes).unwrap();
    let (logs, damage) = read(&store, IdRange::ALL);
    let found: Vec<_> = logs.into_iter().map(|found| found.log).collect();
    assert_eq!(found, [log(2, 0, 1, 100).log]);
    assert_eq!(damage.len(), 1);
    assert!(damage[0].file.contains("seg-0000000000"), "{damage:?}");
}

#[test]
fn a_reader_may_stop() {
    let fixture = Fixture::new();
    let store = fixture.store();
    let mut batch = batch(1, 0, 0);
    batch.provenance = (1..=5).map(|trace| log(trace, 0, 1, 10)).collect();
    let rule = PartitionRule::received(EPOCH_NS as i64, EPOCH_NS as i64);
    write_rows(&store, "seg-0000000000", rows([batch]), &rule).unwrap();
    let mut seen = 0;
    read_provenance(&store, &IdRange::ALL, &mut |_| {
        seen += 1;
        match seen {
            2 => ControlFlow::Break(()),
            _ => ControlFlow::Continue(()),
        }
    })
    .unwrap();
    assert_eq!(seen, 2);
}

#[test]
fn logs_against_the_protocol_are_refused() {
    let check = |log: ProvenanceLog, cause: &str| {
        let mut batch = batch(1, 0, 0);
        batch.provenance = vec![log];
        let refused = CheckedBatch::check(batch, &Limits::default()).unwrap_err();
        assert_eq!(refused.cause(), cause, "{refused}");
    };
    check(log(1, 0, 1, (1 << 20) + 1), "provenance_too_long");
    let mut short = log(1, 0, 1, 1);
    short.trace_id.pop();
    check(short, "column_length");
    let mut late = log(1, 0, 1, 1);
    late.time_ns = u64::MAX;
    check(late, "time");
    let mut many = batch(1, 0, 0);
    many.provenance = vec![ProvenanceLog::default(); 65_537];
    let refused = CheckedBatch::check(many, &Limits::default());
    assert!(matches!(refused, Err(Refusal::TooManyNotes { .. })));
}
