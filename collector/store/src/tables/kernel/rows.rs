//! Between events and rows of the table.

use stroboscope_analysis::kernel::call::Architecture;
use stroboscope_analysis::kernel::event::{Body, Event, LossCounts, Name, Window};
use stroboscope_kernel_model::ClockSample;

use super::KernelChunk;

/// What a row speaks of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(super) enum RowKind {
    Enter,
    Exit,
    Switch,
    Waking,
    NewTask,
    Named,
    TaskExit,
    Thread,
    Lost,
    Window,
    Clock,
    Recording,
}

impl RowKind {
    pub(super) const ALL: [Self; 12] = [
        Self::Enter,
        Self::Exit,
        Self::Switch,
        Self::Waking,
        Self::NewTask,
        Self::Named,
        Self::TaskExit,
        Self::Thread,
        Self::Lost,
        Self::Window,
        Self::Clock,
        Self::Recording,
    ];

    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Enter => "enter",
            Self::Exit => "exit",
            Self::Switch => "switch",
            Self::Waking => "waking",
            Self::NewTask => "new_task",
            Self::Named => "named",
            Self::TaskExit => "task_exit",
            Self::Thread => "thread",
            Self::Lost => "lost",
            Self::Window => "window",
            Self::Clock => "clock",
            Self::Recording => "recording",
        }
    }
}

/// One row; what is `None` is null.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct KernelRow {
    pub(super) monotonic_ns: u64,
    pub(super) cpu: u16,
    pub(super) tid: u32,
    pub(super) kind: RowKind,
    pub(super) process: Option<u32>,
    pub(super) name: Option<Name>,
    pub(super) call: Option<u32>,
    pub(super) args: [Option<u64>; 6],
    pub(super) result: Option<i64>,
    pub(super) state: Option<u32>,
    pub(super) other: Option<u32>,
    pub(super) other_process: Option<u32>,
    pub(super) other_name: Option<Name>,
    pub(super) owner: Option<(u64, u64)>,
}

impl KernelRow {
    fn new(kind: RowKind, monotonic_ns: u64) -> Self {
        Self {
            monotonic_ns,
            cpu: 0,
            tid: 0,
            kind,
            process: None,
            name: None,
            call: None,
            args: [None; 6],
            result: None,
            state: None,
            other: None,
            other_process: None,
            other_name: None,
            owner: None,
        }
    }
}

fn counts(first: u64, counts: LossCounts) -> [Option<u64>; 6] {
    let LossCounts { enters, exits, switches, others } = counts;
    [Some(first), Some(enters), Some(exits), Some(switches), Some(others), None]
}

/// All rows of a chunk, in order.
pub(super) fn of_chunk(chunk: &KernelChunk) -> Vec<KernelRow> {
    let begin_ns =
        chunk.events.iter().map(|event| event.ts_ns).chain(chunk.windows.iter().map(|w| w.open_ns));
    let mut about = KernelRow::new(RowKind::Recording, begin_ns.min().unwrap_or(0));
    about.args = counts(chunk.burst_config, chunk.lost);
    let mut rows = vec![about];
    rows.extend(chunk.clocks.samples().iter().map(of_clock));
    rows.extend(chunk.windows.iter().map(of_window));
    rows.extend(chunk.events.iter().map(of_event));
    // Stable: a thread's introduction stays before the event it belongs to.
    rows.sort_by_key(|row| row.monotonic_ns);
    rows
}

fn of_clock(sample: &ClockSample) -> KernelRow {
    let mut row = KernelRow::new(RowKind::Clock, sample.at_ns);
    row.result = Some(sample.wall_offset_ns);
    row.args[0] = Some(sample.tai_offset_ns.cast_unsigned());
    row.args[1] = Some(sample.boot_offset_ns.cast_unsigned());
    row.args[2] = Some(sample.uncertainty_ns);
    row
}

fn of_window(window: &Window) -> KernelRow {
    let mut row = KernelRow::new(RowKind::Window, window.open_ns);
    row.args[0] = Some(window.close_ns);
    row
}

