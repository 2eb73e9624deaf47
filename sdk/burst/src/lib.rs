//! Burst-configs and markers: the definitions that the SDK, the kernel recorder and the collector
//! share.
//!
//! A burst-config is a 64-bit mask. Recording is on at wall time `t`, in whole milliseconds since
//! the Unix epoch, when `config & t == config` (Ardelean et al., NSDI 2018, §3.3.1). Therefore
//! processes that share a config, and whose clocks agree, record at the same instants without
//! communicating. Window edges are computed from the mask, so a gate needs only a timer and a flag
//! instead of a clock reading per check.
//!
//! [`marker`] defines the kinds of markers, through which a kernel trace shows which request or
//! span a thread works for.

pub mod marker;

use std::fmt;
use std::str::FromStr;

/// Bit mask over wall time in milliseconds: `m` ones followed by `n` zeros means bursts of 2ⁿ ms
/// every 2ⁿ⁺ᵐ ms.
///
/// Every mask is valid. [`BurstConfig::ALWAYS_ON`] records always; [`BurstConfig::NEVER`] never
/// records in practice.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct BurstConfig(u64);

impl BurstConfig {
    /// The mask 0: every instant is inside a window.
    pub const ALWAYS_ON: Self = Self(0);
    /// Mask of all ones: its only window is the last millisecond of a 64-bit clock.
    pub const NEVER: Self = Self(u64::MAX);
    /// Bursts of 4 ms every 32 ms: the default, and the example of Ardelean et al.
    pub const DEFAULT: Self = Self(0b11100);

    /// Creates the config with exactly these bits.
    #[must_use]
    pub const fn from_bits(bits: u64) -> Self {
        Self(bits)
    }

    /// Returns the bits of the mask.
    #[must_use]
    pub const fn bits(self) -> u64 {
        self.0
    }

    /// Reports whether `time_ms` (milliseconds since the Unix epoch) is inside a window. This is
    /// the definition of a window.
    #[must_use]
    pub const fn contains_ms(self, time_ms: u64) -> bool {
        self.0 & time_ms == self.0
    }

    /// Returns the first millisecond after the window that contains `time_ms`, or `None` if the
    /// window does not close within 64 bits.
    ///
    /// The result is meaningful only if `time_ms` is inside a window. The lowest set bit `n` of the
    /// mask must be set throughout a window, and the bits below it are free. A window is therefore
    /// the 2ⁿ ms that share `time_ms >> n`.
    #[must_use]
    pub const fn close_after_ms(self, time_ms: u64) -> Option<u64> {
        if self.0 == 0 {
            return None;
        }
        let n = self.0.trailing_zeros();
        match (time_ms >> n).checked_add(1) {
            Some(next) if next.leading_zeros() >= n => Some(next << n),
            _ => None,
        }
    }

    /// Returns the first millisecond at or after `time_ms` that is inside a window.
    ///
    /// Let `h` be the highest bit that the mask requires and `time_ms` lacks. The result keeps the
    /// bits of `time_ms` above `h` and sets bit `h`. Below `h` it has exactly the bits of the mask,
    /// which make the smallest number.
    #[must_use]
    pub const fn next_open_ms(self, time_ms: u64) -> u64 {
        let missing = self.0 & !time_ms;
        if missing == 0 {
            return time_ms;
        }
        let h = 63 - missing.leading_zeros();
        (((time_ms >> h) | 1) << h) | (self.0 & ((1u64 << h) - 1))
    }

    /// Returns the number of milliseconds before `time_ms` that are inside windows.
    ///
    /// Each one bit of `time_ms` stands for the times that agree with `time_ms` above that bit and
    /// lack that bit. Those of them with all bits of the mask are inside windows.
    #[must_use]
    pub const fn open_ms_before(self, time_ms: u64) -> u64 {
        let mut open_ms = 0;
        let mut bit = 64;
        while bit > 0 {
            bit -= 1;
            let (is_one, is_required) = (time_ms >> bit & 1 == 1, self.0 >> bit & 1 == 1);
            if is_one && !is_required {
                let below = (1u64 << bit) - 1;
                open_ms += 1u64 << (bit - (self.0 & below).count_ones());
            }
            if is_required && !is_one {
                break;
            }
        }
        open_ms
    }

