//! How latencies are distributed: a density over their logarithm, in bars.

use schemars::JsonSchema;
use serde::Serialize;
use stroboscope_analysis::statistics::{BandwidthRule, Density, density_of_sample};

use stroboscope_present::humanise::{duration, percent};
use stroboscope_present::show::{Bar, Chart, Doc, Figure};

/// Bars of the picture, at most.
const BARS_MAX: usize = 24;
/// Bars with less at either end are left out.
const SHARE_MIN: f64 = 0.001;

/// The density of latencies over their binary logarithm.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub(super) struct LatencyDensity {
    /// The standard deviation of the kernel, in doublings.
    bandwidth_log2: f64,
    /// Where that is from.
    rule: &'static str,
    /// Latencies around which many are, the shortest first.
    modes: Vec<ModeRow>,
    /// Parts of all, from the shortest latency on.
    bars: Vec<BarRow>,
}

/// A latency around which many are.
#[derive(Clone, Debug, Serialize, JsonSchema)]
struct ModeRow {
    latency_ns: f64,
    /// The part of all between the valleys to both sides.
    share: f64,
    /// How far it rises above them, in standard errors.
    prominence: f64,
}

/// Latencies from here to there.
#[derive(Clone, Debug, Serialize, JsonSchema)]
struct BarRow {
    from_ns: f64,
    to_ns: f64,
    share: f64,
}

fn rule(of: BandwidthRule) -> &'static str {
    match of {
        BandwidthRule::Diffusion => "diffusion (Botev, Grotowski and Kroese)",
        BandwidthRule::Silverman => "Silverman's rule of thumb",
        BandwidthRule::Grid => "the least that the grid can show",
    }
}

impl LatencyDensity {
    /// Of latencies, each with how often or with its weight, and of the effective size of the sample; nothing of none.
    pub(super) fn of(latencies_ns: &[(u64, u64)], size: f64) -> Option<Self> {
        let found = density_of_sample(latencies_ns, size.round() as u64)?;
        Some(Self {
            bandwidth_log2: found.bandwidth_log2,
            rule: rule(found.rule),
            modes: found
                .modes
                .iter()
                .map(|mode| ModeRow {
                    latency_ns: mode.value_ns,
                    share: mode.share,
                    prominence: mode.prominence,
                })
                .collect(),
            bars: bars(&found),
        })
    }

    pub(super) fn show(&self, doc: &mut Doc) {
        let modes: Vec<String> = self
            .modes
            .iter()
            .map(|mode| {
                format!(
                    "{} ({} of all)",
                    duration(mode.latency_ns),
                    percent(mode.share)
                )
            })
            .collect();
        let alternative = format!("Most requests take about {}.", modes.join(", or "));
        doc.sentence(format!(
            "{alternative} Density of log₂ latency, bandwidth {:.3} by {}.",
            self.bandwidth_log2, self.rule
        ));
        let bar = |bar: &BarRow| {
            let mode = self
                .modes
                .iter()
                .find(|mode| (bar.from_ns..bar.to_ns).contains(&mode.latency_ns));
            Bar {
                name: format!("{} – {}", duration(bar.from_ns), duration(bar.to_ns)),
                share: bar.share,
                beside: mode.map_or_else(String::new, |mode| {
                    format!("mode at {}", duration(mode.latency_ns))
                }),
            }
        };
        let bars = Chart::Columns(self.bars.iter().map(bar).collect());
        doc.figure(Figure::new(
            "Latency, in equal parts of its logarithm",
            alternative,
            bars,
        ));
    }
}

/// Equal parts of the logarithm, without those at the ends where there is next to nothing.
fn bars(of: &Density) -> Vec<BarRow> {
    let mass = |range: std::ops::Range<usize>| -> f64 {
        of.densities[range].iter().sum::<f64>() * of.step_log2
    };
    let total = of.densities.len();
    let mut below = 0.0;
    let first = (0..total).find(|at| {
        below += of.densities[*at] * of.step_log2;
        below >= SHARE_MIN
    });
    let mut above = 0.0;
    let last = (0..total).rev().find(|at| {
        above += of.densities[*at] * of.step_log2;
        above >= SHARE_MIN
    });
    let (Some(first), Some(last)) = (first, last.filter(|last| Some(*last) >= first)) else {
        return Vec::new();
    };
    let places = last + 1 - first;
    let count = BARS_MAX.min(places);
    (0..count)
        .map(|at| {
            let range = first + at * places / count..first + (at + 1) * places / count;
            BarRow {
                from_ns: of.value_ns(range.start),
                to_ns: of.value_ns(range.end),
                share: mass(range),
            }
        })
        .collect()
}
