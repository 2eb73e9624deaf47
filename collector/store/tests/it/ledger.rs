//! Tests of the ledger, some against a plain set, and of its checkpoint.

use std::collections::BTreeSet;

use proptest::prelude::*;
use stroboscope_proto::v1::{Batch, ClockStep, Loss, LossCause};
use stroboscope_store::decode::CheckedBatch;
use stroboscope_store::disk::LocalDisk;
use stroboscope_store::ledger::{
    Checkpoint, CheckpointError, Ledger, LedgerEntry, Ranges, Verdict,
};
use stroboscope_store::limits::{INCARNATION_IDLE_NS_MAX, Limits};

use stroboscope_fixtures::batches;

fn enter(ledger: &mut Ledger, incarnation: u128, sequence: u64, received_ns: u64) {
    let batch =
        CheckedBatch::check(batches::batch(incarnation, sequence, 1), &Limits::default()).unwrap();
    ledger.enter(&batch, received_ns);
}

proptest! {
    #[test]
    fn ranges_are_a_set(numbers in prop::collection::vec(0u64..60, 0..80)) {
        let (mut ranges, mut model) = (Ranges::default(), BTreeSet::new());
        for number in numbers {
            ranges.insert(number, 1_000);
            model.insert(number);
        }
        for number in 0..62 {
            prop_assert_eq!(ranges.contains(number), model.contains(&number));
        }
        let holes = model.last().map_or(0, |last| last + 1 - model.len() as u64);
        prop_assert_eq!(ranges.holes(), holes);
        let runs: Vec<_> = ranges.runs().collect();
        prop_assert!(runs.windows(2).all(|pair| pair[0].1 + 1 < pair[1].0), "runs touch: {runs:?}");
    }

    #[test]
    fn few_runs_never_call_a_missing_batch_stored(numbers in prop::collection::vec(0u64..200, 0..80)) {
        let (mut ranges, mut model) = (Ranges::default(), BTreeSet::new());
        for number in numbers {
            ranges.insert(number, 3);
            model.insert(number);
            prop_assert!(ranges.runs().count() <= 3);
        }
        for number in 0..200 {
            prop_assert!(!ranges.contains(number) || model.contains(&number));
            prop_assert!(ranges.contains(number) || !model.contains(&number) || number < ranges.given_up_below());
        }
    }
}

#[test]
fn the_largest_numbers_fit() {
    let mut ranges = Ranges::default();
    for number in [u64::MAX, 0, u64::MAX - 1] {
        ranges.insert(number, 10);
    }
    assert!(ranges.contains(u64::MAX) && !ranges.contains(u64::MAX - 2));
    assert_eq!(ranges.holes(), u64::MAX - 2);
}

#[test]
fn duplicates_holes_and_losses_are_told() {
    let mut ledger = Ledger::default();
    assert_eq!(ledger.verdict(1, 0), Verdict::New);
    for sequence in [0, 1, 4] {
        enter(&mut ledger, 1, sequence, 10);
    }
    enter(&mut ledger, 2, 0, 10);
    assert_eq!(ledger.verdict(1, 4), Verdict::Duplicate);
    assert_eq!(ledger.verdict(1, 2), Verdict::New);
    assert_eq!(ledger.verdict(2, 4), Verdict::New);
    assert_eq!(ledger.holes(), 2);
    // Losses are totals, so the largest one counts, even if it arrives out of order.
    enter(&mut ledger, 1, 3, 11);
    let key = ("web".to_owned(), "ring_full".to_owned());
    assert_eq!(ledger.losses()[&key], 4);
}

#[test]
fn forgetting_keeps_the_totals() {
    let mut ledger = Ledger::default();
    enter(&mut ledger, 1, 5, 10);
    let before = ledger.losses();
    ledger.forget_idle(10 + INCARNATION_IDLE_NS_MAX);
    assert_eq!(ledger.entries().count(), 1);
    ledger.forget_idle(11 + INCARNATION_IDLE_NS_MAX);
    assert_eq!(ledger.entries().count(), 0);
    assert_eq!(ledger.losses(), before);
}

