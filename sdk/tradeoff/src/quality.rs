//! Models the quality that a response loses without an item, as a function of the item's
//! provenance.

use rustc_hash::FxHashMap;

/// One value of an item's provenance.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Feature<'a> {
    /// Discrete value, such as the source or the algorithm.
    Is(&'a str),
    /// Number on a continuous scale, such as a score or a length.
    Measures(f64),
}

/// Weight of one feature, or of one value of a discrete feature.
#[derive(Clone, Debug, PartialEq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct Weight {
    /// Position of the feature in the point's schema.
    pub feature: usize,
    /// Value of a discrete feature; `None` for a continuous feature.
    pub value: Option<String>,
    /// Contribution to an item's loss: per occurrence for a discrete value, per unit for a
    /// continuous one.
    pub weight: f64,
    /// Lower end of the weight's 95 % interval; `weight` if unknown.
    pub low: f64,
    /// Upper end of the weight's 95 % interval; `weight` if unknown.
    pub high: f64,
}

/// Quality drop of whole responses at a tradeoff rate, measured on requests that were not used to
/// learn the weights. In a policy that a service received, all but the rate and `mean_drop` are 0.
#[derive(Clone, Copy, Debug, PartialEq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct QualityDrop {
    /// Fraction of items or calls that was given up, 0 to 1.
    pub tradeoff_rate: f64,
    /// Number of requests whose quality was measured.
    pub requests: u64,
    /// Fraction of requests with any drop, if this model chooses the items to leave out.
    pub share_with_drop: f64,
    /// Mean drop in the quality function's unit, if this model chooses the items to leave out.
    pub mean_drop: f64,
    /// Fraction of requests with any drop, if items are left out at random.
    pub random_share_with_drop: f64,
    /// Mean drop in the quality function's unit, if items are left out at random.
    pub random_mean_drop: f64,
}

/// Loss from an item's absence, linear in the item's features (§4.3.2). Each value of a discrete
/// feature has its own weight (one-hot encoding).
#[derive(Clone, Debug, PartialEq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct QualityModel {
    /// Names of the features, in the order in which items provide them.
    pub schema: Vec<String>,
    /// Loss of an item without features.
    pub intercept: f64,
    /// Weights of continuous features and of the values of discrete features.
    pub weights: Vec<Weight>,
    /// Measured drops by ascending tradeoff rate.
    pub drops: Vec<QualityDrop>,
}

impl QualityModel {
    /// Returns the expected mean drop at a tradeoff rate, by linear interpolation from 0 at rate 0.
    /// Above the highest measured rate, it is that measurement's drop.
    #[must_use]
    pub fn mean_drop(&self, tradeoff_rate: f64) -> f64 {
        let next = self
            .drops
            .partition_point(|drop| drop.tradeoff_rate < tradeoff_rate);
        let (from, from_drop) = match next.checked_sub(1).and_then(|left| self.drops.get(left)) {
            Some(left) => (left.tradeoff_rate, left.mean_drop),
            None => (0.0, 0.0),
        };
        match self.drops.get(next) {
            Some(right) if right.tradeoff_rate > from => {
                let share = (tradeoff_rate - from) / (right.tradeoff_rate - from);
                from_drop + share * (right.mean_drop - from_drop)
            }
            _ => from_drop,
        }
    }
}

/// Quality model prepared for several hundred lookups per request.
#[derive(Clone, Debug, Default)]
pub struct Scorer {
    intercept: f64,
    features: Vec<FeatureWeights>,
}

#[derive(Clone, Debug, Default)]
struct FeatureWeights {
    by_value: FxHashMap<Box<str>, f64>,
    /// Weight of unknown values: the highest known weight, so that a lack of data does not make an
    /// item cheap. 0 if no weight is known.
    unknown: f64,
    per_unit: f64,
}

/// Number of cached weights of discrete values. The cache identifies a value by the address and
/// length of its text, because a service usually stores each source's name in one place.
const SEEN: usize = 16;

