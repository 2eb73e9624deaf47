//! `newsfeed all` runs everything; `newsfeed ROLE` is one process of it.

use std::process::ExitCode;

fn main() -> ExitCode {
    stroboscope_newsfeed::run(std::env::args_os().skip(1))
}
