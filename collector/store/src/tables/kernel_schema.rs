//! # The columns
//!
//! Rows are sorted by `monotonic_ns`. The file's metadata contains `stroboscope.schema_version` and
//! `stroboscope.table`, as in all tables. A nullable column is null if it has no meaning for the
//! kind. Names, `trace` and `span` are also null if they are unknown; other unknown values are 0.
//! `cpu` and `tid` cannot be null, and are 0 instead. `arg0` of `lost` and `window` is a monotonic
//! time in ns.
//!
//! | kind | meaning |
//! |---|---|
//! | enter, exit | a system call begins, ends |
//! | switch | the processor switches from `tid` to `other_tid` |
//! | waking, new_task | the thread `tid` wakes, creates the thread `other_tid` |
//! | named, task_exit | the thread `tid` changes its name, ends |
//! | thread | introduces a thread, with its request so far; arg0: its id in its pid namespace |
//! | lost | events of this cpu lost since arg0; arg1 … arg4: enters, exits, switches, others |
//! | window | recorded from `monotonic_ns` until arg0 |
//! | clock | `result`: wall - monotonic; arg0: TAI - wall, arg1: boot - monotonic, arg2: ± (ns) |
//! | recording | call_name: architecture; arg0: burst-config; arg1 … arg4: losses so far |

use super::columns::table;
use super::kernel_row::KernelRow;
use super::kinds::{Distinct, I64, Id, Nullable, Text, U32, U64};

table! {
    /// Kernel events, recorded or imported.
    pub(super) Kernel(row: KernelRow) => struct KernelCells {
        recording: Id = row.recording, "id of the recorder's run";
        host: Text = row.host => host, "host of the kernel; scope of `tid` and `process`";
        time_ns: Distinct<I64> = row.time_ns, "wall time, ns since the Unix epoch";
        monotonic_ns: Distinct<U64> = row.monotonic_ns => monotonic_ns, "the kernel's timestamp";
        cpu: U32 = u32::from(row.cpu) => cpu, "processor of the event";
        tid: U32 = row.tid => tid, "thread of the event";
        kind: Text = row.kind.text() => kind, "see below";
        process: Nullable<U32> = row.process => process,
            "of the thread, if the kernel reported it; otherwise 0";
        name: Nullable<Text> = row.name => name, "of the thread, if the kernel reported it";
        call: Nullable<U32> = row.call => call, "a system call's number";
        call_name: Nullable<Text> = row.call_name => call_name, "its name; other kinds: see below";
        arg0: Nullable<U64> = row.args[0] => arg0, "its arguments; other kinds: see below";
        arg1: Nullable<U64> = row.args[1] => arg1, "its arguments; other kinds: see below";
        arg2: Nullable<U64> = row.args[2] => arg2, "its arguments; other kinds: see below";
        arg3: Nullable<U64> = row.args[3] => arg3, "its arguments; other kinds: see below";
        arg4: Nullable<U64> = row.args[4] => arg4, "its arguments; other kinds: see below";
        arg5: Nullable<U64> = row.args[5] => arg5, "its arguments; other kinds: see below";
        result: Nullable<I64> = row.result => result, "its return value; other kinds: see below";
        state: Nullable<U32> = row.state => state, "`switch`: the state left in, 0: could go on";
        other_tid: Nullable<U32> = row.other => other, "the thread switched to, woken, or made";
        other_process: Nullable<U32> = row.other_process => other_process,
            "of that thread, if the kernel reported it; otherwise 0";
        other_name: Nullable<Text> = row.other_name => other_name, "of that thread";
        trace: Nullable<U64> = row.owner.map(|owner| owner.0) => trace,
            "`thread`: low half of the trace id (0: none) it works for; null: not known";
        span: Nullable<U64> = row.owner.map(|owner| owner.1) => span,
            "`thread`: the span it works for; null: not known";
    }
}
