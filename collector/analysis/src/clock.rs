//! Puts the clocks of many hosts on one time axis (The Mystery Machine, §3).
//!
//! A thread of control goes from host A to host B and back. A's interval minus B's is the time on
//! the network, the RTT. If both ways took equally long, B's middle instant would coincide with
//! A's; it is at most RTT/2 off. Each [`RoundTrip`] is therefore one estimate of the offset between
//! two clocks, with its own error bound.
//!
//! 1. [`ClockEvidence`] observes the traces one by one. For each ordered pair of hosts and each
//!    window of time, it keeps the round trip of lowest RTT. For each unordered pair it keeps
//!    evidence for and against their clocks. For each host it determines the [`Resolution`] of its
//!    timestamps. Its memory is bounded: if a pair has too many windows, they become longer.
//! 2. [`ClockEvidence::align`] judges each pair:
//!    - If nearly all round trips agree with one line of offsets that is not zero
//!      ([`Verdict::Differ`]), the clocks are corrected. Between two estimates, a host's offset
//!      lies on the line between them, so it follows drift. Corrections over several hosts follow
//!      the path of least total error.
//!    - Otherwise, some round trips may be impossible at any offset, because the server took longer
//!      than the client waited. If these are fewer than half, and at least three in four of the
//!      others [agree](Verdict::Agree) with the recorded clocks, both clocks are taken as equal,
//!      unless clocks within a group of agreeing hosts differ. The error bound of the pair is then
//!      zero, unless tasks of event logs cross the two hosts and their lines are believed. In that
//!      case, it is the largest offset that the tightest round trip does not exclude.
//!    - Otherwise, the round trips connect no hosts.
//!    - Without round trips, spans whose parents are on the other host can show that clocks agree.
//! 3. Hosts that neither a pair nor a kernel's report connects are on different islands. The order
//!    of events on different islands is unknown.
//! 4. [`Alignment::apply`] corrects a trace's timestamps. Unless all clocks are exact, it stores
//!    each host's error bound, resolution and island in
//!    [`TraceRecords::clocks`](crate::record::TraceRecords::clocks) for segments and the model.
//!
//! An event log's lines reveal round trips only if they are in the order of control, which lines
//! merged from several hosts may not be. For each task, two orders are therefore compared, that of
//! the lines and that of the timestamps. If the thread of control returns to its origin in only one
//! of the two orders, that order is the more plausible one. So is the order of the timestamps if
//! it contradicts the order of one host's lines. The lines of a pair of hosts are believed if at
//! most one in ten of the tasks that support one order supports the timestamps. Otherwise the
//! timestamps are believed if any task returns to its origin by them; if none does, the pair
//! connects no hosts. The comparison cannot distinguish a clock that is off by a constant from
//! lines of that host that arrive late by a constant.
//!
//! Kernels' reports on their clocks ([`ClockEvidence::note_kernel`]) identify the hosts whose
//! clocks are not synchronised. The reports also connect hosts that nothing else does: two
//! synchronised clocks differ by no more than the sum of both maximum errors.
//!
//! The error bounds hold if a clock runs at a constant rate between two estimates. Before the first
//! estimate and after the last, it may gain or lose at most [`DRIFT_MAX_PPM`].

mod alignment;
mod anchors;
mod evidence;
mod island;
mod kernel_clock;
mod pair;
mod pair_evidence;
mod resolution;
mod round_trip;

pub use alignment::Alignment;
pub use anchors::DRIFT_MAX_PPM;
pub use evidence::{ClockEvidence, HOSTS_MAX, WINDOWS_MAX};
pub use kernel_clock::KernelClock;
pub use pair::PairReport;
pub use pair_evidence::Verdict;
pub use resolution::Resolution;
pub use round_trip::{RoundTrip, round_trips};
