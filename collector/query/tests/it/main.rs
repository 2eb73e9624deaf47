//! Tests of queries. They are modules of one program, because one program links faster than
//! several.

mod damage;
mod kutrace;
mod links;
mod memory;
mod others_data;
mod parts;
mod random_store;
mod report_shards;
mod search;
mod shards;
mod timeline;
mod uneven_parts;
