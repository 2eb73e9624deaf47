//! The tests of the store, each a module: one program links in a fraction of the time of several.

mod columns;
mod decode;
mod kernel_table;
mod ledger;
mod otlp;
mod records;
mod shredding;
mod tables;
mod wal;
