//! Converts kernel chunks to rows of the table, and back.

use std::collections::HashMap;
use std::sync::Arc;

use stroboscope_analysis::kernel::call::Architecture;
use stroboscope_analysis::kernel::event::{Body, Event, LossCounts, Name, Window};
use stroboscope_kernel_model::ClockSample;

use super::KernelChunk;
use crate::record::{StringId, Strings};
use crate::tables::kernel_row::{KernelRow, RowKind};
use crate::tables::kernel_schema::KernelCells;
use crate::tables::shredding::HasAttributes;
use crate::tables::texts::TextIndex;

impl HasAttributes for KernelRow {}

/// Builder of a chunk's rows. It caches names, because there are few names and many rows.
struct RowMaker<'a> {
    chunk: &'a KernelChunk,
    host: StringId,
    strings: Strings,
    names: HashMap<Name, StringId>,
    calls: HashMap<u32, Option<StringId>>,
}

impl<'a> RowMaker<'a> {
    fn new(chunk: &'a KernelChunk) -> Self {
        let mut strings = Strings::default();
        for kind in RowKind::ALL {
            strings.intern(kind.name());
        }
        let host = strings.intern(&chunk.host);
        Self {
            chunk,
            host,
            strings,
            names: HashMap::new(),
            calls: HashMap::new(),
        }
    }

    fn row(&self, kind: RowKind, monotonic_ns: u64) -> KernelRow {
        KernelRow {
            recording: self.chunk.recording,
            host: self.host,
            time_ns: self.chunk.clocks.wall_ns(monotonic_ns),
            monotonic_ns,
            kind,
            ..KernelRow::default()
        }
    }

    fn name(&mut self, name: Name) -> Option<StringId> {
        let Self { strings, names, .. } = self;
        let mut intern = || strings.intern(&name.to_string());
        (!name.is_empty()).then(|| *names.entry(name).or_insert_with(&mut intern))
    }

    fn set_call(&mut self, row: &mut KernelRow, call: u32) {
        let name = self.chunk.architecture.call_name(call);
        let intern = || name.map(|name| self.strings.intern(name));
        row.call = Some(call);
        row.call_name = *self.calls.entry(call).or_insert_with(intern);
    }
}

fn counts(first: u64, counts: LossCounts) -> [Option<u64>; 6] {
    let LossCounts {
        enters,
        exits,
        switches,
        others,
    } = counts;
    [
        Some(first),
        Some(enters),
        Some(exits),
        Some(switches),
        Some(others),
        None,
    ]
}

/// Returns all rows of a chunk in order of time, with their texts.
pub(super) fn of_chunk(chunk: &KernelChunk) -> (Vec<KernelRow>, Strings) {
    let mut maker = RowMaker::new(chunk);
    let begins_ns = chunk.events.iter().map(|event| event.ts_ns);
    let begins_ns = begins_ns.chain(chunk.windows.iter().map(|window| window.open_ns));
    let mut about = maker.row(RowKind::Recording, begins_ns.min().unwrap_or(0));
    about.args = counts(chunk.burst_config, chunk.lost);
    about.call_name = Some(maker.strings.intern(architecture_name(chunk.architecture)));
    let mut rows = vec![about];
    let samples = chunk.clocks.samples().iter();
    rows.extend(samples.map(|sample| of_clock(&maker, sample)));
    rows.extend(chunk.windows.iter().map(|window| of_window(&maker, window)));
    rows.extend(chunk.events.iter().map(|event| of_event(&mut maker, event)));
    // The sort is stable, so a thread's introduction stays before the event with the same time.
    rows.sort_by_key(|row| row.monotonic_ns);
    (rows, maker.strings)
}

fn of_clock(maker: &RowMaker<'_>, sample: &ClockSample) -> KernelRow {
    let mut row = maker.row(RowKind::Clock, sample.at_ns);
    row.result = Some(sample.wall_offset_ns);
    row.args[0] = Some(sample.tai_offset_ns.cast_unsigned());
    row.args[1] = Some(sample.boot_offset_ns.cast_unsigned());
    row.args[2] = Some(sample.uncertainty_ns);
    row
}

fn of_window(maker: &RowMaker<'_>, window: &Window) -> KernelRow {
    let mut row = maker.row(RowKind::Window, window.open_ns);
    row.args[0] = Some(window.close_ns);
    row
}

fn of_event(maker: &mut RowMaker<'_>, event: &Event) -> KernelRow {
    let mut row = maker.row(RowKind::Enter, event.ts_ns);
    (row.cpu, row.tid) = (event.cpu, event.tid);
    match event.body {
        Body::Enter { call, args } => {
            maker.set_call(&mut row, call);
            row.args = args.map(Some);
        }
        Body::Exit { call, result } => {
            (row.kind, row.result) = (RowKind::Exit, Some(result));
            maker.set_call(&mut row, call);
        }
        Body::Switch {
            state,
            process,
            name,
            next,
            next_process,
            next_name,
        } => {
            (row.kind, row.state) = (RowKind::Switch, Some(u32::from(state)));
            (row.process, row.name) = (Some(process), maker.name(name));
            (row.other, row.other_process, row.other_name) =
                (Some(next), Some(next_process), maker.name(next_name));
        }
        Body::Waking {
            woken,
            woken_process,
        } => {
            (row.kind, row.other, row.other_process) =
                (RowKind::Waking, Some(woken), Some(woken_process));
        }
        Body::NewTask {
            child,
            child_process,
            name,
        } => {
            row.kind = RowKind::NewTask;
            (row.other, row.other_process, row.other_name) =
                (Some(child), Some(child_process), maker.name(name));
        }
        Body::Named { process, name } => {
            (row.kind, row.process, row.name) = (RowKind::Named, Some(process), maker.name(name));
        }
        Body::TaskExit { process } => (row.kind, row.process) = (RowKind::TaskExit, Some(process)),
        Body::Thread {
            trace,
            span,
            known,
            process,
            tid_in_process,
            name,
        } => {
            (row.kind, row.process, row.name) = (RowKind::Thread, Some(process), maker.name(name));
            row.owner = known.then_some((trace, span));
            row.args[0] = Some(u64::from(tid_in_process));
        }
        Body::Lost {
            first_ns,
            counts: lost,
        } => {
            (row.kind, row.args) = (RowKind::Lost, counts(first_ns, lost));
        }
    }
    row
}

