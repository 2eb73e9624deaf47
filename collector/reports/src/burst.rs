//! The `burst` subcommand.

mod plan;

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use clap::{Args, Subcommand};
use schemars::JsonSchema;
use serde::Serialize;
use stroboscope_burst::BurstConfig;

use tokio::runtime::Runtime;

use crate::arguments::{parse_duration, parse_share};
use crate::output::{print, print_json};
use crate::{Failure, Status};
use stroboscope_render::humanise::{duration, percent};

const WINDOWS_SHOWN: usize = 5;
/// Minimum ratio of a burst period to the request's length, after Ardelean et al., NSDI 2018,
/// §3.3.1. Applied to the time from burst to burst, the rule makes sure that no request overlaps
/// two bursts. Applied to the burst itself, it makes sure that most requests are seen whole: the
/// edges cut about a fifth of the requests that are a tenth as long as the burst and overlap it.
/// Explanations show the bounds that a config has; [`plan()`] obeys the stricter one.
const TIMES_REQUEST: u32 = 10;

/// Explain a burst-config, or plan one
///
/// Recording is on at wall time t, in ms since the Unix epoch, when config & t == config.
/// `--config` explains a config. `--request` and `--duty` plan one: its bursts are at least ten
/// times as long as a request, and take at most that share of time. `plan` uses the requests in the
/// store.
#[derive(Debug, Args)]
#[command(group = clap::ArgGroup::new("what").required(true).args(["config", "request"]))]
#[command(args_conflicts_with_subcommands = true, subcommand_negates_reqs = true)]
pub struct Burst {
    #[command(subcommand)]
    verb: Option<BurstVerb>,
    /// Config to explain: 0b11100, 0x1c, 28, 4ms/32ms, always or off
    #[arg(long, value_name = "CONFIG")]
    config: Option<String>,
    /// Length of requests to plan for, such as 3ms
    #[arg(long, value_name = "DURATION", value_parser = parse_duration)]
    request: Option<Duration>,
    /// Share of time to record, such as 5%
    #[arg(long, value_name = "SHARE", default_value = "5%", value_parser = parse_share)]
    duty: f64,
    /// Print JSON instead of text
    #[arg(long)]
    json: bool,
}

#[derive(Debug, Subcommand)]
enum BurstVerb {
    Plan(Box<plan::PlanVerb>),
}

/// JSON output of `burst`, or of `burst plan`.
#[derive(JsonSchema)]
#[serde(untagged)]
#[allow(dead_code, reason = "the document's schema is made of it")]
pub enum BurstSays {
    Explained(Box<BurstPlan>),
    Planned(Box<plan::BurstPlanSays>),
}

/// A burst-config, explained or planned.
#[derive(Debug, Serialize, JsonSchema)]
pub struct BurstPlan {
    /// Burst-config as a mask.
    config: u64,
    config_binary: String,
    /// Length of a burst in ms; null without a single period below 2^64 ms.
    burst_ms: Option<u64>,
    period_ms: Option<u64>,
    /// Share of time that is recorded.
    duty: f64,
    open_now: bool,
    /// Current time in ms since the Unix epoch, like the times of `windows`.
    now_ms: u64,
    /// Next windows in which the config records; one that is open begins at `now_ms`. Empty if
    /// recording is off.
    windows: Vec<PlannedWindow>,
    /// Longest requests that suit the period, in ns; null without a single period below 2^64 ms.
    request_max_ns: Option<u64>,
    /// Longest requests that are mostly recorded whole, in ns; null if recording is always on or
    /// off.
    request_whole_max_ns: Option<u64>,
    /// Remark on how the input was rounded or planned.
    remark: Option<String>,
    #[serde(skip)]
    mask: BurstConfig,
    /// A tenth of the period; `None` without a single period below 2^64 ms.
    #[serde(skip)]
    request_max: Option<Duration>,
    /// A tenth of the shortest burst; `None` if recording is always on or off.
    #[serde(skip)]
    request_whole_max: Option<Duration>,
}

