//! Cuts a recording into self-contained chunks.

use stroboscope_analysis::kernel::event::{Event, LossCounts, Window};
use stroboscope_kernel::Recorder;
use stroboscope_kernel_model::{ClockLog, Recording};

use stroboscope_store::tables::KernelChunk;

/// Cutter of a recording: the description and the start of the next chunk, and the events that are
/// not cut yet.
#[derive(Debug)]
pub(super) struct ChunkCutter {
    pub(super) about: KernelChunk,
    /// Start of the next chunk, in monotonic ns.
    from_ns: u64,
    /// Drained events that are in no chunk yet.
    pub(super) events: Vec<Event>,
}

impl ChunkCutter {
    pub(super) fn new(about: KernelChunk, from_ns: u64) -> Self {
        Self {
            about,
            from_ns,
            events: Vec::new(),
        }
    }

    /// Returns the chunk that ends at `to_ns`, in monotonic ns. Earlier events that are drained
    /// only later go into a later chunk.
    pub(super) fn cut(&mut self, to_ns: u64, recorder: &Recorder) -> KernelChunk {
        let windows = recorder.windows(self.from_ns, to_ns);
        self.chunk(
            to_ns,
            windows,
            &recorder.clocks(),
            total(&recorder.losses()),
        )
    }

    /// Returns the last chunk, and the counts of events for which the kernel did not call the
    /// recorder's programs.
    pub(super) fn finish(mut self, recorder: Recorder) -> (KernelChunk, LossCounts) {
        let Recording {
            events,
            windows,
            clocks,
            losses,
            skipped,
            ..
        } = recorder.finish(std::mem::take(&mut self.events));
        self.events = events;
        let to_ns = windows
            .last()
            .map_or(self.from_ns, |window| window.close_ns)
            .max(self.from_ns + 1);
        let to_ns = self
            .events
            .iter()
            .map(|event| event.ts_ns + 1)
            .max()
            .map_or(to_ns, |last| last.max(to_ns));
        let late = windows
            .into_iter()
            .filter(|window| window.close_ns > self.from_ns);
        let windows = late
            .map(|window| Window {
                open_ns: window.open_ns.max(self.from_ns),
                ..window
            })
            .collect();
        (self.chunk(to_ns, windows, &clocks, total(&losses)), skipped)
    }

    fn chunk(
        &mut self,
        to_ns: u64,
        windows: Vec<Window>,
        clocks: &ClockLog,
        lost: LossCounts,
    ) -> KernelChunk {
        let (mut events, later): (Vec<Event>, Vec<Event>) = std::mem::take(&mut self.events)
            .into_iter()
            .partition(|event| event.ts_ns < to_ns);
        self.events = later;
        // The sort is stable: events of one processor with equal times keep their order.
        events.sort_by_key(|event| event.ts_ns);
        let covers_ns = (clocks.wall_ns(self.from_ns), clocks.wall_ns(to_ns));
        let clocks = clocks.between(self.from_ns, to_ns);
        self.from_ns = to_ns;
        KernelChunk {
            events,
            windows,
            clocks,
            lost,
            covers_ns,
            ..self.about.clone()
        }
    }
}

/// Returns the losses of all processors together.
pub(super) fn total(losses: &[LossCounts]) -> LossCounts {
    losses
        .iter()
        .fold(LossCounts::default(), |sum, one| LossCounts {
            enters: sum.enters + one.enters,
            exits: sum.exits + one.exits,
            switches: sum.switches + one.switches,
            others: sum.others + one.others,
        })
}
