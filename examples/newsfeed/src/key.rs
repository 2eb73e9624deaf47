//! Keys of the values in the store.

use crate::generator::WIDE;

/// Number of users, numbered from 0. Each has 18 values of 1 KiB. With those of wide rankings, the
/// store's file has about 11 MiB.
pub(crate) const USERS: u64 = 480;

/// Properties of a user that the web server reads for every request, one call each.
pub(crate) const PROPERTIES: [&str; 5] = ["name", "locale", "timezone", "quota", "theme"];

/// The candidate generators of the ranker.
pub(crate) const GENERATORS: [&str; 3] = ["friends", "pages", "ads"];

/// Generator that a ranking with [`GENERATORS`] asks only with the fault `ranker.extra-call`.
pub(crate) const EXTRA_GENERATOR: &str = "trending";

/// Number of keys that a generator reads for a user, one after the other.
pub(crate) const PARTS: u32 = 3;

/// Number of the ranker's models: one for each group of users.
pub(crate) const MODELS: u64 = 8;

/// Number of records of features, which the candidates of wide rankings share.
pub(crate) const FEATURES: u64 = 2_048;

/// Number of groups of users; the users of one group get the same proposals in a wide ranking.
const PROPOSAL_GROUPS: u64 = 32;

pub(crate) fn feature(number: u64) -> String {
    format!("feature/{number}")
}

pub(crate) fn proposals(generator: &str, user: u64) -> String {
    format!("proposal/{generator}/{}", user % PROPOSAL_GROUPS)
}

pub(crate) fn property(user: u64, name: &str) -> String {
    format!("user/{user}/{name}")
}

pub(crate) fn candidates(generator: &str, user: u64, part: u32) -> String {
    format!("story/{generator}/{user}/{part}")
}

/// Returns the key of the last block of the log of the user's browser.
pub(crate) fn log(user: u64) -> String {
    format!("user/{user}/log")
}

pub(crate) fn model(group: u64) -> String {
    format!("model/{group}")
}

/// Returns every key, in the order of the store's file.
pub(crate) fn all() -> impl Iterator<Item = String> {
    let of_users = (0..USERS).flat_map(|user| {
        let properties = PROPERTIES.into_iter().map(move |name| property(user, name));
        let generators = GENERATORS.into_iter().chain([EXTRA_GENERATOR]);
        let stories = generators.flat_map(move |generator| {
            (0..PARTS).map(move |part| candidates(generator, user, part))
        });
        properties.chain(stories)
    });
    let proposed = WIDE.into_iter().flat_map(|generator| {
        (0..PROPOSAL_GROUPS).map(move |group| proposals(generator.name, group))
    });
    of_users
        .chain((0..USERS).map(log))
        .chain((0..MODELS).map(model))
        .chain((0..FEATURES).map(feature))
        .chain(proposed)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashSet;

    #[test]
    fn keys_are_distinct() {
        let keys: Vec<String> = all().collect();
        let wide = FEATURES + PROPOSAL_GROUPS * WIDE.len() as u64;
        assert_eq!(keys.len() as u64, USERS * 18 + MODELS + wide);
        assert_eq!(keys.iter().collect::<HashSet<_>>().len(), keys.len());
    }
}
