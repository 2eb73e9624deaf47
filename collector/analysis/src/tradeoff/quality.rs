//! Learns the loss that an item's absence causes, by the item's provenance.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use stroboscope_tradeoff::{Chooser, Feature, QualityDrop, QualityModel, Scorer, Weight};

use super::observed::{Answer, FeatureValue, PointObserved};
use crate::statistics::regression::fit;

/// Options for learning a quality model.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct QualitySettings {
    /// Inverse share of held-out answers: about one in this many (at least 2) judges the model.
    pub held_out_every: u64,
    /// Maximum number of values of a discrete feature that get a weight. The most frequent values
    /// get one; the others count as unknown.
    pub values_max: usize,
}

impl Default for QualitySettings {
    fn default() -> Self {
        Self {
            held_out_every: 4,
            values_max: 256,
        }
    }
}

/// Ridge of the regression, relative to the sum of squares of each column.
const RIDGE: f64 = 1e-4;
/// Tradeoff rates at which the model is judged. Points that decide about calls are also judged at
/// rate 1, at which no call is made in full.
const JUDGED: [f64; 11] = [0.05, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 0.95];

/// Learns the quality model of a point from whole answers. They record the features and the loss of
/// each item, so each item is a data point of its own (§4.3.2). Returns the model, the number of
/// answers that it was learned from, and the number of held-out answers that judged it.
#[must_use]
pub fn learn_quality(
    point: &PointObserved,
    settings: &QualitySettings,
) -> (QualityModel, usize, usize) {
    let every = settings.held_out_every.max(2);
    let is_held_out = |answer: &&Answer| {
        (answer.trace.0 as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32 & 0xffff_ffff
            < (1 << 32) / every
    };
    let (held_out, learned): (Vec<&Answer>, Vec<&Answer>) =
        point.answers.iter().partition(is_held_out);
    let schema: Vec<String> = point.schema.iter().map(|name| name.to_string()).collect();
    let mut model = regress(schema, &learned, settings);
    let of_calls = point.is_of_calls();
    let rates = JUDGED.into_iter().chain(of_calls.then_some(1.0));
    model.drops = rates
        .filter(|_| !held_out.is_empty())
        .map(|rate| match of_calls {
            true => judge_calls(&held_out, rate),
            false => judge(&model, &held_out, rate),
        })
        .collect();
    (model, learned.len(), held_out.len())
}

/// A column of the regression: one value of a discrete feature, or a numeric feature. Features are
/// given by their index in the schema.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Column {
    Value(usize, Arc<str>),
    Number(usize),
}

fn regress(schema: Vec<String>, answers: &[&Answer], settings: &QualitySettings) -> QualityModel {
    let rows = || answers.iter().flat_map(|answer| &answer.rows);
    let count = rows().count();
    let mean = rows().map(|(_, loss)| loss).sum::<f64>() / count.max(1) as f64;
    let mut model = QualityModel {
        schema,
        intercept: mean,
        weights: Vec::new(),
        drops: Vec::new(),
    };
    let columns = columns(answers, settings);
    let places: BTreeMap<&Column, usize> = columns.iter().zip(0..).collect();
    let encoded: Vec<Vec<f64>> = rows()
        .map(|(features, _)| {
            let mut row = vec![0.0; columns.len()];
            for (place, feature) in features.iter().enumerate() {
                let (column, value) = match feature {
                    FeatureValue::Text(text) => (Column::Value(place, text.clone()), 1.0),
                    FeatureValue::Number(number) => (Column::Number(place), *number),
                };
                if let Some(column) = places.get(&column) {
                    row[*column] = if value.is_finite() { value } else { 0.0 };
                }
            }
            row
        })
        .collect();
    // The values of a discrete feature replace the intercept. Without a discrete feature, add a
    // column of ones.
    let is_discrete = columns
        .iter()
        .any(|column| matches!(column, Column::Value(..)));
    let losses: Vec<f64> = rows().map(|(_, loss)| *loss).collect();
    let with_ones: Vec<Vec<f64>>;
    let design = if is_discrete {
        &encoded
    } else {
        with_ones = encoded
            .iter()
            .map(|row| [row.as_slice(), &[1.0]].concat())
            .collect();
        &with_ones
    };
    let Some(fit) = fit(design, &losses, RIDGE) else {
        return model;
    };
    model.intercept = match fit.weights.get(columns.len()) {
        Some(intercept) => *intercept,
        None => 0.0,
    };
    let fitted = columns.into_iter().zip(fit.weights.iter().zip(&fit.errors));
    model.weights = fitted
        .map(|(column, (weight, error))| {
            let (feature, value) = match column {
                Column::Value(feature, value) => (feature, Some(value.to_string())),
                Column::Number(feature) => (feature, None),
            };
            Weight {
                feature,
                value,
                weight: *weight,
                low: weight - 1.96 * error,
                high: weight + 1.96 * error,
            }
        })
        .collect();
    model
}

