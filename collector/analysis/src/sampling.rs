//! Sampling weights: the number of requests that a recorded request represents. It is the inverse
//! of the probability with which the request was recorded completely (Horvitz and Thompson, 1952).
//!
//! A consistent probability sampler of OpenTelemetry writes its rejection threshold T into W3C
//! `tracestate`, as `ot=th:` and 1 to 14 hex digits, trailing zeros omitted. It keeps a span if the
//! 56 random bits of the trace are at least T. A kept span therefore represents 2⁵⁶ / (2⁵⁶ - T)
//! spans, which is its adjusted count. The SDK does the same for requests that it samples by ratio.
//!
//! **One weight per trace.** The analysis counts requests, so the root's threshold decides: it
//! gives the probability that the root was kept, whatever happened to the spans below it. Of
//! several roots, the lowest threshold counts. If no root states a threshold, the lowest threshold
//! of all spans counts. The lowest threshold gives the probability that any of the spans was kept.
//! The highest threshold would count requests twice. For example, a sampler below the root keeps a
//! leaf of one request in ten: of a hundred requests, ten would represent ten each, and the other
//! ninety would represent themselves. [`TraceSampling::is_differing`] reports traces with several
//! thresholds, because parts of them may be missing.
//!
//! **Windows.** In a window, the SDK records all requests, sampled or not. Those that windows held
//! completely were recorded with certainty, so each counts once, whatever its threshold
//! ([`TraceRecords::weight`](crate::record::TraceRecords::weight)). Any other request was recorded
//! completely only if it was sampled. These weights are unbiased for any traffic, because only the
//! trace ids are random. One weight for all requests, by the share of time in windows, would be
//! biased if windows and traffic are related, for example because recording slows requests down.
//! Requests between windows that no sampler could keep are not represented: such a store describes
//! only the requests in windows.
//!
//! A request counts by its threshold if a window held its root, but other spans are outside of
//! windows. If these spans belong to a service without windows, windows recorded similar requests
//! without that service's spans, so such requests count twice. The spans alone do not show this
//! case: windows may also have cut the similar requests. The notes of a report therefore state how
//! many requests may count twice at most.
//!
//! Forced requests without a threshold count once, since they are certain to be recorded. A request
//! that was cut by a window counts once among the incomplete ones. With sampling by ratio, sampled
//! requests also represent such requests.
//!
//! Malformed thresholds are ignored. A trace without a valid threshold counts once.
//!
//! **Thinned requests.** The store may later keep only a share of old requests
//! ([`thinning`](crate::thinning)). It writes the new threshold of a kept request, and notes the
//! threshold of the share alone as `stroboscope=thin:`. The new threshold already takes the windows
//! into account, so the request counts by it, whatever windows held.
//!
//! **Fixed point.** Weights are rounded to whole multiples of 2⁻¹⁶. As no weight is below 1, the
//! error is at most 0.0008 %, except for weights above 2³², which are reduced to 2³². Sums
//! therefore do not depend on the order of traces, nor on how a range is divided into parts. Random
//! rounding to whole numbers would also be unbiased, but it would add variance and give different
//! figures in each run.

use std::iter::Sum;
use std::ops::{Add, AddAssign};

/// Number of bits of a threshold.
pub(crate) const THRESHOLD_BITS: u32 = 56;
/// Maximum number of hex digits of a threshold.
pub(crate) const DIGITS_MAX: usize = 14;
/// Number of fractional bits of a weight.
const FRACTION_BITS: u32 = 16;
/// Key of OpenTelemetry in `tracestate`. Its value contains the threshold under the key
/// [`THRESHOLD`].
pub(crate) const VENDOR: &str = "ot";
pub(crate) const THRESHOLD: &str = "th";
/// Our key in `tracestate`. Our samplers for OpenTelemetry's SDKs write the burst-config in whose
/// burst the request began, under the key [`BURST`], as bits in 1 to 16 hex digits. The store
/// writes the threshold of thinning under the key [`THIN`].
pub(crate) const OWN: &str = "stroboscope";
const BURST: &str = "burst";
pub(crate) const THIN: &str = "thin";

