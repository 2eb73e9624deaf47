//! Greedily chooses the items to leave out, by cost saved per loss.

/// Processing cost of one item, and the loss if it is left out.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Item {
    /// Quality that the response loses without the item. A negative loss counts as zero, NaN as
    /// infinite.
    pub loss: f64,
    /// Processing cost in any unit, or 1 for all items if all cost the same. A cost that is not
    /// positive and finite counts as 0.
    pub cost: f64,
}

/// Chooses items, and reuses its buffers between choices.
#[derive(Clone, Debug, Default)]
pub struct Chooser {
    /// Sort keys. The upper half is the loss per cost, or the loss in [`Chooser::choose_even`], as
    /// the bits of a non-negative `f32`, which sort like the number. The lower half falls as the
    /// position rises. Among equal items, later ones are therefore left out first, because sources
    /// return their best items first.
    keys: Vec<u64>,
    costs: Vec<f32>,
    chosen: Vec<u32>,
}

impl Chooser {
    /// Creates a chooser with empty buffers.
    #[must_use]
    pub const fn new() -> Self {
        Self {
            keys: Vec::new(),
            costs: Vec::new(),
            chosen: Vec::new(),
        }
    }

    /// Returns the positions of the items to leave out, in any order, so that `rate` of the total
    /// cost is saved with the least loss. It chooses greedily, by cost saved per loss (§4.3.3.1).
    /// The result is the optimum if all items cost the same, above 0; otherwise it is worse than it
    /// by at most the loss of one item.
    ///
    /// It takes linear time if all items cost the same. Items after the first 2³² − 1 are kept.
    pub fn choose(&mut self, rate: f64, items: impl IntoIterator<Item = Item>) -> &[u32] {
        self.clear();
        let (mut total, mut is_even) = (0.0, true);
        for (place, item) in items.into_iter().take(u32::MAX as usize).enumerate() {
            let is_cost = item.cost > 0.0 && item.cost.is_finite();
            let cost = if is_cost { item.cost as f32 } else { 0.0 };
            // An item without a valid cost saves nothing, so it comes after items of finite loss.
            let per_cost = if cost > 0.0 {
                loss_of(item.loss) / cost
            } else {
                f32::INFINITY
            };
            is_even &= self.costs.first().is_none_or(|first| *first == cost);
            total += f64::from(cost);
            self.costs.push(cost);
            self.keys.push(key(per_cost, place));
        }
        if is_even {
            return self.choose_cheapest(rate);
        }
        // The reduced target prevents rounding errors of decimal rates from requiring one more
        // item.
        let target = rate.clamp(0.0, 1.0) * total * (1.0 - 1e-9);
        // The comparison is false for a rate of NaN, which therefore chooses nothing.
        if target > 0.0 {
            self.choose_until(target);
        }
        &self.chosen
    }

    /// Returns the positions of the items to leave out if all items cost the same, like
    /// [`choose`](Self::choose). It takes linear time and finds the optimum.
    pub fn choose_even(&mut self, rate: f64, losses: impl IntoIterator<Item = f64>) -> &[u32] {
        self.clear();
        let losses = losses.into_iter().take(u32::MAX as usize).enumerate();
        self.keys
            .extend(losses.map(|(place, loss)| key(loss_of(loss), place)));
        self.choose_cheapest(rate)
    }

    fn clear(&mut self) {
        self.keys.clear();
        self.costs.clear();
        self.chosen.clear();
    }

    fn choose_cheapest(&mut self, rate: f64) -> &[u32] {
        // Corrects rounding like `choose`; NaN becomes 0.
        let count = (rate.clamp(0.0, 1.0) * self.keys.len() as f64 * (1.0 - 1e-9)).ceil() as usize;
        let count = count.min(self.keys.len());
        if count > 0 && count < self.keys.len() {
            self.keys.select_nth_unstable(count);
        }
        let cheapest = self.keys.iter().take(count);
        self.chosen.extend(cheapest.map(|key| place_of(*key)));
        &self.chosen
    }

    fn choose_until(&mut self, target: f64) {
        self.keys.sort_unstable();
        let mut saved = 0.0;
        for key in &self.keys {
            if saved >= target {
                break;
            }
            let place = place_of(*key);
            saved += self
                .costs
                .get(place as usize)
                .map_or(0.0, |cost| f64::from(*cost));
            self.chosen.push(place);
        }
    }
}

