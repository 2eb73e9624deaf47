//! How the clocks of two hosts are related, as `clocks` and `report` say it.

use std::borrow::Cow;

use schemars::JsonSchema;
use serde::Serialize;
use stroboscope_analysis::clock::PairReport;

use super::super::clock_words::{name, verdict};
use stroboscope_present::show::{Cell, Column, Doc, Kind, Row, TableSpec};

/// Two hosts between which requests go.
#[derive(Debug, Serialize, JsonSchema)]
pub(in super::super) struct ClockPair {
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
    pub(in super::super) fn of(pair: &PairReport) -> Self {
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

impl Row for ClockPair {
    const TABLE: TableSpec = TableSpec {
        name: "clock_pairs",
        about: "Two hosts: by how much the clock of the server is ahead of that of its client, by their round trips.",
        columns: Cow::Borrowed(&[
            Column::new("client", "client", Kind::Text),
            Column::new("server", "server", Kind::Text),
            Column::new("offset_ns", "ahead by", Kind::DifferenceNs),
            Column::new("error_ns", "±", Kind::DurationNs),
            Column::new("verdict", "verdict", Kind::Text),
            Column::new("drift_ppm", "drift (ppm)", Kind::Number),
            Column::new("rtt_ns", "lowest RTT", Kind::DurationNs),
            Column::new("round_trips", "round trips", Kind::Count),
            Column::new("steps", "times set", Kind::Count),
        ]),
    };

    fn cells(&self) -> Vec<Cell> {
        vec![
            name(&self.client).into(),
            name(&self.server).into(),
            self.offset_ns.map(|ns| ns as f64).into(),
            (self.error_ns as f64).into(),
            self.verdict.into(),
            self.drift_ppm.into(),
            (self.rtt_ns as f64).into(),
            self.round_trips.into(),
            (self.steps as u64).into(),
        ]
    }
}

pub(in super::super) fn show_pairs(pairs: &[ClockPair], doc: &mut Doc) {
    doc.table(
        "By how much the server's clock is ahead of its client's",
        pairs,
        usize::MAX,
    );
}
