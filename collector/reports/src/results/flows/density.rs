//! Distribution of latencies: density over their logarithm, in bars.

use schemars::JsonSchema;
use serde::Serialize;
use stroboscope_analysis::statistics::{BandwidthRule, Density, density_of_sample};

use stroboscope_render::humanise::{duration, percent};
use stroboscope_render::show::{Bar, Chart, Doc, Figure};

const BARS_MAX: usize = 24;
/// Minimum share of the requests at either end; less is left out, to avoid nearly empty bars.
const SHARE_MIN: f64 = 0.001;

/// Density of latencies over their binary logarithm.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub(super) struct LatencyDensity {
    /// Standard deviation of the kernel, in doublings.
    bandwidth_log2: f64,
    /// Rule by which the bandwidth was chosen.
    rule: &'static str,
    /// Modes of the latency, the shortest first.
    modes: Vec<ModeRow>,
    /// Shares of all requests, from the shortest latency on.
    bars: Vec<BarRow>,
}

/// A mode of the latency: a local maximum of the density.
#[derive(Clone, Debug, Serialize, JsonSchema)]
struct ModeRow {
    latency_ns: f64,
    /// Share of all requests between the valleys on both sides.
    share: f64,
    /// Height in standard errors above the higher valley towards a higher mode, or above 0.
    prominence: f64,
}

/// Share of the requests in one range of latency.
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
    /// Estimates the density of latencies with their counts or weights. `size` is the sample's
    /// effective size. Returns `None` without latencies.
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

/// Divides the logarithm of latency into bars of about equal width. Leaves out less than
/// [`SHARE_MIN`] of the requests at either end.
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