    /// Returns burst length and period in ms if the mask consists of ones followed by zeros.
    /// Returns `None` for [`ALWAYS_ON`](Self::ALWAYS_ON), for masks with gaps (their windows have
    /// several periods) and for periods that exceed 64 bits.
    #[must_use]
    pub const fn pattern_ms(self) -> Option<(u64, u64)> {
        if self.0 == 0 {
            return None;
        }
        let n = self.0.trailing_zeros();
        let ones = (self.0 >> n).trailing_ones();
        if n + ones >= 64 || (self.0 >> n) != (1u64 << ones) - 1 {
            return None;
        }
        Some((1 << n, 1 << (n + ones)))
    }

    /// Returns the fraction of time inside windows: 2 to the power of minus the number of ones.
    #[must_use]
    pub fn duty(self) -> f64 {
        0.5f64.powi(self.0.count_ones().cast_signed())
    }

    /// Returns the share of the time in this config's windows at which `other` records, too, from 0
    /// to 1. Each bit that only `other` requires halves the share.
    #[must_use]
    pub fn overlap(self, other: Self) -> f64 {
        Self(self.0 | other.0).duty() / self.duty()
    }

    /// Parses `0b11100`, `0x1c`, `28`, `4ms/32ms`, `always` or `off`. Rejects `11100`, which could
    /// be a mask or a number.
    ///
    /// # Errors
    /// Returns an error if the text is not a burst-config, for example `32ms/4ms`. Its message
    /// describes the problem and lists the forms.
    pub fn parse(text: &str) -> Result<ParsedConfig, BurstConfigError> {
        let text = text.trim();
        let exact = |config| {
            Ok(ParsedConfig {
                config,
                rounded_from: None,
            })
        };
        let wrong = |problem: &str| {
            Err(BurstConfigError {
                text: text.to_owned(),
                problem: problem.to_owned(),
            })
        };
        match text {
            "" => return wrong("it is empty"),
            "always" => return exact(Self::ALWAYS_ON),
            "off" => return exact(Self::NEVER),
            _ => {}
        }
        if let Some((burst, period)) = text.split_once('/') {
            return match (parse_duration_ms(burst), parse_duration_ms(period)) {
                (Err(problem), _) | (_, Err(problem)) => wrong(&problem),
                (Ok(burst_ms), Ok(period_ms)) => match Self::nearest(burst_ms, period_ms) {
                    Ok(config) => {
                        let is_exact = config.pattern_ms().is_some_and(|(burst, period)| {
                            (burst as f64, period as f64) == (burst_ms, period_ms)
                        });
                        Ok(ParsedConfig {
                            config,
                            rounded_from: (!is_exact).then(|| text.to_owned()),
                        })
                    }
                    Err(problem) => wrong(problem),
                },
            };
        }
        let (digits, radix) = match text.as_bytes() {
            [b'0', b'b' | b'B', ..] => (&text[2..], 2),
            [b'0', b'x' | b'X', ..] => (&text[2..], 16),
            _ => (text, 10),
        };
        let digits: String = digits.chars().filter(|&c| c != '_').collect();
        if digits.is_empty() || digits.starts_with(['+', '-']) {
            return wrong("it is not a mask of 64 bits");
        }
        if radix == 10
            && let (Ok(as_mask), as_number) =
                (u64::from_str_radix(&digits, 2), digits.parse::<u64>().ok())
            && as_number != Some(as_mask)
        {
            // The mask is almost always meant. Silently parsing it as a number would record at
            // entirely different times.
            let mask = Self(as_mask);
            let number = as_number.map_or_else(String::new, |bits| {
                format!(", or as the number {bits}: write {bits:#x}")
            });
            return wrong(&format!(
                "it can be read as the mask {mask}: write {as_mask:#b}{number}"
            ));
        }
        match u64::from_str_radix(&digits, radix) {
            Ok(bits) => exact(Self(bits)),
            Err(_) => wrong("it is not a mask of 64 bits"),
        }
    }

