//! Vertical context: finds the request that each kernel event of a burst served (Ardelean et al.,
//! NSDI 2018, §3.3.2).
//!
//! Programs emit [markers](marker) that state which request a thread works for. [`attribute()`]
//! combines the markers with context switches and with the owners that the recorder remembers
//! across bursts. It finds the owners of system calls and of intervals on and off a processor, as
//! far as the events show them. It also finds which thread woke a sleeping thread, and which
//! request held a contended lock.
//!
//! ```
//! use stroboscope_analysis::kernel::attribute;
//! use stroboscope_analysis::kernel::call::Architecture;
//! use stroboscope_analysis::kernel::event::{Body, Event, Window};
//! use stroboscope_analysis::kernel::marker::MARK;
//!
//! let enter = |ts_ns, call, args| Event { ts_ns, cpu: 0, tid: 7, body: Body::Enter { call, args } };
//! let getpid = 39;
//! let read = 0;
//! let events = vec![
//!     enter(10, getpid, [MARK | 1, 0xabc, 1, 7, 0, 0]), // request abc starts on this thread
//!     enter(20, read, [3, 0, 100, 0, 0, 0]),
//! ];
//! let timeline = attribute(&events, &[Window::ALWAYS], Architecture::X86_64);
//! assert_eq!(timeline.calls[1].owner.trace(), Some(0xabc));
//! ```

mod attribution;
pub mod by_operation;
pub mod call;
pub mod event;
mod lock;
pub mod lock_sums;
pub mod marker;
pub mod summary;
mod thread;
pub mod timeline;

pub use attribution::attribute;
