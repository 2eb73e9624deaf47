//! Redaction of what services send, from the socket to the log and the store.

use std::ops::ControlFlow;
use std::path::Path;

use stroboscope_fixtures::batches::{batch, provenance_log};
use stroboscope_proto::v1::{Batch, ProvenanceLog, ShipOutcome};
use stroboscope_provenance::{LogFile, ReadLog as _};
use stroboscope_server::collect::Collector;
use stroboscope_server::ingest::Stop;
use stroboscope_store::tables::{IdRange, Store, read_provenance};

use crate::grpc::{count, get, settings, ship};

const SECRET: &[u8] = b"alice@example.com";

fn with_log(sequence: u64, log: Vec<u8>) -> Batch {
    let mut batch = batch(7, sequence, 1);
    batch.provenance = vec![ProvenanceLog {
        trace_id: vec![7; 16],
        log,
        ..ProvenanceLog::default()
    }];
    batch
}

/// Reports whether a file of the data directory has the secret, uncompressed.
fn has_secret(directory: &Path) -> bool {
    std::fs::read_dir(directory).unwrap().any(|entry| {
        let path = entry.unwrap().path();
        if path.is_dir() {
            return has_secret(&path);
        }
        let bytes = std::fs::read(path).unwrap();
        bytes.windows(SECRET.len()).any(|window| window == SECRET)
    })
}

/// Returns the names and contents of all items in the store.
fn items(store: &Store) -> Vec<(String, Vec<u8>)> {
    let mut items = Vec::new();
    let damage = read_provenance(store, &IdRange::ALL, &mut |log| {
        let file = LogFile::parse(&log.log).unwrap();
        let of_file = file.items().iter();
        items.extend(of_file.map(|item| (item.name.to_string(), item.content.to_vec())));
        ControlFlow::Continue(())
    });
    assert!(damage.unwrap().is_empty());
    items
}

/// With rules, a secret in the name of a tracked item, or in a content, is neither in the log nor
/// in the store. The collector drops and counts a provenance log that it cannot parse, and stores
/// the rest of its batch.
#[tokio::test(flavor = "multi_thread")]
async fn tracked_items_are_redacted_before_they_are_written() {
    let sent = [
        ("row of alice@example.com", &b"7"[..]),
        ("invoice", b"to: alice@example.com"),
        ("total", b"36EUR"),
    ];
    let names = |kept: [&str; 3]| kept.map(str::to_owned);
    for (rules, expected_names, is_content_kept) in [
        (&[][..], names(sent.map(|(name, _)| name)), true),
        (&["drop:*@*"], names(["", "invoice", "total"]), false),
        (
            &["keep:total", "drop:provenance.*"],
            names(["", "", "total"]),
            true,
        ),
    ] {
        let directory = tempfile::tempdir().unwrap();
        let start = || {
            let mut settings = settings(directory.path());
            settings.redact.rules = rules.iter().map(|rule| rule.parse().unwrap()).collect();
            Collector::start(settings)
        };
        let collector = start().await.unwrap();
        let log = provenance_log(&sent);
        let mut both = with_log(1, log.clone());
        let cut = log[..log.len() - 1].to_vec();
        both.provenance.extend(with_log(1, cut).provenance);
        let sent = vec![Some(with_log(0, log)), Some(both)];
        let (replies, ending) = ship(&collector, sent).await;
        assert!(ending.is_none(), "{ending:?}");
        assert_eq!(count(&replies, ShipOutcome::Stored), 2, "{rules:?}");
        let metrics = get(&collector, "/metrics").await;
        let dropped = u8::from(!rules.is_empty());
        let line = format!("redaction_dropped_logs_total{{cause=\"unreadable\"}} {dropped}");
        assert!(metrics.contains(&line), "{metrics}");
        assert_eq!(has_secret(directory.path()), rules.is_empty(), "{rules:?}");
        collector.stop(Stop::Now).await.unwrap();

        // What the log has is put into the store.
        let collector = start().await.unwrap();
        collector.stop(Stop::Flush).await.unwrap();
        if rules.is_empty() {
            continue;
        }
        let store = Store::local(directory.path(), tokio::runtime::Handle::current()).unwrap();
        let items = tokio::task::spawn_blocking(move || items(&store));
        let items = items.await.unwrap();
        assert_eq!(items.len(), 6, "of two logs: {items:?}");
        for items in items.chunks(3) {
            let names = items.iter().map(|(name, _)| name);
            assert!(names.eq(&expected_names), "{items:?}");
            let total = if is_content_kept { &b"36EUR"[..] } else { b"" };
            assert_eq!(items[2].1, total);
            assert!(items[..2].iter().all(|(_, content)| content.is_empty()));
        }
    }
}
