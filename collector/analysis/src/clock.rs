//! One time axis for the clocks of many hosts (The Mystery Machine, §3).
//!
//! Where a thread of control goes from host A to host B and back, A's interval minus B's is the time on the network,
//! RTT. Were both ways equally long, B's middle instant would be A's; whatever the ways were, it is at most RTT/2 off. So
//! each [`RoundTrip`] is one estimate of the offset between two clocks, with its own error bound.
//!
//! 1. [`ClockEstimates`] takes the traces one by one and keeps, for each ordered pair of hosts and each window of time, the
//!    round trip of lowest RTT; for each pair, what speaks for its clocks and against them; and what each host's timestamps
//!    are whole multiples of, its [`Resolution`]. It is bounded: a pair's windows become longer when there are too many.
//! 2. [`ClockEstimates::align`] judges each pair. Clocks that [agree](Verdict::Agree) with nearly all round trips as they
//!    were recorded are taken as recorded; where tasks of event logs cross hosts, within the offset that their best round
//!    trip does not exclude. They are corrected where nearly all round trips agree with one line of offsets that is not zero
//!    ([`Verdict::Differ`]): a host's offset at any time is the line between the estimates before and after, so that
//!    drift is followed, along the ways of least total error. Round trips that agree with nothing tie nothing together.
//! 3. Hosts that nothing ties together are on different islands, between which no order is known.
//! 4. [`Alignment::apply`] corrects a trace's timestamps, and notes error bound, resolution and island of each host in
//!    [`TraceRecords::clocks`](crate::record::TraceRecords::clocks), which segments take over and the model respects.
//!
//! An event log's lines tell round trips only if they are in the order of control, which lines that were merged from
//! several hosts are not. So of each task the more plausible of two orders is found, that of the lines and that of the
//! timestamps: the one in which the thread of control comes back to where it began. Unless
//! nearly all tasks of a pair speak for the lines, the timestamps are believed. What this cannot tell apart is a
//! clock that is off by a constant and lines of that host that arrive late by a constant.
//!
//! What a host's kernel says of its clock ([`ClockEstimates::note_kernel`]) names the hosts whose clocks nothing keeps right,
//! and ties hosts together that nothing else does: two clocks that are kept right differ by no more than both errors.
//!
//! The bounds hold where a clock runs at a constant rate between two estimates, and gains or loses at most
//! [`DRIFT_MAX_PPM`] before the first and after the last.

mod alignment;
mod anchors;
mod estimates;
mod evidence;
mod island;
mod kernel_clock;
mod pair;
mod resolution;
mod round_trip;

pub use alignment::Alignment;
pub use anchors::DRIFT_MAX_PPM;
pub use estimates::{ClockEstimates, HOSTS_MAX, WINDOWS_MAX};
pub use evidence::Verdict;
pub use kernel_clock::KernelClock;
pub use pair::PairReport;
pub use resolution::Resolution;
pub use round_trip::{RoundTrip, round_trips};
