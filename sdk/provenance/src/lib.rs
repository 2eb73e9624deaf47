//! A merge log: names the input bytes on which each output byte depends, by 32-bit labels.
//!
//! A program that reads an input of *n* bytes gets *n* labels from the [`MergeLog`]. A value that
//! it computes from two others gets their merged label. A new merge usually appends a node to the
//! log. Later, queries resolve the labels of outputs to sets of inputs ([`inputs_of`],
//! [`sweep`]), or find the labels that some inputs reached ([`Reach`]).
//!
//! ```
//! use stroboscope_provenance::{Labels, MergeLog, inputs_of};
//!
//! let mut log = MergeLog::default();
//! let Labels::Inputs(first) = log.source(1, 0, 100) else { unreachable!("the log has room") };
//! let word = log.range(10, 13); // bytes 10 to 13, such as of a number
//! let sum = log.merge(word, first);
//! let inputs: Vec<_> = inputs_of(&log, sum).ranges().collect();
//! assert_eq!(inputs, [0..=0, 10..=13]);
//! ```
//!
//! The log, the sets and the queries need `alloc` only. Recordings, tracked values and files need
//! the feature `std`, which is on by default. `from_json` and `to_json` need the feature `serde`.

#![cfg_attr(not(any(feature = "std", test)), no_std)]
#![forbid(unsafe_code)]

extern crate alloc;

#[cfg(feature = "std")]
mod file;
mod label;
mod limits;
mod linkage;
mod log;
mod node;
mod read;
#[cfg(feature = "std")]
mod recording;
mod resolve;
mod set;
mod source;
#[cfg(feature = "std")]
mod tracked;

#[cfg(feature = "std")]
pub use file::{FileError, LogFile, LogWriter, rewrite_items};
pub use label::{INPUTS_MAX, Label, LabelKind, NODES_MAX};
pub use limits::{Limits, Losses, Reduction};
pub use linkage::{CopyLinkage, DataLinkage, IndexLinkage, Linkage};
pub use log::{MergeLog, Translation};
pub use node::{Node, Parents};
pub use read::ReadLog;
#[cfg(feature = "std")]
pub use recording::{RecordedFuture, Recording, merge, with_current};
pub use resolve::{Reach, Resolver, inputs_of, sweep, sweep_within};
pub use set::InputSet;
pub use source::{Item, Labels, Output, Source};
#[cfg(feature = "std")]
pub use tracked::{ParseError, Tracked, TrackedBuf};
#[cfg(feature = "serde")]
pub use tracked::{from_json, to_json};

/// Compiles the example of the README.
#[cfg(all(doctest, feature = "std"))]
#[doc = include_str!("../README.md")]
struct Readme;
