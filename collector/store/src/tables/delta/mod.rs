//! Delta Lake logs of the tables. With them, other engines read consistent snapshots of the tables,
//! with the columns of all files, except some that Delta cannot have.
//!
//! A log is kept while its directory, `TABLE/_delta_log`, exists: [`DeltaLog::begin`] creates it,
//! and maintenance commits changes of the table before it moves files. The newest version of the
//! log therefore lists existing files, except after a failed commit, an interrupted repair or a
//! repeated flush, until the next commit. The log is only an output: readers of the store never
//! read it, and it can be deleted and begun again at any time.
//!
//! The protocol is that of <https://github.com/delta-io/delta/blob/master/PROTOCOL.md>. Readers
//! need version 1 of it. Writers need a feature that only this program has, so other programs
//! refuse to write to the tables, and to delete files that the log does not list yet (`VACUUM`).

mod action;
mod checkpoint;
mod log;
mod schema;

pub use log::{DELTA_LOG, DeltaCommit, DeltaError, DeltaLog, is_of_delta_log};
