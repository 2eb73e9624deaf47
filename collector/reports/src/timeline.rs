//! The `timeline` subcommand.

mod items;
mod lock_json;
mod locks;
mod part;
mod short;
mod sums;
mod view;

use crate::output::{print_parts, say};
use std::path::PathBuf;

use clap::{ArgGroup, Args, ValueEnum};
use schemars::JsonSchema;
use tokio::runtime::Runtime;

use self::locks::Locks;
use self::sums::Sums;
use self::view::TimelineReport;
use crate::arguments::{DataArguments, ShowArguments, parse_moment};
use crate::study::Reader;
use crate::verb::{
    PageVerb, Report, ServedReport as _, TakeReport, give_as, write_file, write_forms,
};
use crate::{Failure, Status, notes};
use stroboscope_otlp::trace_id;
use stroboscope_query::timeline::{TimelineView, of_burst, of_trace, overview};
use stroboscope_query::{PerfettoHostError, Source, perfetto_trace};

/// Show what the kernel did for requests: segments with system calls, processors, waits and locks
///
/// With --trace, shows one request; with --burst, all requests of one burst. Each segment has its
/// system calls, the time on a processor, and the time off it with the reason, by thread. Each wait
/// for a lock names the request that held it, if that is known.
///
/// Without either, shows sums over everything recorded: where requests' time went, at which locks
/// and futexes they waited, and which operations held these or woke the waiters. It also shows
/// which system calls requests make, how many and for how long, and these figures by operation.
/// In the table by operation, those with the most spans per request come first; the column `one by
/// one` shows those that could be batched or run concurrently. With --lock, shows one lock with its
/// longest waits.
#[derive(Debug, Args)]
#[command(group(ArgGroup::new("part").args(["trace", "burst", "lock"])))]
pub struct TimelineVerb {
    #[command(flatten)]
    data: DataArguments,
    #[command(flatten)]
    show: ShowArguments,
    /// One request, by its trace id, the name that its source gave it, or the id's last 16 digits
    #[arg(long, value_name = "ID", conflicts_with = "burst")]
    trace: Option<String>,
    /// Burst at or after this moment: ns since the Unix epoch, or a time such as
    /// 2026-11-21T10:00:00.5 (UTC). If the burst is longer than a second, shows one second of it,
    /// from this moment on if possible
    #[arg(long, value_name = "TIME", value_parser = parse_moment)]
    burst: Option<i64>,
    /// One lock or futex, by its name in the sums: PROCESS:LOCK, such as 4711:0x7f0a12345678
    #[arg(long, value_name = "LOCK", conflicts_with_all = ["trace", "burst"])]
    lock: Option<String>,
    /// Output format; perfetto is for ui.perfetto.dev and requires --trace or --burst
    #[arg(long, value_enum, value_name = "FORMAT", default_value_t = Format::Table)]
    format: Format,
    /// Short for --format json
    #[arg(long, conflicts_with = "format")]
    json: bool,
    /// Write the output to this file instead of standard output
    #[arg(long, value_name = "FILE")]
    out: Option<PathBuf>,
    /// With --trace, --burst or --lock, only this host's kernel, if several were recorded
    #[arg(long, value_name = "HOST", requires = "part")]
    host: Option<String>,
    /// Maximum number of requests, locks and operations in the sums; 0 shows all
    #[arg(long, value_name = "COUNT", default_value_t = 20)]
    top: usize,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Format {
    /// Text
    Table,
    /// One JSON document
    Json,
    /// Trace for Perfetto, in protobuf
    Perfetto,
}

/// JSON output: one request or burst with `--trace` or `--burst`, one lock with `--lock`, else sums
/// over everything.
#[derive(JsonSchema)]
#[serde(untagged)]
#[allow(dead_code, reason = "the document's schema is made of it")]
pub enum TimelineSays {
    Seen(TimelineReport),
    Locks(Locks),
    Sums(Sums),
}

impl TimelineVerb {
    pub fn run(self, runtime: &Runtime) -> Result<Status, Failure> {
        let format = if self.json { Format::Json } else { self.format };
        let directory = self.data.to_read(runtime.handle())?;
        let source = Source::open_any(directory.directory(), runtime.handle().clone())
            .map_err(Failure::of)?;
        let reader = Reader::of_terminal(runtime.handle());
        let source = source.with_memory(&reader.memory(None));
        let source = source.with_observer(reader.observer);
        if self.trace.is_none() && self.burst.is_none() {
            return self.sums(&source, format);
        }
        let seen = self.seen(&source)?;
        let given = match format {
            Format::Table | Format::Json => self.give(&seen, format)?,
            Format::Perfetto => {
                write_forms(&seen.document(), &self.data.data, &self.show)?;
                self.write_bytes(&perfetto(&seen.view)?)?;
                notes::tell(&seen.notes)
            }
        };
        if seen.view.kernel.is_empty() {
            say!(
                "nothing of the kernel was recorded meanwhile: record it by `stroboscope kernel record` in the same bursts as \
                 the services, or with the burst-config always"
            );
            return Ok(Status::Partly);
        }
        Ok(given)
    }

