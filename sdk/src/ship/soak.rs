//! Tests that simulate up to an hour of recording on a test clock, and check memory and losses.

use std::sync::PoisonError;
use std::sync::atomic::AtomicI64;

use super::*;
use crate::callsite::{self, Callsite};
use crate::clock_steps::TURN;
use crate::config::Address;
use crate::drain::{ORDER_SPARE, rings};
use crate::loss::{LOSSES, Losses};
use crate::record::{self, Head, RecordKind};
use stroboscope_burst::BurstConfig;

const MS: i64 = 1_000_000;
const S: i64 = 1_000 * MS;
const HOUR: i64 = 3_600 * S;

/// Single time source behind all clocks, advanced by the test.
#[derive(Debug)]
struct FakeClock(AtomicI64);

const EPOCH_NS: i64 = 1_700_000_000 * S;

impl ClockSource for FakeClock {
    fn wall_ns(&self) -> i64 {
        EPOCH_NS + self.monotonic_ns()
    }

    fn monotonic_ns(&self) -> i64 {
        self.0.load(Relaxed)
    }

    fn ticks(&self) -> u64 {
        self.monotonic_ns().cast_unsigned() * 3
    }
}

static CALLSITE: Callsite = Callsite::new("work", &["n"], file!(), line!());

/// Process without the SDK's threads: the test steps the gate and drives the shipping.
struct Process {
    clock: Arc<FakeClock>,
    shipping: ShipTask,
    next_turn_ns: i64,
    next_id: u64,
    written: u64,
}

impl Process {
    fn new(buffer_bytes_max: usize) -> Self {
        rings::start_anew();
        let clock = Arc::new(FakeClock(AtomicI64::new(S)));
        let config: BurstConfig = "64ms/1024ms".parse().unwrap();
        let address = Address {
            text: "http://127.0.0.1:9".to_owned(),
            token: None,
            ca: None,
        };
        let shipper = Shipper {
            process: v1::Process::default(),
            destination: address.resolve().unwrap(),
            buffer_bytes_max,
            timer: Timer::new(config, Arc::clone(&clock) as Arc<dyn ClockSource>),
            clock: Arc::clone(&clock) as Arc<dyn ClockSource>,
            progressed: Arc::default(),
            losses: &LOSSES,
            shutdown_deadline: Duration::ZERO,
            #[cfg(feature = "simulation")]
            simulated: None,
        };
        Self {
            clock,
            shipping: ShipTask::new(shipper),
            next_turn_ns: 0,
            next_id: 1,
            written: 0,
        }
    }

    /// Advances time and steps the gate's timer.
    fn advance(&mut self, by_ns: i64) {
        let until_ns = self.clock.monotonic_ns() + by_ns;
        while self.next_turn_ns < until_ns {
            self.clock.0.fetch_max(self.next_turn_ns, Relaxed);
            let sleep_ns = self.shipping.shipper.timer.turn();
            self.next_turn_ns = self.clock.monotonic_ns() + sleep_ns.max(20_000);
        }
        self.clock.0.fetch_max(until_ns, Relaxed);
    }

    fn begin(&mut self, sampled: bool) -> u64 {
        let span_id = self.next_id;
        self.next_id += 1;
        let flags = if sampled {
            v1::SpanFlag::Sampled as u16
        } else {
            0
        };
        let ticks = self.clock.ticks();
        self.written += u64::from(crate::thread::write(|place, lineage| {
            let head = Head {
                kind: RecordKind::Begin,
                flags,
                ticks,
                callsite: &CALLSITE,
                trace_id: 7,
                span_id,
                parent_id: 0,
            };
            record::write(place, lineage, &head, |writer| {
                writer.text(0, "a text of some length");
            })
        }));
        span_id
    }

    fn end(&mut self, span_id: u64) {
        let ticks = self.clock.ticks();
        crate::thread::write(|place, lineage| record::write_end(place, lineage, 0, ticks, span_id));
    }