/// Number of requests that a recorded request represents: at least 1, at most 2³².
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Weight(u64);

impl Default for Weight {
    fn default() -> Weight {
        Weight::ONE
    }
}

impl Weight {
    /// Weight of a request that represents only itself.
    pub const ONE: Weight = Weight(1 << FRACTION_BITS);
    /// Largest weight, in units of 2⁻¹⁶. Higher weights are reduced to it, so that sums do not
    /// overflow.
    const MAX: u64 = 1 << (32 + FRACTION_BITS);

    /// Returns the adjusted count of a request that a sampler with this threshold kept.
    pub fn of_threshold(threshold: u64) -> Weight {
        let kept = (1u64 << THRESHOLD_BITS).saturating_sub(threshold).max(1);
        let scaled = 1u128 << (THRESHOLD_BITS + FRACTION_BITS);
        let rounded = (scaled + u128::from(kept / 2)) / u128::from(kept);
        Weight(u64::try_from(rounded).unwrap_or(u64::MAX).min(Weight::MAX))
    }

    /// Returns the weight in units of 2⁻¹⁶.
    pub fn units(self) -> u64 {
        self.0
    }

    /// Returns the number of represented requests, which may be fractional.
    pub fn value(self) -> f64 {
        self.0 as f64 / Weight::ONE.0 as f64
    }

    /// Multiplies `number` by the weight and rounds to the nearest whole number. Exact for
    /// [`Weight::ONE`].
    pub fn times(self, number: u64) -> u128 {
        let half = u128::from(Weight::ONE.0 / 2);
        (u128::from(number) * u128::from(self.0) + half) >> FRACTION_BITS
    }

    /// Multiplies the square of `number` by the weight, and rounds down. For weights above 1, the
    /// result saturates at 2¹¹² - 1.
    pub fn times_square(self, number: u64) -> u128 {
        let square = u128::from(number) * u128::from(number);
        if self == Weight::ONE {
            return square;
        }
        square.saturating_mul(u128::from(self.0)) >> FRACTION_BITS
    }
}

/// Number of recorded items (such as requests), and the number of items that these represent.
/// Addition is commutative and associative.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct WeightedCount {
    recorded: u64,
    /// Sum of the weights, in units of 2⁻¹⁶.
    sum: u128,
    /// Sum of the squared weights, in units of 2⁻³²; at most `u128::MAX`.
    squares: u128,
}

impl WeightedCount {
    /// Adds one recorded item of this weight.
    pub fn count(&mut self, weight: Weight) {
        self.recorded += 1;
        self.sum += u128::from(weight.0);
        let square = u128::from(weight.0) * u128::from(weight.0);
        self.squares = self.squares.saturating_add(square);
    }

    /// Returns the number of recorded items.
    pub fn recorded(self) -> u64 {
        self.recorded
    }

    /// Returns the number of items that the recorded items represent.
    pub fn estimate(self) -> f64 {
        self.sum as f64 / Weight::ONE.0 as f64
    }

    /// Returns the number of items that the recorded items represent, rounded to a whole number.
    pub fn rounded(self) -> u64 {
        let half = u128::from(Weight::ONE.0 / 2);
        u64::try_from((self.sum + half) >> FRACTION_BITS).unwrap_or(u64::MAX)
    }

    /// Returns the effective sample size (Kish), (Σw)² / Σw²: the number of equally weighted items
    /// whose mean is as uncertain. Returns 0 if no item was recorded.
    pub fn effective(self) -> f64 {
        if self.recorded == 0 {
            return 0.0;
        }
        self.sum as f64 * self.sum as f64 / self.squares as f64
    }

    /// Reports whether any recorded item represents more than itself.
    pub fn is_weighted(self) -> bool {
        self.sum != u128::from(self.recorded) << FRACTION_BITS
    }

