//! Tests of the analyses through their public API, each fast algorithm beside the obvious one.

mod aggregate;
mod anomaly;
mod category;
mod clock;
mod clock_evidence;
mod coarse_clock;
mod completeness;
mod critical_path;
mod fleet;
mod generator;
mod hostile_spans;
mod kernel;
mod model;
mod naive;
mod pipeline;
mod record;
mod segmentation;
mod segmentation_clocks;
mod services;
mod shares;
mod simulator;
mod slack_use;
mod structural_change;
mod system;
mod what_if;
mod what_if_service;
