//! How reading verbs begin: open the store, and infer.

use stroboscope_analysis::label::SegmentId;
use tokio::runtime::Handle;

use super::Failure;
use super::arguments::ReadingArguments;
use crate::query::{InferSettings, Inference, Selection, Source, infer_with};
use crate::show::{Names, SegmentName};

/// What a report is made of: the store, what of it is selected, and the model of that.
#[derive(Debug)]
pub(super) struct Study {
    pub source: Source,
    pub selection: Selection,
    pub inference: Inference,
    pub names: Names,
}

impl Study {
    /// Of a whole data folder, as verbs without arguments read it.
    #[cfg(feature = "sql")]
    pub(super) fn of_folder(data: &std::path::Path, runtime: &Handle) -> Result<Self, Failure> {
        let command = <ReadingArguments as clap::Args>::augment_args(clap::Command::new("reading"));
        let arguments = ["reading".as_ref(), "--data".as_ref(), data.as_os_str()];
        let matches = command.try_get_matches_from(arguments).map_err(Failure::of)?;
        Self::of(&clap::FromArgMatches::from_arg_matches(&matches).map_err(Failure::of)?, runtime)
    }

    /// Opens the store and infers.
    pub(super) fn of(reading: &ReadingArguments, runtime: &Handle) -> Result<Self, Failure> {
        Self::with_convergence(reading, 0, runtime)
    }

    /// The same, with points of the convergence every so many traces.
    pub(super) fn with_convergence(
        reading: &ReadingArguments,
        every: u64,
        runtime: &Handle,
    ) -> Result<Self, Failure> {
        let (source, selection, inference) = prepare_with(reading, every, runtime)?;
        let names = Names::of(inference.model.labels());
        Ok(Self { source, selection, inference, names })
    }

    /// What a segment is called.
    pub(super) fn name(&self, id: SegmentId) -> SegmentName {
        self.names.get(id)
    }
}

/// Opens the store and infers, as most reading verbs begin.
pub(super) fn prepare(
    reading: &ReadingArguments,
    runtime: &Handle,
) -> Result<(Source, Selection, Inference), Failure> {
    prepare_with(reading, 0, runtime)
}

fn prepare_with(
    reading: &ReadingArguments,
    convergence_every: u64,
    runtime: &Handle,
) -> Result<(Source, Selection, Inference), Failure> {
    let (source, selection) = open(reading, runtime)?;
    let inference = infer_as(reading, &source, selection, convergence_every)?;
    Ok((source, selection, inference))
}

/// Opens the store.
pub(super) fn open(reading: &ReadingArguments, runtime: &Handle) -> Result<(Source, Selection), Failure> {
    // What is wrong with the arguments is said before anything is read.
    let selection = reading.selection()?;
    let source = Source::open(&reading.data.data, runtime.clone()).map_err(Failure::of)?;
    Ok((source.with_root(reading.root.clone()), selection))
}

/// Infers as the arguments say.
pub(super) fn infer_as(
    reading: &ReadingArguments,
    source: &Source,
    selection: Selection,
    convergence_every: u64,
) -> Result<Inference, Failure> {
    let settings = InferSettings {
        tolerance: reading.tolerance,
        exclude: reading.exclude.clone(),
        trailing_elements: reading.trailing_elements,
        convergence_every,
    };
    let inference = infer_with(source, selection, settings).map_err(Failure::of)?;
    if inference.notes.traces == 0 {
        return Err(Failure(format!("no request in {} began between --since and --until", source.name())));
    }
    Ok(inference)
}