    /// Simulates a tenth of a second of a service: spans of sampled requests and others, some that
    /// never end, a thread that comes and goes, and names from outside.
    fn live(&mut self, round: u64) {
        for _ in 0..5 {
            let (sampled, other) = (self.begin(true), self.begin(false));
            self.advance(2 * MS);
            self.end(other);
            self.end(sampled);
        }
        if round.is_multiple_of(20) {
            self.begin(true);
            self.begin(false);
        }
        if round.is_multiple_of(500) {
            std::thread::spawn(|| {
                crate::thread::write(|place, lineage| record::write_end(place, lineage, 0, 0, 0))
            })
            .join()
            .unwrap();
            callsite::named(&format!("/path/{round}"));
        }
        self.advance(90 * MS);
        self.shipping.pass(Pass::Regular);
    }

    /// Acknowledges all waiting batches.
    fn acknowledge(&mut self) {
        while let Some(sequence) = self.shipping.buffer.first_sequence() {
            let outcome = v1::ShipOutcome::Stored.into();
            let reply = v1::ShipReply {
                sequence,
                outcome,
                detail: String::new(),
            };
            self.shipping.on(Progress::Reply(reply));
        }
    }

    fn footprint(&self) -> [usize; 7] {
        let [anchors, open, order] = self.shipping.drain.footprint();
        let windows = self.shipping.shipper.timer.with_log(|log| log.kept());
        [
            rings::count(),
            anchors,
            open,
            order,
            windows,
            self.shipping.buffer.bytes(),
            crate::thread::RINGS.bytes(),
        ]
    }
}

/// Runs an hour; returns the largest footprints of its first twenty and of its last forty minutes.
fn hour(process: &mut Process, mut collector: impl FnMut(&mut Process)) -> [[usize; 7]; 2] {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .unwrap();
    let _entered = runtime.enter();
    let (mut first, mut last) = ([0; 7], [0; 7]);
    let start_ns = process.clock.monotonic_ns();
    for round in 0.. {
        process.live(round);
        collector(process);
        let elapsed_ns = process.clock.monotonic_ns() - start_ns;
        let largest = if elapsed_ns < HOUR / 3 {
            &mut first
        } else {
            &mut last
        };
        for (largest, now) in largest.iter_mut().zip(process.footprint()) {
            *largest = now.max(*largest);
        }
        if elapsed_ns >= HOUR {
            break;
        }
    }
    [first, last]
}

fn new_process(buffer_bytes_max: usize) -> Process {
    // The link needs the runtime's clock when it is created.
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .unwrap();
    let _entered = runtime.enter();
    Process::new(buffer_bytes_max)
}

const NAMES: [&str; 7] = [
    "rings",
    "anchors",
    "known spans",
    "their order",
    "windows",
    "buffered bytes",
    "bytes of rings",
];

#[test]
fn an_hour_loses_nothing_and_memory_stays_flat() {
    let _turn = TURN.lock().unwrap_or_else(PoisonError::into_inner);
    let losses_before = [
        LossCause::RingFull,
        LossCause::OpenSpansFull,
        LossCause::BufferFull,
    ]
    .map(|c| LOSSES.get(c));
    let mut process = new_process(16 << 20);
    let [first, last] = hour(&mut process, Process::acknowledge);
    println!(
        "{NAMES:?}: {first:?}, later {last:?}; {} spans begun",
        process.written
    );
    let known_max = Limits::default().open_spans_max;
    let order_max = 2 * last[2] + ORDER_SPARE + 1;
    for (i, (&first, &last)) in first.iter().zip(&last).enumerate() {
        match i {
            // Spans that never end are kept up to a limit, in case they end after all. Ended spans
            // leave nothing behind.
            2 => assert!(last <= known_max, "{}: {last}", NAMES[i]),
            3 => assert!(last <= order_max, "{}: {last}", NAMES[i]),
            // Other tests of this process have threads, too.
            0 | 6 => assert!(
                last <= first + first / 2,
                "{}: {first}, then {last}",
                NAMES[i]
            ),
            _ => assert!(
                last <= first + first / 10,
                "{}: {first}, then {last}",
                NAMES[i]
            ),
        }
    }
    let counts = process.shipping.drain.counts();
    // Everything except the leaks of the last minute is shipped or trimmed.
    assert!(
        counts.spans + counts.trimmed + 200 > process.written,
        "{counts:?} of {}",
        process.written
    );
    assert!(
        counts.trimmed > 100_000 && counts.spans > 100_000,
        "{counts:?}"
    );
    let losses = [
        LossCause::RingFull,
        LossCause::OpenSpansFull,
        LossCause::BufferFull,
    ]
    .map(|c| LOSSES.get(c));
    assert_eq!(losses, losses_before);
    let windows = process.shipping.shipper.timer.with_log(|log| log.count());
    assert!((3_510..=3_520).contains(&windows), "{windows}");
}