#[test]
fn a_checkpoint_comes_back() {
    let directory = tempfile::tempdir().unwrap();
    assert_eq!(
        Checkpoint::load(&LocalDisk, directory.path()).unwrap(),
        Checkpoint::default()
    );
    let mut checkpoint = Checkpoint {
        next_segment: 17,
        ..Checkpoint::default()
    };
    for (incarnation, sequence) in [(u128::MAX, 0), (7, 3), (7, 9), (8, 1_000_000)] {
        enter(&mut checkpoint.ledger, incarnation, sequence, 10);
    }
    checkpoint.save(&LocalDisk, directory.path()).unwrap();
    checkpoint.ledger.forget_idle(i64::MAX);
    checkpoint.save(&LocalDisk, directory.path()).unwrap();
    assert_eq!(
        Checkpoint::load(&LocalDisk, directory.path()).unwrap(),
        checkpoint
    );
}

#[test]
fn a_damaged_checkpoint_says_what_to_do() {
    let directory = tempfile::tempdir().unwrap();
    for text in [
        "",
        "{",
        "[1]",
        r#"{"version":2,"next_segment":0,"processes":{},"past_losses":[]}"#,
    ] {
        let of_store = directory.path().to_owned();
        let repair = format!(
            "`stroboscope store check --repair --data {}`",
            of_store.display()
        );
        // The checkpoint of an agent cannot be rebuilt.
        let of_agent = directory.path().join("forwarded");
        for (at, remedy) in [(of_store, &*repair), (of_agent, "move it away")] {
            std::fs::create_dir_all(&at).unwrap();
            std::fs::write(at.join("checkpoint.json"), text).unwrap();
            let error = Checkpoint::load(&LocalDisk, &at).unwrap_err();
            assert!(matches!(error, CheckpointError::Damaged { .. }));
            assert!(
                error.to_string().contains("checkpoint.json is damaged")
                    && error.to_string().contains(remedy),
                "{error}"
            );
        }
    }
}

#[test]
fn news_is_what_a_process_had_not_said() {
    let mut quiet = batches::batch(9, 1, 0);
    quiet.losses.clear();
    quiet.clock_steps.clear();
    let check = |ledger: &Ledger, change: &dyn Fn(&mut Batch), expected: bool| {
        let mut batch = quiet.clone();
        change(&mut batch);
        let batch = CheckedBatch::check(batch, &Limits::default()).unwrap();
        assert_eq!(ledger.is_news(&batch), expected, "{batch:?}");
    };
    let loss = |records| Loss {
        cause: LossCause::RingFull as i32,
        records,
    };
    let mut ledger = Ledger::default();
    check(&ledger, &|_| {}, true);
    // This batch reports a total of 4 lost records.
    enter(&mut ledger, 9, 4, batches::EPOCH_NS);
    check(&ledger, &|_| {}, false);
    let change = |batch: &mut Batch| batch.burst_config ^= 1;
    check(&ledger, &change, false);
    let change_later = |batch: &mut Batch| {
        change(batch);
        batch.sequence = 5;
    };
    check(&ledger, &change_later, true);
    // A ledger that was rebuilt from the tables does not know the burst-config.
    let mut rebuilt = Ledger::default();
    rebuilt.enter_stored(9, 4, LedgerEntry::default());
    check(&rebuilt, &|_| {}, true);
    check(&ledger, &|batch| batch.losses = vec![loss(4)], false);
    check(&ledger, &|batch| batch.losses = vec![loss(5)], true);
    check(
        &ledger,
        &|batch| {
            batch.clock_steps = vec![ClockStep {
                at_ns: 1,
                step_ns: -1,
            }];
        },
        true,
    );
    check(
        &ledger,
        &|batch| batch.events = batches::batch(9, 1, 2).events,
        true,
    );
    check(
        &ledger,
        &|batch| batch.process.as_mut().unwrap().incarnation = vec![3; 16],
        true,
    );
}
