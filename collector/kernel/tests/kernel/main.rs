//! The recorder against real kernel events. Tests that the machine does not allow say so by name and pass.

mod ground_truth;
mod machine;
mod workload;