#[test]
fn an_hour_without_a_collector_costs_counted_discards_only() {
    let _turn = TURN.lock().unwrap_or_else(PoisonError::into_inner);
    let before = LOSSES.get(LossCause::BufferFull);
    let buffer_bytes_max = 1 << 20;
    let mut process = new_process(buffer_bytes_max);
    let [first, last] = hour(&mut process, |_| {});
    assert!(
        last[5] <= buffer_bytes_max && last[5] > buffer_bytes_max / 2,
        "{last:?}"
    );
    assert!(
        last[1] <= first[1] && last[4] <= first[4] + first[4] / 10,
        "{first:?}, then {last:?}"
    );
    let (lost, waiting) = (
        LOSSES.get(LossCause::BufferFull) - before,
        process.shipping.buffer.records(),
    );
    let collected = process.shipping.drain.counts().spans;
    // Records in the unfinished batch are neither lost nor waiting.
    assert!(
        lost + waiting <= collected && collected - (lost + waiting) < 100,
        "{lost} + {waiting} of {collected}"
    );
    // The collector returns: waiting batches are delivered.
    process.acknowledge();
    assert!(process.shipping.buffer.is_empty());
}

/// Checks an hour without records: the windows are reported in one batch per minute, and few wait.
/// Then checks which changes are sent at once.
#[test]
fn an_idle_hour_is_told_once_a_minute() {
    // Losses of other tests of this process would be news.
    static OWN_LOSSES: Losses = Losses::new();
    let _turn = TURN.lock().unwrap_or_else(PoisonError::into_inner);
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .unwrap();
    let _entered = runtime.enter();
    let mut process = Process::new(16 << 20);
    process.shipping.shipper.losses = &OWN_LOSSES;
    let (mut batches, mut windows, mut windows_max) = (Vec::new(), 0, 0);
    for _ in 0..HOUR / (100 * MS) {
        process.advance(100 * MS);
        process.shipping.pass(Pass::Regular);
        windows_max = windows_max.max(process.shipping.notes.windows());
        while let Some(batch) = process.shipping.buffer.next_unsent() {
            windows += batch.windows.len();
            batches.push((batch.from_ns, batch.to_ns));
            process.acknowledge();
        }
    }
    assert!((60..=62).contains(&batches.len()), "{}", batches.len());
    // The first batch is sent at once, so that the collector learns of the process.
    assert!(
        batches[0].1 - batches[0].0 < 2 * S as u64,
        "{:?}",
        batches[0]
    );
    assert!(batches.is_sorted() && batches.windows(2).all(|pair| pair[0].1 == pair[1].0));
    assert!(windows_max <= 60, "{windows_max}");
    let opened = process.shipping.shipper.timer.with_log(|log| log.count());
    assert!(
        windows as u64 + 60 >= opened && opened >= 3_510,
        "{windows} of {opened}"
    );

    // A later record waits no longer than usual, and takes the windows along.
    let before = process.shipping.buffer.next_sequence();
    let span = process.begin(true);
    process.end(span);
    process.advance(100 * MS);
    process.shipping.pass(Pass::Regular);
    let batch = process.shipping.buffer.next_unsent().unwrap();
    assert_eq!(
        (
            batch.sequence,
            batch.spans.as_ref().map(|spans| spans.span_ids.len())
        ),
        (before, Some(1))
    );
    assert_eq!(process.shipping.notes.windows(), 0);
    process.acknowledge();

    // A loss is news, and a collector that may be another one is informed of the process.
    let told = |process: &mut Process, why: &str, is_told: bool| {
        let before = process.shipping.buffer.next_sequence();
        process.advance(2 * S);
        process.shipping.pass(Pass::Regular);
        assert_eq!(
            process.shipping.buffer.next_sequence() - before,
            u64::from(is_told),
            "{why}"
        );
        process.acknowledge();
    };
    told(&mut process, "nothing", false);
    OWN_LOSSES.add(LossCause::StringCut, 1);
    told(&mut process, "a loss", true);
    told(&mut process, "no other loss", false);
    process.shipping.on(Progress::Connected);
    told(&mut process, "another collector", true);
    told(&mut process, "the same", false);
}

