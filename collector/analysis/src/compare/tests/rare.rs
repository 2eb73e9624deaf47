//! Compares requests whose structures are too rare to be compared one by one.

use super::*;

/// Returns a period of pages whose root spans have this many recorded names in turn.
fn of_many_roots(seed: u64, requests: usize, roots: usize, fault: Fault) -> Vec<TraceRecords> {
    let fault = Fault { orders: 0, ..fault };
    let mut period = period(seed, requests, fault);
    for (at, records) in period.iter_mut().enumerate() {
        let root = records.spans.iter_mut().find(|span| span.parent_id == 0);
        // Digits in names do not distinguish operations.
        let letter = char::from(b'a' + (at % roots) as u8);
        root.expect("a root span").name = format!("page {letter}").into();
    }
    period
}

#[test]
fn an_operation_is_compared_over_all_its_root_operations() {
    let usual = Fault { reads: 1, ..USUAL };
    let slow = Fault {
        read_ns: 1_000_000,
        ..usual
    };
    let check = |fault: Fault, expected: &[&str]| {
        let periods = [
            of_many_roots(1, 40, 20, usual),
            of_many_roots(2, 40, 20, fault),
        ];
        let comparison = compared_as([&periods[0], &periods[1]], &CompareSettings::default());
        let causes: Vec<String> = comparison.causes[..comparison.principal]
            .iter()
            .map(|cause| cause.operation.to_string())
            .collect();
        assert_eq!(causes, expected);
        comparison
    };
    let comparison = check(slow, &["store:read"]);
    let contribution_ns = comparison.causes[0].contribution_ns;
    assert!(
        (contribution_ns / 1e6 - 1.0).abs() < 0.3,
        "{contribution_ns}"
    );
    check(usual, &[]);
}

#[test]
fn structures_that_differ_in_other_operations_are_compared_together() {
    // Orders read different numbers of times, so they have several structures.
    let pages = |seed: u64, bank_link_ns: i64| -> Vec<TraceRecords> {
        let mut random = Random(seed);
        let one = |at: u64| {
            let fault = Fault {
                reads: at % 12,
                orders: 100,
                bank_link_ns,
                ..USUAL
            };
            let id = u128::from(seed) << 64 | u128::from(at);
            request(&mut random, id, at as i64 * 10_000_000, fault)
        };
        (0..24).map(one).collect()
    };
    let periods = [pages(1, 0), pages(2, 2_000_000)];
    let comparison = compared_as([&periods[0], &periods[1]], &CompareSettings::default());
    assert_eq!(&*comparison.causes[0].operation.service, "bank");
}

#[test]
fn behaviour_is_compared_over_all_root_operations() {
    let pages = |seed: u64, misses: u64| of_many_roots(seed, 72, 6, with_misses(misses));
    let periods = [pages(1, 10), pages(2, 55)];
    let comparison = compared_as([&periods[0], &periods[1]], &CompareSettings::default());
    let cause = &comparison.causes[0];
    assert_eq!(&*cause.operation.service, "store");
    assert!(matches!(
        cause.kind,
        CauseKind::Structure(PathDifference::Added(_))
    ));
    assert!(cause.q_value < 1e-5, "{}", cause.q_value);
}
