//! Write-ahead log. Data are acknowledged once they are durable in the log. `format.rs`
//! documents the format. After a crash, `Flusher::recover` flushes the remaining segments to the
//! store; `Forwarder::recover` reads those of an agent.

mod format;
mod reader;
mod record;
mod segment_files;
mod writer;

pub use format::{HEADER_BYTES, PAYLOAD_BYTES_MAX, RECORD_HEADER_BYTES};
pub(crate) use reader::read_segment_on;
pub use reader::{Scan, ScanNote, read_segment};
pub use record::{PAYLOAD_HEADER_BYTES, Payload, PayloadKind};
pub(crate) use segment_files::remove_segment;
pub use segment_files::{list_segments, list_segments_on, segment_path};
pub use writer::{WalError, Writer};
