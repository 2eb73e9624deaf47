//! Tests of `failures.rs`.

use super::*;

#[test]
fn further_root_operations_have_no_link() {
    let cells = |root: &str| {
        let row = FailureRootRow {
            root: root.to_owned(),
            requests: 9,
            failed: 3,
            failed_share: 1.0 / 3.0,
            recovered: 0,
            latency: None,
            latency_without_failed: None,
        };
        let change = FailureChangeRow(RateChange {
            root: root.to_owned(),
            before_from_ns: 0,
            at_ns: 1_000_000_000,
            until_ns: 2_000_000_000,
            rates: [0.0, 1.0],
            requests: [6, 3],
            failed: [0, 3],
            p_value: 0.01,
        });
        [row.cells().swap_remove(0), change.cells().swap_remove(0)]
    };
    assert!(matches!(
        cells("web:home"),
        [Cell::Linked(..), Cell::Linked(..)]
    ));
    let other = Cell::from(OTHER_ROOTS);
    assert_eq!(cells(OTHER_ROOTS), [other.clone(), other]);
}
