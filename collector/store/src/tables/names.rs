//! Names of metadata entries in files, and of columns that readers treat specially.

/// Version of the tables. Readers reject files of a newer version. Files of an older version lack
/// the columns that were added later.
pub const SCHEMA_VERSION: u32 = 4;
pub(super) const VERSION_KEY: &str = "stroboscope.schema_version";
pub(super) const TABLE_KEY: &str = "stroboscope.table";
/// Metadata entry of thinned files, with the ratio.
pub(super) const THINNED_KEY: &str = "stroboscope.thinned";

/// Column of the trace ids, by which readers tell traces apart.
pub(super) const TRACE_ID: &str = "trace_id";
pub(super) const TRACE_NAME: &str = "trace_name";
/// Column of the attributes without columns of their own, as JSON. Readers of traces read it only
/// if attributes are selected.
pub(super) const ATTRIBUTES: &str = "attributes";
