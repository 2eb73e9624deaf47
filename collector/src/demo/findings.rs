//! What a run recorded, and what the analysis makes of it.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::path::Path;

use stroboscope_analysis::aggregate::PathAggregate;
use stroboscope_analysis::label::Labels;
use tokio::runtime::Handle;

use stroboscope_query::timeline::{KernelOverview, overview};
use stroboscope_query::{
    Bottleneck, InferSettings, Inference, KernelClocks, Notes, PathsQuestion, ProcessorUse,
    QueryError, Recorded, Selection, Source, Study, bottlenecks,
};

/// Everything the report shows that comes from the store.
#[derive(Debug)]
pub struct Findings {
    /// Processes, bursts, losses.
    pub recorded: Recorded,
    /// What the kernel says of the clock.
    pub kernel_clocks: KernelClocks,
    /// Traces recorded completely.
    pub complete: u64,
    /// Parts of requests that had begun before their burst did.
    pub fragments: u64,
    /// Traces that are incomplete for any other reason,
    pub incomplete: u64,
    /// and all reasons, with how many traces have each.
    pub reasons: BTreeMap<Cow<'static, str>, u64>,
    /// Happens-before relations of the model.
    pub happens_before: usize,
    /// Mutual exclusions of the model.
    pub mutual_exclusions: usize,
    /// Critical paths of the complete traces.
    pub paths: PathAggregate,
    /// What they wait for most, by time.
    pub bottlenecks: Vec<Bottleneck>,
    /// Processor time that the processes used.
    pub processor_use: ProcessorUse,
    /// The segments' names.
    pub labels: Labels,
    /// What the kernel did, if it was recorded.
    pub kernel: Option<KernelOverview>,
}

/// Reads a data folder. Blocks; not for async code.
///
/// # Errors
/// The folder cannot be read, or has no complete trace.
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
        // It was not allowed, which was said.
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
        processor_use: paths.processor_use,
        paths: paths.aggregate,
        labels: model.labels().clone(),
    })
}
