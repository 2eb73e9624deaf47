//! Compares requests whose structures distinguish hosts.

use super::*;

#[test]
fn one_host_makes_no_difference() {
    for after in [
        Fault {
            read_ns: 500_000,
            ..USUAL
        },
        Fault {
            asks_for_ads: true,
            ..USUAL
        },
        Fault {
            misses: 60,
            ..USUAL
        },
        Fault {
            bank_fails: true,
            ..USUAL
        },
        Fault { reads: 9, ..USUAL },
    ] {
        let periods = [period(1, 1_000, USUAL), period(2, 1_000, after)];
        let causes = [false, true].map(|with_hosts| {
            let settings = FlowSettings {
                with_hosts,
                ..FlowSettings::default()
            };
            let flows = flows_with([&periods[0], &periods[1]], settings);
            let found = compared_flows(&flows, &CompareSettings::default());
            let causes = found.causes.iter().map(|cause| {
                let operation = cause.operation.of_any_host();
                let numbers = [cause.contribution_ns, cause.affected, cause.q_value];
                (operation.to_string(), numbers.map(|of| format!("{of:.6e}")))
            });
            causes.collect::<Vec<_>>()
        });
        assert!(!causes[0].is_empty(), "{after:?}");
        assert_eq!(causes[0], causes[1], "{after:?}");
    }
}