    /// Reports whether no item was recorded.
    pub fn is_zero(self) -> bool {
        self.recorded == 0
    }

    /// Returns the number of items that this count represents, divided by that of `whole`; 0 if
    /// `whole` is zero. It is at most 1 for a part of `whole`.
    pub fn share_of(self, whole: WeightedCount) -> f64 {
        if whole.sum == 0 {
            0.0
        } else {
            self.estimate() / whole.estimate()
        }
    }

    /// Divides `sum` by the number of represented items; returns 0 if there are none.
    pub fn mean(self, sum: f64) -> f64 {
        if self.sum == 0 {
            0.0
        } else {
            sum / self.estimate()
        }
    }
}

impl Add for WeightedCount {
    type Output = WeightedCount;

    fn add(self, other: WeightedCount) -> WeightedCount {
        WeightedCount {
            recorded: self.recorded + other.recorded,
            sum: self.sum + other.sum,
            squares: self.squares.saturating_add(other.squares),
        }
    }
}

impl AddAssign for WeightedCount {
    fn add_assign(&mut self, other: WeightedCount) {
        *self = *self + other;
    }
}

impl Sum for WeightedCount {
    fn sum<I: Iterator<Item = WeightedCount>>(counts: I) -> WeightedCount {
        counts.fold(WeightedCount::default(), Add::add)
    }
}

/// Error for a `tracestate` whose threshold is malformed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MalformedThreshold;

/// Returns the threshold that a `tracestate` states; `None` if it states none. Returns an error if
/// the threshold is malformed.
pub fn threshold(tracestate: &str) -> Result<Option<u64>, MalformedThreshold> {
    stated(tracestate, VENDOR, THRESHOLD)
        .map(|digits| of_digits(digits).ok_or(MalformedThreshold))
        .transpose()
}

/// Returns the threshold of thinning that a `tracestate` states; `None` if it states none, or a
/// malformed one.
fn thinning_threshold(tracestate: &str) -> Option<u64> {
    of_digits(stated(tracestate, OWN, THIN)?)
}

/// Parses a threshold whose trailing zeros may be omitted; `None` if it is malformed.
fn of_digits(digits: &str) -> Option<u64> {
    Some(hex(digits, DIGITS_MAX)? << (4 * (DIGITS_MAX - digits.len())))
}

/// Returns the burst-config, as bits, that a `tracestate` states; `None` if it states none, or a
/// malformed one.
pub fn burst_config(tracestate: &str) -> Option<u64> {
    hex(stated(tracestate, OWN, BURST)?, 16)
}

/// Returns a field's value in a vendor's member of a `tracestate`.
fn stated<'a>(tracestate: &'a str, vendor: &str, field: &str) -> Option<&'a str> {
    let member = tracestate
        .split(',')
        .find_map(|member| member.trim().strip_prefix(vendor)?.strip_prefix('='))?;
    let mut fields = member.split(';');
    fields.find_map(|one| one.strip_prefix(field)?.strip_prefix(':'))
}

fn hex(digits: &str, digits_max: usize) -> Option<u64> {
    // `from_str_radix` alone would accept a leading `+`.
    let is_hex = digits.bytes().all(|digit| digit.is_ascii_hexdigit());
    let is_short = digits.len() <= digits_max;
    u64::from_str_radix(digits, 16)
        .ok()
        .filter(|_| is_hex && is_short)
}

/// Sampling thresholds that the spans of a trace state.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct TraceSampling {
    /// The lowest threshold of spans without a parent; `None` if they state no valid one.
    root: Option<u64>,
    /// The lowest and the highest threshold of all spans; `None` if no span states a valid one.
    bounds: Option<(u64, u64)>,
    /// Number of spans whose threshold is malformed.
    malformed: u32,
    /// Burst-config, as bits, that a span without a parent states; `None` if none does.
    burst_config: Option<u64>,
    /// Threshold of thinning; `None` if no span states a valid one.
    thinned: Option<u64>,
}