/// Scorer for a sequence of items, with a cache.
#[derive(Clone, Copy, Debug)]
pub struct InSequence<'m, 'a> {
    scorer: &'m Scorer,
    /// Cached weights of the first feature's values.
    seen: [Option<(&'a str, f64)>; SEEN],
}

impl<'a> InSequence<'_, 'a> {
    /// Returns an item's loss, like [`Scorer::loss`].
    #[inline]
    pub fn loss(&mut self, item: &[Feature<'a>]) -> f64 {
        let scorer = self.scorer;
        let (Some(Feature::Is(first)), Some(weights)) = (item.first(), scorer.features.first())
        else {
            return scorer.loss(item);
        };
        // Fibonacci hashing of the address.
        let hash = (first.as_ptr() as usize).wrapping_mul(0x9e37_79b9_7f4a_7c15_u64 as usize);
        let slot = &mut self.seen[hash >> (usize::BITS - 4)];
        let weight = match slot {
            Some((known, weight)) if std::ptr::eq(*known, *first) => *weight,
            _ => {
                let weight = weights.of_value(first);
                *slot = Some((first, weight));
                weight
            }
        };
        scorer.intercept + weight + scorer.loss_of_rest(item)
    }
}

impl FeatureWeights {
    fn of_value(&self, value: &str) -> f64 {
        self.by_value.get(value).copied().unwrap_or(self.unknown)
    }

    #[inline]
    fn of(&self, feature: &Feature<'_>) -> f64 {
        match *feature {
            Feature::Measures(value) if value.is_finite() => value * self.per_unit,
            Feature::Measures(_) => 0.0,
            Feature::Is(value) => self.of_value(value),
        }
    }
}

impl Scorer {
    /// Creates a scorer for a model.
    #[must_use]
    pub fn new(model: &QualityModel) -> Self {
        let mut features = vec![FeatureWeights::default(); model.schema.len()];
        for weight in &model.weights {
            let Some(feature) = features.get_mut(weight.feature) else {
                continue;
            };
            match &weight.value {
                Some(value) => {
                    feature
                        .by_value
                        .insert(value.as_str().into(), weight.weight);
                }
                None => feature.per_unit = weight.weight,
            }
        }
        for feature in &mut features {
            let dearest = feature.by_value.values().copied().reduce(f64::max);
            feature.unknown = dearest.unwrap_or(0.0);
        }
        Self {
            intercept: model.intercept,
            features,
        }
    }

    /// Returns the loss from the absence of an item with these features. Ignores features beyond
    /// the schema; a number that is not finite counts as 0.
    #[must_use]
    pub fn loss(&self, item: &[Feature<'_>]) -> f64 {
        let first = match (item.first(), self.features.first()) {
            (Some(feature), Some(weights)) => weights.of(feature),
            _ => 0.0,
        };
        self.intercept + first + self.loss_of_rest(item)
    }

    /// Returns the loss from all features except the first.
    #[inline]
    fn loss_of_rest(&self, item: &[Feature<'_>]) -> f64 {
        let rest = item.iter().zip(&self.features).skip(1);
        rest.map(|(feature, weights)| weights.of(feature)).sum()
    }

    /// Returns a scorer for many items in a row.
    #[must_use]
    pub const fn in_sequence<'a>(&self) -> InSequence<'_, 'a> {
        InSequence {
            scorer: self,
            seen: [None; SEEN],
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn weight(feature: usize, value: Option<&str>, weight: f64) -> Weight {
        Weight {
            feature,
            value: value.map(str::to_owned),
            weight,
            low: weight,
            high: weight,
        }
    }

    #[test]
    fn a_loss_is_the_sum_and_the_unknown_is_dear() {
        let model = QualityModel {
            schema: vec!["generator".to_owned(), "score".to_owned()],
            intercept: 1.0,
            weights: vec![
                weight(0, Some("friends"), 2.0),
                weight(0, Some("ads"), -0.5),
                weight(1, None, 10.0),
                weight(7, None, 99.0),
            ],
            drops: vec![],
        };
        let scorer = Scorer::new(&model);
        let loss = |item: &[Feature<'_>]| scorer.loss(item);
        assert_eq!(loss(&[Feature::Is("friends"), Feature::Measures(0.5)]), 8.0);
        assert_eq!(loss(&[Feature::Is("ads"), Feature::Measures(0.0)]), 0.5);
        assert_eq!(
            loss(&[Feature::Is("new"), Feature::Measures(f64::NAN)]),
            3.0
        );
        assert_eq!(loss(&[]), 1.0);
        // Compares with scoring in sequence, where equal texts are stored at several addresses, and
        // the same addresses hold other texts.
        let names: Vec<String> = ["friends", "ads", "new", "friends"]
            .map(str::to_owned)
            .into_iter()
            .cycle()
            .take(80)
            .collect();
        let mut losses = scorer.in_sequence();
        for (place, name) in names.iter().chain(&names).enumerate() {
            let cut = &name[..if place % 7 == 0 { 2 } else { name.len() }];
            let item = [Feature::Is(cut), Feature::Measures(place as f64)];
            assert_eq!(losses.loss(&item), loss(&item));
        }
        assert_eq!(losses.loss(&[Feature::Measures(3.0)]), 1.0);
        assert_eq!(losses.loss(&[]), 1.0);
        assert_eq!(
            loss(&[Feature::Measures(3.0), Feature::Is("x"), Feature::Is("y")]),
            1.0
        );
    }

    #[test]
    fn drops_are_linear_from_nothing() {
        let drop = |tradeoff_rate, mean_drop| QualityDrop {
            tradeoff_rate,
            requests: 1,
            share_with_drop: 0.0,
            mean_drop,
            random_share_with_drop: 0.0,
            random_mean_drop: 0.0,
        };
        let model = QualityModel {
            schema: vec![],
            intercept: 0.0,
            weights: vec![],
            drops: vec![drop(0.5, 2.0), drop(0.8, 5.0)],
        };
        assert_eq!(model.mean_drop(0.0), 0.0);
        assert_eq!(model.mean_drop(0.25), 1.0);
        assert!((model.mean_drop(0.65) - 3.5).abs() < 1e-12);
        assert_eq!(model.mean_drop(1.0), 5.0);
    }
}
