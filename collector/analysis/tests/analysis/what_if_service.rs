//! Compares replays of recorded services with the services, simulated again with one operation
//! changed.

use crate::services;
use crate::simulator::{Law, Run, run};
use std::future::Future;
use stroboscope_analysis::critical_path::analyse;
use stroboscope_analysis::model::Model;
use stroboscope_analysis::sampling::Weight;
use stroboscope_analysis::segment::Segmenter;
use stroboscope_analysis::what_if::{Change, LatencyChange, WaitModel, WaitingSample, WhatIf};

const REQUESTS: u64 = 400;

/// Returns the error of a mean latency, in percent.
fn off_percent(
    found: &stroboscope_analysis::distribution::Distribution,
    truth: &stroboscope_analysis::distribution::Distribution,
) -> f64 {
    (found.mean_ns() / truth.mean_ns() - 1.0) * 100.0
}

/// Records a service's requests, predicts a change of one operation, and runs the service again
/// with the change.
fn try_case<F: Future<Output = ()> + 'static>(
    name: &str,
    law: Law,
    service: impl Fn(Run) -> F,
    operation: &'static str,
    change: Change,
) -> f64 {
    let recorded: Vec<_> = (0..REQUESTS)
        .map(|seed| run(seed, law, None, &service).0)
        .collect();
    let (mut model, mut segmenter) = (Model::new(), Segmenter::default());
    let traces: Vec<_> = recorded
        .iter()
        .map(|records| segmenter.segment(records, model.labels_mut()).0)
        .collect();
    traces.iter().for_each(|trace| model.observe(trace));
    let relations = model.relations(0.0);
    let mut sample = WaitingSample::default();
    traces.iter().for_each(|trace| sample.observe(trace));
    let waiting = WaitModel::learn(&sample, &relations, model.labels());
    let chosen = |_, label: &stroboscope_analysis::label::SegmentLabel| {
        (label.operation() == operation).then_some(change)
    };
    let nothing_known = WaitModel::unknown(&relations);
    let (mut before, mut after) = (LatencyChange::default(), LatencyChange::default());
    let mut truth = LatencyChange::default();
    let (mut kept, mut told) = (
        WhatIf::new(&nothing_known, chosen),
        WhatIf::new(&waiting, chosen),
    );
    for (seed, trace) in (0..).zip(&traces) {
        let path = analyse(trace, &relations);
        before.observe(
            path.latency_ns,
            kept.replay(trace, &path, model.labels()).latency_ns,
            Weight::ONE,
        );
        after.observe(
            path.latency_ns,
            told.replay(trace, &path, model.labels()).latency_ns,
            Weight::ONE,
        );
        truth.observe(
            path.latency_ns,
            run(seed, law, Some((operation, change)), &service).1,
            Weight::ONE,
        );
    }
    let ms = |ns: f64| ns / 1e6;
    println!(
        "{name:14} {law:?} {operation:16} {:26} was {:7.3} truth {:7.3}  lengths kept {:7.3} ({:+6.2} %)  waiting told {:7.3} ({:+6.2} %)",
        format!("{change:?}"),
        ms(truth.before.mean_ns()),
        ms(truth.after.mean_ns()),
        ms(before.after.mean_ns()),
        off_percent(&before.after, &truth.after),
        ms(after.after.mean_ns()),
        off_percent(&after.after, &truth.after),
    );
    off_percent(&after.after, &truth.after)
}

macro_rules! cases {
    ($($service:ident within $percent:literal, $others:literal: $($operation:literal $change:expr),+;)+) => {
        $(
            #[test]
            fn $service() {
                let mut wrong = Vec::new();
                $(
                    for law in [Law::Uniform, Law::Exponential, Law::Lognormal] {
                        let off = try_case(stringify!($service), law, services::$service, $operation, $change);
                        let limit = if law == Law::Uniform { $percent } else { $others };
                        let is_right = off.abs() <= limit;
                        if !is_right {
                            wrong.push(format!("{law:?} {} {:?}: {:.2} %", $operation, $change, off));
                        }
                    }
                )+
                assert!(wrong.is_empty(), "off by more than {} % ({} %): {wrong:?}", $percent, $others);
            }
        )+
    };
}

use Change::{AddNs, Scale};

cases! {
    sequence within 1.0, 2.0: "store:read" Scale(0.5), "web:page" Scale(2.0), "web:Store/Read" Scale(0.0);
    fan_out within 1.0, 2.0: "ranker:score" Scale(0.5), "store:read" Scale(2.0), "web:page" AddNs(1_000_000);
    awaited_late within 1.0, 2.0: "ranker:score" Scale(0.5), "ranker:score" Scale(2.0), "store:read" Scale(0.0), "web:page" Scale(0.5);
    task_waits within 1.0, 2.0: "web:candidates" Scale(0.5), "web:candidates" Scale(2.0), "web:render" Scale(0.5);
    gather within 1.0, 2.0: "store:read" Scale(0.5), "ranker:score" Scale(0.0), "store:read" Scale(2.0);
    cross_branch within 1.0, 2.0: "users:load" Scale(0.5), "users:load" AddNs(2_000_000), "store:read" Scale(0.5);
    pool within 1.0, 2.0: "store:read" Scale(0.5), "store:read" Scale(2.0), "store:read" AddNs(1_000_000);
    queue within 1.0, 2.0: "store:read" Scale(0.5), "store:read" Scale(2.0);
    lock within 1.0, 2.0: "web:update a" Scale(0.5), "web:update a" Scale(2.0), "web:prepare a" Scale(2.0), "web:prepare b" Scale(0.0);
    pipeline within 1.0, 2.0: "web:make" Scale(0.5), "web:show" Scale(0.5), "web:make" Scale(2.0);
    timer within 1.0, 2.5: "users:load" Scale(0.5), "users:load" Scale(2.0), "store:read" Scale(0.5);
    branches within 1.0, 2.0: "store:read" Scale(0.5), "web:page" Scale(2.0);
    after_answer within 1.0, 6.0: "store:read" Scale(0.5), "web:audit" Scale(3.0), "web:page" Scale(0.5);
    awaited_in_turn within 1.0, 2.0: "users:load" Scale(0.5), "store:read" Scale(2.0), "ranker:score" Scale(0.0), "web:page" Scale(2.0);
    lock_in_calls within 1.0, 2.0: "store:read" Scale(0.5), "store:commit" Scale(2.0), "ranker:score" Scale(0.5);
}
