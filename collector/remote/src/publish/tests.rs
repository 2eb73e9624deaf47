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

#[test]
fn a_late_manifest_of_this_directory_costs_no_second_upload() {
    let [data, there] = [(); 2].map(|()| tempfile::tempdir().unwrap());
    let runtime = Runtime::new().unwrap();
    let mut rounds = rounds_of(data.path(), there.path(), &runtime);
    let remote = rounds.remote.clone();
    assert_eq!(rounds.round(&|| true).unwrap(), Round::Complete);

    // An earlier write, which seemed to fail, arrives after the manifest was read.
    let id = rounds.identity.id.clone();
    let owned = rounds.owned.clone().unwrap();
    let late = Manifest {
        nonce: "late".to_owned(),
        ..owned.manifest.clone()
    };
    let replaced = Some(&*owned.manifest.nonce);
    let begun = rounds
        .identity
        .begin(data.path(), &remote.url, replaced, &late.nonce);
    begun.unwrap();
    let wrote = runtime.block_on(manifest::write(&remote, &id, Some(&owned), late));
    assert!(matches!(wrote, Ok(Wrote::Done(_))));

    std::fs::write(data.path().join(HOUR).join("import-1.parquet"), "rows").unwrap();
    assert_eq!(rounds.round(&|| true).unwrap(), Round::Partial);
    assert_eq!(rounds.round(&|| true).unwrap(), Round::Complete);
    let objects = runtime.block_on(manifest::objects_of(&remote, &id));
    let files = rounds.owned.as_ref().unwrap().manifest.files.clone();
    let published: Vec<_> = files.iter().map(|file| file.object.clone()).collect();
    assert_eq!((published.len(), published), (1, objects.unwrap()));
}
