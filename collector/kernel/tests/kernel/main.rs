//! Tests of the recorder with events of a real kernel. Tests that the machine does not allow print
//! their names and pass.

mod crash;
mod detached;
mod export;
mod filter;
mod ground_truth;
mod identity;
mod loss;
mod machine;
mod object;
mod other_languages;
mod privilege;
mod replay;
mod sdk;
mod workload;