fn columns(answers: &[&Answer], settings: &QualitySettings) -> Vec<Column> {
    let mut values: BTreeMap<(usize, &Arc<str>), usize> = BTreeMap::new();
    let mut numbers = BTreeSet::new();
    for (features, _) in answers.iter().flat_map(|answer| &answer.rows) {
        for (place, feature) in features.iter().enumerate() {
            match feature {
                FeatureValue::Text(text) => *values.entry((place, text)).or_default() += 1,
                FeatureValue::Number(_) => {
                    numbers.insert(place);
                }
            }
        }
    }
    let mut of_feature: BTreeMap<usize, Vec<(usize, &Arc<str>)>> = BTreeMap::new();
    for ((place, value), count) in values {
        of_feature.entry(place).or_default().push((count, value));
    }
    let mut columns: Vec<Column> = numbers.into_iter().map(Column::Number).collect();
    for (place, mut counted) in of_feature {
        counted.sort_by(|a, b| b.0.cmp(&a.0).then(a.1.cmp(b.1)));
        counted.truncate(settings.values_max);
        columns.extend(
            counted
                .into_iter()
                .map(|(_, value)| Column::Value(place, value.clone())),
        );
    }
    columns.sort();
    columns
}

/// Returns the mean loss per answer and the share of answers with a loss at a tradeoff rate, both
/// if the model and if chance chooses the omitted items. Losses of an answer's items add up.
fn judge(model: &QualityModel, answers: &[&Answer], tradeoff_rate: f64) -> QualityDrop {
    let scorer = Scorer::new(model);
    let mut chooser = Chooser::new();
    let mut sums = [[0.0; 2]; 2];
    for (number, answer) in answers.iter().enumerate() {
        let losses: Vec<f64> = answer
            .rows
            .iter()
            .map(|(features, _)| scored(&scorer, features))
            .collect();
        // These random losses are the same at every tradeoff rate.
        let random: Vec<f64> = (0..losses.len())
            .map(|place| f64::from(scatter(number as u64, place as u64)))
            .collect();
        for (chosen_by, sum) in [losses, random].into_iter().zip(&mut sums) {
            let omitted = chooser.choose_even(tradeoff_rate, chosen_by);
            let drop: f64 = omitted
                .iter()
                .filter_map(|place| answer.rows.get(*place as usize))
                .map(|(_, loss)| loss)
                .sum();
            sum[0] += f64::from(u8::from(drop > 0.0));
            sum[1] += drop;
        }
    }
    let [[with_drop, drop], [random_with_drop, random_drop]] = sums;
    let count = answers.len() as f64;
    QualityDrop {
        tradeoff_rate,
        requests: answers.len() as u64,
        share_with_drop: with_drop / count,
        mean_drop: drop / count,
        random_share_with_drop: random_with_drop / count,
        random_mean_drop: random_drop / count,
    }
}

/// Returns the loss as [`judge`] does, if this share of calls is not made in full. Each call is
/// decided independently of its worth, so the model's choice equals a random choice.
fn judge_calls(answers: &[&Answer], tradeoff_rate: f64) -> QualityDrop {
    let (mut with_drop, mut drop) = (0.0, 0.0);
    for answer in answers {
        let losses = || answer.rows.iter().map(|(_, loss)| loss);
        let dear = losses().filter(|loss| **loss > 0.0).count();
        let spared = (1.0 - tradeoff_rate).powi(i32::try_from(dear).unwrap_or(i32::MAX));
        with_drop += 1.0 - spared;
        drop += tradeoff_rate * losses().sum::<f64>();
    }
    let count = answers.len() as f64;
    QualityDrop {
        tradeoff_rate,
        requests: answers.len() as u64,
        share_with_drop: with_drop / count,
        mean_drop: drop / count,
        random_share_with_drop: with_drop / count,
        random_mean_drop: drop / count,
    }
}

