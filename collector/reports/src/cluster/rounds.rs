//! Rounds of a driver.

use std::cell::RefCell;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use stroboscope_cluster::{Access, ClientCertificate, Cluster, ClusterSettings, TaskEvent};
use stroboscope_query::{
    MergedInference, PartSet, RecordedSummary, Shard, ShardError, ShardQuestion, ShardReport,
    ShardTask, merge_clocks, merge_parts, merge_report, save_first_clocks, save_inference,
    save_kept_inference, task_version,
};
use stroboscope_render::show::Names;
use stroboscope_store::query_memory::QueryShare;
use tempfile::TempDir;
use tokio::runtime::Runtime;

use super::ClusterArguments;
use crate::arguments::{ReadingArguments, ShowArguments};
use crate::memory_limit::of_verb;
use crate::output::say;
use crate::progress::on_stderr;
use crate::study::{NamedInference, NamedStudy};
use crate::verb::{Report, give};
use crate::{Failure, Status};

/// Number of shards for each worker. With more shards, files are opened more often; with fewer,
/// more workers are idle while the last shards run.
const SHARDS_PER_WORKER: usize = 4;
const SHARDS_MAX: usize = 4_096;

pub(super) struct ClusterRun<'a> {
    reading: &'a ReadingArguments,
    study: NamedStudy,
    cluster: Cluster,
    runtime: &'a Runtime,
    /// Directory of the parts, and of the clocks and the inference that rounds start from.
    directory: TempDir,
    share: QueryShare,
}

impl<'a> ClusterRun<'a> {
    pub(super) fn open(
        arguments: &ClusterArguments,
        reading: &'a ReadingArguments,
        runtime: &'a Runtime,
    ) -> Result<Self, Failure> {
        let settings = ClusterSettings {
            workers: arguments.cluster.clone(),
            access: arguments.access()?,
            deadline: arguments.cluster_deadline,
            build: task_version(),
        };
        let cluster = runtime.block_on(Cluster::of(settings));
        Ok(Self {
            cluster: cluster.map_err(Failure::of)?,
            study: NamedStudy::of(reading, runtime.handle())?,
            reading,
            runtime,
            directory: TempDir::new().map_err(Failure::of)?,
            share: of_verb(reading.from.memory_limit).share(),
        })
    }

    /// Lets the workers infer the model. Also returns a summary of all batches.
    pub(super) fn into_inference(mut self) -> Result<(MergedInference, RecordedSummary), Failure> {
        let recorded = self.study.source().recorded().map_err(Failure::of)?;
        Ok((self.infer()?, recorded))
    }

    pub(super) fn give<Q: ShardQuestion, R: Report>(
        mut self,
        show: &ShowArguments,
        (question, report): (&Q, ShardReport),
        of: impl FnOnce(Q::Answer, NamedInference<'_>) -> R,
    ) -> Result<Status, Failure> {
        let inference = self.path("inference");
        let is_kept = save_kept_inference(self.study.inner(), &inference);
        if !is_kept.map_err(Failure::of)? {
            let merged = self.infer()?;
            save_inference(&merged, &inference).map_err(Failure::of)?;
        }
        let parts = self.round(Some(&report), &inference)?;
        let merged = merge_report(&parts, question, &mut self.share).map_err(Failure::of)?;
        let (read, inferred) = (merged.traces, merged.inference.notes.traces);
        if read != inferred {
            return Err(Failure::new(format!(
                "the workers read {read} traces for the report, and {inferred} for the model: run it again, and report \
                 this as a bug if that fails, too"
            )));
        }
        let names = Names::of(merged.inference.model.labels());
        let known = NamedInference::new(&merged.inference, &names);
        give(&of(merged.answer, known), &self.reading.from, show)
    }

    /// Lets the workers infer the model.
    fn infer(&mut self) -> Result<MergedInference, Failure> {
        let clocks = self.path("clocks");
        save_first_clocks(self.study.inner(), &clocks).map_err(Failure::of)?;
        let parts = self.round(None, &clocks)?;
        let has_convergence = self.reading.from.json;
        let merged = match merge_parts(&parts, has_convergence, &mut self.share) {
            Err(ShardError::Clocks) => {
                merge_clocks(&parts, &clocks, &mut self.share).map_err(Failure::of)?;
                let parts = self.round(None, &clocks)?;
                merge_parts(&parts, has_convergence, &mut self.share)
            }
            merged => merged,
        };
        merged.map_err(Failure::of)
    }

    /// Lets the workers read all shards with the same basis, and returns their parts.
    fn round(&mut self, report: Option<&ShardReport>, basis: &Path) -> Result<PartSet, Failure> {
        let basis = std::fs::read(basis).map_err(Failure::of)?;
        let count = (SHARDS_PER_WORKER * self.cluster.worker_count()).clamp(1, SHARDS_MAX);
        let paths: Vec<PathBuf> = (1..=count).map(|of| self.path(&of.to_string())).collect();
        let task = |number: usize| -> Arc<[u8]> {
            let shard = Shard {
                number: number as u32 + 1,
                count: count as u32,
            };
            ShardTask::new(report.cloned(), shard, &basis)
                .encode()
                .into()
        };
        let task_name = match &report {
            None => "inferring on workers",
            Some(_) => "reading on workers",
        };
        let progress = RefCell::new(on_stderr().begin(task_name, "shards", Some(count as u64)));
        let tell = |event| match event {
            TaskEvent::Done => progress.borrow_mut().add(1),
            TaskEvent::LeftOut { worker, failure } => {
                say!("note: worker {worker} is left out: {failure}");
            }
        };
        let save = |number: usize, part: Vec<u8>| std::fs::write(&paths[number], part);
        let ran = self.cluster.run((count, task), save, tell);
        self.runtime.block_on(ran).map_err(Failure::of)?;
        PartSet::of(&paths).map_err(Failure::of)
    }

    fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }
}

impl ClusterArguments {
    /// Reads the files with the credentials.
    fn access(&self) -> Result<Access, Failure> {
        let read = |path: &PathBuf| {
            let contents = std::fs::read(path);
            let named = |error| format!("cannot read {}: {error}", path.display());
            contents.map_err(|error| Failure::new(named(error)))
        };
        let certificate = self.cluster_cert.as_ref().zip(self.cluster_key.as_ref());
        let certificate = certificate.map(|(certificate, key)| {
            Ok(ClientCertificate {
                certificate: read(certificate)?,
                key: read(key)?,
            })
        });
        let token = self.cluster_token_file.as_ref().map(read).transpose()?;
        Ok(Access {
            token: token.map(|bytes| String::from_utf8_lossy(&bytes).into_owned()),
            ca: self.cluster_ca.as_ref().map(read).transpose()?,
            certificate: certificate.transpose()?,
        })
    }
}
