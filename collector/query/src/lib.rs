//! Batch driver: streams whole traces from the store through the analysis.
//!
//! The main modules, from the bottom up:
//!
//! - Reading: `source` (an open data directory, and the selection of its traces) with `filter`,
//!   `kernel_events` and `parts` (ranges of the store, read in parallel), `reading_memory`, `notes`
//!   and `cache`.
//! - Inference: `infer` with `rounds` (a model that converges), `inference` (its result),
//!   `saved_inference` and `kept_inference` (its encoding and its cache).
//! - Questions: `study` (questions that share readings), `shard` (inference and questions by
//!   several processes), and `task_run` (shards of workers).
//! - Answers to one question each: `overview`, `paths`, `categories`, `breakdown`, `anomalies`,
//!   `predict`, `slack_check`, `slack_by_key`, `search` and `burst_search` (with `first_look`,
//!   `candidates`, `filter_reading` and `kernel_reading`), `slowest` (a list of requests),
//!   `circumstances` and `joining` (reasons why figures mislead), `bottleneck`, `heatmap`,
//!   `root_series`, `request_rate` and `step` (the start of a latency change), with `time_columns`
//!   and `time_blocks`, `failures`, `operations`, `service_map`, `what_if`, `clocks`,
//!   `causal_graph`, `recorded`, `compare` with `explain`, `experiment`, `pool`, `burst_goal`.
//! - Single requests: [`timeline`] and `kernel`, `request` (everything known about one request)
//!   with `request_failure` and `request_connection`, `span_links` and `path_across` (links to
//!   other requests), [`request_tree`], `perfetto_trace`.
//! - Model files: `saved_model`.
//! - Merge logs of several processes: `provenance`, with `byte_ranges`.
#![allow(
    missing_docs,
    reason = "what is known by its name needs no sentence; the users are the crates beside this one"
)]

mod anomalies;
mod arrival_rate;
mod attribute_names;
mod bottleneck;
mod breakdown;
mod burst_goal;
mod burst_search;
mod byte_ranges;
mod cache;
mod candidates;
mod categories;
mod causal_graph;
mod circumstances;
mod clocks;
mod compare;
mod cutter;
mod experiment;
mod explain;
mod failures;
mod filter;
mod filter_reading;
mod first_look;
mod heatmap;
mod infer;
mod infer_settings;
mod inference;
mod joining;
mod kept_inference;
mod kernel;
mod kernel_clocks;
mod kernel_events;
mod kernel_reading;
mod known_operations;
mod log_recovery;
mod losses;
mod notes;
mod operations;
mod overview;
mod parts;
mod parts_wanted;
mod path_across;
mod paths;
mod perfetto_trace;
mod pool;
mod predict;
mod provenance;
mod query_error;
mod reading_memory;
mod recorded;
mod request;
mod request_connection;
mod request_failure;
mod request_rate;
pub mod request_tree;
mod root_series;
mod rounds;
mod sampled_notes;
mod saved_inference;
pub mod saved_model;
mod search;
mod service_map;
mod shard;
mod slack_by_key;
mod slack_check;
mod slowest;
mod source;
mod span_links;
mod step;
mod stored_request;
mod study;
mod task_run;
#[cfg(test)]
mod test_noise;
mod time_blocks;
mod time_columns;
mod time_range;
pub mod timeline;
mod tradeoffs;
mod what_if;

