//! Test that the committed code in `src/generated` equals the output of `protox` and
//! `tonic-prost-build` for `proto/`.
//!
//! `STROBOSCOPE_BLESS=1 cargo test -p stroboscope-proto` replaces the code.

use std::path::{Path, PathBuf};

const GENERATED: &str = "stroboscope.v1.rs";

fn generate(into: &Path) {
    let root = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("proto");
    let file = root.join("stroboscope/v1/collector.proto");
    let descriptors = protox::compile([&file], [&root]).expect("the .proto files compile");
    tonic_prost_build::configure()
        .out_dir(into)
        .emit_rerun_if_changed(false)
        .client_mod_attribute("stroboscope.v1", r#"#[cfg(feature = "client")]"#)
        .server_mod_attribute("stroboscope.v1", r#"#[cfg(feature = "server")]"#)
        .build_transport(false)
        .compile_fds(descriptors)
        .expect("code is generated");
}

#[test]
fn committed_code_matches_the_proto_files() {
    let fresh_dir = tempfile::tempdir().expect("a temporary directory");
    generate(fresh_dir.path());
    let fresh = std::fs::read_to_string(fresh_dir.path().join(GENERATED)).expect("generated");
    let committed = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("src/generated")
        .join(GENERATED);
    if std::env::var_os("STROBOSCOPE_BLESS").is_some() {
        std::fs::write(&committed, &fresh).expect("written");
    }
    let have = std::fs::read_to_string(&committed).unwrap_or_default();
    assert!(
        have == fresh,
        "src/generated/{GENERATED} is stale; run STROBOSCOPE_BLESS=1 cargo test -p stroboscope-proto"
    );
}
