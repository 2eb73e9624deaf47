//! Queries of stores with damaged files name these files.

use stroboscope_query::timeline::of_trace;
use stroboscope_query::{InferSettings, Selection, Study};

use crate::random_store::RandomStore;

#[test]
fn a_query_without_requests_names_damaged_files() {
    let store = RandomStore::new(5);
    let files = store.span_files();
    assert!(files.len() > 2);
    for file in &files {
        std::fs::write(file, "PAR1 of another program").expect("written");
    }
    let others = format!("{} other files are damaged", files.len() - 1);
    let check = |root: Option<&str>| {
        let source = store.source().with_root(root.map(str::to_owned));
        let study = Study::new(source, Selection::default(), InferSettings::default());
        let error = study.inference().expect_err("no request").to_string();
        assert!(error.contains(" is damaged ("), "{error}");
        assert!(error.contains(&others), "{error}");
    };
    check(None);
    check(Some("no:such"));
    let error = of_trace(&store.source(), 1 << 70, "none").err();
    let error = error.expect("no trace").to_string();
    assert!(error.contains("there is no trace none"), "{error}");
    assert!(error.contains(" is damaged ("), "{error}");
}