impl TraceSampling {
    /// Adds the `tracestate` of a span. `is_root` is true if the span has no parent.
    pub fn observe(&mut self, is_root: bool, tracestate: &str) {
        if is_root && self.burst_config.is_none() {
            self.burst_config = burst_config(tracestate);
        }
        self.thinned = self.thinned.or_else(|| thinning_threshold(tracestate));
        let stated = match threshold(tracestate) {
            Ok(Some(stated)) => stated,
            Ok(None) => return,
            Err(MalformedThreshold) => {
                self.malformed = self.malformed.saturating_add(1);
                return;
            }
        };
        if is_root {
            self.root = Some(self.root.map_or(stated, |known| known.min(stated)));
        }
        let (low, high) = self.bounds.unwrap_or((stated, stated));
        self.bounds = Some((low.min(stated), high.max(stated)));
    }

    /// Returns the threshold by which the trace counts, by the rule of the [module](self); `None`
    /// if no span states a valid one.
    pub fn threshold(&self) -> Option<u64> {
        self.root.or(self.bounds.map(|(low, _)| low))
    }

    /// Returns the threshold of thinning; `None` if the trace was not thinned.
    pub fn thinned(&self) -> Option<u64> {
        self.thinned
    }

    /// Returns the number of traces that this trace represents by its threshold.
    pub fn weight(&self) -> Weight {
        self.threshold().map_or(Weight::ONE, Weight::of_threshold)
    }

    /// Reports whether spans state different thresholds.
    pub fn is_differing(&self) -> bool {
        self.bounds.is_some_and(|(low, high)| low != high)
    }

    /// Returns the burst-config, as bits, in whose burst the request began according to a sampler;
    /// `None` if no root states a valid one.
    pub fn burst_config(&self) -> Option<u64> {
        self.burst_config
    }

