//! Services of which one request in twenty fails, in three ways: what each reader says of them is what the load generator saw.

mod load;
mod python;
mod readers;
mod rust;
