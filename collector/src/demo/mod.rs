//! Subcommand `demo`: starts a collector and the newsfeed's processes under load, records in
//! bursts, and analyses the recording. With a scenario, it measures the effect of data-quality
//! tradeoffs or of slack instead.

mod findings;
mod fleet;
mod report;
mod run;
mod scenario;

pub use fleet::ROLE_VERB;
pub use report::{Part, Report};
pub use run::{DemoError, DemoOptions, Outcome, run};
pub use scenario::{Scenario, ScenarioOutcome, Story, Verdict, run_scenario};
