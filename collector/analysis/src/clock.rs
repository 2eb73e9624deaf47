//! One time axis for the clocks of many hosts (The Mystery Machine, §3).
//!
//! Where a thread of control goes from host A to host B and back, A's interval minus B's is the time on the network,
//! RTT. Were both ways equally long, B's middle instant would be A's; whatever the ways were, it is at most RTT/2 off. So
//! each [`RoundTrip`] is one estimate of the offset between two clocks, with its own error bound.
//!
//! 1. [`ClockEstimates`] takes the traces one by one and keeps, for each ordered pair of hosts and each window of time, the
//!    round trip of lowest RTT. It is bounded: a pair's windows become longer when there are too many of them.
//! 2. [`ClockEstimates::align`] joins the hosts to a reference host along the tree of least total error; a host's offset
//!    at any time is the line between the estimates before and after, so that drift is followed.
//! 3. [`Alignment::apply`] corrects a trace's timestamps, and notes the error bound of each host in
//!    [`TraceRecords::clocks`](crate::record::TraceRecords::clocks), which segments take over and the model respects.
//!
//! The bounds hold where a clock runs at a constant rate between two estimates, and gains or loses at most
//! [`DRIFT_MAX_PPM`] before the first and after the last.

mod alignment;
mod anchors;
mod estimates;
mod round_trip;

pub use alignment::{Alignment, PairReport};
pub use anchors::DRIFT_MAX_PPM;
pub use estimates::{ClockEstimates, HOSTS_MAX, WINDOWS_MAX};
pub use round_trip::{RoundTrip, round_trips};
