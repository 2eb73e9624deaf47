//! The table `kernel`: written events are read back, and a damaged file yields no wrong events.

use proptest::prelude::*;
use stroboscope_analysis::kernel::call::Architecture;
use stroboscope_analysis::kernel::event::{Body, Event, LossCounts, Name, Window};
use stroboscope_kernel_model::{ClockLog, ClockSample};
use stroboscope_store::tables::{
    KernelChunk, Store, StoreTable, list_kernel, read_kernel, write_kernel,
};

fn name() -> impl Strategy<Value = Name> {
    "[a-z0-9 :/_-]{1,15}".prop_map(|text| Name::new(&text))
}

fn body() -> impl Strategy<Value = Body> {
    let counts = (0u64..9, 0u64..9, 0u64..9, 0u64..9);
    let counts = counts.prop_map(|(enters, exits, switches, others)| LossCounts {
        enters,
        exits,
        switches,
        others,
    });
    prop_oneof![
        (0u32..450, any::<[u64; 6]>()).prop_map(|(call, args)| Body::Enter { call, args }),
        (0u32..70_000, any::<i64>()).prop_map(|(call, result)| Body::Exit { call, result }),
        (
            any::<u8>(),
            any::<u32>(),
            name(),
            any::<u32>(),
            any::<u32>(),
            name()
        )
            .prop_map(|(state, process, name, next, next_process, next_name)| {
                Body::Switch {
                    state,
                    process,
                    name,
                    next,
                    next_process,
                    next_name,
                }
            }),
        any::<(u32, u32)>().prop_map(|(woken, woken_process)| Body::Waking {
            woken,
            woken_process
        }),
        (any::<u32>(), any::<u32>(), name()).prop_map(|(child, child_process, name)| {
            Body::NewTask {
                child,
                child_process,
                name,
            }
        }),
        (any::<u32>(), name()).prop_map(|(process, name)| Body::Named { process, name }),
        any::<u32>().prop_map(|process| Body::TaskExit { process }),
        (
            any::<u64>(),
            any::<u64>(),
            any::<u32>(),
            any::<u32>(),
            name()
        )
            .prop_map(
                |(trace, span, process, tid_in_process, name)| Body::Thread {
                    trace,
                    span,
                    known: true,
                    process,
                    tid_in_process,
                    name
                }
            ),
        // The table does not store the trace and the span of a thread whose request is unknown.
        (any::<u32>(), name()).prop_map(|(process, name)| Body::Thread {
            trace: 0,
            span: 0,
            known: false,
            process,
            tid_in_process: 0,
            name
        }),
        (any::<u64>(), counts).prop_map(|(first_ns, counts)| Body::Lost { first_ns, counts }),
    ]
}

fn chunk(events: Vec<Event>) -> KernelChunk {
    let mut clocks = ClockLog::default();
    for at_ns in [0, 500] {
        clocks.push(ClockSample {
            at_ns,
            wall_offset_ns: 1_767_322_800_000_000_000 + at_ns.cast_signed(),
            tai_offset_ns: 37_000_000_000,
            boot_offset_ns: -5,
            uncertainty_ns: 70,
        });
    }
    KernelChunk {
        recording: 0xfeed << 64 | 7,
        host: "web1".into(),
        architecture: Architecture::Aarch64,
        burst_config: 0b11100,
        covers_ns: (1_767_322_800_000_000_000, 1_767_322_800_000_001_000),
        events,
        windows: vec![
            Window {
                open_ns: 10,
                close_ns: 400,
            },
            Window {
                open_ns: 600,
                close_ns: 900,
            },
        ],
        clocks,
        lost: LossCounts {
            enters: 1,
            exits: 2,
            switches: 3,
            others: 4,
        },
    }
}

fn check_equal(read: &KernelChunk, written: &KernelChunk) {
    assert_eq!(read.events, written.events);
    assert_eq!(read.windows, written.windows);
    assert_eq!(read.clocks.samples(), written.clocks.samples());
    assert_eq!(
        (read.recording, &read.host, read.architecture),
        (written.recording, &written.host, written.architecture)
    );
    assert_eq!(
        (read.burst_config, read.covers_ns, read.lost),
        (written.burst_config, written.covers_ns, written.lost)
    );
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]
    #[test]
    fn what_is_written_is_read_back(
        bodies in prop::collection::vec((0u64..1_000, any::<u16>(), any::<u32>(), body()), 0..200),
    ) {
        let directory = tempfile::tempdir().unwrap();
        let runtime = tokio::runtime::Runtime::new().unwrap();
        let store = Store::local(directory.path(), runtime.handle().clone()).unwrap();
        let mut events: Vec<Event> =
            bodies.into_iter().map(|(ts_ns, cpu, tid, body)| Event { ts_ns, cpu, tid, body }).collect();
        events.sort_by_key(|event| event.ts_ns);
        let chunk = chunk(events);
        // Writes the chunk twice, because an equal chunk replaces its object.
        for _ in 0..2 {
            let written = write_kernel(&store, &chunk).unwrap();
            store.make_durable(&written.paths).unwrap();
        }
        let files = list_kernel(&store).unwrap();
        prop_assert_eq!(files.len(), 1);
        let (read, damage) = read_kernel(&store, &files[0]);
        prop_assert_eq!(damage, None);
        check_equal(&read, &chunk);
    }
}

#[test]
fn damage_is_named_and_costs_what_is_behind_it() {
    let directory = tempfile::tempdir().unwrap();
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let store = Store::local(directory.path(), runtime.handle().clone()).unwrap();
    let call = |ts_ns| Event {
        ts_ns,
        cpu: 1,
        tid: 2,
        body: Body::Exit { call: 1, result: 0 },
    };
    let chunk = chunk((0..50_000).map(call).collect());
    write_kernel(&store, &chunk).unwrap();
    let (path, bytes) = store.list(StoreTable::Kernel).unwrap().remove(0);
    let file = directory.path().join(path.as_ref());
    let whole = std::fs::read(&file).unwrap();
    assert_eq!(whole.len() as u64, bytes);
    for keep in [whole.len() / 2, whole.len() - 10] {
        std::fs::write(&file, &whole[..keep]).unwrap();
        let (read, damage) = read_kernel(&store, &list_kernel(&store).unwrap()[0]);
        let damage = damage.expect("it is damaged");
        assert!(damage.file.ends_with(path.filename().unwrap()), "{damage}");
        assert!(
            read.events.len() < 50_000
                && read.events.iter().zip(&chunk.events).all(|(a, b)| a == b)
        );
    }
}
