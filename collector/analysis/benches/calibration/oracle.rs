//! Test of the changed quantity alone: the standard by which the power of `compare` is measured.

use super::fault::{Fault, FaultKind};
use super::request::Simulated;
use super::system::System;
use std::collections::BTreeMap;
use stroboscope_analysis::statistics::{Share, fisher_two_sided};

/// Returns the quantity of a request that a fault changes; `None` if the request lacks the spans
/// that would show it.
fn quantity(system: &System, fault: &Fault, request: &Simulated) -> Option<f64> {
    let site = fault.site;
    let calls = request.calls_of(site.operation);
    let of_link = |at: &usize| {
        let note = &request.notes[*at];
        note.is_client
            && note.site.is_some_and(|site| {
                let caller = system.operations[site.operation].service;
                fault.is_link(caller, system.operations[note.operation].service)
            })
    };
    let of_operation = |at: &usize| {
        let note = &request.notes[*at];
        !note.is_client && note.operation == site.operation
    };
    let mean_of = |is_meant: &dyn Fn(&usize) -> bool| {
        let own_ns = request.self_ns();
        let meant: Vec<f64> = (0..own_ns.len())
            .filter(is_meant)
            .map(|at| own_ns[at])
            .collect();
        (!meant.is_empty()).then(|| meant.iter().sum::<f64>() / meant.len() as f64)
    };
    match fault.kind {
        FaultKind::Link if system.has_client_spans => mean_of(&of_link),
        // Without client spans, the time between services counts as the caller's.
        FaultKind::Slower
        | FaultKind::Times
        | FaultKind::Share
        | FaultKind::Rare
        | FaultKind::MissTimes
        | FaultKind::Link => mean_of(&of_operation),
        FaultKind::BreaksOff => (calls > 0).then(|| {
            let failed = request
                .notes
                .iter()
                .any(|note| !note.is_client && note.operation == site.operation && note.is_origin);
            f64::from(u8::from(failed))
        }),
        FaultKind::Removed | FaultKind::Doubled | FaultKind::MissCalls => (calls > 0).then(|| {
            let made = request
                .notes
                .iter()
                .filter(|note| !note.is_client && note.site == Some(site));
            made.count() as f64 / calls as f64
        }),
    }
}

/// Returns the p-value of the observed difference, by a test of the changed quantity alone.
pub(crate) fn p_value(system: &System, fault: &Fault, [before, after]: [&[Simulated]; 2]) -> f64 {
    let values = [before, after].map(|period| {
        let of_period = period.iter().filter_map(|request| {
            let value = quantity(system, fault, request)?;
            Some((request.burst, value))
        });
        of_period.collect::<Vec<(u64, f64)>>()
    });
    let alone = |period: &[(u64, f64)]| period.iter().map(|(_, value)| *value).collect();
    if fault.kind.is_structural() {
        // The structure of a request does not depend on its burst.
        let [before, after]: [Vec<f64>; 2] = [alone(&values[0]), alone(&values[1])];
        return match fault.kind {
            FaultKind::BreaksOff => {
                let share = |values: &[f64]| Share {
                    part: values.iter().filter(|value| **value > 0.0).count() as u64,
                    of: values.len() as u64,
                };
                fisher_two_sided(share(&before), share(&after))
            }
            _ => rank_sum(&before, &after),
        };
    }
    let by_burst = values.each_ref().map(|period| burst_means(period));
    let ranks = rank_sum(&by_burst[0], &by_burst[1]);
    if !matches!(fault.kind, FaultKind::Share | FaultKind::MissTimes) {
        return ranks;
    }
    // A change of few requests shows among the largest values.
    let mut sorted: Vec<f64> = by_burst[0].clone();
    sorted.sort_unstable_by(f64::total_cmp);
    let Some(&high) = sorted.get(sorted.len() * 9 / 10) else {
        return ranks;
    };
    let above = |values: &[f64]| Share {
        part: values.iter().filter(|value| **value > high).count() as u64,
        of: values.len() as u64,
    };
    let share = fisher_two_sided(above(&by_burst[0]), above(&by_burst[1]));
    (2.0 * ranks.min(share)).min(1.0)
}

/// Returns the mean logarithm of each burst's values.
fn burst_means(values: &[(u64, f64)]) -> Vec<f64> {
    let mut bursts: BTreeMap<u64, (f64, f64)> = BTreeMap::new();
    for (burst, value) in values {
        let of_burst = bursts.entry(*burst).or_default();
        of_burst.0 += value.max(1.0).ln();
        of_burst.1 += 1.0;
    }
    bursts.values().map(|(sum, count)| sum / count).collect()
}

/// Returns the two-sided p-value of the rank-sum test of Mann and Whitney, with ties (normal
/// approximation).
pub(crate) fn rank_sum(before: &[f64], after: &[f64]) -> f64 {
    let (n, m) = (before.len() as f64, after.len() as f64);
    if n < 2.0 || m < 2.0 {
        return 1.0;
    }
    let mut all: Vec<(f64, bool)> = before.iter().map(|value| (*value, false)).collect();
    all.extend(after.iter().map(|value| (*value, true)));
    all.sort_unstable_by(|a, b| a.0.total_cmp(&b.0));
    let (mut ranks, mut ties, mut first) = (0.0, 0.0, 0);
    for alike in all.chunk_by(|a, b| a.0 == b.0) {
        let count = alike.len() as f64;
        let rank = first as f64 + (count + 1.0) / 2.0;
        ranks += rank * alike.iter().filter(|(_, is_after)| *is_after).count() as f64;
        ties += count * count * count - count;
        first += alike.len();
    }
    let whole = n + m;
    let variance = n * m / 12.0 * (whole + 1.0 - ties / (whole * (whole - 1.0)));
    if variance <= 0.0 {
        return 1.0;
    }
    let off = (ranks - m * (whole + 1.0) / 2.0).abs() - 0.5;
    erfc(off.max(0.0) / variance.sqrt() / std::f64::consts::SQRT_2)
}

/// Complementary error function (Numerical Recipes; relative error below 1.2e-7).
fn erfc(x: f64) -> f64 {
    const COEFFICIENTS: [f64; 10] = [
        -1.265_512_23,
        1.000_023_68,
        0.374_091_96,
        0.096_784_18,
        -0.186_288_06,
        0.278_868_07,
        -1.135_203_98,
        1.488_515_87,
        -0.822_152_23,
        0.170_872_77,
    ];
    let t = 1.0 / (1.0 + 0.5 * x);
    let sum = COEFFICIENTS.iter().rev().fold(0.0, |sum, c| sum * t + c);
    t * (sum - x * x).exp()
}
