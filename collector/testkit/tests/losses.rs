//! Test of lost records. It has a process of its own, because losses fail all tests of a process.

use std::fmt;

use stroboscope::span;

/// Value whose text records an event. No record can be made while another one is being made.
struct Recorder;

impl fmt::Display for Recorder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        stroboscope::event!("lost");
        f.write_str("text")
    }
}

#[test]
#[should_panic(expected = "the process lost records, so its traces may be incomplete (no_ring: 1)")]
fn a_loss_fails_the_test() {
    let recording = stroboscope_testkit::start();
    drop(span!("work", value = stroboscope::display(Recorder)));
    let _ = recording.traces();
}