    /// Reports whether any span states a malformed threshold.
    pub fn is_malformed(&self) -> bool {
        self.malformed > 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[track_caller]
    fn check(tracestate: &str, expected: Result<Option<u64>, MalformedThreshold>) {
        assert_eq!(threshold(tracestate), expected, "{tracestate:?}");
    }

    #[test]
    fn burst_configs_are_read() {
        for (tracestate, expected) in [
            ("stroboscope=burst:1c", Some(0x1c)),
            ("ot=th:8, stroboscope=x:1;burst:0", Some(0)),
            ("stroboscope=burst:ffffffffffffffff", Some(u64::MAX)),
            ("stroboscope=burst:1ffffffffffffffff", None),
            ("stroboscope=burst:", None),
            ("stroboscope=burst:+1", None),
            ("stroboscopes=burst:1", None),
            ("burst:1", None),
        ] {
            assert_eq!(burst_config(tracestate), expected, "{tracestate}");
        }
        let mut trace = TraceSampling::default();
        trace.observe(false, "stroboscope=burst:1");
        assert_eq!(trace.burst_config(), None);
        trace.observe(true, "stroboscope=burst:2");
        trace.observe(true, "stroboscope=burst:3");
        assert_eq!(
            (trace.burst_config(), trace.weight()),
            (Some(2), Weight::ONE)
        );
    }

    #[test]
    fn thresholds_are_read() {
        let malformed = Err(MalformedThreshold);
        check("", Ok(None));
        check("vendor=th:8", Ok(None));
        check("ot=rv:1234567890abcd", Ok(None));
        check("other=ot=th:8", Ok(None));
        check("ot=th:0", Ok(Some(0)));
        check("ot=th:8", Ok(Some(1 << 55)));
        check("ot=th:C", Ok(Some(3 << 54)));
        check("a=1, ot=rv:0123456789abcd;th:c ,b=2", Ok(Some(3 << 54)));
        check("ot=th:ffffffffffffff", Ok(Some((1 << 56) - 1)));
        check("ot=th:00000000000001", Ok(Some(1)));
        check("ot=th:", malformed);
        check("ot=th:+8", malformed);
        check("ot=th:0x8", malformed);
        check("ot=th:fffffffffffffff", malformed);
        check("ot=th:0.5;rv:1", malformed);
    }

    #[test]
    fn a_threshold_is_a_weight() {
        let check = |digits: &str, expected: f64| {
            let stated = threshold(&format!("ot=th:{digits}")).unwrap().unwrap();
            let off = Weight::of_threshold(stated).value() - expected;
            assert!(off.abs() <= 0.5 / 65_536.0, "{digits}: {off}");
        };
        check("0", 1.0);
        check("8", 2.0);
        check("c", 4.0);
        check("fd70a3d70a3d7", 100.0);
        check("e6666666666666", 10.0);
        check("1999999999999a", 1.0 / 0.9);
        check("ffffffffffffff", (1u64 << 32) as f64);
    }

    #[test]
    fn the_root_decides() {
        let check = |spans: &[(bool, &str)], weight: f64, is_differing, is_malformed| {
            for spans in [spans.to_vec(), spans.iter().rev().copied().collect()] {
                let mut sampling = TraceSampling::default();
                spans
                    .iter()
                    .for_each(|(is_root, state)| sampling.observe(*is_root, state));
                let found = (sampling.is_differing(), sampling.is_malformed());
                assert_eq!(sampling.weight().value(), weight, "{spans:?}");
                assert_eq!(found, (is_differing, is_malformed), "{spans:?}");
            }
        };
        check(&[], 1.0, false, false);
        check(&[(true, "ot=th:8"), (false, "ot=th:8")], 2.0, false, false);
        check(&[(true, "ot=th:8"), (false, "ot=th:c")], 2.0, true, false);
        check(&[(true, "ot=th:c"), (false, "ot=th:0")], 4.0, true, false);
        check(&[(false, "ot=th:8"), (false, "ot=th:c")], 2.0, true, false);
        check(&[(true, "ot=th:8"), (true, "ot=th:c")], 2.0, true, false);
        check(&[(true, "a=1"), (false, "ot=th:c")], 4.0, false, false);
        check(&[(true, "ot=th:nought")], 1.0, false, true);
        check(&[(true, "ot=th:-1"), (false, "ot=th:8")], 2.0, false, true);
    }

    #[test]
    fn the_effective_sample_is_that_of_kish() {
        let mut count = WeightedCount::default();
        let hundred = Weight::of_threshold(threshold("ot=th:fd70a3d70a3d7").unwrap().unwrap());
        (0..10).for_each(|_| count.count(hundred));
        assert_eq!((count.rounded(), count.effective()), (1_000, 10.0));
        (0..10).for_each(|_| count.count(Weight::ONE));
        assert_eq!((count.recorded(), count.rounded()), (20, 1_010));
        assert!((count.effective() - 1_010.0 * 1_010.0 / 100_010.0).abs() < 1e-9);
        assert!(count.is_weighted() && !WeightedCount::default().is_weighted());
        assert_eq!(WeightedCount::default().effective(), 0.0);
    }

    proptest! {
        #[test]
        fn sums_do_not_depend_on_order(thresholds in proptest::collection::vec(0u64..1 << 56, 0..40), cut in 0usize..40) {
            let counted = |some: &[u64]| {
                let mut count = WeightedCount::default();
                some.iter().for_each(|stated| count.count(Weight::of_threshold(*stated)));
                count
            };
            let (before, after) = thresholds.split_at(cut.min(thresholds.len()));
            let whole = counted(&thresholds);
            prop_assert_eq!(counted(after) + counted(before), whole);
            let exact: f64 = thresholds.iter().map(|stated| 2f64.powi(56) / (2f64.powi(56) - *stated as f64)).sum();
            prop_assert!((whole.estimate() - exact).abs() <= exact * 1e-5 || exact > 2f64.powi(32));
            prop_assert!(whole.effective() <= whole.recorded() as f64 + 1e-6);
        }
    }
}