    fn seen(&self, source: &Source) -> Result<TimelineReport, Failure> {
        let view = match (&self.trace, self.burst) {
            (Some(trace), _) => of_trace(source, trace_id(trace), trace),
            (None, at_ns) => of_burst(source, at_ns.unwrap_or_default()),
        };
        let mut view = view.map_err(Failure::of)?;
        if let Some(host) = &self.host {
            view.kernel.retain(|part| part.host == *host);
        }
        Ok(TimelineReport::of(view))
    }

    fn sums(&self, source: &Source, format: Format) -> Result<Status, Failure> {
        if format == Format::Perfetto {
            return Err(Failure::needs_more(
                "a Perfetto trace shows one request or one burst: --trace or --burst",
            ));
        }
        let overview = overview(source).map_err(Failure::of)?;
        match &self.lock {
            Some(lock) => self.give(&Locks::of(overview, lock, self.host.as_deref())?, format),
            None => self.give(&Sums::of(overview, self.top), format),
        }
    }

    fn give(&self, report: &impl Report, format: Format) -> Result<Status, Failure> {
        let (data, out) = (&self.data.data, self.out.as_deref());
        give_as(report, data, format == Format::Json, out, &self.show)
    }

    fn write_bytes(&self, bytes: &[u8]) -> Result<(), Failure> {
        match &self.out {
            Some(out) => write_file(out, bytes),
            None => print_parts(&[bytes]),
        }
    }
}

impl PageVerb for TimelineVerb {
    fn serve(&self, reader: &Reader, take: TakeReport<'_>) -> Result<(), Failure> {
        let directory = self.data.to_read(&reader.runtime)?;
        let source = Source::open_any(directory.directory(), reader.runtime.clone());
        let source = source.map_err(Failure::of)?;
        let source = source.with_memory(&reader.memory(None));
        let source = source.with_observer(reader.observer.clone());
        if self.trace.is_none() && self.burst.is_none() {
            let overview = overview(&source).map_err(Failure::of)?;
            return match &self.lock {
                Some(lock) => take(&Locks::of(overview, lock, self.host.as_deref())?),
                None => take(&Sums::of(overview, self.top)),
            };
        }
        take(&self.seen(&source)?)
    }
}

fn perfetto(view: &TimelineView) -> Result<Vec<u8>, Failure> {
    perfetto_trace(&view.requests, &view.kernel, None).map_err(|error| match error {
        PerfettoHostError::OneOf(hosts) => Failure::needs_more(format!(
            "a Perfetto trace shows one host; --host one of {}",
            hosts.join(", ")
        )),
        unknown @ PerfettoHostError::Unknown { .. } => Failure::unknown(unknown.to_string()),
    })
}