    /// Returns the mask of ones followed by zeros whose burst and period are nearest to the given
    /// lengths. It rounds each length to a power of two, by ratio. The burst is at least 1 ms, and
    /// the period at least twice the burst and at most 2⁶³ ms.
    ///
    /// # Errors
    /// Returns a description of the problem if a length is not positive, the period is infinite, or
    /// the burst is not shorter than the period.
    pub fn nearest(burst_ms: f64, period_ms: f64) -> Result<Self, &'static str> {
        let (burst_valid, period_valid) = (burst_ms > 0.0, period_ms > 0.0);
        if !burst_valid || !period_valid || !period_ms.is_finite() {
            return Err("burst and period must be longer than nothing");
        }
        if burst_ms >= period_ms {
            return Err("the burst must be shorter than the period (use 0 to record always)");
        }
        let n = burst_ms.log2().round().clamp(0.0, 62.0) as u32;
        let end = (period_ms.log2().round().clamp(0.0, 63.0) as u32).max(n + 1);
        Ok(Self(((1u64 << (end - n)) - 1) << n))
    }
}

impl Default for BurstConfig {
    fn default() -> Self {
        Self::DEFAULT
    }
}

impl fmt::Debug for BurstConfig {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "BurstConfig({:#b})", self.0)
    }
}

/// Writes `0b11100 (4ms/32ms)`, `always`, `off`, or the bare mask.
impl fmt::Display for BurstConfig {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (*self, self.pattern_ms()) {
            (Self::ALWAYS_ON, _) => f.write_str("always"),
            (Self::NEVER, _) => f.write_str("off"),
            (_, Some((burst, period))) => write!(f, "{:#b} ({burst}ms/{period}ms)", self.0),
            (_, None) => write!(f, "{:#b}", self.0),
        }
    }
}

impl FromStr for BurstConfig {
    type Err = BurstConfigError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        Self::parse(text).map(|parsed| parsed.config)
    }
}

/// Config parsed from text, and the text if the config only approximates it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ParsedConfig {
    /// Burst-config that the text describes, exactly or approximately.
    pub config: BurstConfig,
    /// Trimmed text if the burst or the period was rounded to a power of two; otherwise `None`.
    pub rounded_from: Option<String>,
}

/// Error for a text that is not a burst-config.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BurstConfigError {
    text: String,
    problem: String,
}

impl fmt::Display for BurstConfigError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { text, problem } = self;
        write!(
            f,
            "burst-config {text:?}: {problem}; write a mask (0b11100, 0x1c, 28), burst/period (4ms/32ms), \"always\" or \"off\""
        )
    }
}

impl std::error::Error for BurstConfigError {}