fn of_event(event: &Event) -> KernelRow {
    let mut row = KernelRow::new(RowKind::Enter, event.ts_ns);
    (row.cpu, row.tid) = (event.cpu, event.tid);
    match event.body {
        Body::Enter { call, args } => {
            row.call = Some(call);
            row.args = args.map(Some);
        }
        Body::Exit { call, result } => {
            (row.kind, row.call, row.result) = (RowKind::Exit, Some(call), Some(result));
        }
        Body::Switch { state, process, name, next, next_process, next_name } => {
            (row.kind, row.state) = (RowKind::Switch, Some(u32::from(state)));
            (row.process, row.name) = (Some(process), Some(name));
            (row.other, row.other_process, row.other_name) =
                (Some(next), Some(next_process), Some(next_name));
        }
        Body::Waking { woken, woken_process } => {
            (row.kind, row.other, row.other_process) = (RowKind::Waking, Some(woken), Some(woken_process));
        }
        Body::NewTask { child, child_process, name } => {
            row.kind = RowKind::NewTask;
            (row.other, row.other_process, row.other_name) = (Some(child), Some(child_process), Some(name));
        }
        Body::Named { process, name } => {
            (row.kind, row.process, row.name) = (RowKind::Named, Some(process), Some(name));
        }
        Body::TaskExit { process } => (row.kind, row.process) = (RowKind::TaskExit, Some(process)),
        Body::Thread { trace, span, known, process, tid_in_process, name } => {
            (row.kind, row.process, row.name) = (RowKind::Thread, Some(process), Some(name));
            row.owner = known.then_some((trace, span));
            row.args[0] = Some(u64::from(tid_in_process));
        }
        Body::Lost { first_ns, counts: lost } => {
            (row.kind, row.args) = (RowKind::Lost, counts(first_ns, lost));
        }
    }
    row
}

/// Puts a row where it belongs in a chunk. The error names what it lacks.
pub(super) fn into_chunk(row: &KernelRow, chunk: &mut KernelChunk) -> Result<(), String> {
    let lacks = |what: &str| format!("a row of kind {} has no {what}", row.kind.name());
    let arg = |place: usize| row.args[place].ok_or_else(|| lacks(&format!("arg{place}")));
    let call = || row.call.ok_or_else(|| lacks("call"));
    let process = row.process.unwrap_or(0);
    let (name, other_name) = (row.name.unwrap_or_default(), row.other_name.unwrap_or_default());
    let other = || row.other.ok_or_else(|| lacks("other_tid"));
    let other_process = row.other_process.unwrap_or(0);
    let lost = || -> Result<LossCounts, String> {
        Ok(LossCounts { enters: arg(1)?, exits: arg(2)?, switches: arg(3)?, others: arg(4)? })
    };
    let body = match row.kind {
        RowKind::Enter => Body::Enter { call: call()?, args: row.args.map(Option::unwrap_or_default) },
        RowKind::Exit => Body::Exit { call: call()?, result: row.result.ok_or_else(|| lacks("result"))? },
        RowKind::Switch => Body::Switch {
            state: row.state.unwrap_or(0) as u8,
            process,
            name,
            next: other()?,
            next_process: other_process,
            next_name: other_name,
        },
        RowKind::Waking => Body::Waking { woken: other()?, woken_process: other_process },
        RowKind::NewTask => Body::NewTask { child: other()?, child_process: other_process, name: other_name },
        RowKind::Named => Body::Named { process, name },
        RowKind::TaskExit => Body::TaskExit { process },
        RowKind::Thread => {
            let (trace, span) = row.owner.unwrap_or_default();
            let tid_in_process = row.args[0].unwrap_or(0) as u32;
            Body::Thread { trace, span, known: row.owner.is_some(), process, tid_in_process, name }
        }
        RowKind::Lost => Body::Lost { first_ns: arg(0)?, counts: lost()? },
        RowKind::Window => {
            chunk.windows.push(Window { open_ns: row.monotonic_ns, close_ns: arg(0)? });
            return Ok(());
        }
        RowKind::Clock => {
            chunk.clocks.push(ClockSample {
                at_ns: row.monotonic_ns,
                wall_offset_ns: row.result.ok_or_else(|| lacks("result"))?,
                tai_offset_ns: arg(0)?.cast_signed(),
                boot_offset_ns: arg(1)?.cast_signed(),
                uncertainty_ns: arg(2)?,
            });
            return Ok(());
        }
        RowKind::Recording => {
            (chunk.burst_config, chunk.lost) = (arg(0)?, lost()?);
            return Ok(());
        }
    };
    chunk.events.push(Event { ts_ns: row.monotonic_ns, cpu: row.cpu, tid: row.tid, body });
    Ok(())
}

/// The name of an architecture in the table.
pub(super) fn architecture_name(architecture: Architecture) -> &'static str {
    match architecture {
        Architecture::X86_64 => "x86_64",
        Architecture::Aarch64 => "aarch64",
    }
}

/// Its reverse.
pub(super) fn architecture_named(name: &str) -> Option<Architecture> {
    [Architecture::X86_64, Architecture::Aarch64].into_iter().find(|&one| architecture_name(one) == name)
}
