//! Comparison of two periods, and the flows of one period.
//!
//! Each period is read for its model and the order in which operations follow each other, and then
//! for its flows. Between these readings, the two models are merged, so that the critical paths of
//! each period rest on the evidence of both. Without a tolerance, a relation that one period
//! contradicts does not hold in the other one either.

use std::ops::RangeInclusive;
use std::sync::Arc;

use stroboscope_analysis::attribute::Attribute;
use stroboscope_analysis::compare::{CompareSettings, Comparison};
use stroboscope_analysis::critical_path::SlackUse;
use stroboscope_analysis::failure::FAILURE_KEYS;
use stroboscope_analysis::flow::{
    ERROR, FlowPass, FlowSettings, KnownOrders, Operation, PeriodFlows, SiblingOrders,
};
use stroboscope_analysis::label::SegmentLabel;
use stroboscope_analysis::pass::{Pass, TraceView};
use stroboscope_analysis::record::TraceRecords;
use stroboscope_analysis::sampling::WeightedCount;
use stroboscope_store::tables::AttributeKeys;

use super::arrival_rate::inter_arrival_ns;
use super::failures::{FailureShift, OutcomePass, failure_shifts};
use super::infer_settings::InferSettings;
use super::inference::Inference;
use super::notes::Notes;
use super::query_error::QueryError;
use super::sampled_notes::WeightUse;
use super::source::{Selection, Source};
use super::study::{Question, Study, StudyInput};

/// Requests of a period: all of a selection, or only those with an attribute value.
#[derive(Clone, Debug)]
pub struct PeriodOf {
    /// Data directory that has the requests.
    pub source: Arc<Source>,
    /// Selection of the requests of `source`.
    pub selection: Selection,
    /// Attribute and value that the requests must have; `None` for all requests of the selection.
    pub only: Option<(Attribute, String)>,
}

/// Flows of a period, with the notes taken while reading.
#[derive(Debug)]
pub struct Flows {
    pub flows: PeriodFlows,
    /// Number of requests whose latency is outside the requested range.
    pub others: WeightedCount,
    pub notes: Notes,
    /// Outcomes of the requests, including incomplete ones; `None` if not requested or once taken.
    outcomes: Option<OutcomePass>,
}

/// Two periods, and the changes between them.
#[derive(Debug)]
pub struct ComparedPeriods {
    pub before: Flows,
    pub after: Flows,
    pub comparison: Comparison,
    /// Mean time from one request to the next in ns, in each period; `None` if unknown.
    pub inter_arrival_ns: [Option<f64>; 2],
    /// Notes about both periods.
    pub notes: Notes,
    /// Studies of the earlier and the later period, with which an explanation finds the flows of
    /// their requests again.
    pub(super) studies: [Study; 2],
    pub(super) orders: KnownOrders,
}

/// Finds the flows of all requests of a study whose latency is in `latency_ns`.
///
/// # Errors
/// Fails if the store cannot be read, if there is too little memory, or if no trace is selected and
/// complete.
pub fn flows(
    study: &Study,
    settings: FlowSettings,
    latency_ns: RangeInclusive<u64>,
) -> Result<Flows, QueryError> {
    study.ask(&FlowsQuestion {
        orders: KnownOrders::of([&study.ask(&OrdersQuestion)?]),
        settings,
        only: None,
        latency_ns,
        with_outcomes: false,
    })
}

/// Compares the flows of the requests in two periods. Finds the flows of both by the merged model.
///
/// # Errors
/// Fails if a store cannot be read, if there is too little memory, if no trace of a period is
/// selected and complete, or if none of these traces has the requested attribute value.
pub fn compare(
    periods: [&PeriodOf; 2],
    infer: &InferSettings,
    flow_settings: FlowSettings,
    settings: &CompareSettings,
) -> Result<ComparedPeriods, QueryError> {
    compared(periods, infer, (flow_settings, false), settings)
}

