//! Timelines of stores without a kernel recording.

use stroboscope_query::timeline::{of_burst, of_recorded_burst};

use crate::random_store::RandomStore;

#[test]
fn a_burst_needs_no_kernel() {
    let store = RandomStore::new(4);
    let source = store.source();
    let bursts = source.bursts().expect("bursts");
    assert!(bursts.len() > 2);
    let mut shown = 0;
    for (open_ns, close_ns) in &bursts {
        let view = of_burst(&source, *open_ns).expect("a burst");
        assert!(view.kernel.is_empty());
        let burst = view.burst.expect("a burst");
        assert_eq!(burst.burst_ns, (*open_ns, *close_ns));
        let same = of_recorded_burst(&source, *open_ns).expect("a burst");
        assert_eq!(view.requests, same.requests);
        shown += view.requests.len();
    }
    assert!(shown > 0);
    let after_ns = bursts[bursts.len() - 1].1;
    let Err(error) = of_burst(&source, after_ns) else {
        panic!("a burst after the last one");
    };
    assert!(error.to_string().starts_with("no burst at "), "{error}");
}
