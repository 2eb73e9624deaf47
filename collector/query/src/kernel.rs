//! Kernel recordings from the store, with an owner for each system call and interval.

use stroboscope_analysis::kernel::attribute;
use stroboscope_analysis::kernel::call::Architecture;
use stroboscope_analysis::kernel::event::{Body, Event, LossCounts, Window};
use stroboscope_analysis::kernel::timeline::Timeline;
use stroboscope_kernel_model::ClockLog;

use stroboscope_store::tables::{
    Damage, KernelChunk, KernelFile, Store, StoreError, list_kernel, read_kernel,
};

/// Part of one kernel recording: the windows that touch a range of time, with their events. A part
/// for a request has only the events of its threads and the activity on its behalf.
#[derive(Clone, Debug, Default)]
pub struct KernelPart {
    /// Id of the recording.
    pub recording: u128,
    /// Host of the recording.
    pub host: String,
    /// Architecture that defines the numbers of system calls.
    pub architecture: Architecture,
    /// Burst-configs of the chunks that were read, in order of first use.
    pub burst_configs: Vec<u64>,
    /// Burst-configs that services of the host used in batches that touch the shown time, without
    /// those in `burst_configs`, in ascending order. Only parts for a timeline or a request have
    /// them.
    pub services_configs: Vec<u64>,
    /// Numbers of events lost from the start of the recording to the last chunk that was read.
    pub lost: LossCounts,
    /// Conversion from monotonic to wall time.
    pub clocks: ClockLog,
    /// Kernel events in the windows of `timeline`, and reports of losses in them, in order of time.
    pub events: Vec<Event>,
    /// System calls, intervals, waits and gaps that the events describe.
    pub timeline: Timeline,
}

impl KernelPart {
    /// Keeps the events and intervals that touch the wall-time interval `[from_ns, to_ns)`, and
    /// cuts the windows to it.
    pub(super) fn show(&mut self, from_ns: i64, to_ns: i64) {
        let clocks = &self.clocks;
        let touches = |start_ns: u64, end_ns: Option<u64>| {
            clocks.wall_ns(start_ns) < to_ns
                && end_ns.is_none_or(|end_ns| clocks.wall_ns(end_ns) > from_ns)
        };
        self.timeline.retain(touches);
        self.events
            .retain(|event| touches(event.ts_ns, Some(event.ts_ns + 1)));
        let beyond_ns =
            |later_ns: i64, earlier_ns: i64| u64::try_from(later_ns - earlier_ns).unwrap_or(0);
        for window in &mut self.timeline.windows {
            let open_ns = clocks.wall_ns(window.open_ns);
            let close_ns = clocks.wall_ns(window.close_ns);
            window.open_ns += beyond_ns(from_ns, open_ns);
            window.close_ns -= beyond_ns(close_ns, to_ns);
        }
    }
}

/// Accumulates consecutive chunks of a recording.
#[derive(Default)]
struct Read {
    part: KernelPart,
    windows: Vec<Window>,
}

impl Read {
    fn add(&mut self, chunk: KernelChunk) {
        let part = &mut self.part;
        (part.recording, part.host) = (chunk.recording, chunk.host);
        (part.architecture, part.lost) = (chunk.architecture, chunk.lost);
        if !part.burst_configs.contains(&chunk.burst_config) {
            part.burst_configs.push(chunk.burst_config);
        }
        part.events.extend(chunk.events);
        let last_ns = part.clocks.samples().last().map(|sample| sample.at_ns);
        let samples = chunk.clocks.samples().iter();
        let new = samples.filter(|sample| last_ns.is_none_or(|last_ns| sample.at_ns > last_ns));
        new.for_each(|&sample| part.clocks.push(sample));
        for window in chunk.windows {
            match self.windows.last_mut() {
                // The end of a chunk split this window.
                Some(last) if last.close_ns == window.open_ns => last.close_ns = window.close_ns,
                _ => self.windows.push(window),
            }
        }
    }

