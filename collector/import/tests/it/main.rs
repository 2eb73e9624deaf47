//! The tests of imports, each a module: one program links in a fraction of the time of several.

mod event_logs;
mod forms;
mod mutated;
