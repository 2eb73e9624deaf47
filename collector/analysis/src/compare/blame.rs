//! Attributes the time on links between services to the service at one end of each link.
//!
//! A late answer may be due to the callee, the caller, or the network between them. One late link
//! does not distinguish these, but all links together do. A service that is slow to send, or short
//! of processors, is late on the links to all its callees and from all its callers. The service at
//! the other end of one of these links is late on that link only. The responsible service is
//! therefore the one whose late links contribute more and are a larger share of its links, or the
//! callee if both ends explain about as much. If at least half of a service's own time changed in
//! the same direction as a link, and its changed operations contribute at least a quarter as much,
//! they likely made the link late. The service then counts as late on at least 90 % of its links.

use super::place::Place;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// A link between two services, and its contribution to the change.
#[derive(Clone, Debug)]
pub(super) struct Link {
    /// Number of the link's place.
    pub(super) place: usize,
    pub(super) caller: Arc<str>,
    pub(super) callee: Arc<str>,
    /// Contribution to the change of the mean latency, in nanoseconds.
    pub(super) contribution_ns: f64,
    /// True if the link changed significantly, and not only as usual (see `environment`).
    pub(super) is_changed: bool,
}

/// Minimum ratio of a link's contribution to the largest remaining one for the link to count as
/// late.
const LATE_MIN: f64 = 0.1;

/// Fractions of a service's own time that its slower and its faster operations take, from 0 to 1.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct OwnChange {
    pub(super) slower: f64,
    pub(super) faster: f64,
    /// Contribution of these operations' own time to the change of the mean latency, in
    /// nanoseconds.
    pub(super) contribution_ns: f64,
}

/// Minimum ratio of a service's own contribution to a link's. Below it, the service's own change
/// does not explain the link.
const OWN_PART_MIN: f64 = 0.25;

/// Minimum fraction of a service's own time that must have changed in one direction for the service
/// to count as changed as a whole.
pub(super) const AS_A_WHOLE_MIN: f64 = 0.5;

impl OwnChange {
    /// Reports whether the service as a whole became faster (if `change_ns` is negative) or slower.
    pub(super) fn is_whole(self, change_ns: f64) -> bool {
        match change_ns < 0.0 {
            true => self.faster >= AS_A_WHOLE_MIN,
            false => self.slower >= AS_A_WHOLE_MIN,
        }
    }
}

/// Finds the responsible service of each changed link, keyed by the link's place. `own` holds the
/// changes of the services' own time.
///
/// Each round takes the remaining link of largest contribution and chooses its caller or its
/// callee. A service's score is the sum of the contributions of its remaining late links, times the
/// share of its links that are late. The chosen service is responsible for all of these late links,
/// so that few services explain much.
pub(super) fn responsible(
    links: &[Link],
    own: &BTreeMap<Arc<str>, OwnChange>,
) -> BTreeMap<usize, Arc<str>> {
    let mut blamed = BTreeMap::new();
    let mut left: Vec<&Link> = links.iter().filter(|link| link.is_changed).collect();
    let size_ns = |link: &Link| link.contribution_ns.abs();
    let by_size = |a: &&Link, b: &&Link| size_ns(a).total_cmp(&size_ns(b));
    while let Some(most) = left.iter().copied().max_by(by_size) {
        let is_late = |link: &Link| {
            link.is_changed
                && link.contribution_ns * most.contribution_ns > 0.0
                && size_ns(link) >= LATE_MIN * size_ns(most)
        };
        let touches =
            |link: &Link, service: &Arc<str>| link.caller == *service || link.callee == *service;
        let score = |service: &Arc<str>| {
            let pairs = |late: bool| -> usize {
                let of_service = links.iter().filter(|link| touches(link, service));
                let some = of_service.filter(|link| !late || is_late(link));
                let pairs = some.map(|link| (&link.caller, &link.callee));
                pairs.collect::<BTreeSet<_>>().len()
            };
            let late = left.iter().filter(|link| is_late(link));
            let explained = late.filter(|link| touches(link, service));
            let explained_ns: f64 = explained.map(|link| size_ns(link)).sum();
            let own: OwnChange = own.get(service).copied().unwrap_or_default();
            let is_slower_itself = own.is_whole(most.contribution_ns)
                && own.contribution_ns.abs() >= OWN_PART_MIN * size_ns(most);
            let complete = pairs(true) as f64 / pairs(false).max(1) as f64;
            let least = if is_slower_itself { OWN_COMPLETE } else { 0.0 };
            explained_ns * complete.max(least)
        };
        // If both explain about as much, the callee is responsible: its answer is late.
        let (caller, callee) = (score(&most.caller), score(&most.callee));
        let service = match caller > CALLER_MIN * callee {
            true => &most.caller,
            false => &most.callee,
        };
        let is_taken =
            |link: &&&Link| link.place == most.place || (is_late(link) && touches(link, service));
        let taken = left.iter().filter(is_taken);
        let taken: Vec<usize> = taken.map(|link| link.place).collect();
        left.retain(|link| !taken.contains(&link.place));
        blamed.extend(taken.into_iter().map(|place| (place, service.clone())));
    }
    blamed
}