fn parse_duration_ms(text: &str) -> Result<f64, String> {
    let text = text.trim();
    let digits_end = text
        .find(|c: char| !c.is_ascii_digit() && c != '.')
        .unwrap_or(text.len());
    let (number, unit) = text.split_at(digits_end);
    let scale_ms = match unit.trim() {
        "ms" => 1.0,
        "s" => 1e3,
        "m" | "min" => 60e3,
        "h" => 3_600e3,
        _ => return Err(format!("{text:?} needs a unit: ms, s, min or h")),
    };
    match number.parse::<f64>() {
        Ok(value) => Ok(value * scale_ms),
        Err(_) => Err(format!("{text:?} does not start with a number")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn check(text: &str, expected: Result<u64, &str>) {
        match (BurstConfig::parse(text), expected) {
            (Ok(parsed), Ok(bits)) => assert_eq!(parsed.config.bits(), bits, "{text}"),
            (Err(error), Err(part)) => assert!(error.to_string().contains(part), "{text}: {error}"),
            (got, _) => panic!("{text}: {got:?}, expected {expected:?}"),
        }
    }

    #[test]
    fn texts() {
        check("0b11100", Ok(28));
        check("0x1c", Ok(28));
        check("28", Ok(28));
        check(" 4ms/32ms ", Ok(28));
        check("4ms/30ms", Ok(28));
        check("256ms/1s", Ok(0b11 << 8));
        check("1s/1min", Ok(0b11_1111 << 10));
        check("0", Ok(0));
        check("always", Ok(0));
        check("off", Ok(u64::MAX));
        check("0b1_1100", Ok(28));
        check("1", Ok(1));
        check("01", Ok(1));
        check("12", Ok(12));
        check(
            "11100",
            Err(
                "it can be read as the mask 0b11100 (4ms/32ms): write 0b11100, or as the number 11100: write 0x2b5c;",
            ),
        );
        check(
            "1_1100",
            Err("write 0b11100, or as the number 11100: write 0x2b5c;"),
        );
        check(
            "10",
            Err("the mask 0b10 (2ms/4ms): write 0b10, or as the number 10: write 0xa;"),
        );
        check(
            "1111000000000000000000000",
            Err(": write 0b1111000000000000000000000;"),
        );
        check("0b10", Ok(2));
        check("0xa", Ok(10));
        check("", Err("is empty"));
        check("fast", Err("not a mask"));
        check("-1", Err("not a mask"));
        check("0b12", Err("not a mask"));
        check("0x1ffffffffffffffff", Err("not a mask"));
        check("4/32", Err("needs a unit"));
        check("32ms/4ms", Err("shorter than the period"));
        check("0ms/4ms", Err("longer than nothing"));
        check("ms/4ms", Err("start with a number"));
    }

    #[test]
    fn open_milliseconds_are_counted() {
        for mask in 0..64 {
            let config = BurstConfig::from_bits(mask);
            for time_ms in 0..130 {
                let counted = (0..time_ms).filter(|at| config.contains_ms(*at)).count();
                assert_eq!(
                    config.open_ms_before(time_ms),
                    counted as u64,
                    "{mask} {time_ms}"
                );
            }
        }
        assert_eq!(BurstConfig::ALWAYS_ON.open_ms_before(u64::MAX), u64::MAX);
        assert_eq!(BurstConfig::NEVER.open_ms_before(u64::MAX), 0);
    }

    #[test]
    fn rounding_is_reported() {
        assert_eq!(BurstConfig::parse("4ms/32ms").unwrap().rounded_from, None);
        assert_eq!(
            BurstConfig::parse("5ms/30ms")
                .unwrap()
                .rounded_from
                .as_deref(),
            Some("5ms/30ms")
        );
    }

    #[test]
    fn shown_as_people_say_it() {
        assert_eq!(BurstConfig::DEFAULT.to_string(), "0b11100 (4ms/32ms)");
        assert_eq!(BurstConfig::from_bits(0b10100).to_string(), "0b10100");
        assert_eq!(BurstConfig::from_bits(0b10100).pattern_ms(), None);
        assert!((BurstConfig::DEFAULT.duty() - 0.125).abs() < 1e-12);
    }

    /// Generates random masks of 64 bits, ones followed by zeros, masks of low bits, and 0.
    fn masks() -> impl Strategy<Value = u64> {
        prop_oneof![
            any::<u64>(),
            (0u32..50, 1u32..14).prop_map(|(n, m)| ((1u64 << m) - 1) << n),
            (any::<u16>(), 0u32..8).prop_map(|(bits, shift)| u64::from(bits) << shift),
            Just(0),
        ]
    }

    proptest! {
        /// Compares the edges of a window with those found by checking each millisecond.
        #[test]
        fn edges_agree_with_the_definition(low in any::<u16>(), shift in 0u32..4, time in any::<u32>()) {
            let config = BurstConfig::from_bits(u64::from(low & 0x3ff) << shift);
            let time = u64::from(time);
            let open = (time..).find(|&t| config.contains_ms(t)).unwrap();
            prop_assert_eq!(config.next_open_ms(time), open);
            if config.bits() != 0 {
                let close = (open..).find(|&t| !config.contains_ms(t)).unwrap();
                prop_assert_eq!(config.close_after_ms(open), Some(close));
            }
        }

        /// Checks on any mask that the opening is inside a window, not before `time`, and that the
        /// time in between is outside (sampled).
        #[test]
        fn openings_are_the_first(mask in masks(), time in any::<u64>(), probe in any::<u64>()) {
            let config = BurstConfig::from_bits(mask);
            let open = config.next_open_ms(time);
            prop_assert!(open >= time);
            prop_assert!(config.contains_ms(open));
            if open > time {
                prop_assert!(!config.contains_ms(time + probe % (open - time)));
                prop_assert!(!config.contains_ms(open - 1));
            }
        }

        /// Checks on any mask that a window is whole up to its close and ends there.
        #[test]
        fn closes_are_the_first(mask in masks(), time in any::<u64>(), probe in any::<u64>()) {
            let config = BurstConfig::from_bits(mask);
            let open = config.next_open_ms(time);
            if let Some(close) = config.close_after_ms(open) {
                prop_assert!(close > open);
                prop_assert!(!config.contains_ms(close));
                prop_assert!(config.contains_ms(open + probe % (close - open)));
            }
        }
    }
}
