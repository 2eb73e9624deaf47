//! Faults that users can inject into a run, so that each analysis has something to find.

use std::fmt;
use std::str::FromStr;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use crate::delay::delay;
use crate::random::{mix, unit};

/// Longest delay of a fault, so that a typing error does not hang a demo.
const DELAY_MAX: Duration = Duration::from_secs(60);

/// Place in the newsfeed at which a fault can be injected. The points of the ranker have no effect
/// on a wide ranking.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum FaultPoint {
    /// The client sends a `count` of at most a block. The web server then reads the user's log from
    /// the store, changes it and writes it back, which it does for no other request. Takes no
    /// duration.
    ClientSmallCount,
    /// The edge waits before it passes a request on.
    EdgeProxy,
    /// The web server waits in every pagelet that it generates.
    WebRender,
    /// The web server waits once in every page of users whose `partition` is 1: the half to which
    /// an experiment gave new code.
    WebPartition,
    /// The web server reads the user's first property a second time right after the first. Takes no
    /// duration.
    WebReadAgain,
    /// The web server makes a further read after those of the user's properties. That read fails,
    /// and the server waits before it retries.
    WebLateRetry,
    /// The web server also reads each property of four other users, one call after the other. Takes
    /// no duration.
    WebCallLoop,
    /// The ranker's generators read each of their parts several times. Takes no duration.
    RankerLongerLoop,
    /// The ranker's cache of models misses, and the ranker reads the model from the store. Takes no
    /// duration.
    RankerCacheMiss,
    /// The ranker waits before it scores candidates.
    RankerScore,
    /// The ranker asks one more candidate generator: a change of structure. Takes no duration.
    RankerExtraCall,
    /// The store waits in every read, without holding a lock.
    StoreRead,
    /// The store waits in every read and write, while it holds the lock of the key's shard.
    StoreLock,
    /// The store has only one shard, so all readers contend for its lock. Drawn once, when the
    /// store starts. Takes no duration.
    StoreOneShard,
    /// The store reads from the archive shard, whose values are packed. Takes no duration.
    StoreArchiveShard,
}

impl FaultPoint {
    /// List of the points, grouped by role from the client to the store.
    pub const ALL: [Self; 15] = [
        Self::ClientSmallCount,
        Self::EdgeProxy,
        Self::WebRender,
        Self::WebPartition,
        Self::WebReadAgain,
        Self::WebLateRetry,
        Self::WebCallLoop,
        Self::RankerLongerLoop,
        Self::RankerCacheMiss,
        Self::RankerScore,
        Self::RankerExtraCall,
        Self::StoreRead,
        Self::StoreLock,
        Self::StoreOneShard,
        Self::StoreArchiveShard,
    ];

    /// Returns the name of the point on the command line.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::ClientSmallCount => "client.small-count",
            Self::EdgeProxy => "edge.proxy",
            Self::WebRender => "web.render",
            Self::WebPartition => "web.partition",
            Self::WebReadAgain => "web.read-again",
            Self::WebLateRetry => "web.late-retry",
            Self::WebCallLoop => "web.call-loop",
            Self::RankerLongerLoop => "ranker.longer-loop",
            Self::RankerCacheMiss => "ranker.cache-miss",
            Self::RankerScore => "ranker.score",
            Self::RankerExtraCall => "ranker.extra-call",
            Self::StoreRead => "store.read",
            Self::StoreLock => "store.lock",
            Self::StoreOneShard => "store.one-shard",
            Self::StoreArchiveShard => "store.archive-shard",
        }
    }

    const fn takes_duration(self) -> bool {
        match self {
            Self::EdgeProxy
            | Self::WebRender
            | Self::WebPartition
            | Self::WebLateRetry
            | Self::RankerScore
            | Self::StoreRead
            | Self::StoreLock => true,
            Self::ClientSmallCount
            | Self::WebReadAgain
            | Self::WebCallLoop
            | Self::StoreOneShard
            | Self::RankerLongerLoop
            | Self::RankerCacheMiss
            | Self::RankerExtraCall
            | Self::StoreArchiveShard => false,
        }
    }

    /// Lists every point in its written form, for messages.
    fn accepted() -> String {
        let form = |point: Self| {
            if point.takes_duration() {
                format!("{}=+DURATION", point.name())
            } else {
                point.name().to_owned()
            }
        };
        Self::ALL.map(form).join(", ")
    }
}

impl fmt::Display for FaultPoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// One fault: `POINT=+DURATION`, or `POINT` for a point that takes no duration. `@PERCENT%` may
/// follow.
///
/// `store.read=+500us@50%` delays half of all reads by 0.5 ms. Durations are in `ns`, `us`, `ms` or
/// `s`.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Fault {
    /// Place at which the fault is injected.
    pub point: FaultPoint,
    /// Length of the delay; zero for a point that takes no duration.
    pub delay: Duration,
    /// Percentage of calls that have the fault: above 0, at most 100.
    pub percent: f64,
}