/// Factor by which the caller's score must exceed the callee's for the caller to be responsible.
/// The more links a service has, the more of them can be late by chance, and callers often have
/// more.
const CALLER_MIN: f64 = 1.5;

/// Minimum share of late links assumed for a service that changed as a whole. Some of its links may
/// not show the change.
const OWN_COMPLETE: f64 = 0.9;

/// Selects the links among places, each given with its number, its contribution in nanoseconds, and
/// whether it changed.
pub(super) fn links<'a>(places: impl Iterator<Item = (usize, &'a Place, f64, bool)>) -> Vec<Link> {
    let link = |(place, of, contribution_ns, is_changed): (usize, &Place, f64, bool)| match of {
        Place::Own(_) => None,
        Place::Link { caller, callee } => Some(Link {
            place,
            caller: caller.service.clone(),
            callee: callee.service.clone(),
            contribution_ns,
            is_changed,
        }),
    };
    places.filter_map(link).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Checks the responsible services of the changed links, in order of the links. Links are
    /// (caller, callee, contribution in ns), and are changed if the contribution is not 0.
    #[track_caller]
    fn check(links: &[(&str, &str, f64)], expected: &[&str]) {
        let links: Vec<Link> = links
            .iter()
            .enumerate()
            .map(|(place, (caller, callee, contribution_ns))| Link {
                place,
                caller: (*caller).into(),
                callee: (*callee).into(),
                contribution_ns: *contribution_ns,
                is_changed: *contribution_ns != 0.0,
            })
            .collect();
        let blamed: Vec<String> = responsible(&links, &BTreeMap::new())
            .values()
            .map(ToString::to_string)
            .collect();
        assert_eq!(blamed, expected);
    }

    #[test]
    fn whose_links_are_late_is_responsible() {
        // One late link: the callee.
        check(&[("web", "store", 5.0)], &["store"]);
        check(&[("web", "store", 5.0), ("web", "ads", 0.0)], &["store"]);
        // Two callers of one callee.
        check(
            &[
                ("web", "store", 5.0),
                ("pay", "store", 4.0),
                ("web", "ads", 0.0),
                ("pay", "bank", 0.0),
            ],
            &["store", "store"],
        );
        // One service calls several others; all of these links are late, and so is the link to it.
        check(
            &[
                ("web", "pay", 5.0),
                ("pay", "bank", 5.0),
                ("pay", "mail", 5.0),
                ("web", "mail", 0.0),
                ("web", "ads", 0.0),
            ],
            &["pay", "pay", "pay"],
        );
        // A service calls one other, which other services call as well.
        check(
            &[
                ("web", "tips", 5.0),
                ("tips", "goods", 5.0),
                ("web", "goods", 0.0),
                ("web", "ads", 0.0),
            ],
            &["tips", "tips"],
        );
        // Two unrelated services.
        check(
            &[
                ("web", "a", 5.0),
                ("web", "b", 3.0),
                ("web", "c", 0.0),
                ("web", "d", 0.0),
            ],
            &["a", "b"],
        );
        // A root whose calls are all late.
        check(
            &[("web", "a", 5.0), ("web", "b", 3.0), ("web", "c", 4.0)],
            &["web", "web", "web"],
        );
    }
}