/// Compares two periods like [`compare`]. Also [compares their failures](FailureShift), without
/// another reading of the stores.
///
/// # Errors
/// Fails under the same conditions as [`compare`].
pub fn compare_with_failures(
    periods: [&PeriodOf; 2],
    infer: &InferSettings,
    flow_settings: FlowSettings,
    settings: &CompareSettings,
) -> Result<(ComparedPeriods, Vec<FailureShift>), QueryError> {
    let mut found = compared(periods, infer, (flow_settings, true), settings)?;
    let outcomes = [&mut found.before, &mut found.after]
        .map(|flows| flows.outcomes.take().unwrap_or_default());
    Ok((found, failure_shifts(&outcomes)))
}

fn compared(
    [before, after]: [&PeriodOf; 2],
    infer: &InferSettings,
    (flow_settings, with_outcomes): (FlowSettings, bool),
    settings: &CompareSettings,
) -> Result<ComparedPeriods, QueryError> {
    let studies =
        [before, after].map(|of| Study::new(of.source.clone(), of.selection, infer.clone()));
    let [old, new] = &studies;
    let orders = KnownOrders::of(&[old.ask(&OrdersQuestion)?, new.ask(&OrdersQuestion)?]);
    let inferences = [old.inference()?, new.inference()?];
    let flows_of = |at: usize, of: &PeriodOf| {
        let joined = inferences[at].joined(inferences[1 - at], infer.tolerance);
        let study = Study::knowing(of.source.clone(), of.selection, infer.clone(), joined);
        let found = study.ask(&FlowsQuestion {
            orders: orders.clone(),
            settings: flow_settings,
            only: of.only.clone(),
            latency_ns: 0..=u64::MAX,
            with_outcomes,
        })?;
        Ok::<_, QueryError>((found, study))
    };
    let ((old, old_study), (new, new_study)) = (flows_of(0, before)?, flows_of(1, after)?);
    let is_client = |operation: &Operation| {
        let mut each = inferences.iter();
        each.any(|inference| inference.is_client(operation))
    };
    let comparison = Comparison::of(&old.flows, &new.flows, &is_client, settings);
    let rate = |of: &PeriodOf, found: &Flows| {
        let (windows, sampled) = (of.source.bursts()?, &found.notes.sampling.bursts);
        Ok::<_, QueryError>(inter_arrival_ns(&found.flows, &windows, sampled))
    };
    let inter_arrival_ns = [rate(before, &old)?, rate(after, &new)?];
    let mut notes = old.notes.clone();
    let mut more = new.notes.clone();
    if !Arc::ptr_eq(&before.source, &after.source) {
        // Files of the two directories may have the same names.
        for (notes, of) in [(&mut notes, before), (&mut more, after)] {
            let directory = of.source.name();
            for damage in &mut notes.damage {
                damage.file = format!("{directory}/{}", damage.file);
            }
        }
        notes.unflushed_bytes += more.unflushed_bytes;
    }
    for host in &more.unsynchronised {
        if !notes.unsynchronised.contains(host) {
            notes.unsynchronised.push(host.clone());
        }
    }
    // Both periods may read the same files.
    let damage = std::mem::take(&mut more.damage);
    notes.merge(more);
    notes.add_damage(damage);
    Ok(ComparedPeriods {
        notes,
        before: old,
        after: new,
        comparison,
        inter_arrival_ns,
        studies: [old_study, new_study],
        orders,
    })
}

impl Inference {
    /// Reports whether the inference noted a client span of this operation.
    fn is_client(&self, operation: &Operation) -> bool {
        use stroboscope_analysis::category::Category;
        let label = SegmentLabel::new(&operation.to_string(), "", "");
        self.kinds.category(&label) == Category::Network
    }
}

/// Asks for the order in which operations of one parent follow each other.
struct OrdersQuestion;

impl Question for OrdersQuestion {
    type Records = SiblingOrders;
    type Preparation = SiblingOrders;
    type Paths<'a> = ();
    type Answer = SiblingOrders;

    fn what(&self) -> &'static str {
        "finding orders"
    }

    fn records(&self) -> SiblingOrders {
        SiblingOrders::default()
    }

    fn prepare(
        &self,
        _: StudyInput<'_>,
        records: SiblingOrders,
    ) -> Result<SiblingOrders, QueryError> {
        Ok(records)
    }

    fn paths<'a>(&'a self, _: StudyInput<'a>, _: &'a SiblingOrders) {}

    fn answer(
        &self,
        _: StudyInput<'_>,
        orders: &SiblingOrders,
        (): (),
        _: Notes,
    ) -> Result<SiblingOrders, QueryError> {
        Ok(orders.clone())
    }
}