/// Adds the rows of one record batch to a chunk. Returns a description of the first invalid row as
/// an error.
pub(super) fn into_chunk(
    rows: &[KernelCells],
    texts: &[Arc<str>],
    chunk: &mut KernelChunk,
) -> Result<(), String> {
    // Rows share their texts, so each text is parsed once.
    let kinds: Vec<Option<RowKind>> = texts.iter().map(|text| RowKind::named(text)).collect();
    let names: Vec<Name> = texts.iter().map(|text| Name::new(text)).collect();
    for row in rows {
        let unknown = || match row.kind.of(texts) {
            Some(text) => format!("it has rows of an unknown kind {text:?}"),
            None => "it has a row without a kind".to_owned(),
        };
        let kind = row.kind.among(&kinds).copied().flatten();
        let kind = kind.ok_or_else(unknown)?;
        if chunk.host.is_empty() {
            chunk.host = row.host.of(texts).unwrap_or_default().to_string();
        }
        if kind == RowKind::Recording {
            let name = row.call_name.of(texts);
            let known = name.and_then(|name| architecture_named(&name));
            chunk.architecture = known.ok_or("its processor architecture is unknown")?;
        }
        let name = |index: TextIndex| index.among(&names).copied().unwrap_or_default();
        put_row(row, kind, (name(row.name), name(row.other_name)), chunk)?;
    }
    Ok(())
}

/// Adds a row with its names to a chunk. The error names a required column that is null.
fn put_row(
    row: &KernelCells,
    kind: RowKind,
    (name, other_name): (Name, Name),
    chunk: &mut KernelChunk,
) -> Result<(), String> {
    let args = [row.arg0, row.arg1, row.arg2, row.arg3, row.arg4, row.arg5];
    let lacks = |what: &str| format!("a row of kind {} has no {what}", kind.name());
    let arg = |place: usize| args[place].ok_or_else(|| lacks(&format!("arg{place}")));
    let call = || row.call.ok_or_else(|| lacks("call"));
    let process = row.process.unwrap_or(0);
    let other = || row.other.ok_or_else(|| lacks("other_tid"));
    let other_process = row.other_process.unwrap_or(0);
    let lost = || -> Result<LossCounts, String> {
        Ok(LossCounts {
            enters: arg(1)?,
            exits: arg(2)?,
            switches: arg(3)?,
            others: arg(4)?,
        })
    };
    let body = match kind {
        RowKind::Enter => Body::Enter {
            call: call()?,
            args: args.map(Option::unwrap_or_default),
        },
        RowKind::Exit => Body::Exit {
            call: call()?,
            result: row.result.ok_or_else(|| lacks("result"))?,
        },
        RowKind::Switch => Body::Switch {
            state: row.state.unwrap_or(0) as u8,
            process,
            name,
            next: other()?,
            next_process: other_process,
            next_name: other_name,
        },
        RowKind::Waking => Body::Waking {
            woken: other()?,
            woken_process: other_process,
        },
        RowKind::NewTask => Body::NewTask {
            child: other()?,
            child_process: other_process,
            name: other_name,
        },
        RowKind::Named => Body::Named { process, name },
        RowKind::TaskExit => Body::TaskExit { process },
        RowKind::Thread => {
            let owner = row.trace.zip(row.span);
            let (trace, span) = owner.unwrap_or_default();
            let tid_in_process = args[0].unwrap_or(0) as u32;
            Body::Thread {
                trace,
                span,
                known: owner.is_some(),
                process,
                tid_in_process,
                name,
            }
        }
        RowKind::Lost => Body::Lost {
            first_ns: arg(0)?,
            counts: lost()?,
        },
        RowKind::Window => {
            chunk.windows.push(Window {
                open_ns: row.monotonic_ns,
                close_ns: arg(0)?,
            });
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
    chunk.events.push(Event {
        ts_ns: row.monotonic_ns,
        cpu: row.cpu as u16,
        tid: row.tid,
        body,
    });
    Ok(())
}

/// Returns the name of an architecture in the table.
fn architecture_name(architecture: Architecture) -> &'static str {
    match architecture {
        Architecture::X86_64 => "x86_64",
        Architecture::Aarch64 => "aarch64",
    }
}

/// Returns the architecture with this name in the table; `None` if the name is unknown.
fn architecture_named(name: &str) -> Option<Architecture> {
    [Architecture::X86_64, Architecture::Aarch64]
        .into_iter()
        .find(|&one| architecture_name(one) == name)
}
