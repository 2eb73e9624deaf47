//! Tests of the store, as modules of one program, because one program links faster than several.

mod care_seams;
mod check;
mod columns;
mod decode;
mod delta;
mod flush;
mod kernel_table;
mod ledger;
mod maintenance;
mod merging;
mod operations;
mod otlp;
mod provenance;
mod records;
mod shredding;
mod side_by_side;
mod tables;
mod thinning;
mod wal;
