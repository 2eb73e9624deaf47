//! The `demo`: a collector, five real processes under load, recorded in bursts, and what the analysis makes of it.

mod findings;
mod fleet;
mod report;
mod run;
mod scenario;

pub use fleet::ROLE_VERB;
pub use report::{Part, Report};
pub use run::{DemoError, DemoOptions, Outcome, run};
pub use scenario::{Scenario, ScenarioOutcome, Told, Verdict, run_scenario};