/// Converts a loss to `f32`. Negative values become zero, and NaN becomes infinity.
#[inline]
fn loss_of(loss: f64) -> f32 {
    if loss.is_nan() {
        return f32::INFINITY;
    }
    // Adds zero because a negative zero has the sign bit set.
    (loss as f32).max(0.0) + 0.0
}

#[inline]
fn key(per_cost: f32, place: usize) -> u64 {
    u64::from(per_cost.to_bits()) << 32 | u64::from(u32::MAX - place as u32)
}

const fn place_of(key: u64) -> u32 {
    u32::MAX - (key & u32::MAX as u64) as u32
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn chosen(rate: f64, items: &[(f64, f64)]) -> Vec<u32> {
        let mut chooser = Chooser::default();
        let items = items.iter().map(|&(loss, cost)| Item { loss, cost });
        let mut chosen = chooser.choose(rate, items).to_vec();
        chosen.sort_unstable();
        chosen
    }

    /// Returns the least loss of any set that saves enough, by trying all sets.
    fn least_loss(rate: f64, items: &[(f64, f64)]) -> f64 {
        let total: f64 = items.iter().map(|item| item.1).sum();
        (0_u32..1 << items.len())
            .filter_map(|set| {
                let of = |part: fn(&(f64, f64)) -> f64| -> f64 {
                    (0..items.len())
                        .filter(|i| set >> i & 1 == 1)
                        .map(|i| part(&items[i]))
                        .sum()
                };
                (of(|item| item.1) >= rate * total * (1.0 - 1e-9)).then(|| of(|item| item.0))
            })
            .fold(f64::INFINITY, f64::min)
    }

    #[test]
    fn the_least_loss_goes_first_and_of_equals_the_last() {
        let even: Vec<(f64, f64)> = [3.0, 1.0, 2.0, 1.0].map(|loss| (loss, 1.0)).into();
        let none: [u32; 0] = [];
        assert_eq!(chosen(0.0, &even), none);
        assert_eq!(chosen(0.25, &even), [3]);
        assert_eq!(chosen(0.3, &even), [1, 3]);
        assert_eq!(chosen(1.0, &even), [0, 1, 2, 3]);
        assert_eq!(chosen(9.0, &even), [0, 1, 2, 3]);
        assert_eq!(chosen(f64::NAN, &even), none);
        assert_eq!(chosen(0.5, &[]), none);
        let mut chooser = Chooser::new();
        assert_eq!(chooser.choose_even(0.5, [3.0, 1.0, 2.0, f64::NAN]), [1, 2]);
        assert_eq!(chooser.choose_even(f64::NAN, [1.0]), none);
        assert_eq!(chooser.choose_even(1.0, []), none);
        assert_eq!(chooser.choose_even(0.5, [-0.0, 1.0]), [0]);
        let odd = [(f64::NAN, 1.0), (-1.0, 1.0), (0.5, f64::NAN), (0.5, 1.0)];
        assert_eq!(chosen(0.5, &odd), [1, 3]);
    }

    proptest! {
        #[test]
        fn equal_costs_are_solved_and_others_nearly(
            items in prop::collection::vec((0.0..10.0_f64, 0.1..5.0_f64), 1..12),
            rate in 0.0..1.0_f64,
            is_even: bool,
        ) {
            let items: Vec<(f64, f64)> =
                items.into_iter().map(|(loss, cost)| (loss, if is_even { 1.0 } else { cost })).collect();
            let chosen = chosen(rate, &items);
            let loss: f64 = chosen.iter().map(|place| items[*place as usize].0).sum();
            let saved: f64 = chosen.iter().map(|place| items[*place as usize].1).sum();
            let total: f64 = items.iter().map(|item| item.1).sum();
            prop_assert!(saved >= rate * total * (1.0 - 1e-6), "saved {saved} of {total}");
            let least = least_loss(rate, &items);
            let dearest = items.iter().map(|item| item.0).fold(0.0, f64::max);
            let slack = if is_even { 1e-5 } else { dearest + 1e-5 };
            prop_assert!(loss <= least + slack, "{loss} and not {least}");
        }
    }
}
