//! Tests results about whole periods: variation and workload.

use super::*;

#[test]
fn more_variation_with_the_same_mean_is_said() {
    let before = period(1, 1_500, USUAL);
    let mut after = period(2, 1_500, USUAL);
    for (at, records) in after.iter_mut().enumerate() {
        // The root is the first span, and works at its end: half of the requests end later, the
        // others earlier.
        let root = &mut records.spans[0];
        root.end_ns += if at % 2 == 0 { 700_000 } else { -700_000 };
    }
    let settings = CompareSettings::default();
    let found = compared_as([&before, &after], &settings);
    let largest = found.variation.changes.first().expect("it varies more");
    assert!(largest.squared[1] > 1.2 * largest.squared[0], "{largest:?}");
    assert!(largest.q_value <= settings.false_discoveries, "{largest:?}");
    // And of two periods that vary alike, nothing.
    let found = compared_as([&before, &period(3, 1_500, USUAL)], &settings);
    assert!(found.variation.changes.is_empty(), "{:?}", found.variation);
    assert!(
        found.variation.p_value.expect("large categories") > 0.05,
        "{:?}",
        found.variation
    );
    assert!(found.variation.low(0).expect("large categories") > 0.9);
}

#[test]
fn of_the_same_workload_more_requests_are_a_change() {
    let orders = Fault {
        orders: 60,
        ..USUAL
    };
    let periods = [period(1, 1_500, USUAL), period(2, 1_500, orders)];
    let compared = |same_workload| {
        let settings = CompareSettings {
            same_workload,
            ..CompareSettings::default()
        };
        compared_as([&periods[0], &periods[1]], &settings)
    };
    let structural = |found: &Comparison| -> Vec<String> {
        let some = found.mutations.iter();
        some.filter(|mutation| mutation.kind == MutationKind::Structural)
            .map(|mutation| mutation.root.clone())
            .collect()
    };
    // Users ask for something else.
    assert_eq!(structural(&compared(false)), [""; 0]);
    let found = structural(&compared(true));
    assert!(
        !found.is_empty() && found.iter().all(|root| root == "web:order"),
        "{found:?}"
    );
}
