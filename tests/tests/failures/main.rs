//! Services in which one request in twenty fails, in three ways. Every reader must report the
//! failures that the load generator saw.

mod load;
mod metrics;
mod python;
mod readers;
mod rust;
