//! Test of a process that records before its tests do. It has a process of its own.

use stroboscope::BurstConfig;

#[test]
fn a_process_that_records_elsewhere_says_so() {
    let guard = stroboscope::builder()
        .collector("http://127.0.0.1:9")
        .burst_config(BurstConfig::NEVER)
        .init()
        .unwrap();
    let panic = std::panic::catch_unwind(|| drop(stroboscope_testkit::start())).unwrap_err();
    let message = panic.downcast::<String>().unwrap();
    assert!(
        message.contains("already records for another collector"),
        "{message}"
    );
    drop(guard);
    let recording = stroboscope_testkit::start();
    // A service that starts the SDK by itself records for the test.
    let of_service = stroboscope::init("service").unwrap();
    assert!(!of_service.is_active());
    drop(stroboscope::span!("work"));
    assert_eq!(recording.traces().only("work").calls("work"), 1);
}
