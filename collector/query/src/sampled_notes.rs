//! Sampling weights of the traces that a query used, and the figures of its report that are
//! weighted.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use stroboscope_analysis::record::{SpanRecord, TraceRecords};
use stroboscope_analysis::sampling::{Weight, WeightedCount};
use stroboscope_burst::BurstConfig;

/// Figures of a report that are weighted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum WeightUse {
    /// No figure is weighted: the report counts recorded requests.
    #[default]
    Nothing,
    /// Only the numbers of requests by root operation are weighted.
    Roots,
    /// Counts, shares and percentiles of the report are weighted.
    Everything,
}

/// Maximum number of burst-configs of samplers in the notes. Requests of further configs count as
/// if they stated no config.
const CONFIGS_MAX: usize = 64;

/// Requests that samplers of OpenTelemetry's SDKs recorded because they began in bursts of one
/// config.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct BurstRequests {
    /// Number of requests, at least 1.
    pub requests: u64,
    /// Start of the first request, in ns since the Unix epoch.
    pub first_ns: i64,
    /// Start of the last request, in ns since the Unix epoch.
    pub last_ns: i64,
}

impl BurstRequests {
    fn merge(&mut self, other: &Self) {
        self.requests += other.requests;
        self.first_ns = self.first_ns.min(other.first_ns);
        self.last_ns = self.last_ns.max(other.last_ns);
    }

    /// Returns the summed length in ns of the bursts from the first request to the last one.
    #[must_use]
    pub fn open_ns(&self, config: BurstConfig) -> u64 {
        const MS: u64 = 1_000_000;
        let open_before_ns = |time_ns: i64| {
            let time_ns = u64::try_from(time_ns).unwrap_or(0);
            let part_ns = match config.contains_ms(time_ns / MS) {
                true => time_ns % MS,
                false => 0,
            };
            config.open_ms_before(time_ns / MS) * MS + part_ns
        };
        open_before_ns(self.last_ns).saturating_sub(open_before_ns(self.first_ns))
    }

    /// Returns the approximate number of bursts from the first request to the last one.
    #[must_use]
    pub fn burst_count(&self, config: BurstConfig) -> u64 {
        let burst_ms = match config.bits() {
            0 => u64::MAX,
            bits => 1 << bits.trailing_zeros(),
        };
        self.open_ns(config) / 1_000_000 / burst_ms + 1
    }

    /// Returns the bursts from the millisecond of the first request to the end of the last one's
    /// burst (of its millisecond if the burst never closes), as half-open intervals in ns since the
    /// Unix epoch, in order.
    pub fn bursts(&self, config: BurstConfig) -> impl Iterator<Item = (i64, i64)> {
        let ms = |time_ns: i64| u64::try_from(time_ns / 1_000_000).unwrap_or(0);
        let ns =
            |time_ms: u64| i64::try_from(time_ms.saturating_mul(1_000_000)).unwrap_or(i64::MAX);
        let (first_ms, last_ms) = (ms(self.first_ns), ms(self.last_ns));
        let burst_from = move |from_ms: u64| {
            let open_ms = config.next_open_ms(from_ms);
            let close_ms = config.close_after_ms(open_ms).unwrap_or(last_ms + 1);
            (open_ms <= last_ms).then_some((open_ms, close_ms))
        };
        let all = std::iter::successors(burst_from(first_ms), move |burst| burst_from(burst.1));
        all.map(move |(open_ms, close_ms)| (ns(open_ms), ns(close_ms)))
    }
}

/// Summary of the sampling of the used traces.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct SamplingNotes {
    /// Number of used traces, recorded and weighted.
    pub requests: WeightedCount,
    /// Number of traces with a span whose sampling threshold is malformed.
    pub malformed: u64,
    /// Number of traces whose spans have different sampling thresholds.
    pub differing: u64,
    /// Number of used traces that count by their threshold although a window held their root span,
    /// mostly because windows did not hold other spans.
    pub held_roots: WeightedCount,
    /// Figures of the report that are weighted.
    pub weighing: WeightUse,
    /// Requests that samplers recorded in bursts, by the bits of the config.
    pub bursts: BTreeMap<u64, BurstRequests>,
}

/// Summary of the sampling weights of the used traces.
#[derive(Serialize, JsonSchema)]
pub(super) struct SamplingEntry {
    /// Number of used traces.
    recorded: u64,
    /// Number of requests that the used traces represent by their weights.
    requests: f64,
    /// Size of an unweighted sample that would be equally precise (Kish's effective sample size).
    effective_sample: f64,
    /// Number of traces with a malformed sampling threshold in `tracestate`.
    malformed_thresholds: u64,
    /// Number of traces whose spans were sampled at different rates. Their weights follow the rate
    /// of the root span, if that states one.
    differing_thresholds: u64,
    /// Number of used traces that are weighted although a window held their root span, mostly
    /// because other spans are outside of windows, such as those of services without windows.
    roots_in_windows: u64,
    /// Maximum number of requests that `requests` may count twice: windows may have recorded the
    /// requests that the weights of `roots_in_windows` stand for, without the other spans.
    counted_twice_max: f64,
    /// True if counts, shares and percentiles of this report are weighted.
    weighted: bool,
    /// Requests that samplers of OpenTelemetry's SDKs recorded because they began in bursts, by
    /// burst-config; absent without such requests.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    bursts: Vec<SampledBursts>,
    /// Explanation of the sampling in sentences.
    note: String,
}

