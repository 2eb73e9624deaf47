//! Names in files: of columns that have a part of their own in reading, and of metadata.

/// Version of the tables; readers refuse a newer one. In files of an older one, columns that came later are missing.
pub const SCHEMA_VERSION: u32 = 4;
pub(super) const VERSION_KEY: &str = "stroboscope.schema_version";
pub(super) const TABLE_KEY: &str = "stroboscope.table";

/// Tells a trace's rows, of which its name is said once.
pub(super) const TRACE_ID: &str = "trace_id";
pub(super) const TRACE_NAME: &str = "trace_name";
/// Read only where attributes are asked for. Writing puts there what has no column of its own.
pub(super) const ATTRIBUTES: &str = "attributes";
