//! Tests of single rounds.

use stroboscope_store::data_dir::DataDir;

use super::*;

#[test]
fn a_late_manifest_of_this_directory_costs_no_second_upload() {
    let [data, there] = [(); 2].map(|()| tempfile::tempdir().unwrap());
    DataDir::create(data.path()).unwrap();
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let remote = Remote::open(&format!("file://{}", there.path().display())).unwrap();
    let settings = PublishSettings {
        data: data.path().to_owned(),
        remote: remote.clone(),
        keep: None,
    };
    let handle = runtime.handle().clone();
    let mut rounds = Rounds::of(settings, handle, Arc::default(), Arc::default()).unwrap();
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

    let hour = data.path().join("spans/date=2026-01-02/hour=03");
    std::fs::create_dir_all(&hour).unwrap();
    std::fs::write(hour.join("import-1.parquet"), "rows").unwrap();
    assert_eq!(rounds.round(&|| true).unwrap(), Round::Partial);
    assert_eq!(rounds.round(&|| true).unwrap(), Round::Complete);
    let objects = runtime.block_on(manifest::objects_of(&remote, &id));
    let files = rounds.owned.as_ref().unwrap().manifest.files.clone();
    let published: Vec<_> = files.iter().map(|file| file.object.clone()).collect();
    assert_eq!((published.len(), published), (1, objects.unwrap()));
}