    /// Keeps the windows that touch the wall-time interval `[from_ns, to_ns)`, and interprets their
    /// events. Returns `None` if no window touches it.
    fn finish(mut self, from_ns: i64, to_ns: i64) -> Option<KernelPart> {
        let clocks = &self.part.clocks;
        self.windows.retain(|window| {
            clocks.wall_ns(window.open_ns) < to_ns && clocks.wall_ns(window.close_ns) > from_ns
        });
        if self.windows.is_empty() {
            return None;
        }
        // An introduction may slightly precede its window, so the events are interpreted before
        // those outside the windows are removed.
        let mut events = self.part.events.iter();
        let has_scheduling = events.any(|event| matches!(event.body, Body::Switch { .. }));
        self.part.timeline = attribute(&self.part.events, &self.windows, self.part.architecture);
        if !has_scheduling {
            // Without switches, as in a recording from strace, the threads on a processor are
            // unknown.
            let timeline = &mut self.part.timeline;
            (timeline.on_cpu, timeline.off_cpu, timeline.implied_switches) =
                (Vec::new(), Vec::new(), 0);
        }
        let mut windows = self.windows.iter().peekable();
        let mut closed_ns = 0;
        // Events and windows are both in order of time.
        self.part.events.retain(|event| {
            while let Some(closed) = windows.next_if(|window| window.close_ns <= event.ts_ns) {
                closed_ns = closed.close_ns;
            }
            let is_within = windows
                .peek()
                .is_some_and(|window| window.open_ns <= event.ts_ns);
            // Events that were lost in a window may be reported after it.
            is_within || matches!(event.body, Body::Lost { first_ns, .. } if first_ns < closed_ns)
        });
        Some(self.part)
    }
}

/// Returns the windows that touch `[from_ns, to_ns)` (wall time), one part for each recording that
/// has some, and the damage found.
///
/// # Errors
/// Fails if the store cannot be listed.
pub(super) fn between(
    store: &Store,
    from_ns: i64,
    to_ns: i64,
) -> Result<(Vec<KernelPart>, Vec<Damage>), StoreError> {
    let (mut parts, mut damage) = (Vec::new(), Vec::new());
    let mut reading = Read::default();
    // A window may begin before the interval, so the chunk before it is read as well.
    let touched = list_kernel(store)?;
    let is_touched = |file: &KernelFile| file.covers_ns.0 < to_ns && file.covers_ns.1 > from_ns;
    for (place, file) in touched.iter().enumerate() {
        let next = touched
            .get(place + 1)
            .filter(|next| next.recording == file.recording);
        if !is_touched(file) && !next.is_some_and(is_touched) {
            continue;
        }
        if reading.part.recording != file.recording {
            parts.extend(std::mem::take(&mut reading).finish(from_ns, to_ns));
        }
        let (chunk, damaged) = read_kernel(store, file);
        damage.extend(damaged);
        reading.add(chunk);
    }
    parts.extend(reading.finish(from_ns, to_ns));
    Ok((parts, damage))
}

/// Chunk of a recording, with the system calls and intervals that ended in it. If a window
/// continues into the next chunk, calls and intervals that ended with the last event are in the
/// next view; otherwise, calls and intervals without an end are included.
pub(super) struct ChunkView {
    /// Events of the chunk and of the preceding chunk, if a window spans both, and their
    /// interpretation.
    pub part: KernelPart,
    /// Number of the chunk's own events.
    pub events: u64,
    /// Number of windows that opened in the chunk.
    pub windows: u64,
}

/// Reports whether a window continues from `before` into `after`.
fn continues(before: &KernelChunk, after: &KernelChunk) -> bool {
    let edges = before.windows.last().zip(after.windows.first());
    before.recording == after.recording
        && edges.is_some_and(|(last, next)| last.close_ns == next.open_ns)
}