/// Reasons for which a `--fault` is rejected.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum FaultError {
    /// The point does not exist.
    #[error(
        "fault {text:?}: unknown point {point:?}; accepted: {}",
        FaultPoint::accepted()
    )]
    UnknownPoint {
        /// Text of the whole fault.
        text: String,
        /// The part that should be a point.
        point: String,
    },
    /// A point that delays was given without a duration.
    #[error("fault {text:?}: {point} needs a duration, as in {point}=+5ms")]
    DurationMissing {
        /// Text of the whole fault.
        text: String,
        /// Point of the fault.
        point: FaultPoint,
    },
    /// A point that takes no duration was given one.
    #[error("fault {text:?}: {point} takes no duration; write {point} or {point}@50%")]
    DurationUnwanted {
        /// Text of the whole fault.
        text: String,
        /// Point of the fault.
        point: FaultPoint,
    },
    /// The duration is not `+NUMBER` and a unit, is zero, or exceeds 60 s.
    #[error(
        "fault {text:?}: {duration:?} is not a duration such as +500us, +5ms or +1s (at most 60 s)"
    )]
    BadDuration {
        /// Text of the whole fault.
        text: String,
        /// The part that should be a duration.
        duration: String,
    },
    /// The percentage is not a number above 0 and at most 100, followed by a percent sign.
    #[error("fault {text:?}: {percent:?} is not a percentage such as 50% (above 0, at most 100)")]
    BadPercent {
        /// Text of the whole fault.
        text: String,
        /// The part that should be a percentage.
        percent: String,
    },
}

impl FromStr for Fault {
    type Err = FaultError;

    fn from_str(text: &str) -> Result<Self, FaultError> {
        let (place, percent) = match text.trim().split_once('@') {
            Some((place, percent)) => (place, parse_percent(text, percent)?),
            None => (text.trim(), 100.0),
        };
        let (name, duration) = match place.split_once('=') {
            Some((name, duration)) => (name, Some(duration)),
            None => (place, None),
        };
        let point = FaultPoint::ALL
            .into_iter()
            .find(|point| point.name() == name)
            .ok_or_else(|| FaultError::UnknownPoint {
                text: text.to_owned(),
                point: name.to_owned(),
            })?;
        let delay = match (duration, point.takes_duration()) {
            (Some(duration), true) => parse_duration(text, duration)?,
            (None, false) => Duration::ZERO,
            (None, true) => {
                return Err(FaultError::DurationMissing {
                    text: text.to_owned(),
                    point,
                });
            }
            (Some(_), false) => {
                return Err(FaultError::DurationUnwanted {
                    text: text.to_owned(),
                    point,
                });
            }
        };
        Ok(Self {
            point,
            delay,
            percent,
        })
    }
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.point)?;
        if self.point.takes_duration() {
            write!(f, "=+{}ns", self.delay.as_nanos())?;
        }
        if self.percent < 100.0 {
            write!(f, "@{}%", self.percent)
        } else {
            Ok(())
        }
    }
}

fn parse_percent(text: &str, percent: &str) -> Result<f64, FaultError> {
    percent
        .strip_suffix('%')
        .and_then(|number| number.parse::<f64>().ok())
        .filter(|number| *number > 0.0 && *number <= 100.0)
        .ok_or_else(|| FaultError::BadPercent {
            text: text.to_owned(),
            percent: percent.to_owned(),
        })
}

fn parse_duration(text: &str, duration: &str) -> Result<Duration, FaultError> {
    const UNITS: [(&str, f64); 4] = [("ns", 1e-9), ("us", 1e-6), ("ms", 1e-3), ("s", 1.0)];
    let parse = || {
        let amount = duration.strip_prefix('+')?;
        let (number, seconds) = UNITS
            .into_iter()
            .find_map(|(unit, seconds)| Some((amount.strip_suffix(unit)?, seconds)))?;
        let digits_only = number
            .bytes()
            .all(|byte| byte.is_ascii_digit() || byte == b'.');
        let number = digits_only.then(|| number.parse::<f64>().ok()).flatten()?;
        // Round to whole nanoseconds, so that the printed fault parses to an equal fault.
        let delay = Duration::from_nanos((number * seconds * 1e9).round() as u64);
        (delay > Duration::ZERO && delay <= DELAY_MAX).then_some(delay)
    };
    parse().ok_or_else(|| FaultError::BadDuration {
        text: text.to_owned(),
        duration: duration.to_owned(),
    })
}

/// Faults of one process. Each call draws at random whether a fault strikes.
#[derive(Debug, Default)]
pub(crate) struct Faults {
    faults: Vec<Fault>,
    draws: AtomicU64,
}

impl Faults {
    /// Creates the faults of a process; several faults of one point add up.
    #[must_use]
    pub(crate) fn new(faults: Vec<Fault>) -> Self {
        Self {
            faults,
            draws: AtomicU64::new(0),
        }
    }

