//! The last mile: links of different speed, and their distribution over users.

use std::fmt;
use std::str::FromStr;
use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};

use crate::delay::until;
use crate::random::{mix, unit};

/// Kind of a user's connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum LinkKind {
    /// 50 Mbit/s: a page waits for the server.
    #[serde(rename = "fast")]
    Fast,
    /// 12 Mbit/s: server and network take about equally long.
    #[serde(rename = "cable")]
    Cable,
    /// 1.6 Mbit/s: the server has slack, the network has none.
    #[serde(rename = "3g")]
    Slow3g,
}

impl LinkKind {
    /// List of the kinds, fastest first.
    pub const ALL: [Self; 3] = [Self::Fast, Self::Cable, Self::Slow3g];

    /// Returns the name of the kind on the command line and in reports.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Fast => "fast",
            Self::Cable => "cable",
            Self::Slow3g => "3g",
        }
    }

    /// Returns the speed towards the user, in bits per second.
    #[must_use]
    pub const fn bits_per_s(self) -> u64 {
        match self {
            Self::Fast => 50_000_000,
            Self::Cable => 12_000_000,
            Self::Slow3g => 1_600_000,
        }
    }

    /// Returns the time for which `bytes` occupy the link.
    #[must_use]
    pub fn transfer_time(self, bytes: usize) -> Duration {
        let bits = u128::try_from(bytes).unwrap_or(u128::MAX).saturating_mul(8);
        let nanos = bits.saturating_mul(1_000_000_000) / u128::from(self.bits_per_s());
        Duration::from_nanos(u64::try_from(nanos).unwrap_or(u64::MAX))
    }
}

impl fmt::Display for LinkKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// The downlink of one page load: one transfer at a time, in order.
#[derive(Debug)]
pub(crate) struct Downlink {
    kind: LinkKind,
    free_at: Instant,
}

impl Downlink {
    pub(crate) fn new(kind: LinkKind) -> Self {
        Self {
            kind,
            free_at: Instant::now(),
        }
    }

    /// Transfers `bytes`. Exclusive access makes the link serial.
    pub(crate) async fn transfer(&mut self, bytes: usize) {
        // Counts from the moment the link became free, not from the last wake-up, so that late
        // wake-ups do not add up.
        let now = Instant::now();
        let back_to_back = now.saturating_duration_since(self.free_at) <= WAKE_SLACK;
        let start = if back_to_back { self.free_at } else { now };
        self.free_at = start + self.kind.transfer_time(bytes);
        until(self.free_at).await;
    }
}

/// A transfer that starts this soon after the link became free counts as back to back.
const WAKE_SLACK: Duration = Duration::from_micros(300);

/// Percentage of users per kind of link.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Mix {
    /// Percentages in the order of [`LinkKind::ALL`]; they sum to 100.
    percents: [f64; 3],
}

/// Error for a mix that cannot be parsed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "mix {text:?}: {problem}; write percentages that sum to 100, such as fast=60,cable=25,3g=15"
)]
pub struct MixError {
    text: String,
    problem: String,
}

impl Default for Mix {
    fn default() -> Self {
        Self {
            percents: [60.0, 25.0, 15.0],
        }
    }
}

impl Mix {
    /// Returns the link of a user. A user always has one link, because people mostly return over
    /// the same network (Chow et al., OSDI 2014, §5.2).
    #[must_use]
    pub fn link_of(&self, user: u64) -> LinkKind {
        let mut rest = unit(mix(user ^ LINK_SALT)) * 100.0;
        for (kind, percent) in LinkKind::ALL.into_iter().zip(self.percents) {
            if rest < percent {
                return kind;
            }
            rest -= percent;
        }
        // Rounding can leave a sliver above the last share: it belongs to the last link that has
        // users at all.
        let last = LinkKind::ALL
            .into_iter()
            .zip(self.percents)
            .rev()
            .find(|(_, percent)| *percent > 0.0);
        last.map_or(LinkKind::Slow3g, |(kind, _)| kind)
    }
}

/// Salt that makes the choice of a user's link independent of other choices for that user.
const LINK_SALT: u64 = 0x6c69_6e6b;

