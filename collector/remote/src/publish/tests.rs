//! Tests of single rounds.

use stroboscope_store::data_dir::DataDir;
use tokio::runtime::Runtime;

use super::*;

const HOUR: &str = "spans/date=2026-01-02/hour=03";

/// Begins to publish a data directory to another directory, after its segments before 9 are stored.
fn rounds_of(data: &std::path::Path, there: &std::path::Path, runtime: &Runtime) -> Rounds {
    DataDir::create(data).unwrap();
    std::fs::create_dir_all(data.join(HOUR)).unwrap();
    let settings = PublishSettings {
        data: data.to_owned(),
        remote: Remote::open(&format!("file://{}", there.display())).unwrap(),
        keep: None,
    };
    let flushed = Counters::default();
    flushed.checkpoint_segment.store(9, Relaxed);
    let handle = runtime.handle().clone();
    Rounds::of(settings, handle, Arc::new(flushed), Arc::default()).unwrap()
}

#[test]
fn a_thinned_file_stays_published_while_another_of_its_hour_waits() {
    let [data, there] = [(); 2].map(|()| tempfile::tempdir().unwrap());
    let runtime = Runtime::new().unwrap();
    let mut rounds = rounds_of(data.path(), there.path(), &runtime);
    let thinned = [1, 2].map(|segment| format!("{HOUR}/seg-000000000{segment}-thinned.parquet"));
    let published = |rounds: &Rounds| -> Vec<String> {
        let files = &rounds.owned.as_ref().unwrap().manifest.files;
        files.iter().map(|file| file.path.clone()).collect()
    };
    std::fs::write(data.path().join(&thinned[0]), "rows").unwrap();
    assert_eq!(rounds.round(&|| true).unwrap(), Round::Complete);
    std::fs::write(data.path().join(&thinned[1]), "rows").unwrap();
    assert_eq!(rounds.round(&|| false).unwrap(), Round::Partial);
    assert_eq!(published(&rounds), thinned[..1]);
    assert_eq!(rounds.round(&|| true).unwrap(), Round::Complete);
    assert_eq!(published(&rounds), thinned);
    let objects = manifest::objects_of(&rounds.remote, &rounds.identity.id);
    assert_eq!(runtime.block_on(objects).unwrap().len(), 2);
}

/// Lets an earlier write of a manifest, which seemed to fail, arrive after the manifest was read.
fn write_late(rounds: &mut Rounds, runtime: &Runtime) {
    let owned = rounds.owned.clone().unwrap();
    let late = Manifest {
        nonce: "late".to_owned(),
        ..owned.manifest.clone()
    };
    let (remote, id) = (rounds.remote.clone(), rounds.identity.id.clone());
    let replaced = Some(&*owned.manifest.nonce);
    let begun = rounds
        .identity
        .begin(&rounds.data, &remote.url, replaced, &late.nonce);
    begun.unwrap();
    let wrote = runtime.block_on(manifest::write(&remote, &id, Some(&owned), late));
    assert!(matches!(wrote, Ok(Wrote::Done(_))));
}

#[test]
fn a_late_manifest_of_this_directory_costs_no_second_upload() {
    let [data, there] = [(); 2].map(|()| tempfile::tempdir().unwrap());
    let runtime = Runtime::new().unwrap();
    let mut rounds = rounds_of(data.path(), there.path(), &runtime);
    assert_eq!(rounds.round(&|| true).unwrap(), Round::Complete);
    write_late(&mut rounds, &runtime);
    std::fs::write(data.path().join(HOUR).join("import-1.parquet"), "rows").unwrap();
    assert_eq!(rounds.round(&|| true).unwrap(), Round::Partial);
    assert_eq!(rounds.round(&|| true).unwrap(), Round::Complete);
    let objects = manifest::objects_of(&rounds.remote, &rounds.identity.id);
    let objects = runtime.block_on(objects).unwrap();
    let files = rounds.owned.as_ref().unwrap().manifest.files.clone();
    let published: Vec<_> = files.iter().map(|file| file.object.clone()).collect();
    assert_eq!((published.len(), published), (1, objects));
}

#[test]
fn published_files_are_not_missed_while_the_manifest_is_unknown() {
    let [data, there] = [(); 2].map(|()| tempfile::tempdir().unwrap());
    let runtime = Runtime::new().unwrap();
    let mut rounds = rounds_of(data.path(), there.path(), &runtime);
    let hour = data.path().join(HOUR);
    std::fs::write(hour.join("import-1.parquet"), "rows").unwrap();
    assert_eq!(rounds.round(&|| true).unwrap(), Round::Complete);
    write_late(&mut rounds, &runtime);
    std::fs::write(hour.join("import-2.parquet"), "rows").unwrap();
    assert_eq!(rounds.round(&|| true).unwrap(), Round::Partial);
    assert_eq!(rounds.counters.files_behind.load(Relaxed), 1);
    // As by `--keep-bytes`.
    std::fs::remove_file(hour.join("import-1.parquet")).unwrap();
    assert_eq!(rounds.round(&|| true).unwrap(), Round::Complete);
    assert_eq!(rounds.counters.files_missed.load(Relaxed), 0);
}

#[test]
fn the_last_round_adopts_a_late_manifest() {
    let [data, there] = [(); 2].map(|()| tempfile::tempdir().unwrap());
    let runtime = Runtime::new().unwrap();
    let mut rounds = rounds_of(data.path(), there.path(), &runtime);
    assert_eq!(rounds.round(&|| true).unwrap(), Round::Complete);
    write_late(&mut rounds, &runtime);
    std::fs::write(data.path().join(HOUR).join("import-1.parquet"), "rows").unwrap();
    rounds.last_round();
    let files = rounds.files().unwrap();
    assert_eq!((files.len(), rounds.unpublished(&files).len()), (1, 0));
}
