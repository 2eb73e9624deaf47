//! Differences of slow requests, shared by `anomalies` and `report`.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::Serialize;
use stroboscope_analysis::anomaly::{Anomaly, GroupStatistics, SIGNIFICANT_Q_VALUE};
use stroboscope_analysis::statistics::Difference;

use crate::study::NamedInference;
use crate::verb::{Report, Top};
use stroboscope_query::{AnomalyReport, Notes};
use stroboscope_render::humanise::{counted, duration, percent};
use stroboscope_render::rows;
use stroboscope_render::show::{Doc, SegmentName};

/// Maximum number of root operations whose thresholds a text shows.
const THRESHOLDS_SHOWN: usize = 6;
/// Minimum difference as a share of the critical path. A smaller difference does not make a request
/// slow, however significant it is.
const DIFFERENCE_MIN: f64 = 0.005;

/// Differences between slow requests and others.
#[derive(Debug, Serialize, JsonSchema)]
pub struct Anomalies {
    #[serde(flatten)]
    notes: Notes,
    threshold_ns: Option<u64>,
    thresholds_ns: BTreeMap<String, u64>,
    outliers: u64,
    others: u64,
    segments: Top<AnomalyRow>,
}

#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct AnomalyRow {
    rank: u64,
    #[serde(flatten)]
    segment: SegmentName,
    outliers: Group,
    others: Group,
    critical_share: ShareDifference,
    slack_share: ShareDifference,
    significant: bool,
    examples: Vec<String>,
}

/// Statistics of a segment in one group of requests.
#[derive(Clone, Debug, Serialize, JsonSchema)]
struct Group {
    traces: u64,
    critical_traces: u64,
    mean_share: f64,
    mean_slack_share: f64,
}

/// Difference between the groups. The effect size is null if it is infinite, because neither group
/// varies and their means differ.
#[derive(Clone, Debug, Serialize, JsonSchema)]
struct ShareDifference {
    difference: f64,
    effect_size: Option<f64>,
    p_value: f64,
    q_value: f64,
}

impl From<&GroupStatistics> for Group {
    fn from(group: &GroupStatistics) -> Self {
        Self {
            traces: group.traces.rounded(),
            critical_traces: group.critical_traces.rounded(),
            mean_share: group.critical_share.mean(),
            mean_slack_share: group.slack_share.mean(),
        }
    }
}

impl ShareDifference {
    fn of(difference: &Difference, q_value: f64) -> Self {
        let effect_size = difference
            .effect_size
            .is_finite()
            .then_some(difference.effect_size);
        Self {
            difference: difference.mean,
            effect_size,
            p_value: difference.p_value,
            q_value,
        }
    }
}

impl AnomalyRow {
    fn of(known: NamedInference<'_>, report: &AnomalyReport, anomaly: &Anomaly, rank: u64) -> Self {
        Self {
            rank,
            segment: known.name(anomaly.segment),
            outliers: Group::from(&anomaly.outliers),
            others: Group::from(&anomaly.others),
            critical_share: ShareDifference::of(&anomaly.critical, anomaly.critical_q_value),
            slack_share: ShareDifference::of(&anomaly.slack, anomaly.slack_q_value),
            significant: anomaly.critical_q_value <= SIGNIFICANT_Q_VALUE,
            examples: report.examples(anomaly),
        }
    }

    /// Reports whether the row is informative: the segment's share of the critical path differs
    /// significantly, and by at least [`DIFFERENCE_MIN`].
    fn tells(&self) -> bool {
        self.significant && self.critical_share.difference.abs() >= DIFFERENCE_MIN
    }
}

rows! {
    AnomalyRow as row, "anomalies": "A segment in slow requests and in the others, by its share of the critical path.";
    segment: Segment, "segment" = &row.segment;
    slow_share: Share, "in slow" = row.outliers.mean_share;
    other_share: Share, "in others" = row.others.mean_share;
    effect_size: Number, "effect" = row.critical_share.effect_size;
    q_value: Probability, "q" = row.critical_share.q_value;
    example: Request, "for example" = row.examples.first().map(|example| &**example);
}

