//! Write-ahead log. Data are acknowledged once they are durable in the log. `wal.rs` documents the
//! format.

mod reader;
mod record;
mod segment;
#[allow(clippy::module_inception)] // documents the format
mod wal;
mod writer;

pub(crate) use reader::read_segment_on;
pub use reader::{Scan, ScanNote, read_segment};
pub use record::{PAYLOAD_HEADER_BYTES, Payload, PayloadKind};
pub(crate) use segment::remove_segment;
pub use segment::{list_segments, list_segments_on, segment_path};
pub use wal::{HEADER_BYTES, RECORD_HEADER_BYTES};
pub use writer::{WalError, Writer};