/// One recording window; its end is null if it never closes.
#[derive(Debug, Serialize, JsonSchema)]
struct PlannedWindow {
    open_ms: u64,
    close_ms: Option<u64>,
}

impl Burst {
    pub fn run(self, runtime: &Runtime) -> Result<Status, Failure> {
        if let Some(BurstVerb::Plan(verb)) = self.verb {
            return verb.run(runtime);
        }
        let (config, mut remark) = match (&self.config, self.request) {
            (Some(text), _) => {
                let parsed = BurstConfig::parse(text).map_err(Failure::of)?;
                let remark = parsed
                    .rounded_from
                    .map(|from| format!("{from} was rounded to the nearest mask"));
                (parsed.config, remark)
            }
            (None, Some(request)) => (plan(request, self.duty).map_err(Failure::asked)?, None),
            (None, None) => {
                return Err(Failure::needs_more("give --config or --request"));
            }
        };
        if let Some(request) = self.request {
            remark = Some(format!(
                "planned for requests of {} at a duty cycle of {}",
                duration(request.as_nanos() as f64),
                percent(self.duty)
            ));
        }
        let now = SystemTime::now()
            .duration_since(UNIX_EPOCH)
            .unwrap_or_default();
        let now_ms = u64::try_from(now.as_millis()).unwrap_or(u64::MAX);
        let explained = BurstPlan::of(config, now_ms, remark);
        if self.json {
            print_json(&explained)?;
        } else {
            print(&explained.to_text())?;
        }
        Ok(Status::Done)
    }
}

/// Plans a config. The burst is the smallest power of two, in whole ms, that is at least ten times
/// as long as a request. The period is the shortest power of two that records at most `duty`. A
/// share of 1 records always. Fails if the period would exceed 2^40 ms, which is about 35 years.
fn plan(request: Duration, duty: f64) -> Result<BurstConfig, String> {
    let burst_ms = (request * TIMES_REQUEST).as_secs_f64() * 1e3;
    let zeros = burst_ms.max(1.0).log2().ceil() as u32;
    let ones = (1.0 / duty).log2().ceil() as u32;
    if ones == 0 {
        return Ok(BurstConfig::ALWAYS_ON);
    }
    if zeros.saturating_add(ones) > 40 {
        return Err(
            "such bursts would come less than once in thirty years; use shorter requests or more duty"
                .to_owned(),
        );
    }
    Ok(BurstConfig::from_bits(((1 << ones) - 1) << zeros))
}

impl BurstPlan {
    fn of(config: BurstConfig, now_ms: u64, remark: Option<String>) -> Self {
        let mut windows = Vec::new();
        // The only window of this mask is the last millisecond of the clock.
        let mut from_ms = (config != BurstConfig::NEVER).then_some(now_ms);
        while let (Some(at_ms), true) = (from_ms, windows.len() < WINDOWS_SHOWN) {
            let open_ms = config.next_open_ms(at_ms);
            let close_ms = config.close_after_ms(open_ms);
            windows.push(PlannedWindow { open_ms, close_ms });
            from_ms = close_ms;
        }
        let has_bursts = config != BurstConfig::ALWAYS_ON && config != BurstConfig::NEVER;
        let burst_ms = has_bursts.then(|| 1u64 << config.bits().trailing_zeros());
        let tenth = |ms| Duration::from_millis(ms) / TIMES_REQUEST;
        let pattern = config.pattern_ms();
        let request_max = pattern.map(|(_, period_ms)| tenth(period_ms));
        let request_whole_max = burst_ms.map(tenth);
        let ns =
            |of: Option<Duration>| of.map(|of| u64::try_from(of.as_nanos()).unwrap_or(u64::MAX));
        Self {
            config: config.bits(),
            config_binary: format!("{:#b}", config.bits()),
            burst_ms: pattern.map(|pattern| pattern.0),
            period_ms: pattern.map(|pattern| pattern.1),
            duty: config.duty(),
            open_now: config.contains_ms(now_ms),
            now_ms,
            windows,
            request_max_ns: ns(request_max),
            request_whole_max_ns: ns(request_whole_max),
            remark,
            mask: config,
            request_max,
            request_whole_max,
        }
    }

