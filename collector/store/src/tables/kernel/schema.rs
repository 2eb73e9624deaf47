//! # The columns
//!
//! Sorted by `monotonic_ns`. The file's metadata says `stroboscope.schema_version` and `stroboscope.table`, as for all
//! tables. Columns that mean nothing for a kind are null.
//!
//! | column | type | meaning |
//! |---|---|---|
//! | recording | FixedSizeBinary(16) | which run of a recorder |
//! | host | Dictionary(Int32, Utf8) | whose kernel; `tid` and `process` are its numbers |
//! | time_ns | Int64 | wall time, ns since the Unix epoch |
//! | monotonic_ns | UInt64 | the kernel's own stamp |
//! | cpu, tid | UInt32 | where, and to which thread |
//! | kind | Dictionary | see below |
//! | process, name | UInt32, Dictionary | of the thread, where the kernel said them |
//! | call, call_name | UInt32, Dictionary | a system call |
//! | arg0 … arg5 | UInt64 | its arguments, or what the kind says |
//! | result | Int64 | what it returned, or what the kind says |
//! | state | UInt32 | `switch`: the state left in, 0: could go on |
//! | other_tid, other_process, other_name | UInt32, UInt32, Dictionary | the thread switched to, woken, or made |
//! | trace, span | UInt64 | `thread`: low half of the trace id (0: none) and span it works for; null: not known |
//!
//! | kind | meaning |
//! |---|---|
//! | enter, exit | a system call begins, ends |
//! | switch, waking, new_task, named, task_exit | scheduling, names, ends |
//! | thread | a thread is introduced: what it works for before this moment; arg0: its number in its process |
//! | lost | events of this cpu are missing since arg0 (monotonic); arg1 … arg4: enters, exits, switches, others |
//! | window | recorded from here until arg0 (monotonic) |
//! | clock | wall minus monotonic time is `result`; arg0: TAI minus wall, arg1: boot minus monotonic, arg2: ± (ns) |
//! | recording | call_name: architecture; arg0: burst-config; arg1 … arg4: all losses so far, as in `lost` |

use arrow_schema::{DataType, Field};

/// All columns, in order.
pub(super) const COLUMNS: [&str; 24] = [
    "recording",
    "host",
    "time_ns",
    "monotonic_ns",
    "cpu",
    "tid",
    "kind",
    "process",
    "name",
    "call",
    "call_name",
    "arg0",
    "arg1",
    "arg2",
    "arg3",
    "arg4",
    "arg5",
    "result",
    "state",
    "other_tid",
    "other_process",
    "other_name",
    "trace",
    "span",
];

/// The Arrow fields of the table.
pub(in crate::tables) fn fields() -> Vec<Field> {
    let field = |name: &&str| {
        let text = DataType::Dictionary(Box::new(DataType::Int32), Box::new(DataType::Utf8));
        let (kind, nullable) = match *name {
            "recording" => (DataType::FixedSizeBinary(16), false),
            "host" | "kind" => (text, false),
            "name" | "call_name" | "other_name" => (text, true),
            "time_ns" => (DataType::Int64, false),
            "monotonic_ns" => (DataType::UInt64, false),
            "cpu" | "tid" => (DataType::UInt32, false),
            "result" => (DataType::Int64, true),
            "trace" | "span" => (DataType::UInt64, true),
            name if name.starts_with("arg") => (DataType::UInt64, true),
            _ => (DataType::UInt32, true),
        };
        Field::new(*name, kind, nullable)
    };
    COLUMNS.iter().map(field).collect()
}
