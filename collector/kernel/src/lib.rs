//! The kernel recorder: records system calls and scheduling of chosen processes, in bursts like the
//! SDKs.
//!
//! Two sources produce the same [`Event`](stroboscope_analysis::kernel::event::Event)s: eBPF
//! programs on BTF tracepoints, with the burst gate inside the kernel, and a tracefs instance for
//! kernels that refuse these programs. [`stroboscope_analysis::kernel::attribute`] interprets the
//! events. The types of settings and recordings are in [`stroboscope_kernel_model`], which reads
//! and writes recordings on every system.
//!
//! A recorder removes everything from the kernel when it ends. The eBPF programs of a killed
//! recorder vanish with its file descriptors. The next recorder of root removes the tracefs
//! instance of a killed one.

#![cfg(target_os = "linux")]

mod clock;
mod doze;
mod ebpf;
mod event_filter;
mod listening;
mod marker_call;
mod privilege;
mod processes;
mod recorder;
mod source;
mod start_error;
mod tracefs;

pub use listening::UnannouncedError;
pub use recorder::{OpenedRecorder, Recorder};
pub use start_error::StartError;