    fn to_text(&self) -> String {
        let mut lines = Vec::new();
        lines.extend(self.remark.clone());
        let (mask, bits) = (self.config, &self.config_binary);
        lines.push(match self.mask.pattern_ms() {
            _ if self.mask == BurstConfig::ALWAYS_ON => "0: recording is always on".to_owned(),
            Some((burst_ms, period_ms)) => format!("{bits}: {burst_ms} ms every {period_ms} ms"),
            None if self.mask == BurstConfig::NEVER => "recording is off".to_owned(),
            None if mask.count_ones() + mask.trailing_zeros() == u64::BITS => {
                let burst_ms = 1u64 << mask.trailing_zeros();
                format!("{bits}: {burst_ms} ms every 2^64 ms")
            }
            None => format!("{bits}: a mask with gaps; its windows come in several periods"),
        });
        lines.push(format!("duty cycle: {} of the time", percent(self.duty)));
        if let Some(request) = self.request_max {
            let request = duration(request.as_nanos() as f64);
            lines.push(format!(
                "fits requests up to {request}: the period should be at least ten times as long"
            ));
        }
        if let Some(request) = self.request_whole_max {
            let request = duration(request.as_nanos() as f64);
            lines.push(format!(
                "requests up to {request} are mostly recorded whole; longer ones are often cut by an edge"
            ));
            lines.push("next windows, ms since the Unix epoch:".to_owned());
            for PlannedWindow { open_ms, close_ms } in &self.windows {
                let close = close_ms.map_or_else(|| "never".to_owned(), |ms| ms.to_string());
                let wait_ns = open_ms.saturating_sub(self.now_ms) as f64 * 1e6;
                lines.push(format!("  [{open_ms}, {close})  in {}", duration(wait_ns)));
            }
        }
        lines.join("\n")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_papers_example() {
        let explained = BurstPlan::of(BurstConfig::from_bits(0b11100), 1_000, None);
        let window = |at: usize| {
            (
                explained.windows[at].open_ms,
                explained.windows[at].close_ms,
            )
        };
        assert_eq!(window(0), (1_020, Some(1_024)));
        assert_eq!(window(1), (1_052, Some(1_056)));
        let text = explained.to_text();
        assert!(
            text.contains("4 ms every 32 ms") && text.contains("12.5%") && text.contains("400µs"),
            "{text}"
        );
        assert_eq!(
            (explained.burst_ms, explained.period_ms),
            (Some(4), Some(32))
        );
    }

    #[test]
    fn edges() {
        let always = BurstPlan::of(BurstConfig::ALWAYS_ON, 5, None);
        let windows = always.windows.iter().map(|of| (of.open_ms, of.close_ms));
        assert_eq!(windows.collect::<Vec<_>>(), [(5, None)]);
        assert!(always.to_text().contains("always on"));
        let never = BurstPlan::of(BurstConfig::NEVER, 5, None);
        let text = never.to_text();
        assert!(text.contains("off") && !text.contains("requests"), "{text}");
        assert_eq!((never.request_whole_max_ns, never.windows.len()), (None, 0));
        let text = |bits| BurstPlan::of(BurstConfig::from_bits(bits), 5, None).to_text();
        let rare = text(0b11 << 62);
        let said = "4611686018427387904 ms every 2^64 ms";
        assert!(rare.contains(said), "{rare}");
        let gaps = text((1 << 63) | 1);
        assert!(gaps.contains("a mask with gaps"), "{gaps}");
    }

    #[test]
    fn plans() {
        let check = |request_us: u64, duty: f64, bits: u64| {
            assert_eq!(
                plan(Duration::from_micros(request_us), duty)
                    .unwrap()
                    .bits(),
                bits
            );
        };
        check(400, 0.125, 0b11100);
        check(3_000, 0.05, 0b11_1110_0000);
        check(1, 1.0, 0);
        check(1, 0.5, 1);
        assert!(plan(Duration::from_secs(10_000_000), 0.0001).is_err());
        assert!(plan(Duration::from_micros(3_000), 1e-320).is_err());
    }
}
