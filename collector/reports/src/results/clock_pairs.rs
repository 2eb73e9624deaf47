//! Relation between the clocks of two hosts, shared by `clocks`, `infer` and `report`.

use schemars::JsonSchema;
use serde::Serialize;
use stroboscope_analysis::clock::PairReport;

use crate::clock_words::{name, verdict};
use stroboscope_render::rows;
use stroboscope_render::show::Doc;

/// Relation between the clocks of two hosts that requests connect.
#[derive(Debug, Serialize, JsonSchema)]
pub struct ClockPair {
    client: String,
    server: String,
    verdict: &'static str,
    round_trips: u64,
    offset_ns: Option<i64>,
    error_ns: u64,
    rtt_ns: u64,
    drift_ppm: f64,
    estimates: usize,
    steps: usize,
}

impl ClockPair {
    pub fn of(pair: &PairReport) -> Self {
        Self {
            client: pair.client.to_string(),
            server: pair.server.to_string(),
            verdict: verdict(pair.verdict),
            round_trips: pair.round_trips,
            offset_ns: i64::try_from(pair.offset_ns).ok(),
            error_ns: pair.error_ns,
            rtt_ns: pair.rtt_ns,
            drift_ppm: pair.drift_ppm,
            estimates: pair.estimates,
            steps: pair.steps,
        }
    }
}

rows! {
    ClockPair as row, "clock_pairs":
        "Two hosts, and how far the server's clock is ahead of its client's, by their round trips.";
    client: Text, "client" = name(&row.client);
    server: Text, "server" = name(&row.server);
    offset_ns: DifferenceNs, "ahead by" = row.offset_ns.map(|ns| ns as f64);
    error_ns: DurationNs, "±" = row.error_ns;
    verdict: Text, "verdict" = row.verdict;
    drift_ppm: Number, "drift (ppm)" = row.drift_ppm;
    rtt_ns: DurationNs, "lowest RTT" = row.rtt_ns;
    round_trips: Count, "round trips" = row.round_trips;
    steps: Count, "times set" = row.steps as u64;
}

pub fn show_pairs(pairs: &[ClockPair], doc: &mut Doc) {
    doc.table(
        "Lead of the server's clock over its client's",
        pairs,
        usize::MAX,
    );
}
