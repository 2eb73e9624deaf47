//! Groups the requests of small categories by their behaviour at a place.
//!
//! If loops, retries or caches cause many structures, or an operation is rare, many categories have
//! too few requests for a comparison. Some of their requests still do the same at one place.

use super::place::Place;
use super::production::LocalStructure;
use super::rows::{Period, Row};
use crate::flow::Operation;
use std::collections::BTreeMap;

/// Behaviour of a request at a place.
#[derive(Clone, Copy, Debug)]
pub(super) struct StructureKey {
    /// Behaviour of the operation that the place belongs to: for a link, of its caller. The
    /// behaviour (calls, failures and number of runs) influences how long the operation itself
    /// takes. 0 if the structure lacks the operation.
    calls: u64,
    /// Digest of the runs and failures of the place's operation: for a link, of its callee.
    runs: u64,
}

impl StructureKey {
    pub(super) fn of(
        place: &Place,
        structure: &BTreeMap<Operation, LocalStructure>,
    ) -> StructureKey {
        let (caller, callee) = match place {
            Place::Own(operation) => (operation, operation),
            Place::Link { caller, callee } => (caller, callee),
        };
        let of = |operation| structure.get(operation).copied().unwrap_or_default();
        StructureKey {
            calls: of(caller).calls,
            runs: of(callee).runs,
        }
    }
}

/// Time at a place in one request of a small category.
#[derive(Clone, Copy, Debug)]
pub(super) struct SmallTime<'a> {
    /// Number of the request's root operation.
    pub(super) root: u32,
    pub(super) time_ns: f32,
    pub(super) key: StructureKey,
    pub(super) row: &'a Row<'a>,
}

/// Function from a time to the key of its stratum.
type Key = fn(&SmallTime<'_>) -> (u32, u64);

/// Ways to group times, in order, each with the minimum number of times from each period: by root
/// operation and behaviour, by behaviour alone, and by runs and failures alone. Strata of the last
/// kind supplement the others, so one time from each period suffices.
const LEVELS: [(Key, usize); 3] = [
    (|one| (one.root, one.key.calls), 3),
    (|one| (0, one.key.calls), 3),
    (|one| (0, one.key.runs), 1),
];

/// Groups the times at one place into strata with times of both periods. Leaves out the others.
pub(super) fn strata(times: Vec<SmallTime<'_>>) -> Vec<Vec<SmallTime<'_>>> {
    let mut strata = Vec::new();
    let mut left = times;
    for (key, least) in LEVELS {
        let mut groups: BTreeMap<(u32, u64), Vec<SmallTime<'_>>> = BTreeMap::new();
        for one in left.drain(..) {
            groups.entry(key(&one)).or_default().push(one);
        }
        for group in groups.into_values() {
            let earlier = group.iter().filter(|one| one.row.period == Period::Before);
            let earlier = earlier.count();
            if earlier.min(group.len() - earlier) >= least {
                strata.push(group);
            } else {
                left.extend(group);
            }
        }
    }
    strata
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::compare::tests::{USUAL, flows_of, period};

    #[test]
    fn times_join_the_closest_stratum_of_both_periods() {
        let [flows, _] = flows_of([&period(1, 8, USUAL), &[]]);
        let mut samples = flows.roots.values().flat_map(|root| root.all());
        let request = &samples.next().expect("a category").sample[0];
        let rows = [Period::Before, Period::After].map(|period| Row {
            period,
            slice: 0,
            weight: 1.0,
            is_even: true,
            request,
        });
        let check = |times: &[(Period, u32, u64, u64, usize)], expected: &[usize]| {
            let times = times
                .iter()
                .flat_map(|(period, root, calls, runs, count)| {
                    let one = SmallTime {
                        root: *root,
                        key: StructureKey {
                            calls: *calls,
                            runs: *runs,
                        },
                        row: &rows[*period as usize],
                        time_ns: 1.0,
                    };
                    vec![one; *count]
                })
                .collect();
            let sizes: Vec<usize> = strata(times).iter().map(Vec::len).collect();
            assert_eq!(sizes, expected);
        };
        let (before, after) = (Period::Before, Period::After);
        // One root operation and one behaviour.
        check(&[(before, 0, 1, 1, 3), (after, 0, 1, 1, 4)], &[7]);
        // One behaviour: the second root operation alone has too few times.
        check(
            &[
                (before, 0, 1, 1, 3),
                (after, 0, 1, 1, 3),
                (before, 1, 1, 1, 3),
                (after, 1, 1, 1, 2),
                (after, 2, 1, 1, 1),
            ],
            &[6, 6],
        );
        // Equal numbers of runs, but no failure with a success.
        check(
            &[
                (before, 0, 1, 1, 1),
                (after, 0, 2, 1, 1),
                (after, 0, 3, 2, 9),
            ],
            &[2],
        );
        check(&[(before, 0, 1, 1, 9), (after, 0, 2, 2, 9)], &[]);
    }
}
