//! Validates slack by the correlation of server time and latency (The Mystery Machine, §5.2,
//! figures 9 and 10).
//!
//! With little slack, a slower server makes a slower request; with much slack, it should not. So
//! requests are put into buckets of about equal size by slack, and each bucket yields the
//! correlation of server time and latency. The correlation should fall as slack grows.
//!
//! The validation takes two passes. The first records all slacks in a [`Distribution`], whose
//! quantiles are the edges of the buckets; the second fills the buckets. Memory does not grow with
//! the number of requests, and buckets of several parts can be merged.

use crate::critical_path::TracePath;
use crate::distribution::{Distribution, LONGEST_NS};
use crate::label::SegmentId;
use std::collections::BTreeMap;

/// Server time, slack and latency of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ServerTime {
    /// Total duration of the request's server segments before the answer.
    pub server_ns: u64,
    /// Slack of the last of these segments to end, taken as the sender of the last data item.
    pub slack_ns: u64,
    /// Latency of the request.
    pub latency_ns: u64,
}

impl ServerTime {
    /// Sums up the segments before the answer for which `is_server` returns `true`; `None` if there
    /// are none.
    pub fn of(path: &TracePath, is_server: impl Fn(SegmentId) -> bool) -> Option<ServerTime> {
        let server = || {
            path.segments
                .iter()
                .filter(|timing| !timing.after_answer && is_server(timing.segment))
        };
        let last = server().max_by_key(|timing| timing.end_ns)?;
        let server_ns = server().fold(0u64, |sum, timing| sum.saturating_add(timing.duration_ns()));
        Some(ServerTime {
            server_ns,
            slack_ns: last.slack_ns,
            latency_ns: path.latency_ns,
        })
    }
}

/// Requests with about the same slack. Durations above [`LONGEST_NS`] count as [`LONGEST_NS`].
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub struct SlackBucket {
    /// Inclusive upper limit of the slack. The previous bucket's limit is the exclusive lower
    /// limit.
    pub slack_max_ns: u64,
    /// Number of requests.
    pub requests: u64,
    x: u128,
    y: u128,
    xx: u128,
    yy: u128,
    xy: u128,
    /// Number of requests by the cells of their server time and latency. There are four cells per
    /// octave from 4 ns on, see [`heat_cell_ns`].
    pub heat: BTreeMap<(u8, u8), u64>,
}

impl SlackBucket {
    fn record(&mut self, request: ServerTime) {
        let (x, y) = (
            request.server_ns.min(LONGEST_NS),
            request.latency_ns.min(LONGEST_NS),
        );
        *self.heat.entry((heat_cell(x), heat_cell(y))).or_default() += 1;
        let (x, y) = (u128::from(x), u128::from(y));
        self.requests += 1;
        self.x += x;
        self.y += y;
        // Each product is at most 2⁹², so the sums have room for 2³⁶ requests.
        self.xx += x * x;
        self.yy += y * y;
        self.xy += x * y;
    }

    fn merge(&mut self, other: &SlackBucket) {
        self.requests += other.requests;
        self.x += other.x;
        self.y += other.y;
        self.xx += other.xx;
        self.yy += other.yy;
        self.xy += other.xy;
        for (cell, requests) in &other.heat {
            *self.heat.entry(*cell).or_default() += requests;
        }
    }

    /// Returns Pearson's correlation of server time and latency; `None` if server time or latency
    /// varies by less than about a millionth.
    pub fn correlation(&self) -> Option<f64> {
        if self.requests < 2 {
            return None;
        }
        let n = self.requests as f64;
        let deviation = |products: u128, a: u128, b: u128| {
            products as f64 / n - (a as f64 / n) * (b as f64 / n)
        };
        let (xx, yy) = (
            deviation(self.xx, self.x, self.x),
            deviation(self.yy, self.y, self.y),
        );
        // Rounding leaves a small residue for equal values, so a tiny variance does not count.
        let varies = |deviation: f64, squares: u128| deviation > squares as f64 / n * 1e-12;
        let defined = varies(xx, self.xx) && varies(yy, self.yy);
        defined.then(|| (deviation(self.xy, self.x, self.y) / (xx * yy).sqrt()).clamp(-1.0, 1.0))
    }
}

fn heat_cell(duration_ns: u64) -> u8 {
    let octave = 63 - (duration_ns | 1).leading_zeros();
    let quarter = if octave < 2 {
        0
    } else {
        (duration_ns >> (octave - 2)) & 3
    };
    (octave * 4) as u8 + quarter as u8
}

/// Returns the shortest duration of a cell of [`SlackBucket::heat`], in nanoseconds; 1 for the
/// first cell, which also has 0.
pub fn heat_cell_ns(cell: u8) -> u64 {
    let (octave, quarter) = (u32::from(cell / 4).min(63), u64::from(cell % 4));
    (1 << octave)
        + if octave < 2 {
            0
        } else {
            quarter << (octave - 2)
        }
}

/// Buckets of requests by slack. See the [module](self).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SlackValidation {
    buckets: Vec<SlackBucket>,
}

impl SlackValidation {
    /// Creates this number of buckets of about equal size, from the slacks of all requests. There
    /// are fewer buckets if many slacks are equal.
    pub fn new(slacks: &Distribution, buckets: usize) -> SlackValidation {
        let edge = |number: usize| slacks.quantile_ns(number as f64 / buckets as f64);
        let mut edges: Vec<u64> = (1..buckets).map(edge).chain([u64::MAX]).collect();
        edges.dedup();
        let bucket = |slack_max_ns| SlackBucket {
            slack_max_ns,
            ..SlackBucket::default()
        };
        SlackValidation {
            buckets: edges.into_iter().map(bucket).collect(),
        }
    }

    /// Adds one request to the bucket of its slack.
    pub fn observe(&mut self, request: ServerTime) {
        let at = self
            .buckets
            .partition_point(|bucket| bucket.slack_max_ns < request.slack_ns);
        // The last bucket has no upper limit, so one always fits.
        if let Some(bucket) = self.buckets.get_mut(at) {
            bucket.record(request);
        }
    }

    /// Adds the requests of `other`, whose buckets must be created from the same slacks.
    pub fn merge(&mut self, other: &SlackValidation) {
        self.buckets
            .iter_mut()
            .zip(&other.buckets)
            .for_each(|(own, other)| own.merge(other));
    }

    /// Returns the buckets in order of increasing slack.
    pub fn buckets(&self) -> &[SlackBucket] {
        &self.buckets
    }
}