impl FromStr for Mix {
    type Err = MixError;

    fn from_str(text: &str) -> Result<Self, MixError> {
        let fail = |problem: String| MixError {
            text: text.to_owned(),
            problem,
        };
        let mut percents = [None; 3];
        for part in text.split(',') {
            let (name, percent) = part
                .trim()
                .split_once('=')
                .ok_or_else(|| fail(format!("{part:?} is not LINK=PERCENT")))?;
            let position = LinkKind::ALL
                .iter()
                .position(|kind| kind.name() == name)
                .ok_or_else(|| {
                    fail(format!(
                        "there is no link {name:?} (there are fast, cable and 3g)"
                    ))
                })?;
            let percent = percent
                .parse::<f64>()
                .ok()
                .filter(|percent| (0.0..=100.0).contains(percent))
                .ok_or_else(|| fail(format!("{percent:?} is not a percentage")))?;
            if percents[position].replace(percent).is_some() {
                return Err(fail(format!("{name} appears twice")));
            }
        }
        let percents = percents.map(|percent| percent.unwrap_or(0.0));
        let sum: f64 = percents.iter().sum();
        if (sum - 100.0).abs() > 1e-6 {
            return Err(fail(format!("the shares sum to {sum}")));
        }
        Ok(Self { percents })
    }
}

impl fmt::Display for Mix {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [fast, cable, slow] = self.percents;
        write!(f, "fast={fast},cable={cable},3g={slow}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_take_their_time() {
        assert_eq!(
            LinkKind::Fast.transfer_time(6_250),
            Duration::from_millis(1)
        );
        assert_eq!(
            LinkKind::Slow3g.transfer_time(2_000),
            Duration::from_millis(10)
        );
        assert_eq!(LinkKind::Cable.transfer_time(0), Duration::ZERO);
    }

    #[tokio::test]
    async fn transfers_follow_each_other() {
        let start = Instant::now();
        let mut downlink = Downlink::new(LinkKind::Slow3g);
        for _ in 0..4 {
            downlink.transfer(1_000).await;
        }
        let took = start.elapsed();
        // Four times 5 ms, less at most one slack at the very beginning.
        assert!(took >= Duration::from_micros(19_700), "{took:?}");
    }

    #[test]
    fn mixes_are_understood() {
        #[track_caller]
        fn check(text: &str, percents: [f64; 3]) {
            let mix: Mix = text.parse().expect("a mix");
            assert_eq!(mix, Mix { percents });
            assert_eq!(mix.to_string().parse(), Ok(mix));
        }
        check("fast=60,cable=25,3g=15", [60.0, 25.0, 15.0]);
        check("3g=100", [0.0, 0.0, 100.0]);
        check("cable=50, fast=50", [50.0, 50.0, 0.0]);
    }

    #[test]
    fn bad_mixes_are_refused() {
        #[track_caller]
        fn check(text: &str, expected: &str) {
            let error = text.parse::<Mix>().expect_err("not a mix").to_string();
            assert!(error.contains(expected), "{error}");
        }
        check("fast=60", "sum to 60");
        check("fast=60,fast=40", "appears twice");
        check("dsl=100", "no link \"dsl\"");
        check("fast", "not LINK=PERCENT");
        check("", "not LINK=PERCENT");
        check("fast=-5,cable=105", "not a percentage");
        check("fast=NaN", "not a percentage");
    }

    #[test]
    fn users_are_spread_by_the_mix_and_keep_their_link() {
        let mix = Mix::default();
        let count = |kind| {
            (0..10_000)
                .filter(|user| mix.link_of(*user) == kind)
                .count()
        };
        assert!((5_700..6_300).contains(&count(LinkKind::Fast)));
        assert!((1_200..1_800).contains(&count(LinkKind::Slow3g)));
        assert!((0..1_000).all(|user| mix.link_of(user) == mix.link_of(user)));
        let only: Mix = "cable=100".parse().expect("a mix");
        assert!((0..1_000).all(|user| only.link_of(user) == LinkKind::Cable));
    }
}
