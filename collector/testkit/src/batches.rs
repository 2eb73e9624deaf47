//! Batches for tests.

use stroboscope_proto::v1::{
    AttributeKind, Attributes, Batch, ClockStep, Events, KernelClock, Load, Loss, LossCause,
    Process, ProvenanceLog, Spans, Window,
};

/// Beginning of the simulated time: 2026-01-02T03:00:00Z, in ns.
pub const EPOCH_NS: u64 = 1_767_322_800_000_000_000;

/// Builds a batch of process `incarnation` with `spans` spans, an event for every other one,
/// attributes of every kind, a window, a loss and a clock step. Span i of batch s has the id `s *
/// 1000 + i + 1`.
pub fn batch(incarnation: u128, sequence: u64, spans: usize) -> Batch {
    let texts = ["", "get", "put", "key", "value", "höhe \"quoted\""];
    let base_ns = EPOCH_NS + (sequence % 1_000_000) * 1_000_000;
    let events = spans.div_ceil(2);
    Batch {
        process: Some(Process {
            incarnation: incarnation.to_be_bytes().to_vec(),
            service: "web".into(),
            host: "alpha".into(),
            pid: 7,
            started_ns: EPOCH_NS,
            sdk_version: "0.1.0".into(),
        }),
        sequence,
        strings: texts.iter().map(|&text| text.into()).collect(),
        spans: Some(Spans {
            base_ns,
            trace_ids: (0..spans)
                .flat_map(|i| trace_id(sequence, i).to_be_bytes())
                .collect(),
            span_ids: (0..spans).map(|i| span_id(sequence, i)).collect(),
            parent_ids: vec![0; spans],
            name_string: (0..spans).map(|i| 1 + i as u32 % 2).collect(),
            start_ns: vec![1_000; spans],
            duration_ns: (0..spans).map(|i| 500 + i as u64).collect(),
            flags: vec![8; spans],
            attribute_count: (0..spans).map(|i| if i == 0 { 5 } else { 0 }).collect(),
            attributes: (spans > 0).then(all_kinds),
        }),
        events: Some(Events {
            base_ns,
            trace_ids: (0..events)
                .flat_map(|i| trace_id(sequence, 2 * i).to_be_bytes())
                .collect(),
            span_ids: (0..events).map(|i| span_id(sequence, 2 * i)).collect(),
            name_string: vec![3; events],
            time_ns: vec![2_000; events],
            attribute_count: vec![],
            attributes: None,
        }),
        windows: vec![Window {
            open_ns: base_ns,
            close_ns: base_ns + 4_000_000,
            burst_config: 28,
        }],
        losses: vec![Loss {
            cause: LossCause::RingFull as i32,
            records: sequence,
        }],
        clock_steps: vec![ClockStep {
            at_ns: base_ns,
            step_ns: -5,
        }],
        from_ns: base_ns,
        to_ns: base_ns + 1_000_000,
        burst_config: 28,
        // Every other batch has a clock state, which is always different.
        kernel_clock: (sequence % 2 == 1).then_some(KernelClock {
            synchronised: sequence % 4 == 1,
            max_error_ns: 2_000_000 + sequence % 1_000_000,
            estimated_error_ns: 1_000,
        }),
        // The number of loads differs between neighbours, and loads without CPU time have no memory
        // either.
        loads: (0..sequence % 3)
            .map(|at| Load {
                from_ns: base_ns + at * 1_000_000_000,
                to_ns: base_ns + (at + 1) * 1_000_000_000,
                cpu_ns: (at == 0).then_some(200_000_000 + sequence),
                memory_bytes: (at == 0).then_some(64 << 20),
                requests: sequence,
            })
            .collect(),
        burst_config_since_ns: EPOCH_NS,
        is_last: false,
        provenance: vec![ProvenanceLog {
            trace_id: trace_id(sequence, 0).to_be_bytes().to_vec(),
            span_id: span_id(sequence, 0),
            time_ns: base_ns,
            log: sequence.to_le_bytes().to_vec(),
        }],
    }
}

/// Returns the trace id of span i of a batch with this sequence. Three successive spans share a
/// trace. Batches of several processes with one sequence have the same trace ids.
pub fn trace_id(sequence: u64, i: usize) -> u128 {
    (u128::from(sequence) << 32) + (i as u128 / 3) + 1
}

pub fn span_id(sequence: u64, i: usize) -> u64 {
    sequence.wrapping_mul(1_000) + i as u64 + 1
}

fn all_kinds() -> Attributes {
    use AttributeKind::{Bool, Double, Int, String, Uint};
    Attributes {
        key_string: vec![1, 2, 3, 4, 5],
        kind: [Int, Uint, Double, Bool, String]
            .iter()
            .map(|&kind| kind as i32)
            .collect(),
        int_values: vec![-3, 1],
        uint_values: vec![u64::MAX],
        double_values: vec![0.5],
        string_values: vec![5],
    }
}