fn scored(scorer: &Scorer, features: &[FeatureValue]) -> f64 {
    let features: Vec<Feature<'_>> = features
        .iter()
        .map(|feature| match feature {
            FeatureValue::Number(number) => Feature::Measures(*number),
            FeatureValue::Text(text) => Feature::Is(text),
        })
        .collect();
    scorer.loss(&features)
}

/// Hashes two numbers by steps of SplitMix64, and returns the upper 32 bits of the hash.
fn scatter(a: u64, b: u64) -> u32 {
    let mut z = (a << 20 ^ b)
        .wrapping_add(1)
        .wrapping_mul(0x9e37_79b9_7f4a_7c15);
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    (z >> 32) as u32
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::record::TraceId;

    /// Makes a point whose answers have items of three generators. The first place goes to the
    /// surest candidate of one generator: of `friends` in six of ten answers, of `pages` in three,
    /// of `ads` in one.
    fn point(answers: u64) -> PointObserved {
        let generators: [Arc<str>; 3] = ["friends".into(), "pages".into(), "ads".into()];
        let answers = (0..answers).map(|number| {
            let draw = scatter(number, 99) % 10;
            let winner = usize::from(draw >= 6) + usize::from(draw >= 9);
            let rows = (0..30_usize).map(|place| {
                let generator = place / 10;
                let confidence = f64::from(scatter(number, place as u64)) / f64::from(u32::MAX);
                (generator, confidence)
            });
            let rows: Vec<(usize, f64)> = rows.collect();
            let sure = rows.iter().enumerate().filter(|(_, row)| row.0 == winner);
            let first = sure
                .max_by(|a, b| a.1.1.total_cmp(&b.1.1))
                .map(|(place, _)| place);
            let rows = rows
                .into_iter()
                .enumerate()
                .map(|(place, (generator, confidence))| {
                    let features = vec![
                        FeatureValue::Text(generators[generator].clone()),
                        FeatureValue::Number(confidence),
                    ];
                    (features, f64::from(u8::from(Some(place) == first)))
                });
            Answer {
                trace: TraceId(u128::from(number).wrapping_mul(0x1234_5678_9abc_def1)),
                rows: rows.collect(),
            }
        });
        PointObserved {
            schema: vec!["generator".into(), "confidence".into()],
            answers: answers.collect(),
            ..PointObserved::default()
        }
    }

    #[test]
    fn provenance_is_learned_and_beats_chance_on_answers_held_out() {
        let (model, learned, judged) = learn_quality(&point(1_000), &QualitySettings::default());
        assert_eq!(learned + judged, 1_000);
        assert!((200..300).contains(&judged), "{judged}");
        let weight = |value: Option<&str>| {
            let found = model
                .weights
                .iter()
                .find(|weight| weight.value.as_deref() == value);
            found.expect("a weight").clone()
        };
        assert!(weight(Some("friends")).weight > weight(Some("pages")).weight);
        assert!(weight(Some("pages")).weight > weight(Some("ads")).weight);
        assert!(weight(None).low > 0.0, "{model:?}");
        let drop = |rate: f64| {
            *model
                .drops
                .iter()
                .find(|drop| drop.tradeoff_rate == rate)
                .expect("judged")
        };
        let half = drop(0.5);
        assert!((half.random_share_with_drop - 0.5).abs() < 0.1, "{half:?}");
        assert!(half.share_with_drop < 0.1, "{half:?}");
        assert!(drop(0.9).share_with_drop > drop(0.1).share_with_drop);
    }

    #[test]
    fn nothing_is_learned_from_nothing_and_little_from_one_number() {
        let (model, learned, judged) =
            learn_quality(&PointObserved::default(), &QualitySettings::default());
        assert_eq!(
            (model.weights.len(), model.drops.len(), learned, judged),
            (0, 0, 0, 0)
        );
        let only_number = PointObserved {
            schema: vec!["score".into()],
            answers: (0..20)
                .map(|number| Answer {
                    trace: TraceId(number),
                    rows: (0..10)
                        .map(|i| {
                            (
                                vec![FeatureValue::Number(f64::from(i))],
                                2.0 + 3.0 * f64::from(i),
                            )
                        })
                        .collect(),
                })
                .collect(),
            ..PointObserved::default()
        };
        let (model, _, _) = learn_quality(&only_number, &QualitySettings::default());
        assert!(
            (model.intercept - 2.0).abs() < 0.01 && (model.weights[0].weight - 3.0).abs() < 0.01,
            "{model:?}"
        );
    }
}