/// A batch that finds the buffer full reports nothing, so the losses that it held are news for the
/// next one.
#[test]
fn losses_of_a_discarded_batch_are_said_by_the_next_one() {
    static OWN_LOSSES: Losses = Losses::new();
    let _turn = TURN.lock().unwrap_or_else(PoisonError::into_inner);
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .unwrap();
    let _entered = runtime.enter();
    let mut process = Process::new(600);
    process.shipping.shipper.losses = &OWN_LOSSES;
    let pass = |process: &mut Process| {
        process.advance(S);
        process.shipping.pass(Pass::Regular);
        process.shipping.buffer.next_sequence()
    };
    // Batches without records fill the buffer, until one is discarded.
    let mut kept = 0;
    for batches in 1..100 {
        OWN_LOSSES.add(LossCause::RingFull, 1);
        kept = pass(&mut process);
        if kept < batches {
            break;
        }
    }
    assert!(kept > 0 && process.shipping.is_full, "{kept}");
    assert_eq!(pass(&mut process), kept, "there is no room");
    process.acknowledge();
    assert_eq!(pass(&mut process), kept + 1, "the losses are news");
    let batch = process.shipping.buffer.next_unsent().expect("a batch");
    assert_eq!(batch.losses, OWN_LOSSES.wire());
    process.acknowledge();
    assert_eq!(pass(&mut process), kept + 1, "they are no news any more");
}

/// Every window and load is in a batch or counted, even from times when the buffer was full.
/// Batches cover all of the time.
#[test]
fn notes_of_discarded_batches_are_reported_or_counted() {
    static OWN_LOSSES: Losses = Losses::new();
    let _turn = TURN.lock().unwrap_or_else(PoisonError::into_inner);
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .unwrap();
    let _entered = runtime.enter();
    let mut process = Process::new(128 << 10);
    process.shipping.shipper.losses = &OWN_LOSSES;
    let (mut notes, mut to_ns, mut first_ns) = ([0, 0], None, 0);
    // The second time, more windows wait than the buffer leaves room for.
    for (minutes, is_dropped) in [(10, false), (40, true)] {
        for round in 0..minutes * 600 {
            process.live(round);
        }
        assert!(process.shipping.is_full && OWN_LOSSES.get(LossCause::BufferFull) > 0);
        for _ in 0..2 {
            while let Some(batch) = process.shipping.buffer.next_unsent() {
                if let Some(to_ns) = to_ns {
                    assert_eq!(batch.from_ns, to_ns, "no time is left out");
                }
                to_ns = Some(batch.to_ns);
                for window in &batch.windows {
                    assert!(window.open_ns > first_ns, "in order, and once");
                    first_ns = window.open_ns;
                }
                notes[0] += batch.windows.len() as u64;
                notes[1] += batch.loads.len() as u64;
                process.shipping.buffer.mark_sent();
            }
            process.acknowledge();
            process.advance(S);
            process.shipping.pass(Pass::Flush);
        }
        let dropped = OWN_LOSSES.get(LossCause::NotesDropped);
        let opened = process.shipping.shipper.timer.with_log(|log| log.count());
        let loads = (process.clock.monotonic_ns() / S).cast_unsigned();
        let all = opened + loads;
        let found = notes[0] + notes[1] + dropped;
        assert!(
            found <= all && all - found <= 8,
            "{notes:?}, {dropped}: {all}"
        );
        // Two minutes of loads wait at most.
        let loads_dropped = loads.saturating_sub(notes[1]);
        assert_eq!(
            dropped > loads_dropped + 8,
            is_dropped,
            "{notes:?}, {dropped}: {all}"
        );
    }
}
