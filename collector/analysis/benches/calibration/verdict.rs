//! Causes that the comparison names for two simulated periods.

use super::request::Simulated;
use super::system::CLIENT;
use stroboscope_analysis::compare::{Cause, CauseKind, CompareSettings, Comparison, TooFew};
use stroboscope_analysis::critical_path::analyse;
use stroboscope_analysis::flow::{FlowPass, FlowSettings, KnownOrders, PeriodFlows, SiblingOrders};
use stroboscope_analysis::label::Labels;
use stroboscope_analysis::model::Model;
use stroboscope_analysis::pass::{Pass, TraceView};
use stroboscope_analysis::segment::segment;

/// Compares two periods as the collector does.
pub(crate) fn compare(periods: [&[&Simulated]; 2]) -> Comparison {
    let [before, after] = flows(periods);
    let is_client =
        |operation: &stroboscope_analysis::flow::Operation| operation.name.starts_with(CLIENT);
    Comparison::of(&before, &after, &is_client, &CompareSettings::default())
}

fn flows(periods: [&[&Simulated]; 2]) -> [PeriodFlows; 2] {
    let orders = periods.map(|period| {
        let mut orders = SiblingOrders::default();
        period
            .iter()
            .for_each(|request| orders.observe(&request.records));
        orders
    });
    let orders = KnownOrders::of(&orders);
    let mut model = Model::new();
    let traces = periods.map(|period| {
        let cut = |request: &&Simulated| {
            let (trace, _) = segment(&request.records, model.labels_mut());
            model.observe(&trace);
            trace
        };
        period.iter().map(cut).collect::<Vec<_>>()
    });
    let relations = model.relations(0.0);
    let labels: &Labels = model.labels();
    [0, 1].map(|at| {
        let mut pass = FlowPass::new(FlowSettings::default(), &orders);
        for (request, trace) in periods[at].iter().zip(&traces[at]) {
            pass.observe(&TraceView {
                records: &request.records,
                trace,
                labels,
                path: &analyse(trace, &relations),
            });
        }
        pass.into_flows()
    })
}

/// Number of causes by kind.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Causes {
    pub(crate) slower: usize,
    pub(crate) faster: usize,
    pub(crate) structural: usize,
}

impl Causes {
    pub(crate) fn of(comparison: &Comparison) -> Causes {
        let mut causes = Causes::default();
        for cause in &comparison.causes {
            match cause.kind {
                CauseKind::ResponseTime if cause.contribution_ns >= 0.0 => causes.slower += 1,
                CauseKind::ResponseTime => causes.faster += 1,
                CauseKind::Structure(_) => causes.structural += 1,
            }
        }
        causes
    }

    pub(crate) fn all(&self) -> usize {
        self.slower + self.faster + self.structural
    }
}

/// Formats a cause as one line.
pub(crate) fn described(cause: &Cause) -> String {
    format!(
        "{} {:?} at {:?}: {:+.3} ms in {:.1} %, q {:.1e}",
        cause.operation,
        cause.kind,
        cause.place,
        cause.contribution_ns / 1e6,
        100.0 * cause.affected,
        cause.q_value
    )
}

/// Formats a place with too few requests as one line.
pub(crate) fn described_undecided(few: &TooFew) -> String {
    format!(
        "too few: {:?}: {:+.3} ms, {:?} requests of {} needed",
        few.place,
        few.contribution_ns / 1e6,
        few.requests,
        few.needed
    )
}
