//! Decisions of a policy, load by load.

use schemars::JsonSchema;
use serde::Serialize;
use stroboscope_tradeoff::{Capacity, Goal, PointPolicy, Policy};

use stroboscope_query::Notes;
use stroboscope_render::humanise::{duration, percent};
use stroboscope_render::rows;
use stroboscope_render::show::Doc;

/// Decisions of a policy at given loads.
#[derive(Debug, Serialize, JsonSchema)]
pub struct PlanSays {
    #[serde(flatten)]
    pub notes: Notes,
    version: u64,
    plan: Vec<PlanRow>,
}

#[derive(Debug, Serialize, JsonSchema)]
struct PlanRow {
    point: String,
    goal: String,
    requests_per_second: f64,
    /// Share of items that would be left out.
    tradeoff_rate: f64,
    /// Predicted latency in ns; null if the load exceeds the loads measured at this tradeoff rate.
    predicted_ns: Option<f64>,
    /// True if the goal is predicted to be met.
    met: bool,
    expected_drop: f64,
    /// Utility per second, for a goal of utility.
    utility_per_second: Option<f64>,
    /// `add` or `remove` if another number of instances pays off, for a goal of utility.
    instances: Option<String>,
}

rows! {
    PlanRow as row, "tradeoff_plan": "The decision at a load.";
    point: Text, "point" = &*row.point;
    requests_per_second: Mean, "requests/s" = row.requests_per_second;
    tradeoff_rate: Share, "left out" = row.tradeoff_rate;
    predicted_ns: DurationNs, "latency" = row.predicted_ns;
    met: Flag, "goal met" = row.met;
    expected_drop: Mean, "drop" = row.expected_drop;
    utility_per_second: Mean, "utility/s" = row.utility_per_second;
    instances: Text, "instances" = row.instances.as_deref();
    goal: Text, "goal" = &*row.goal;
}

impl PlanSays {
    /// Computes the decisions at these loads; without loads, at all measured loads of each point,
    /// leaving out a load less than 10 % above the last one kept.
    pub fn of(policy: &Policy, loads: &[f64]) -> Self {
        let plan = policy.points.iter().flat_map(|point| {
            let mut of_point = loads.to_vec();
            if of_point.is_empty() {
                let curves = point.performance.curves.iter();
                let measured = curves.flat_map(|curve| &curve.points);
                of_point.extend(measured.map(|measured| measured.requests_per_second));
                of_point.sort_by(f64::total_cmp);
                of_point.dedup_by(|a, b| *a < *b * 1.1);
            }
            let rows = of_point.into_iter().map(|load| planned(point, load));
            rows.collect::<Vec<_>>()
        });
        Self {
            notes: Notes::default(),
            version: policy.version,
            plan: plan.collect(),
        }
    }

    pub fn show(&self, doc: &mut Doc) {
        doc.heading("Decisions");
        doc.sentence(format!("By policy {}.", self.version));
        doc.table("Plan", &self.plan, usize::MAX);
    }
}

fn planned(point: &PointPolicy, requests_per_second: f64) -> PlanRow {
    let rate = point.rate(requests_per_second);
    let decided = point.utility(requests_per_second);
    let advised = decided.and_then(|decided| decided.advised());
    PlanRow {
        point: point.point.clone(),
        goal: goal_text(&point.goal),
        requests_per_second,
        tradeoff_rate: rate.rate,
        predicted_ns: Some(rate.predicted_ns).filter(|ns| ns.is_finite()),
        met: rate.is_met,
        expected_drop: point.quality.mean_drop(rate.rate),
        utility_per_second: decided.map(|decided| decided.per_second),
        instances: advised.map(|advised| match advised {
            Capacity::Add => "add".to_owned(),
            Capacity::Remove => "remove".to_owned(),
        }),
    }
}

fn goal_text(goal: &Goal) -> String {
    match goal {
        Goal::Full => "full fidelity".to_owned(),
        Goal::Latency { limit_ns } => format!("latency within {}", duration(*limit_ns)),
        Goal::Slack {
            component,
            default_rate,
        } => format!(
            "{} left out, less within the slack of {component}",
            percent(*default_rate)
        ),
        Goal::Utility(utility) => format!(
            "utility, {} instances of at most {}",
            utility.instances, utility.instances_max
        ),
    }
}
