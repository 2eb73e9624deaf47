//! Opens a store for reports, and asks it questions.

use std::sync::{Arc, OnceLock};

use stroboscope_analysis::convergence::LineLimit;
use stroboscope_analysis::label::SegmentId;
use tokio::runtime::Handle;

use crate::Failure;
use crate::arguments::{Readable, ReadingArguments, arguments_on};
use crate::memory_limit::of_verb;
use crate::progress::on_stderr;
use stroboscope_query::{Filter, InferSettings, Inference, Question, Selection, Source};
use stroboscope_render::show::{Names, SegmentName};
use stroboscope_store::progress::Observer;
use stroboscope_store::query_memory::QueryMemory;

/// Basis of a report: the store, the selection, and the model once it is inferred.
#[derive(Debug)]
pub struct NamedStudy {
    of: stroboscope_query::Study,
    /// Directory of the store; dropping this releases a mirror.
    _directory: Readable,
    names: OnceLock<Names>,
}

/// A model, and the names of its segments.
#[derive(Clone, Copy, Debug)]
pub struct NamedInference<'a> {
    pub inference: &'a Inference,
    names: &'a Names,
}

impl<'a> NamedInference<'a> {
    /// Combines a model and the names of its segments.
    pub fn new(inference: &'a Inference, names: &'a Names) -> Self {
        Self { inference, names }
    }

    /// Returns the name of a segment.
    pub fn name(self, id: SegmentId) -> SegmentName {
        self.names.get(id)
    }
}

impl NamedStudy {
    /// Opens a data directory with default arguments.
    pub fn of_directory(data: &std::path::Path, runtime: &Handle) -> Result<Self, Failure> {
        Self::of(&arguments_on(data)?, runtime)
    }

    /// Opens the store with the memory, runtime and observer of `reader`.
    pub fn read_by(reading: &ReadingArguments, reader: &Reader) -> Result<Self, Failure> {
        Self::with(reading, None, reader)
    }

    /// Opens the store for a terminal.
    pub fn of(reading: &ReadingArguments, runtime: &Handle) -> Result<Self, Failure> {
        Self::with(reading, None, &Reader::of_terminal(runtime))
    }

    /// Opens the store like [`read_by`](Self::read_by). The model records a point of its
    /// convergence at each interval `convergence`; with `None`, it records no points.
    pub fn with(
        reading: &ReadingArguments,
        convergence: Option<LineLimit>,
        reader: &Reader,
    ) -> Result<Self, Failure> {
        let (directory, source, selection) = open(reading, reader)?;
        let settings = InferSettings {
            tolerance: reading.tolerance,
            exclude: reading.exclude.clone(),
            trailing_elements: reading.trailing_elements,
            convergence,
            max_segments: reading.max_segments,
        };
        Ok(Self {
            of: stroboscope_query::Study::new(source, selection, settings),
            names: OnceLock::new(),
            _directory: directory,
        })
    }

    /// Returns the source of the data.
    pub fn source(&self) -> &Source {
        self.of.source()
    }

    pub fn selection(&self) -> Selection {
        self.of.selection()
    }

    /// Returns the underlying study.
    pub fn inner(&self) -> &stroboscope_query::Study {
        &self.of
    }

    /// Returns the model. The first call reads the traces, unless the model is cached or an earlier
    /// question has inferred it.
    pub fn known(&self) -> Result<NamedInference<'_>, Failure> {
        let inference = self.of.inference().map_err(Failure::of)?;
        Ok(NamedInference {
            inference,
            names: self
                .names
                .get_or_init(|| Names::of(inference.model.labels())),
        })
    }

    /// Answers a question. Infers the model first if it is neither inferred nor cached.
    pub fn ask<Q: Question>(&self, question: &Q) -> Result<Q::Answer, Failure> {
        self.of.ask(question).map_err(Failure::of)
    }

    /// Consumes the study and returns the model.
    pub fn into_inference(self) -> Result<Inference, Failure> {
        self.of.into_inference().map_err(Failure::of)
    }
}

/// Settings of a reader: runtime, observer of progress, and memory.
#[derive(Clone, Debug)]
pub struct Reader {
    pub runtime: Handle,
    pub observer: Arc<dyn Observer>,
    /// Memory that the reader shares with others; with `None`, it uses the memory of this process's
    /// subcommand.
    pub memory: Option<QueryMemory>,
}

impl Reader {
    /// Creates a reader that shows progress on standard error.
    pub fn of_terminal(runtime: &Handle) -> Self {
        Self {
            runtime: runtime.clone(),
            observer: on_stderr(),
            memory: None,
        }
    }

    /// Returns the memory that reading may take. `limit`, in bytes, applies if the reader shares no
    /// memory.
    pub fn memory(&self, limit: Option<u64>) -> QueryMemory {
        let own = || of_verb(limit);
        self.memory.clone().unwrap_or_else(own)
    }
}

/// Opens the store. The first value of the result must be kept while the store is read.
pub(crate) fn open(
    reading: &ReadingArguments,
    reader: &Reader,
) -> Result<(Readable, Source, Selection), Failure> {
    let runtime = &reader.runtime;
    // Report wrong arguments before anything is read.
    let selection = reading.selection()?;
    let directory = reading.from.data.to_read(runtime)?;
    let source =
        Source::open_cached(directory.directory(), runtime.clone()).map_err(Failure::of)?;
    let source = source.with_memory(&reader.memory(reading.from.memory_limit));
    let source = source.with_observer(reader.observer.clone());
    let source = source.with_root(reading.from.root.clone());
    let source = source.with_requests(&reading.from.requests);
    let filter = reading.from.filter.as_ref().map(|(text, formula)| {
        let filter = Filter::new(&source, selection, text, formula.clone());
        filter.map_err(Failure::of)
    });
    let filter = filter.transpose()?;
    let source = source.with_filter(filter);
    Ok((directory, source, selection))
}