    /// Draws the delay of this call at `point`; zero if no fault strikes. Every call draws anew.
    #[must_use]
    pub(crate) fn draw(&self, point: FaultPoint) -> Duration {
        self.hits(point).map(|fault| fault.delay).sum()
    }

    /// Reports whether this call has a fault at `point`, for points without a duration. Every call
    /// draws anew.
    #[must_use]
    pub(crate) fn strikes(&self, point: FaultPoint) -> bool {
        self.hits(point).count() > 0
    }

    /// Waits for as long as this call is delayed at `point`.
    pub(crate) async fn wait(&self, point: FaultPoint) {
        let duration = self.draw(point);
        if !duration.is_zero() {
            delay(duration).await;
        }
    }

    fn hits(&self, point: FaultPoint) -> impl Iterator<Item = &Fault> {
        self.faults
            .iter()
            .filter(move |fault| fault.point == point)
            .filter(|fault| {
                fault.percent >= 100.0
                    || unit(mix(self.draws.fetch_add(1, Ordering::Relaxed))) * 100.0 < fault.percent
            })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(text: &str, point: FaultPoint, delay_us: u64, percent: f64) {
        let expected = Fault {
            point,
            delay: Duration::from_micros(delay_us),
            percent,
        };
        let fault: Fault = text.parse().expect("a fault");
        assert_eq!(fault, expected);
        assert_eq!(
            fault.to_string().parse(),
            Ok(expected),
            "{fault} reads back"
        );
    }

    #[track_caller]
    fn check_error(text: &str, expected: &str) {
        let error = text.parse::<Fault>().expect_err("not a fault").to_string();
        assert!(error.contains(expected), "{error}");
        assert!(error.contains(text.trim()), "{error} quotes its input");
    }

    #[test]
    fn faults_are_understood() {
        check("store.read=+5ms", FaultPoint::StoreRead, 5_000, 100.0);
        check("store.read=+500us@50%", FaultPoint::StoreRead, 500, 50.0);
        check("ranker.score=+10ms", FaultPoint::RankerScore, 10_000, 100.0);
        check("web.render=+3ms", FaultPoint::WebRender, 3_000, 100.0);
        check("edge.proxy=+2ms", FaultPoint::EdgeProxy, 2_000, 100.0);
        check("store.lock=+1ms", FaultPoint::StoreLock, 1_000, 100.0);
        check("store.lock=+1.5ms@0.5%", FaultPoint::StoreLock, 1_500, 0.5);
        check("ranker.extra-call", FaultPoint::RankerExtraCall, 0, 100.0);
        check(
            "ranker.extra-call@25%",
            FaultPoint::RankerExtraCall,
            0,
            25.0,
        );
        check("client.small-count", FaultPoint::ClientSmallCount, 0, 100.0);
        check("ranker.longer-loop", FaultPoint::RankerLongerLoop, 0, 100.0);
        check(
            "ranker.cache-miss@90%",
            FaultPoint::RankerCacheMiss,
            0,
            90.0,
        );
        check(
            "store.archive-shard",
            FaultPoint::StoreArchiveShard,
            0,
            100.0,
        );
        check(
            " edge.proxy=+60s ",
            FaultPoint::EdgeProxy,
            60_000_000,
            100.0,
        );
    }

    #[test]
    fn errors_say_what_is_accepted() {
        check_error(
            "store.write=+5ms",
            "accepted: client.small-count, edge.proxy=+DURATION, web.render=+DURATION",
        );
        check_error("", "ranker.extra-call, store.read");
        check_error("store.read", "needs a duration, as in store.read=+5ms");
        check_error("ranker.extra-call=+5ms", "takes no duration");
        check_error("client.small-count=+5ms", "takes no duration");
        for duration in [
            "5ms", "+5", "+ms", "+-5ms", "+0ms", "+61s", "+1e400ms", "+5 ms", "", "+NaNs", "+infs",
        ] {
            check_error(
                &format!("store.read={duration}"),
                "is not a duration such as +500us",
            );
        }
        for percent in ["50", "0%", "101%", "-1%", "%", "NaN%", "inf%"] {
            check_error(
                &format!("store.read=+5ms@{percent}"),
                "is not a percentage such as 50%",
            );
        }
    }

    #[test]
    fn a_share_of_the_calls_is_struck() {
        let faults = Faults::new(vec!["store.read=+500us@30%".parse().expect("a fault")]);
        let struck = (0..10_000)
            .filter(|_| !faults.draw(FaultPoint::StoreRead).is_zero())
            .count();
        assert!((2_700..3_300).contains(&struck), "{struck}");
        assert!(!faults.strikes(FaultPoint::StoreLock));
    }

    #[test]
    fn faults_of_one_point_add_up() {
        let parse = |text: &str| text.parse().expect("a fault");
        let faults = Faults::new(vec![parse("store.read=+2ms"), parse("store.read=+3ms")]);
        assert_eq!(faults.draw(FaultPoint::StoreRead), Duration::from_millis(5));
    }
}
