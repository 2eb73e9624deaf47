//! One target, by the name in STROBOSCOPE_FUZZ, under libFuzzer.
#![no_main]

use std::sync::LazyLock;

use libfuzzer_sys::fuzz_target;
use stroboscope_fuzz::TARGETS;

static TARGET: LazyLock<fn(&[u8])> = LazyLock::new(|| {
    let name = std::env::var("STROBOSCOPE_FUZZ").unwrap_or_default();
    let found = TARGETS.iter().find(|(known, _)| *known == name);
    let names = TARGETS.map(|(known, _)| known).join(", ");
    found.unwrap_or_else(|| panic!("STROBOSCOPE_FUZZ={name}: one of {names}")).1
});

fuzz_target!(|bytes: &[u8]| TARGET(bytes));
