//! Layouts of the structures in `bpf/recorder.bpf.c`, in words of 8 bytes.

use stroboscope_analysis::kernel::event::{Body, Event, LossCounts, Name};

/// Offsets of the fields of `struct control`, in words, its size, and the values of its mode.
pub(super) mod control {
    /// Low half: mode. High half: id of the recorder's own process.
    pub(in crate::ebpf) const MODE_SELF: usize = 0;
    pub(in crate::ebpf) const CONFIG: usize = 1;
    pub(in crate::ebpf) const WALL_OFFSET_NS: usize = 2;
    pub(in crate::ebpf) const HELLO: usize = 3;
    /// Low half: number of trailing zero bits of the burst-config, modulo 64. High half: epoch. The
    /// programs increment the epoch when a gap closes, and the recorder increments it to have all
    /// threads introduced again.
    pub(in crate::ebpf) const SHIFT_EPOCH: usize = 4;
    /// Low half: number that changes with each addition to `chosen`. High half: number of threads
    /// started and programs executed, which the programs count.
    pub(in crate::ebpf) const GENERATION_BIRTHS: usize = 5;
    /// Low half: true if a pair of markers was begun. High half: true if processes are chosen by
    /// name.
    pub(in crate::ebpf) const PAIRS_NAMES: usize = 6;
    pub(in crate::ebpf) const WORDS: usize = 7;

    pub(in crate::ebpf) const MODE_ALWAYS: u32 = 1;
    pub(in crate::ebpf) const MODE_BURSTS: u32 = 2;
    pub(in crate::ebpf) const MODE_DOZE: u32 = 3;
}

/// Offsets of the fields of `struct cpu`, in words, and its size.
pub(super) mod cpu {
    pub(in crate::ebpf) const GAP_FIRST_NS: usize = 8;
    /// First of four words: events lost in the open gap, by kind.
    pub(in crate::ebpf) const GAP_KINDS: usize = 9;
    /// First of four words: events lost since the start, by kind.
    pub(in crate::ebpf) const LOST: usize = 16;
    pub(in crate::ebpf) const TAIL: usize = 24;
    pub(in crate::ebpf) const WORDS: usize = 32;
}

/// Size of `struct slot`, in words, and the decoding of its head.
pub(super) mod slot {
    pub(in crate::ebpf) const WORDS: usize = 8;

    /// Returns the number of the pass over the ring in which a slot was written, modulo 256. The
    /// programs write this number last.
    pub(in crate::ebpf) fn lap(head: u64) -> u8 {
        (head >> 56) as u8
    }
}

fn low(word: u64) -> u32 {
    word as u32
}

fn high(word: u64) -> u32 {
    (word >> 32) as u32
}

fn name(low: u64, high: u64) -> Name {
    let mut bytes = [0; 16];
    bytes[..8].copy_from_slice(&low.to_ne_bytes());
    bytes[8..].copy_from_slice(&high.to_ne_bytes());
    Name(bytes)
}

/// Decodes one complete slot; returns `None` for an unknown kind.
pub(super) fn decode(words: [u64; slot::WORDS], cpu: u16) -> Option<Event> {
    let [head, ts_ns, d @ ..] = words;
    let call = high(head) & 0xffff;
    let body = match (head >> 48) & 0xff {
        1 => Body::Enter { call, args: d },
        2 => Body::Exit {
            call,
            result: d[0].cast_signed(),
        },
        3 => Body::Switch {
            state: high(d[0]) as u8,
            process: low(d[1]),
            name: name(d[2], d[3]),
            next: low(d[0]),
            next_process: high(d[1]),
            next_name: name(d[4], d[5]),
        },
        4 => Body::Waking {
            woken: low(d[0]),
            woken_process: high(d[0]),
        },
        5 => Body::NewTask {
            child: low(d[0]),
            child_process: high(d[0]),
            name: name(d[4], d[5]),
        },
        6 => Body::Named {
            process: low(d[0]),
            name: name(d[4], d[5]),
        },
        7 => Body::TaskExit { process: low(d[0]) },
        8 => Body::Thread {
            trace: d[0],
            span: d[1],
            known: d[3] != 0,
            process: low(d[2]),
            tid_in_process: high(d[2]),
            name: name(d[4], d[5]),
        },
        9 => {
            let counts = LossCounts {
                enters: d[1],
                exits: d[2],
                switches: d[3],
                others: d[4],
            };
            Body::Lost {
                first_ns: d[0],
                counts,
            }
        }
        _ => return None,
    };
    Some(Event {
        ts_ns,
        cpu,
        tid: low(head),
        body,
    })
}
