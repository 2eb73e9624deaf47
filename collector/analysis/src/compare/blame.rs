//! Attributes time between services to one of the two at its ends.
//!
//! A late answer may be due to the callee, the caller, or the network between them. One late link
//! cannot tell these apart; all links together can. A service that is slow to send, or short of
//! processors, is late on the links to all its callees and from all its callers; a service at the
//! other end of one such link is late on that link only. The responsible service is therefore the
//! one whose links are late most completely; if two explain as much, the callee. A service whose
//! own operations take longer than before is late for the same reason, if the service at the other
//! end is as fast as before.

use super::place::Place;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// A link between services, and its contribution.
#[derive(Clone, Debug)]
pub(super) struct Link {
    /// Number of the link's place.
    pub(super) place: usize,
    pub(super) caller: Arc<str>,
    pub(super) callee: Arc<str>,
    /// Contribution to the mean latency in nanoseconds.
    pub(super) contribution_ns: f64,
    /// True if the contribution is more than chance.
    pub(super) is_changed: bool,
}

/// Links below this fraction of the largest contribution are not attributed to the same cause.
const LATE_MIN: f64 = 0.1;

/// Fractions of a service's own time in operations that became slower or faster, from 0 to 1.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct OwnChange {
    pub(super) slower: f64,
    pub(super) faster: f64,
    /// Contribution of these operations themselves to the mean latency, in nanoseconds.
    pub(super) contribution_ns: f64,
}

/// Minimum ratio of a service's own contribution to a link's contribution; below it, the own
/// contribution is negligible.
const OWN_PART_MIN: f64 = 0.25;

/// A service changed as a whole if at least this fraction of its own time did.
pub(super) const AS_A_WHOLE_MIN: f64 = 0.5;

impl OwnChange {
    /// Reports whether the service changed as a whole, in this direction.
    pub(super) fn is_whole(self, change_ns: f64) -> bool {
        let part = if change_ns < 0.0 {
            self.faster
        } else {
            self.slower
        };
        part >= AS_A_WHOLE_MIN
    }
}

/// Responsible service for each changed link, keyed by the link's place; `own` holds the changes of
/// the services themselves.
///
/// The selection is greedy, so that few services explain much. Each round selects the service whose
/// late links contribute most, reduced by the share of its links that are on time.
pub(super) fn responsible(
    links: &[Link],
    own: &BTreeMap<Arc<str>, OwnChange>,
) -> BTreeMap<usize, Arc<str>> {
    let mut blamed = BTreeMap::new();
    let mut left: Vec<&Link> = links.iter().filter(|link| link.is_changed).collect();
    while let Some(most) = left
        .iter()
        .max_by(|a, b| a.contribution_ns.abs().total_cmp(&b.contribution_ns.abs()))
        .copied()
    {
        let is_late = |link: &Link| {
            link.is_changed
                && link.contribution_ns * most.contribution_ns > 0.0
                && link.contribution_ns.abs() >= LATE_MIN * most.contribution_ns.abs()
        };
        let touches =
            |link: &Link, service: &Arc<str>| link.caller == *service || link.callee == *service;
        let score = |service: &Arc<str>| {
            let pairs = |late: bool| -> usize {
                let some = links
                    .iter()
                    .filter(|link| touches(link, service) && (!late || is_late(link)));
                some.map(|link| (&link.caller, &link.callee))
                    .collect::<BTreeSet<_>>()
                    .len()
            };
            let explained = left
                .iter()
                .filter(|link| is_late(link) && touches(link, service));
            let explained_ns: f64 = explained.map(|link| link.contribution_ns.abs()).sum();
            let own: OwnChange = own.get(service).copied().unwrap_or_default();
            let is_slower_itself = own.is_whole(most.contribution_ns)
                && own.contribution_ns.abs() >= OWN_PART_MIN * most.contribution_ns.abs();
            let complete = pairs(true) as f64 / pairs(false).max(1) as f64;
            explained_ns
                * if is_slower_itself {
                    complete.max(OWN_COMPLETE)
                } else {
                    complete
                }
        };
        // If two services explain as much, the callee is responsible: its answer is late.
        let (caller, callee) = (score(&most.caller), score(&most.callee));
        let is_caller = caller > CALLER_MIN * callee;
        let service = if is_caller {
            &most.caller
        } else {
            &most.callee
        }
        .clone();
        let taken: Vec<usize> = left
            .iter()
            .filter(|link| link.place == most.place || (is_late(link) && touches(link, &service)))
            .map(|link| link.place)
            .collect();
        left.retain(|link| !taken.contains(&link.place));
        blamed.extend(taken.into_iter().map(|place| (place, service.clone())));
    }
    blamed
}

/// Factor by which the caller must explain more than the callee to be responsible: the caller has
/// more links that may be late by chance.
const CALLER_MIN: f64 = 1.5;

/// Completeness of a service that is slower itself: it is late on its links, though some of them
/// may not show it.
const OWN_COMPLETE: f64 = 0.9;

/// Links among these places.
pub(super) fn links<'a>(places: impl Iterator<Item = (usize, &'a Place, f64, bool)>) -> Vec<Link> {
    places
        .filter_map(|(place, of, contribution_ns, is_changed)| match of {
            Place::Own(_) => None,
            Place::Link { caller, callee } => Some(Link {
                place,
                caller: caller.service.clone(),
                callee: callee.service.clone(),
                contribution_ns,
                is_changed,
            }),
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Builds links from (caller, callee, contribution in ns); links with a contribution are
    /// changed.
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
        // The service calls one other, which other services call as well.
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
