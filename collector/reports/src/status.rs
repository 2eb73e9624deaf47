//! Outcome of a subcommand that did not fail, which determines its exit status.

/// Outcome of a subcommand that did not fail.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Status {
    /// The result is complete. Exit status 0.
    Done,
    /// The result is incomplete, `check` found problems, or `burst set --wait` ran out of time.
    /// Exit status 1.
    Partly,
    /// The later or treated requests are worse, or an assertion is violated, and the user asked to
    /// fail then. Exit status 1.
    Regression,
    /// The data cannot tell whether requests became worse, or an assertion holds, and the user
    /// asked to fail then. Exit status 2.
    Undecided,
    /// A signal of this number ended the subcommand before it had a result, and the subcommand
    /// stopped everything that it had started. The exit status is that of shells: 128 more than the
    /// number, so 130 after Ctrl-C.
    Interrupted(i32),
}