/// Requests of one burst-config.
#[derive(Serialize, JsonSchema)]
struct SampledBursts {
    /// Burst-config, such as `0b11100 (4ms/32ms)`.
    config: String,
    /// Number of requests that began in its bursts.
    requests: u64,
    /// Share of the time in bursts, from 0 to 1.
    duty: f64,
}

impl SamplingNotes {
    /// Adds the sampling of a used trace.
    pub(super) fn observe(&mut self, trace: &TraceRecords) {
        let weight = trace.weight();
        self.requests.count(weight);
        let sampling = &trace.sampling;
        let is_sampled = weight != Weight::ONE && sampling.threshold() != sampling.thinned();
        if is_sampled && trace.root().is_some_and(SpanRecord::was_held) {
            self.held_roots.count(weight);
        }
        self.malformed += u64::from(trace.sampling.is_malformed());
        self.differing += u64::from(trace.sampling.is_differing());
        if let (Some(bits), Some(root)) = (trace.sampling.burst_config(), trace.root()) {
            let one = BurstRequests {
                requests: 1,
                first_ns: root.start_ns,
                last_ns: root.start_ns,
            };
            self.add_bursts(bits, one);
        }
    }

    fn add_bursts(&mut self, bits: u64, of: BurstRequests) {
        if let Some(known) = self.bursts.get_mut(&bits) {
            known.merge(&of);
        } else if self.bursts.len() < CONFIGS_MAX {
            self.bursts.insert(bits, of);
        }
    }

    pub(super) fn merge(&mut self, other: &Self) {
        self.requests += other.requests;
        self.held_roots += other.held_roots;
        self.malformed += other.malformed;
        self.differing += other.differing;
        for (bits, of) in &other.bursts {
            self.add_bursts(*bits, *of);
        }
    }

    /// Reports whether there is nothing to report about the sampling.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        let is_unweighted = !self.requests.is_weighted();
        is_unweighted && self.malformed == 0 && self.differing == 0 && self.bursts.is_empty()
    }

    /// Returns sentences about the sampling weights; empty if all weights are 1, there are no
    /// flaws, and no sampler recorded requests in bursts.
    #[must_use]
    pub fn sentences(&self) -> Vec<String> {
        let mut said = Vec::new();
        if self.requests.is_weighted() {
            let stand_for = format!(
                "{} recorded requests stand for {} (effective sample {:.1})",
                grouped(self.requests.recorded()),
                grouped(self.requests.rounded()),
                self.requests.effective(),
            );
            said.push(match self.weighing {
                WeightUse::Everything => stand_for,
                WeightUse::Roots => format!(
                    "this report counts recorded requests, except by root operation; by their sampling weights, {stand_for}"
                ),
                WeightUse::Nothing => format!(
                    "this report counts recorded requests; by their sampling weights, {stand_for}"
                ),
            });
        }
        if self.malformed > 0 {
            said.push(format!(
                "{} of the requests used have a malformed sampling threshold (`ot=th:` of `tracestate`), which is ignored",
                grouped(self.malformed)
            ));
        }
        if self.differing > 0 {
            said.push(format!(
                "{} of the requests used have spans that were sampled at different rates: each counts by the rate of its root, \
                 and parts of it may be missing",
                grouped(self.differing)
            ));
        }
        if !self.held_roots.is_zero() {
            said.push(format!(
                "{} of the requests used are weighted although a window held their root, because other spans of them are \
                 outside of windows, such as those of services without windows: if windows recorded such requests \
                 without these spans, weighted numbers count up to {} requests twice",
                grouped(self.held_roots.recorded()),
                grouped(self.held_roots.rounded() - self.held_roots.recorded()),
            ));
        }
        for (bits, of) in &self.bursts {
            let config = BurstConfig::from_bits(*bits);
            said.push(format!(
                "{} of the requests used were recorded because they began in a burst of {config}, 1/{} of the time",
                grouped(of.requests),
                1u128 << bits.count_ones(),
            ));
        }
        said
    }
}

