//! The `demo`: a collector, five real processes under load, recorded in bursts, and what the analysis makes of it.

mod findings;
mod fleet;
mod report;
mod run;

pub use fleet::ROLE_VERB;
pub use report::{Part, Report};
pub use run::{DemoError, DemoOptions, Outcome, run};
