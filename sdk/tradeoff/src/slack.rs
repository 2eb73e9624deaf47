//! Slack foretold by the last request of the same key.
//!
//! Source: Chow et al., "The Mystery Machine" (OSDI 2014), §5.2: what a user's last request had foretells the next one's
//! better than anything else they studied.

use std::collections::BTreeMap;

/// What each component's slack was in the last request of each key.
///
/// Keys are there as their hash ([`SlackModel::hash`]), not as they are: 8 bytes each, and no user's name in a file.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct SlackModel {
    /// The attribute whose values are the keys, such as `user`.
    pub key: String,
    /// Components whose slack is foretold.
    pub components: Vec<String>,
    /// Which calls which: pairs of positions in `components`, without circles.
    pub edges: Vec<(usize, usize)>,
    /// By a key's hash: the slack of each component, µs, as long as `components`.
    pub keys: BTreeMap<u64, Vec<u32>>,
}

impl SlackModel {
    /// A key's hash: FNV-1a of 64 bits, the same in every process and version.
    #[must_use]
    pub fn hash(key: &str) -> u64 {
        key.bytes().fold(0xcbf2_9ce4_8422_2325, |hash, byte| {
            (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
        })
    }

    /// The slack of each component in a request of this key, ns; `None`: the key is unknown.
    pub fn of(&self, key: &str) -> Option<impl Iterator<Item = (&str, u64)>> {
        let slack_us = self.keys.get(&Self::hash(key))?;
        let named = self.components.iter().map(String::as_str);
        Some(named.zip(slack_us.iter().map(|us| u64::from(*us) * 1_000)))
    }

    /// Which calls which, by name.
    pub fn edges(&self) -> impl Iterator<Item = (&str, &str)> {
        let name = |at: usize| self.components.get(at).map(String::as_str);
        self.edges
            .iter()
            .filter_map(move |&(before, after)| name(before).zip(name(after)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_are_found_by_their_hash() {
        // As published with the algorithm.
        assert_eq!(SlackModel::hash(""), 0xcbf2_9ce4_8422_2325);
        assert_eq!(SlackModel::hash("foobar"), 0x8594_4171_f739_67e8);
        let model = SlackModel {
            key: "user".to_owned(),
            components: vec!["web".to_owned(), "ranker".to_owned()],
            edges: vec![(0, 1), (1, 9)],
            keys: BTreeMap::from([(SlackModel::hash("17"), vec![0, 1_500])]),
        };
        let of: Vec<_> = model.of("17").expect("known").collect();
        assert_eq!(of, [("web", 0), ("ranker", 1_500_000)]);
        assert!(model.of("18").is_none());
        assert_eq!(model.edges().collect::<Vec<_>>(), [("web", "ranker")]);
    }
}
