//! Judges the clocks of two hosts by the evidence about the pair.

use super::anchors::{Anchor, Anchors};
use super::evidence::ClockEvidence;
use super::pair_evidence::{PairEvidence, RoundTripSample, Verdict};
use super::round_trip::in_order;
use std::collections::BTreeMap;
use std::sync::Arc;

/// Estimates and verdict for the clocks of an ordered pair of hosts.
#[derive(Clone, Debug, PartialEq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct PairReport {
    /// Host that waited.
    pub client: Arc<str>,
    /// Host that the client waited for.
    pub server: Arc<str>,
    /// Conclusion from the evidence; equal for both directions.
    pub verdict: Verdict,
    /// Number of round trips observed, without impossible ones.
    pub round_trips: u64,
    /// Lead of the server's clock over the client's in ns, by the round trip of lowest RTT.
    pub offset_ns: i128,
    /// Lowest RTT in nanoseconds.
    pub rtt_ns: u64,
    /// Error bound of `offset_ns`.
    pub error_ns: u64,
    /// Gain of the server's clock on the client's, in parts per million.
    pub drift_ppm: f64,
    /// Number of estimates on this ordered pair's line of offsets: at most one per time window.
    /// Omits estimates that a neighbour bounds more tightly. If two would make a clock run
    /// backwards, or more than twice as fast as the other without being set, omits one.
    pub estimates: usize,
    /// Number of times that one of the clocks was set: the offsets of neighbouring estimates differ
    /// by more than drift and errors explain.
    pub steps: usize,
}

/// Reports whether nearly all cases agree: 19 of 20, or all but one of at least three if there are
/// few, or all.
fn nearly_all(count: usize, of: usize) -> bool {
    let exceptions = of.saturating_sub(count);
    exceptions <= (of / 20).max(1) && exceptions * 2 <= count
}

/// Returns the line of offsets for each pair in order of name, from the second host's clock to the
/// first's. Both directions of a pair measure the same clocks, so one line uses the estimates of
/// both.
pub(super) fn lines(evidence: &ClockEvidence) -> BTreeMap<(Arc<str>, Arc<str>), Anchors> {
    let mut found: BTreeMap<(Arc<str>, Arc<str>), Vec<Anchor>> = BTreeMap::new();
    for ([client, server], windows) in evidence.pairs.iter() {
        let slop_ns = evidence.slop_ns(client, server);
        let to_client = windows.best.values().map(|r| Anchor::to_client(r, slop_ns));
        let anchors = found.entry(in_order(client, server)).or_default();
        if client <= server {
            anchors.extend(to_client);
        } else {
            anchors.extend(to_client.map(Anchor::flipped));
        }
    }
    let found = found.into_iter();
    let lines = found.filter_map(|(pair, anchors)| Some((pair, Anchors::of(anchors)?)));
    lines.collect()
}

/// Judges a pair of clocks. Returns `None` if the evidence does not suffice to relate them.
pub(super) fn verdict(
    (first, second): &(Arc<str>, Arc<str>),
    evidence: &PairEvidence,
    line: Option<&Anchors>,
    slop_ns: u64,
) -> Option<Verdict> {
    let round_trips: Vec<RoundTripSample> = evidence.sample.iter().collect();
    let judge = |agrees: bool| match agrees {
        true => Verdict::Agree,
        false => Verdict::Contradictory,
    };
    if !evidence.lines_are_in_order() {
        return Some(judge(evidence.returns_by_time > 0));
    }
    if round_trips.is_empty() {
        let all = evidence.early.all();
        // A child that outlives its parent contradicts nothing; one that starts before it does.
        let starts_agree = nearly_all(evidence.early.upto(slop_ns) as usize, all as usize);
        let is_tie = !starts_agree || evidence.sticking_out.upto(slop_ns) > 0;
        return (all > 0 && is_tie).then(|| judge(starts_agree));
    }
    // An empty name stands for an unknown host. It has no clock of its own to correct.
    let line = line.filter(|_| !first.is_empty() && !second.is_empty());
    let within = |seen: &RoundTripSample, (at_ns, error_ns): (i64, u64)| {
        let off_ns = seen.client_ns.abs_diff(at_ns);
        let own_ns = seen.error_ns(slop_ns);
        own_ns.is_some_and(|own_ns| off_ns <= own_ns.saturating_add(error_ns))
    };
    let count = |convert: &dyn Fn(i64) -> (i64, u64)| {
        let seen = round_trips.iter();
        seen.filter(|seen| within(seen, convert(seen.server_ns)))
            .count()
    };
    let as_recorded = count(&|at_ns| (at_ns, 0));
    let refutes = |anchor: &&Anchor| anchor.from_ns.abs_diff(anchor.to_ns) > anchor.error_ns;
    let is_refuted = |line: &Anchors| {
        line.list.iter().filter(refutes).count() * 2 >= line.list.len()
            || !nearly_all(as_recorded, round_trips.len())
    };
    match line {
        Some(line)
            if is_refuted(line)
                && nearly_all(count(&|at_ns| line.convert(at_ns)), round_trips.len()) =>
        {
            Some(Verdict::Differ)
        }
        _ => {
            // A round trip that no offset explains (an answer that the caller did not wait for)
            // does not count against the recorded clocks, unless at least half of all round trips
            // are impossible. Disbelieving the clocks takes more than a few contradictions.
            let seen = round_trips.iter();
            let possible = seen.filter(|of| of.error_ns(slop_ns).is_some()).count();
            let agrees = as_recorded * 4 >= possible * 3 && possible * 2 > round_trips.len();
            Some(judge(agrees))
        }
    }
}

pub(super) fn pair_reports(
    evidence: &ClockEvidence,
    verdicts: &BTreeMap<(Arc<str>, Arc<str>), Verdict>,
) -> Vec<PairReport> {
    let mut reports = Vec::with_capacity(evidence.pairs.len());
    for ([client, server], windows) in evidence.pairs.iter() {
        let slop_ns = evidence.slop_ns(client, server);
        let all = windows.best.values();
        let to_client = all.clone().map(|r| Anchor::to_client(r, slop_ns));
        let anchors = Anchors::of(to_client.collect());
        let best = all.min_by_key(|r| (r.rtt_ns, r.client_ns, r.server_ns));
        let verdict = verdicts.get(&in_order(client, server)).copied();
        if let Some(((best, anchors), verdict)) = best.zip(anchors).zip(verdict) {
            reports.push(PairReport {
                client: client.clone(),
                server: server.clone(),
                verdict,
                round_trips: windows.round_trips,
                offset_ns: best.offset_ns(),
                rtt_ns: best.rtt_ns,
                error_ns: best.error_ns().saturating_add(slop_ns),
                drift_ppm: anchors.drift_ppm(),
                estimates: anchors.list.len(),
                steps: anchors.steps,
            });
        }
    }
    reports
}
