//! Tests of the analyses through their public API, each fast algorithm beside the obvious one.

mod aggregate;
mod completeness;
mod critical_path;
mod generator;
mod hostile_spans;
mod kernel;
mod layering;
mod model;
mod naive;
mod record;
mod segmentation;