pub use anomalies::{AnomalyQuestion, AnomalyReport};
pub use attribute_names::{attribute_choices, nearest};
pub use bottleneck::{Bottleneck, OperationTime, bottleneck_text, bottlenecks, by_time};
pub use breakdown::{BreakdownQuestion, BreakdownReport, QUANTILES_DEFAULT, StrataRule};
pub use burst_goal::{BurstBasis, BusiestProcess, burst_basis};
pub use burst_search::search_bursts;
pub use byte_ranges::ByteRanges;
pub use candidates::{ProbedFile, SearchPlan};
pub use categories::{
    Categories, CategoriesQuestion, CategoryChoice, CategoryRule, CategoryTotals,
};
pub use causal_graph::CausalGraph;
pub use circumstances::{ProcessorUse, circumstances};
pub use clocks::{ClockReport, HostReport, clocks};
pub use compare::{ComparedPeriods, Flows, PeriodOf, compare, compare_with_failures, flows};
pub use experiment::{
    ComparedMetric, ComparedPart, ExperimentReport, ExperimentSettings, LoadBalance, MixOf,
    UserBalance, experiment,
};
pub use explain::{
    AmongLater, Describe, Distinction, EXPLAINED_MAX, ExplainSubject, ExplainedChange, HowCompared,
    explain_change, explain_first_cause,
};
pub use failures::{
    FailedApart, FailureGroup, FailureShift, Failures, GroupedFailures, OriginShift, Outcomes,
    RateChange, RootFailures, failures,
};
pub use filter::Filter;
pub use first_look::alignment;
pub use heatmap::{Heatmap, HeatmapCell, HeatmapQuestion, band_edges_ns};
pub use infer::{infer, infer_with};
pub use infer_settings::InferSettings;
pub use inference::Inference;
pub use kernel::KernelPart;
pub use kernel_clocks::KernelClocks;
pub use losses::{losses, may_lack_records};
pub use notes::Notes;
pub use operations::{OPERATIONS, OperationTimes, Operations, OperationsQuestion};
pub use overview::{Example, Overview, OverviewQuestion};
pub use parts::Parts;
pub use parts_wanted::PartsWanted;
pub use path_across::{AcrossAnswer, LegRequest, LinkedPath, linked_path_of};
pub use paths::{Paths, PathsQuestion, TraceAnswer, each_path, path_of};
pub use perfetto_trace::{PerfettoHostError, perfetto_trace};
pub use pool::{PoolReport, PoolSettings, PooledUse, UsesByService};
pub use predict::{ATTRIBUTES_MAX, PredictReport, PredictSettings};
pub use provenance::{
    ByteFlow, BytesByItem, Direction, ItemInfo, OutputPart, ProvenanceAnswer, ProvenanceError,
    ProvenanceLog, ProvenanceLogs, ProvenanceMap, ReachedItem, StoredLogs, infos, item_id,
};
pub use query_error::QueryError;
pub use recorded::RecordedSummary;
pub use request::{
    Request, RequestAsked, UnmodelledSegment, request, request_exists, request_of_low, span_of,
    unmodelled, whole_id,
};
pub use request_connection::{ConnectionRequest, RequestConnection};
pub use request_failure::{FailedSpan, RequestFailure, SpanException};
pub use request_rate::{RequestRate, RequestRates};
pub use root_series::{RootColumn, RootSeries, RootSeriesQuestion};
pub use sampled_notes::{SamplingNotes, WeightUse};
pub use saved_model::{
    MODEL_VERSION, SavedModelError, load_model, model_from_json, model_to_json, save_model,
};
pub use search::{
    HELD_BYTES_MAX, LargeBurst, SearchMatch, SearchReport, SearchSettings, WitnessSpan,
    search_requests,
};
pub use service_map::{MAP, ServiceCounts, ServiceMap, ServiceMapQuestion};
pub use shard::{
    MergedInference, MergedReport, PartSet, Shard, ShardClocks, ShardError, ShardInference,
    ShardQuestion, ShardReport, ShardSummary, ShardTask, TaskStore, infer_shard, load_clocks,
    load_inference, merge_clocks, merge_parts, merge_report, save_first_clocks, save_inference,
    save_kept_inference, shard_report, task_version,
};
pub use slack_by_key::{SlackModelReport, SlackModelSettings};
pub use slack_check::{SlackCheck, check_slack};
pub use slowest::{ListedRequest, RequestList, RequestOrder, RequestsWanted, list_requests};
pub use source::{Selection, Source};
pub use span_links::{Follow, Follows, LinkOrder, LinkedSpan, StoredSpanId};
pub use step::{LatencyStep, StepQuestion};
pub use study::{Question, Study, StudyInput};
pub use task_run::run_task;
pub use time_range::TimeRange;
pub use tradeoffs::tradeoffs;
pub use what_if::{WhatIfReport, what_if};