impl From<&SamplingNotes> for SamplingEntry {
    fn from(of: &SamplingNotes) -> Self {
        Self {
            recorded: of.requests.recorded(),
            requests: of.requests.estimate(),
            effective_sample: of.requests.effective(),
            malformed_thresholds: of.malformed,
            differing_thresholds: of.differing,
            roots_in_windows: of.held_roots.recorded(),
            counted_twice_max: of.held_roots.estimate() - of.held_roots.recorded() as f64,
            weighted: of.weighing == WeightUse::Everything,
            bursts: of
                .bursts
                .iter()
                .map(|(bits, of)| SampledBursts {
                    config: BurstConfig::from_bits(*bits).to_string(),
                    requests: of.requests,
                    duty: BurstConfig::from_bits(*bits).duty(),
                })
                .collect(),
            note: of.sentences().join("; "),
        }
    }
}

/// Formats a count with a comma between thousands.
fn grouped(count: u64) -> String {
    let digits = count.to_string();
    let mut text = String::new();
    for (place, digit) in digits.chars().enumerate() {
        if place > 0 && (digits.len() - place).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

#[cfg(test)]
mod tests {
    use stroboscope_analysis::record::SpanFlags;

    use super::*;

    fn notes(weighing: WeightUse, tracestates: &[&str]) -> SamplingNotes {
        let mut notes = SamplingNotes {
            weighing,
            ..SamplingNotes::default()
        };
        for tracestate in tracestates {
            let mut trace = TraceRecords::default();
            trace.sampling.observe(true, tracestate);
            notes.observe(&trace);
        }
        notes
    }

    /// Windows recorded three requests of one span. A fourth request was sampled by ratio; each of
    /// its spans is in a window or outside of windows.
    #[test]
    fn requests_that_may_count_twice_are_said() {
        let span = |span_id, flags| SpanRecord {
            span_id,
            parent_id: span_id - 1,
            service: "s".into(),
            name: "n".into(),
            host: "h".into(),
            process: u128::from(span_id),
            start_ns: 0,
            end_ns: 1,
            flags,
            events: Vec::new(),
        };
        let mut sampled = TraceRecords::default();
        sampled.sampling.observe(true, "ot=th:c");
        let outside = SpanFlags::SAMPLED.with(SpanFlags::OUTSIDE);
        let mut said = |flags: &[SpanFlags]| {
            sampled.spans = (1..)
                .zip(flags)
                .map(|(id, flags)| span(id, *flags))
                .collect();
            let mut notes = SamplingNotes::default();
            for _ in 0..3 {
                let mut in_window = TraceRecords::default();
                in_window.spans.push(span(1, SpanFlags(0)));
                notes.observe(&in_window);
            }
            notes.observe(&sampled);
            let entry = SamplingEntry::from(&notes);
            (
                entry.requests,
                entry.roots_in_windows,
                entry.counted_twice_max,
            )
        };
        assert_eq!(said(&[SpanFlags::SAMPLED; 2]), (4.0, 0, 0.0));
        assert_eq!(said(&[SpanFlags::SAMPLED, outside]), (7.0, 1, 3.0));
        // No window recorded a request like this one.
        assert_eq!(said(&[outside, SpanFlags::SAMPLED]), (7.0, 0, 0.0));
    }

    /// A request in a window that gets its weight from thinning alone counts no request twice.
    #[test]
    fn thinned_requests_do_not_count_twice() {
        let check = |state: &str, expected: u64| {
            let mut trace = TraceRecords::default();
            trace.spans.push(SpanRecord {
                span_id: 1,
                parent_id: 0,
                service: "s".into(),
                name: "n".into(),
                host: "h".into(),
                process: 1,
                start_ns: 0,
                end_ns: 1,
                flags: SpanFlags::SAMPLED,
                events: Vec::new(),
            });
            trace.sampling.observe(true, state);
            let mut notes = SamplingNotes::default();
            notes.observe(&trace);
            assert!(notes.requests.is_weighted(), "{state}");
            assert_eq!(notes.held_roots.recorded(), expected, "{state}");
        };
        check("stroboscope=thin:8,ot=th:8", 0);
        check("stroboscope=thin:8,ot=th:c", 1);
    }

    #[test]
    fn weights_are_said() {
        let mut states = vec!["ot=th:fd70a3d70a3d7"; 10];
        states.extend(["ot=th:0"; 10]);
        let said = |weighing| notes(weighing, &states).sentences().join("; ");
        let all = "20 recorded requests stand for 1,010 (effective sample 10.2)";
        assert_eq!(said(WeightUse::Everything), all);
        assert!(said(WeightUse::Nothing).starts_with("this report counts recorded requests;"));
        assert!(said(WeightUse::Roots).ends_with(all));
        assert!(notes(WeightUse::Nothing, &["ot=th:0", "a=1", ""]).is_empty());
        let malformed = notes(WeightUse::Everything, &["ot=th:z", "ot=th:0"]);
        assert!(malformed.sentences()[0].starts_with("1 of the requests used have a malformed"));
    }
}
