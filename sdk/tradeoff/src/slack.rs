//! Predicts slack from the last request of the same key.
//!
//! Source: Chow et al., "The Mystery Machine" (OSDI 2014), §5.2. According to it, the slack of a
//! user's last request is the best predictor of the slack of the next request.

use std::collections::BTreeMap;

/// Slack of each component in the last request of each key.
///
/// The model stores only hashes of keys ([`SlackModel::hash`]), which take 8 bytes each. Files with
/// the model therefore contain no user names.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct SlackModel {
    /// Attribute whose values are the keys, such as `user`.
    pub key: String,
    /// Components whose slack is predicted.
    pub components: Vec<String>,
    /// Call edges: pairs of positions in `components` (caller, callee), without cycles.
    pub edges: Vec<(usize, usize)>,
    /// Slack in µs by a key's hash: one value for each of `components`.
    pub keys: BTreeMap<u64, Vec<u32>>,
}

impl SlackModel {
    /// Returns a key's hash: 64-bit FNV-1a, the same in every process and version.
    #[must_use]
    pub fn hash(key: &str) -> u64 {
        key.bytes().fold(0xcbf2_9ce4_8422_2325, |hash, byte| {
            (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
        })
    }

    /// Returns the predicted slack of each component in a request with this key, in ns. Returns
    /// `None` if the key is unknown.
    pub fn of(&self, key: &str) -> Option<impl Iterator<Item = (&str, u64)>> {
        let slack_us = self.keys.get(&Self::hash(key))?;
        let named = self.components.iter().map(String::as_str);
        Some(named.zip(slack_us.iter().map(|us| u64::from(*us) * 1_000)))
    }

    /// Returns the call edges by name, as (caller, callee) pairs.
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
        // Test vectors published with the algorithm.
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
