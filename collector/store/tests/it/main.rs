//! The tests of the store, each a module: one program links in a fraction of the time of several.

mod care_seams;
mod check;
mod columns;
mod decode;
mod flush;
mod kernel_table;
mod ledger;
mod maintenance;
mod merging;
mod otlp;
mod records;
mod shredding;
mod side_by_side;
mod tables;
mod wal;
