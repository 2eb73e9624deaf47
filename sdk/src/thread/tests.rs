//! Tests of claims: a thread writes one record at a time, and none after it stopped.

use super::*;
use crate::record;

thread_local! {
    /// Number of times that this thread took the slow path.
    pub(super) static LOOKS: Cell<u32> = const { Cell::new(0) };
}

pub(crate) fn looks() -> u32 {
    LOOKS.get()
}

/// Writes a short record: the END of a span that never began.
fn fill(place: &mut [u64; RECORD_WORDS_MAX], lineage: &mut Lineage) -> usize {
    record::write_end(place, lineage, 0, 1, 1)
}

#[test]
fn nobody_writes_while_somebody_does() {
    std::thread::spawn(|| {
        assert!(claim().is_none(), "there is no ring yet");
        assert!(write(fill));
        // The first look at the ring.
        assert!(write(fill));
        let first = claim().unwrap();
        assert!(claim().is_none() && claim_ready().is_none() && !write(fill));
        // Changes of the thread's state meanwhile do not affect the claimed record.
        set_context(SpanContext::new(5, 5, false));
        close_fast_path();
        forget_ids();
        assert!(claim().is_none());
        first.write(fill);
        drop(claim().unwrap());
        let inside = write(|place, lineage| {
            assert!(claim().is_none() && !write(fill));
            fill(place, lineage)
        });
        assert!(inside && claim().is_some());
    })
    .join()
    .unwrap();
}

#[test]
fn a_panic_inside_a_record_leaves_none() {
    std::thread::spawn(|| {
        assert!(write(fill));
        let head = || local_head();
        let before = head();
        let panicked = std::panic::catch_unwind(|| write(|_, _| panic!("of a field's own code")));
        assert!(panicked.is_err());
        assert_eq!(head(), before);
        assert!(write(fill) && head() > before);
    })
    .join()
    .unwrap();
}

fn local_head() -> usize {
    let writing = WriteClaim::begin().unwrap();
    // SAFETY: as in `write`.
    unsafe { &**writing.0.writer.get() }.producer.head()
}

#[test]
fn a_thread_that_stopped_writes_no_more() {
    std::thread::spawn(|| {
        assert!(write(fill) && write(fill));
        mute();
        assert!(claim().is_none() && !write(fill));
    })
    .join()
    .unwrap();
}