/// Reports whether a request has the requested attribute value. Returns true if none is requested.
pub(super) fn says(only: Option<&(Attribute, String)>, records: &TraceRecords) -> bool {
    only.is_none_or(|(attribute, value)| {
        let said = attribute.of_request(records);
        said.is_some_and(|said| *said == **value)
    })
}

struct FlowsQuestion {
    orders: KnownOrders,
    settings: FlowSettings,
    only: Option<(Attribute, String)>,
    latency_ns: RangeInclusive<u64>,
    with_outcomes: bool,
}

/// Pass that finds the flows of the requests with a latency in a range and, if one is requested, an
/// attribute value.
struct SomeFlows<'a> {
    only: Option<&'a (Attribute, String)>,
    latency_ns: RangeInclusive<u64>,
    flows: FlowPass<'a>,
    others: WeightedCount,
    outcomes: Option<OutcomePass>,
}

impl SomeFlows<'_> {
    /// Reports whether a request has the requested attribute value, and observes its outcome if it
    /// does.
    fn observe_outcome(&mut self, records: &TraceRecords) -> bool {
        let is_one = says(self.only, records);
        if let Some(outcomes) = self.outcomes.as_mut().filter(|_| is_one) {
            outcomes.observe(records);
        }
        is_one
    }
}

impl Pass<TraceView<'_>> for SomeFlows<'_> {
    fn observe(&mut self, seen: &TraceView<'_>) {
        let is_one = self.observe_outcome(seen.records);
        if is_one && self.latency_ns.contains(&seen.path.latency_ns) {
            self.flows.observe(seen);
        } else if is_one {
            self.others.count(seen.weight());
        }
    }

    fn merge(&mut self, other: Self) {
        self.flows.merge(other.flows);
        self.others += other.others;
        if let Some((outcomes, other)) = self.outcomes.as_mut().zip(other.outcomes) {
            outcomes.merge(other);
        }
    }
}

impl Question for FlowsQuestion {
    type Records = ();
    type Preparation = ();
    type Paths<'a> = SomeFlows<'a>;
    type Answer = Flows;

    fn what(&self) -> &'static str {
        "finding flows"
    }

    fn records(&self) {}

    fn prepare(&self, _: StudyInput<'_>, (): ()) -> Result<(), QueryError> {
        Ok(())
    }

    fn path_keys(&self, (): &()) -> AttributeKeys {
        let recorded = self.only.iter().filter_map(|(of, _)| of.recorded_key());
        let of_failures = FAILURE_KEYS.into_iter().filter(|_| self.with_outcomes);
        AttributeKeys::of(recorded.chain([ERROR]).chain(of_failures))
    }

    fn slack_use(&self) -> SlackUse {
        SlackUse::Ignored
    }

    fn paths<'a>(&'a self, _: StudyInput<'a>, (): &'a ()) -> SomeFlows<'a> {
        SomeFlows {
            only: self.only.as_ref(),
            latency_ns: self.latency_ns.clone(),
            flows: FlowPass::new(self.settings, &self.orders),
            others: WeightedCount::default(),
            outcomes: self.with_outcomes.then(OutcomePass::default),
        }
    }

    fn pass_over<'a>(paths: &mut SomeFlows<'a>, records: &TraceRecords)
    where
        Self: 'a,
    {
        paths.observe_outcome(records);
    }

    fn answer(
        &self,
        _: StudyInput<'_>,
        (): &(),
        paths: SomeFlows<'_>,
        notes: Notes,
    ) -> Result<Flows, QueryError> {
        let (others, outcomes) = (paths.others, paths.outcomes);
        let flows = paths.flows.into_flows();
        if let Some((attribute, value)) = self.only.as_ref().filter(|_| flows.requests() == 0) {
            return Err(QueryError::NoSuchValue {
                attribute: attribute.to_string(),
                value: value.clone(),
            });
        }
        Ok(Flows {
            flows,
            others,
            notes: notes.weighing(WeightUse::Everything),
            outcomes,
        })
    }
}
