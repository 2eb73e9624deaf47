//! Reads the recording of a run, and analyses it.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::path::Path;

use stroboscope_analysis::aggregate::PathAggregate;
use stroboscope_analysis::label::Labels;
use tokio::runtime::Handle;

use stroboscope_query::timeline::{KernelOverview, overview};
use stroboscope_query::{
    Bottleneck, InferSettings, Inference, KernelClocks, Notes, PathsQuestion, ProcessorUse,
    QueryError, RecordedSummary, Selection, Source, Study, bottlenecks,
};

/// Results of the demo that come from the store.
#[derive(Debug)]
pub struct Findings {
    /// Summary of the batches, such as the numbers of bursts and lost records.
    pub recorded: RecordedSummary,
    /// State of the clocks, as the kernels report it.
    pub kernel_clocks: KernelClocks,
    /// Number of traces recorded completely.
    pub complete: u64,
    /// Number of traces without their root, mostly because the request began before the burst.
    pub fragments: u64,
    /// Number of traces that are incomplete for any other reason.
    pub incomplete: u64,
    /// Number of incomplete traces by reason. A trace may have several reasons.
    pub reasons: BTreeMap<Cow<'static, str>, u64>,
    /// Number of happens-before relations of the model.
    pub happens_before: usize,
    /// Number of mutual exclusions of the model.
    pub mutual_exclusions: usize,
    /// Critical paths of the complete traces.
    pub paths: PathAggregate,
    /// Operations that requests wait for most: one for all requests, or one for each main root
    /// operation if their requests wait for different operations.
    pub bottlenecks: Vec<Bottleneck>,
    /// Processor time of the processes.
    pub processor_use: ProcessorUse,
    /// Labels of the model's segments.
    pub labels: Labels,
    /// Summary of the kernel's recording; `None` if there is none.
    pub kernel: Option<KernelOverview>,
}

/// Reads a data directory. Blocks; must not be called from async code.
///
/// # Errors
/// Returns an error if the directory cannot be read, if it has no complete trace, or if memory is
/// short.
pub(super) fn findings(data: &Path, runtime: Handle, kernel: bool) -> Result<Findings, QueryError> {
    let source =
        Source::open(data, runtime)?.with_observer(stroboscope_reports::progress::on_stderr());
    let study = Study::new(source, Selection::default(), InferSettings::default());
    let paths = study.ask(&PathsQuestion::default())?;
    let source = study.source();
    let Inference {
        model,
        relations,
        notes,
        ..
    } = study.inference()?;
    let Notes {
        traces,
        complete_traces,
        fragments,
        incomplete,
        ..
    } = notes.clone();
    let kernel = match kernel.then(|| overview(source)) {
        // The kernel was not recorded. If recording it failed, the reason has been printed.
        None | Some(Err(QueryError::NoKernel(_))) => None,
        Some(overview) => Some(overview?),
    };
    Ok(Findings {
        kernel,
        recorded: source.recorded()?,
        kernel_clocks: source.kernel_clocks().clone(),
        complete: complete_traces,
        fragments,
        incomplete: traces - complete_traces - fragments,
        reasons: incomplete,
        happens_before: relations.all_happens_before().len(),
        mutual_exclusions: relations.all_mutual_exclusion().len(),
        bottlenecks: bottlenecks(&paths, model.labels()),
        processor_use: source.processor_use()?,
        paths: paths.aggregate,
        labels: model.labels().clone(),
    })
}
