//! Invariants of the final state, and of each reader's view.

use std::collections::BTreeMap;

use stroboscope_burst::BurstConfig;
use stroboscope_fixtures::stored::Stored;

use crate::service::Incarnation;

/// Tolerance for the edges of windows, in ms. The timers of a simulation are exact only to a
/// millisecond.
const EDGE_MS: u64 = 3;

fn copies(stored: &Stored, span: u64) -> usize {
    stored.spans.get(&span).copied().unwrap_or(0)
}

/// Returns the number of rows of this batch.
fn rows(stored: &Stored, incarnation: &Incarnation, sequence: u64) -> usize {
    let rows = stored.batches.get(&(incarnation.id, sequence));
    rows.copied().unwrap_or(0)
}

/// Checks that a reader sees one snapshot: batches with all of their spans, each once, and nothing
/// else.
pub(crate) fn snapshot(
    stored: &Stored,
    incarnations: &[std::sync::Arc<Incarnation>],
) -> Result<(), String> {
    let mut spans = 0;
    for incarnation in incarnations {
        let known = incarnation.known();
        for (&sequence, ids) in &known.batches {
            let rows = rows(stored, incarnation, sequence);
            spans += rows * ids.len();
            if rows > 1 || ids.iter().any(|&id| copies(stored, id) != rows) {
                let counts: Vec<usize> = ids.iter().map(|&id| copies(stored, id)).take(5).collect();
                let of = &incarnation.name;
                return Err(format!(
                    "batch {sequence} of {of} is seen {rows} times, and its spans {counts:?} times"
                ));
            }
        }
    }
    let seen: usize = stored.spans.values().sum();
    if seen == spans {
        Ok(())
    } else {
        Err(format!(
            "{seen} spans are seen, and the batches that are seen have {spans}"
        ))
    }
}

/// Checks that each acknowledged batch is stored once. Unless the process was killed, also checks
/// that each recorded span is stored or counted as lost.
pub(crate) fn stored(
    stored: &Stored,
    told: &BTreeMap<String, u64>,
    incarnation: &Incarnation,
) -> Result<(), String> {
    let known = incarnation.known();
    let (mut kept, mut undecided) = (0, 0);
    for (&sequence, ids) in &known.batches {
        let rows = rows(stored, incarnation, sequence);
        let answer = known.acknowledged.get(&sequence);
        let is_right = match answer {
            Some(true) => rows == 1,
            Some(false) => rows == 0,
            None => rows <= 1,
        };
        if !is_right || ids.iter().any(|&id| copies(stored, id) != rows) {
            let spans: usize = ids.iter().map(|&id| copies(stored, id)).sum();
            return Err(format!(
                "batch {sequence} of {}, of {} spans, was answered {answer:?} (whether durable), and is stored {rows} \
                 times, with {spans} spans",
                incarnation.name,
                ids.len()
            ));
        }
        kept += rows * ids.len();
        undecided += if answer.is_none() {
            rows * ids.len()
        } else {
            0
        };
    }
    if known.is_killed {
        return Ok(());
    }
    let lost = incarnation.losses.total();
    // Spans in flight at the process's deadline are counted as lost, and may have arrived.
    if known.recorded + undecided as u64 != kept as u64 + lost {
        return Err(format!(
            "{} recorded {}, of which {kept} are stored ({undecided} without an answer) and {lost} are counted as lost",
            incarnation.name, known.recorded
        ));
    }
    let told = told.get(&incarnation.name).copied().unwrap_or(0);
    if known.acknowledged.len() == known.batches.len() && told != lost {
        return Err(format!(
            "{} lost {lost}, and the ledger says {told}",
            incarnation.name
        ));
    }
    Ok(())
}

/// Checks that each whole millisecond of each window is in a burst of its config, by the clock of
/// its host. Each window consists of open and close in ns, and the config.
pub(crate) fn windows_are_of_their_config(of: &str, windows: &[[u64; 3]]) -> Result<(), String> {
    for &[open_ns, close_ns, config] in windows {
        let (first_ms, end_ms) = (open_ns.div_ceil(1_000_000), close_ns / 1_000_000);
        let config = BurstConfig::from_bits(config);
        let is_inside = |ms: u64| config.contains_ms(ms);
        if open_ns >= close_ns || !(first_ms..end_ms).all(is_inside) {
            return Err(format!(
                "{of} says that it recorded from {open_ns} to {close_ns} by {config}"
            ));
        }
    }
    Ok(())
}

/// Checks that all bursts of a config within `time` were recorded, except for their edges. `time`
/// is in ms since the Unix epoch, by the clock of the host.
pub(crate) fn windows_are_whole(
    of: &str,
    windows: &[[u64; 3]],
    config: BurstConfig,
    time: &std::ops::Range<u64>,
) -> Result<(), String> {
    let is_recorded = |ms: u64| {
        let (from_ns, to_ns) = (ms * 1_000_000, (ms + 1) * 1_000_000);
        let mut of_config = windows.iter().filter(|window| window[2] == config.bits());
        of_config.any(|window| window[0] <= from_ns && to_ns <= window[1])
    };
    // A window may have been late by a few ms at its beginning.
    let is_sure = |ms: u64| (ms - EDGE_MS..=ms + 1).all(|ms| config.contains_ms(ms));
    match time.clone().find(|&ms| is_sure(ms) && !is_recorded(ms)) {
        None => Ok(()),
        Some(ms) => {
            let near: Vec<[u64; 3]> = windows
                .iter()
                .filter(|window| window[0] / 1_000_000 > ms - 600)
                .take(6)
                .copied()
                .collect();
            Err(format!(
                "{of} did not record at {ms} ms, of {time:?}, by {config}, but {near:?}"
            ))
        }
    }
}
