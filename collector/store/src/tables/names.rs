//! Names in files: of metadata, and of columns that reading treats specially.

/// Version of the tables; readers reject a newer one. Files of an older version lack columns that
/// came later.
pub const SCHEMA_VERSION: u32 = 4;
pub(super) const VERSION_KEY: &str = "stroboscope.schema_version";
pub(super) const TABLE_KEY: &str = "stroboscope.table";

/// Column that separates traces; each trace's name is stored once.
pub(super) const TRACE_ID: &str = "trace_id";
pub(super) const TRACE_NAME: &str = "trace_name";
/// Column read only if attributes are selected. It stores those without columns of their own.
pub(super) const ATTRIBUTES: &str = "attributes";
