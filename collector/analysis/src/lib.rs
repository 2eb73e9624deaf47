//! Inference of Stroboscope: pure functions over plain data.
//!
//! No function here does I/O, reads a clock, starts a thread or awaits anything; none depends on
//! how records are stored or sent. The query engine, the live model and an SQL aggregate call these
//! functions.
//!
//! # A guided tour
//!
//! 1. The records of one request are a [`TraceRecords`](record::TraceRecords): spans, or lines of
//!    an event log. [`completeness`](completeness::completeness) reports whether the whole request
//!    was recorded.
//! 2. [`segment`](segment::segment) cuts the request into segments, each named by a
//!    [`SegmentLabel`](label::SegmentLabel) ⟨task, start event, end event⟩ and numbered by
//!    [`Labels`](label::Labels).
//! 3. A [`Model`](model::Model) observes the segmented traces and counts the contradictions to each
//!    hypothesis about each pair of segments. Models of several parts of the traces can be merged.
//! 4. [`Relations`](model::Relations) are the hypotheses that the model still believes, at a stated
//!    tolerance for noise.
//! 5. With these relations, [`analyse`](critical_path::analyse) finds the critical path and the
//!    slack of one request. A [`PathAggregate`](aggregate::PathAggregate) summarizes the paths of
//!    many requests.
//!
//! Before step 2, [`clock`] puts the records of hosts whose clocks disagree on one time axis. After
//! step 2, [`Exclusion`](exclusion::Exclusion) removes irrelevant segments. [`convergence`] and
//! [`structural_change`] show how the model changes. [`anomaly`] (slow requests), [`breakdown`] (by
//! category and stratum), [`what_if`] (replays), [`slack_validation`] and [`prediction`] evaluate
//! the paths. [`failure`] finds where failures start. [`flow`] groups requests by their structure,
//! and [`compare`] finds the changes between two periods.
//!
//! Most analyses are two [passes](pass::Pass) over the traces: the first builds the model (or finds
//! a threshold), the second uses it. A pass keeps at most a bounded sample of the traces.
//!
//! ```
//! use stroboscope_analysis::aggregate::PathAggregate;
//! use stroboscope_analysis::critical_path::analyse;
//! use stroboscope_analysis::model::Model;
//! use stroboscope_analysis::record::{EventRecord, TraceRecords};
//! use stroboscope_analysis::sampling::Weight;
//! use stroboscope_analysis::segment::segment;
//!
//! let event = |ts_ns, task: &str, event: &str| {
//!     EventRecord { host: "web1".into(), ts_ns, seq: 0, event: event.into(), task: task.into() }
//! };
//! let records = TraceRecords {
//!     events: vec![event(0, "server", "begin"), event(80, "server", "sent"), event(95, "page", "begin"),
//!         event(120, "page", "shown")],
//!     ..TraceRecords::default()
//! };
//!
//! let mut model = Model::new();
//! let (trace, diagnostics) = segment(&records, model.labels_mut());
//! assert!(diagnostics.is_empty());
//! model.observe(&trace);
//!
//! let relations = model.relations(0.0);
//! let path = analyse(&trace, &relations);
//! assert_eq!(path.critical_path_ns, 120); // 80 in the server, 15 that nobody logged, 25 in the page
//! assert_eq!(path.segments[1].wait_ns, 15);
//!
//! let mut aggregate = PathAggregate::new();
//! aggregate.observe(&path, Weight::ONE);
//! assert_eq!(aggregate.latency().percentiles().p50_ns, 120);
//! ```
//!
//! # Modules
//!
//! A module depends only on modules of its own group or of earlier groups, and on the private
//! `text_map`. The groups are: [`sampling`], [`record`], [`name_rule`], [`task_path`],
//! [`diagnostic`], [`distribution`], [`duration`], [`statistics`], [`edit_distance`],
//! [`burst_plan`]; [`decision_tree`], [`pooling`] and [`kernel`]; [`label`], [`by_root`], [`call`]
//! and [`root`]; [`completeness`], [`connection`], [`inner_operations`], [`clock`] and [`segment`];
//! [`exclusion`] and [`model`]; [`convergence`], [`structural_change`] and [`critical_path`];
//! [`pass`]; [`aggregate`], [`anomaly`], [`breakdown`], [`what_if`], [`slack_validation`],
//! [`prediction`], [`slack_by_key`] and [`flow`]; [`failure`]; [`attribute`], [`category`] and
//! [`thinning`]; [`compare`] and [`explain`]; [`experiment`]; [`tradeoff`].
//!
//! # Bounds and bad input
//!
//! Records come from outside. Whatever they contain, no function here panics, hangs or grows
//! without bound: names are [normalised](name_rule), labels are [bounded](label::Labels), and a
//! [`Diagnostic`](diagnostic::Diagnostic) reports each flaw of a trace while the rest of it is
//! used.

pub mod aggregate;
pub mod anomaly;
pub mod attribute;
pub mod breakdown;
pub mod burst_plan;
pub mod by_root;
pub mod call;
pub mod category;
pub mod clock;
pub mod compare;
pub mod completeness;
pub mod connection;
pub mod convergence;
pub mod critical_path;
pub mod decision_tree;
pub mod diagnostic;
pub mod distribution;
pub mod duration;
pub mod edit_distance;
pub mod exclusion;
pub mod experiment;
pub mod explain;
pub mod failure;
pub mod flow;
pub mod inner_operations;
pub mod kernel;
pub mod label;
pub mod model;
pub mod name_rule;
pub mod pass;
pub mod pooling;
pub mod prediction;
pub mod record;
pub mod root;
pub mod sampling;
pub mod segment;
pub mod slack_by_key;
pub mod slack_validation;
pub mod statistics;
pub mod structural_change;
pub mod task_path;
#[cfg(test)]
mod test_noise;
mod text_map;
pub mod thinning;
pub mod tradeoff;
pub mod what_if;