/// Passes the chunks with windows of all recordings to `visit`, in order, and returns the damage
/// found.
///
/// A window may continue from one chunk into the next, as in a recording that is always on. The
/// later chunk is then interpreted together with the earlier one, and its view leaves out the calls
/// and intervals of the earlier view. The boundary between two chunks therefore cuts no interval,
/// and none counts twice. An interval that is longer than a chunk is cut at the start of the
/// preceding chunk. Memory holds at most three different chunks, one of them twice.
///
/// # Errors
/// Fails if the store cannot be listed.
pub(super) fn each_chunk(
    store: &Store,
    mut visit: impl FnMut(ChunkView),
) -> Result<Vec<Damage>, StoreError> {
    let mut damage = Vec::new();
    let files = list_kernel(store)?;
    let mut chunks = files
        .iter()
        .map(|file| {
            let (chunk, damaged) = read_kernel(store, file);
            damage.extend(damaged);
            chunk
        })
        .peekable();
    // The preceding chunk, and the time before which its ended intervals were visited.
    let mut before: Option<(KernelChunk, u64)> = None;
    while let Some(chunk) = chunks.next() {
        let goes_on = chunks.peek().is_some_and(|next| continues(&chunk, next));
        let (events, mut windows) = (chunk.events.len() as u64, chunk.windows.len() as u64);
        let mut reading = Read::default();
        let mut from_ns = 0;
        if let Some((earlier, until_ns)) = before
            .take()
            .filter(|(earlier, _)| continues(earlier, &chunk))
        {
            from_ns = until_ns;
            windows -= 1;
            reading.add(earlier);
        }
        let times_ns = chunk.events.iter().map(|event| event.ts_ns);
        let last_ns = times_ns.max().unwrap_or(0).max(from_ns);
        if goes_on {
            before = Some((chunk.clone(), last_ns));
        }
        reading.add(chunk);
        if let Some(mut part) = reading.finish(i64::MIN, i64::MAX) {
            part.timeline
                .retain_ended(from_ns, goes_on.then_some(last_ns));
            visit(ChunkView {
                part,
                events,
                windows,
            });
        }
    }
    drop(chunks);
    Ok(damage)
}

#[cfg(test)]
mod tests {
    use stroboscope_analysis::kernel::event::Name;

    use super::*;

    #[test]
    fn an_introduction_shortly_before_its_window_counts() {
        let event = |ts_ns, body| Event {
            ts_ns,
            cpu: 0,
            tid: 5,
            body,
        };
        let introduction = Body::Thread {
            trace: 0xa,
            span: 1,
            known: true,
            process: 1,
            tid_in_process: 0,
            name: Name::new("t"),
        };
        let (call, args) = (0, [0; 6]);
        let mut reading = Read::default();
        reading.add(KernelChunk {
            events: vec![
                event(999_000, introduction),
                event(1_000_005, Body::Enter { call, args }),
            ],
            windows: vec![Window {
                open_ns: 1_000_000,
                close_ns: 2_000_000,
            }],
            ..KernelChunk::default()
        });
        let part = reading.finish(i64::MIN, i64::MAX).unwrap();
        assert_eq!(part.timeline.calls[0].owner.trace(), Some(0xa));
        assert_eq!(part.events.len(), 1);
    }

    #[test]
    fn losses_that_are_reported_after_their_window_stay() {
        let event = |ts_ns, body| Event {
            ts_ns,
            cpu: 0,
            tid: 0,
            body,
        };
        let lost = |first_ns, ts_ns| {
            let counts = LossCounts {
                others: 1,
                ..LossCounts::default()
            };
            event(ts_ns, Body::Lost { first_ns, counts })
        };
        let windows = [(10, 20), (30, 40)].map(|(open_ns, close_ns)| Window { open_ns, close_ns });
        let mut reading = Read::default();
        reading.add(KernelChunk {
            events: vec![
                lost(5, 9),
                lost(18, 22),
                event(25, Body::TaskExit { process: 1 }),
                lost(24, 26),
                lost(24, 31),
                lost(39, 45),
                lost(44, 50),
            ],
            windows: windows.to_vec(),
            ..KernelChunk::default()
        });
        let part = reading.finish(i64::MIN, i64::MAX).unwrap();
        let kept = part.events.iter().map(|event| event.ts_ns);
        assert_eq!(kept.collect::<Vec<_>>(), [22, 31, 45]);
        let gaps = part.timeline.gaps.iter();
        let gaps = gaps.map(|gap| (gap.start_ns, gap.end_ns));
        assert_eq!(gaps.collect::<Vec<_>>(), [(18, 22), (24, 31), (39, 45)]);
    }
}