impl Anomalies {
    /// Converts a report; shows up to `top` segments, or all if it is 0.
    pub fn of(found: AnomalyReport, known: NamedInference<'_>, top: usize) -> Self {
        let ranked = found.ranked.iter().zip(1..);
        let rows = ranked.map(|(anomaly, rank)| AnomalyRow::of(known, &found, anomaly, rank));
        let segments = Top {
            rows: rows.collect(),
            top,
        };
        let thresholds_ns = found.thresholds_ns;
        // Show one number if there is one kind of request.
        let first_ns = thresholds_ns.values().next().copied();
        let threshold_ns = first_ns.filter(|_| thresholds_ns.len() == 1);
        Self {
            notes: found.notes,
            threshold_ns,
            thresholds_ns,
            outliers: found.outliers.rounded(),
            others: found.others.rounded(),
            segments,
        }
    }

    /// Describes the thresholds of slow requests.
    fn slow(&self) -> String {
        let named = |(root, ns): (&String, &u64)| format!("{} for {root}", duration(*ns as f64));
        let named = self.thresholds_ns.iter().map(named);
        let named: Vec<String> = named.take(THRESHOLDS_SHOWN).collect();
        match self.thresholds_ns.len() {
            0 | 1 => self
                .threshold_ns
                .map_or_else(String::new, |ns| duration(ns as f64)),
            all if all <= THRESHOLDS_SHOWN => named.join(", "),
            all => format!(
                "is usual for their root operation ({}, and {} more)",
                named.join(", "),
                all - named.len()
            ),
        }
    }

    /// Describes the segment whose share of the critical path is most increased in slow requests;
    /// `None` if no share is clearly increased, or if fewer than two requests are slow.
    fn most_text(&self) -> Option<String> {
        let rows = self.segments.rows.iter().filter(|row| row.tells());
        let difference = |row: &&AnomalyRow| row.critical_share.difference;
        let most = rows.max_by(|a, b| difference(a).total_cmp(&difference(b)))?;
        let [slow, others] = [&most.outliers, &most.others].map(|of| percent(of.mean_share));
        (self.outliers >= 2 && difference(&most) > 0.0).then(|| {
            format!(
                "Slow requests wait longer for {}: it is {slow} of their critical path, and {others} of the others'.",
                most.segment.short()
            )
        })
    }

    /// Explains which segments the table leaves out, and why. `told` is the number of informative
    /// rows (see [`AnomalyRow::tells`]).
    fn rest(&self, told: usize) -> String {
        let (all, shown) = (self.segments.rows.len() as u64, self.shown(told) as u64);
        let unsure = self.segments.rows.iter().filter(|row| !row.significant);
        let (unsure, sure) = (unsure.count() as u64, told as u64);
        let small = all - unsure - sure;
        let of = [
            (unsure, "may be chance (q above 0.05)"),
            (small, "differ by less than 0.5% of the critical path"),
            (sure.saturating_sub(shown), "come after these"),
        ];
        let said = of.into_iter().filter(|(count, _)| *count > 0);
        let said = said.map(|(count, why)| format!("{count} {why}"));
        let said: Vec<String> = said.collect();
        match said.is_empty() {
            true => String::new(),
            false => format!(
                "{} looked at; not shown: {}. --top 0 shows all.",
                counted(all, "segment"),
                said.join(", ")
            ),
        }
    }

    /// Returns the number of rows that the table shows if two requests or more are slow. `told` is
    /// the number of informative rows (see [`AnomalyRow::tells`]).
    fn shown(&self, told: usize) -> usize {
        match self.segments.top {
            0 => self.segments.rows.len(),
            top => told.min(top),
        }
    }
}

impl Report for Anomalies {
    fn notes(&self) -> &Notes {
        &self.notes
    }

    fn show(&self, doc: &mut Doc) {
        doc.heading("Differences of slow requests");
        doc.sentence(format!(
            "{} took longer than {}, {} did not.",
            counted(self.outliers, "request"),
            self.slow(),
            self.others
        ));
        doc.sentences(self.most_text());
        // Without enough slow requests, hide the comparison.
        let told = self.segments.rows.iter().filter(|row| row.tells()).count();
        let shown = if self.outliers < 2 {
            0
        } else {
            self.shown(told)
        };
        let title = if shown == 0 {
            ""
        } else {
            "Mean share of the critical path"
        };
        // Informative rows first, each part in its order; files have all rows.
        let (first, rest): (Vec<&AnomalyRow>, Vec<&AnomalyRow>) =
            self.segments.rows.iter().partition(|row| row.tells());
        doc.table(title, first.into_iter().chain(rest), shown);
        if self.outliers < 2 {
            doc.sentence(
                "Too few slow requests to compare; record more, or take more of them with --slowest.",
            );
        } else if self.segments.top > 0 {
            doc.sentence(self.rest(told));
        }
    }
}
