//! Shared parts of the end-to-end tests: the program under test, event logs, and random numbers.

mod log;
mod program;
mod random;

pub use log::{Line, event_lines, shuffled};
pub use program::{Finished, Program, Server};
pub use random::Random;
