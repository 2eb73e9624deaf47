//! One time axis for the clocks of many hosts (The Mystery Machine, §3).
//!
//! A thread of control goes from host A to host B and back. A's interval minus B's is the time on
//! the network, the RTT. If both ways took equally long, B's middle instant would coincide with
//! A's; it is at most RTT/2 off. So each [`RoundTrip`] is one estimate of the offset between two
//! clocks, with its own error bound.
//!
//! 1. [`ClockEstimates`] takes the traces one by one. For each ordered pair of hosts and each
//!    window of time, it keeps the round trip of lowest RTT; for each pair, the evidence for and
//!    against its clocks; and for each host, the unit that its timestamps are whole multiples of,
//!    its [`Resolution`]. It is bounded: a pair's windows become longer when there are too many.
//! 2. [`ClockEstimates::align`] judges each pair. Clocks that [agree](Verdict::Agree) with nearly
//!    all round trips as recorded are used as recorded; where tasks of event logs cross hosts, they
//!    are used within the offset that their best round trip does not exclude. Clocks are corrected
//!    where nearly all round trips agree with one line of offsets that is not zero
//!    ([`Verdict::Differ`]): a host's offset at any time is the line between the estimates before
//!    and after, which follows drift, along the paths of least total error. Round trips that agree
//!    with nothing connect no hosts.
//! 3. Hosts that nothing connects are on different islands. No order is known between islands.
//! 4. [`Alignment::apply`] corrects a trace's timestamps, and stores error bound, resolution and
//!    island of each host in [`TraceRecords::clocks`](crate::record::TraceRecords::clocks).
//!    Segments take these over and the model respects them.
//!
//! An event log's lines reveal round trips only if they are in the order of control, which lines
//! merged from several hosts are not. So for each task, the more plausible of two orders is chosen,
//! that of the lines and that of the timestamps: the one in which the thread of control returns to
//! its origin. Unless nearly all tasks of a pair support the lines, the timestamps are believed.
//! This cannot distinguish a clock that is off by a constant from lines of that host that arrive
//! late by a constant.
//!
//! A kernel's report on its clock ([`ClockEstimates::note_kernel`]) identifies the hosts whose
//! clocks are not synchronized. It also connects hosts that nothing else does: two synchronized
//! clocks differ by no more than the sum of both errors.
//!
//! The bounds hold where a clock runs at a constant rate between two estimates, and gains or loses
//! at most [`DRIFT_MAX_PPM`] before the first and after the last.

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
