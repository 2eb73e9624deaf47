//! Maps whose keys are texts, with a cache by the texts' addresses.
//!
//! Readers of many traces share one allocation among equal texts. Most lookups therefore compare
//! addresses instead of hashing or comparing the texts themselves.

use rustc_hash::FxHashMap;
use std::collections::BTreeMap;
use std::sync::Arc;

/// Maximum number of entries of a cache. A full cache is emptied.
const ADDRESSES_MAX: usize = 1 << 14;

/// Cache of values by the addresses of texts. It keeps the texts, so that no other text gets the
/// address of a key.
#[derive(Clone, Debug)]
pub(crate) struct AddressCache<const N: usize, V> {
    of: FxHashMap<[usize; N], ([Arc<str>; N], V)>,
}

impl<const N: usize, V> Default for AddressCache<N, V> {
    fn default() -> AddressCache<N, V> {
        AddressCache {
            of: FxHashMap::default(),
        }
    }
}

impl<const N: usize, V> PartialEq for AddressCache<N, V> {
    fn eq(&self, _: &AddressCache<N, V>) -> bool {
        // A cache only saves time: its owner's results do not depend on it.
        true
    }
}

impl<const N: usize, V> Eq for AddressCache<N, V> {}

fn addresses<const N: usize>(texts: [&Arc<str>; N]) -> [usize; N] {
    texts.map(|text| text.as_ptr() as usize)
}

impl<const N: usize, V> AddressCache<N, V> {
    /// Returns the value of these texts; `None` if it is not cached.
    pub(crate) fn get(&self, texts: [&Arc<str>; N]) -> Option<&V> {
        self.of.get(&addresses(texts)).map(|(_, value)| value)
    }

    /// Sets the value of these texts.
    pub(crate) fn insert(&mut self, texts: [&Arc<str>; N], value: V) {
        if self.of.len() >= ADDRESSES_MAX {
            self.of.clear();
        }
        let kept = texts.map(Arc::clone);
        self.of.insert(addresses(texts), (kept, value));
    }
}

/// Map from texts to values, in order of the texts.
#[derive(Clone, Debug)]
pub(crate) struct TextMap<const N: usize, V> {
    values: Vec<V>,
    /// Index in `values` by key.
    of: BTreeMap<[Arc<str>; N], usize>,
    cache: AddressCache<N, usize>,
}

impl<const N: usize, V> Default for TextMap<N, V> {
    fn default() -> TextMap<N, V> {
        TextMap {
            values: Vec::new(),
            of: BTreeMap::new(),
            cache: AddressCache::default(),
        }
    }
}

impl<const N: usize, V> TextMap<N, V> {
    pub(crate) fn len(&self) -> usize {
        self.values.len()
    }

    pub(crate) fn get(&self, key: &[Arc<str>; N]) -> Option<&V> {
        self.of.get(key).map(|at| &self.values[*at])
    }

    /// Returns the value of the key to which `key_of` maps these texts. `key_of` must map equal
    /// texts to equal keys. For a new key, inserts a default value if `fits` accepts the key and
    /// the number of entries, and returns `None` if not.
    pub(crate) fn value_of(
        &mut self,
        texts: [&Arc<str>; N],
        key_of: impl FnOnce([&Arc<str>; N]) -> [Arc<str>; N],
        fits: impl FnOnce(&[Arc<str>; N], usize) -> bool,
    ) -> Option<&mut V>
    where
        V: Default,
    {
        if let Some(at) = self.cache.get(texts) {
            return self.values.get_mut(*at);
        }
        let key = key_of(texts);
        let at = match self.of.get(&key) {
            Some(at) => *at,
            None if fits(&key, self.values.len()) => {
                self.values.push(V::default());
                self.of.insert(key, self.values.len() - 1);
                self.values.len() - 1
            }
            None => return None,
        };
        self.cache.insert(texts, at);
        self.values.get_mut(at)
    }

    /// Iterates over the entries in order of their keys.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (&[Arc<str>; N], &V)> {
        self.of.iter().map(|(key, at)| (key, &self.values[*at]))
    }

    /// Iterates over the entries from a key on, in order of their keys.
    pub(crate) fn iter_from(
        &self,
        from: [Arc<str>; N],
    ) -> impl Iterator<Item = (&[Arc<str>; N], &V)> {
        let found = self.of.range(from..);
        found.map(|(key, at)| (key, &self.values[*at]))
    }
}

impl<const N: usize, V: PartialEq> PartialEq for TextMap<N, V> {
    fn eq(&self, other: &TextMap<N, V>) -> bool {
        self.iter().eq(other.iter())
    }
}

impl<const N: usize, V: Eq> Eq for TextMap<N, V> {}

#[cfg(feature = "serde")]
impl<V: serde::Serialize> serde::Serialize for TextMap<2, V> {
    fn serialize<S: serde::Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        to.collect_map(self.iter())
    }
}

#[cfg(feature = "serde")]
impl<'de, V: serde::Deserialize<'de>> serde::Deserialize<'de> for TextMap<2, V> {
    fn deserialize<D: serde::Deserializer<'de>>(from: D) -> Result<TextMap<2, V>, D::Error> {
        let entries = BTreeMap::<[Arc<str>; 2], V>::deserialize(from)?;
        let (keys, values): (Vec<_>, Vec<V>) = entries.into_iter().unzip();
        Ok(TextMap {
            values,
            of: keys.into_iter().zip(0..).collect(),
            cache: AddressCache::default(),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn in_order([a, b]: [&Arc<str>; 2]) -> [Arc<str>; 2] {
        let mut key = [a.clone(), b.clone()];
        key.sort_unstable();
        key
    }

    proptest! {
        /// Texts may be equal at different addresses, and pairs are unordered.
        #[test]
        fn the_map_is_as_a_map_by_content(
            lookups in proptest::collection::vec((0usize..12, 0usize..12), 0..200),
            limit in 1usize..12,
        ) {
            let texts: Vec<Arc<str>> = (0..12).map(|n| format!("host {}", n % 6).into()).collect();
            let mut expected: BTreeMap<[Arc<str>; 2], u64> = BTreeMap::new();
            let mut map: TextMap<2, u64> = TextMap::default();
            for (number, (a, b)) in (1u64..).zip(lookups) {
                let asked = [&texts[a], &texts[b]];
                let key = in_order(asked);
                let fits = expected.contains_key(&key) || expected.len() < limit;
                if fits {
                    *expected.entry(key).or_default() += number;
                }
                let value = map.value_of(asked, in_order, |_, entries| entries < limit);
                prop_assert_eq!(value.is_some(), fits);
                value.into_iter().for_each(|value| *value += number);
            }
            prop_assert!(map.iter().eq(expected.iter()));
            prop_assert_eq!(map.len(), expected.len());
            for (key, value) in &expected {
                prop_assert_eq!(map.get(key), Some(value));
                prop_assert!(map.iter_from(key.clone()).eq(expected.range(key.clone()..)));
            }
        }
    }

    #[test]
    fn a_full_cache_is_emptied_and_the_map_keeps_its_entries() {
        let mut map: TextMap<1, u32> = TextMap::default();
        let key_of = |[text]: [&Arc<str>; 1]| [text.clone()];
        for _ in 0..ADDRESSES_MAX + 9 {
            // Each text has an address of its own while the cache keeps it.
            let text: Arc<str> = "one".into();
            *map.value_of([&text], key_of, |_, _| true).unwrap() += 1;
            assert!(map.cache.of.len() <= ADDRESSES_MAX);
        }
        assert_eq!(map.get(&["one".into()]), Some(&(ADDRESSES_MAX as u32 + 9)));
    }
}
