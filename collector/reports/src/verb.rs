//! Traits of reports: a subcommand answers a [`NamedStudy`] with a report, and this module renders
//! it as text, JSON, page or tables.

use std::borrow::Cow;
use std::path::Path;

use clap::{ArgMatches, Command};
use schemars::{JsonSchema, Schema, SchemaGenerator};
use serde::Serialize;
use serde_json::Value;
use tokio::runtime::Runtime;

use crate::arguments::{ReadingArguments, SelectionArguments, ShowArguments};
use crate::notes::Remark;
use crate::output::{json, print_as_is, terminal_view};
use crate::study::{NamedStudy, Reader};
use crate::{Failure, Status, notes};
use stroboscope_query::Notes;
use stroboscope_render::page::to_page;
use stroboscope_render::show::{Doc, TableSpec, TextView, write_parquet};

/// Result of a subcommand. It serializes to its JSON; text, pages and tables are made of its
/// [`Doc`].
pub trait Report: Serialize + JsonSchema {
    /// Returns remarks on the data that was read.
    fn notes(&self) -> &Notes;

    /// Writes the result as text and tables.
    fn show(&self, doc: &mut Doc);

    /// Returns the outcome of the subcommand. `read` is the outcome of reading the data.
    fn status(&self, read: Status) -> Status {
        read
    }
}

/// A subcommand that reads the store and returns a report.
pub trait ReadingVerb {
    /// Type of the subcommand's report.
    type Report: Report;
    /// Tables of the report that SQL can read.
    const TABLES: &'static [TableSpec];

    /// Returns the arguments for reading the store, and those for additional outputs.
    fn arguments(&self) -> (ReadingArguments, &ShowArguments);

    /// Computes the report from a study of the store.
    fn answer(&self, study: &NamedStudy) -> Result<Self::Report, Failure>;

    /// Reads one shard and saves its part, or prints the report of the workers of `--cluster`.
    /// Returns `None` if neither is requested.
    fn run_shard(&self, _: &Runtime) -> Option<Result<Status, Failure>> {
        None
    }

    /// Runs the requested shard, or the workers of `--cluster`. Otherwise, computes and prints the
    /// report.
    fn run(&self, runtime: &Runtime) -> Result<Status, Failure> {
        if let Some(done) = self.run_shard(runtime) {
            return done;
        }
        let (reading, show) = self.arguments();
        give(
            &self.answer(&NamedStudy::of(&reading, runtime.handle())?)?,
            &reading.from,
            show,
        )
    }
}

/// A report in the forms that servers of reports need. Every [`Report`] implements it.
pub trait ServedReport {
    /// Returns the report as a document, for pages.
    fn document(&self) -> Doc;

    /// Returns the report as JSON, for programs.
    ///
    /// # Errors
    /// Fails if the report has no JSON.
    fn value(&self) -> Result<Value, Failure>;

    /// Returns remarks on the data that was read.
    fn remarks(&self) -> Vec<Remark>;
}

impl<R: Report> ServedReport for R {
    fn document(&self) -> Doc {
        let mut doc = Doc::new();
        self.show(&mut doc);
        doc
    }

    fn value(&self) -> Result<Value, Failure> {
        serde_json::to_value(self).map_err(Failure::of)
    }

    fn remarks(&self) -> Vec<Remark> {
        notes::remarks(self.notes())
    }
}

/// Function that receives a report.
pub type TakeReport<'a> = &'a mut dyn FnMut(&dyn ServedReport) -> Result<(), Failure>;

/// A subcommand that servers answer as well: a page, a tool for agents, or both.
pub trait PageVerb {
    /// Reads the store, and passes the report to `take`. Does not print the report.
    ///
    /// # Errors
    /// Fails if there is no report, or if `take` fails.
    fn serve(&self, reader: &Reader, take: TakeReport<'_>) -> Result<(), Failure>;
}

/// A subcommand that servers answer, as a page or as a tool for agents.
#[derive(Clone, Copy, Debug)]
pub struct Page {
    /// Name of the subcommand; for a nested one, that of its parent.
    pub name: &'static str,
    /// Full name of the subcommand, such as `tradeoffs log`.
    pub words: &'static str,
    /// Arguments that this page does not have. No page has arguments for paths or for printing, or
    /// `--memory-limit`.
    pub without: &'static [&'static str],
    /// Path of a richer page of the site that replaces this one; `None` if the page is `/NAME`.
    pub richer_path: Option<&'static str>,
    pub command: fn(Command) -> Command,
    pub serve: fn(&ArgMatches, &Reader, TakeReport<'_>) -> Result<(), Failure>,
}

/// SQL tables of a subcommand's report, computed with default arguments.
#[derive(Clone, Copy, Debug)]
pub struct Tables {
    /// Tables that the subcommand's report contains.
    pub specs: &'static [TableSpec],
    /// Builds the document of the subcommand's report, from a study of this data directory.
    pub document: fn(&Path, &NamedStudy) -> Result<Doc, Failure>,
}

/// Servers can answer each subcommand that answers a study with a report.
impl<V: ReadingVerb> PageVerb for V {
    fn serve(&self, reader: &Reader, take: TakeReport<'_>) -> Result<(), Failure> {
        let study = NamedStudy::read_by(&self.arguments().0, reader)?;
        take(&self.answer(&study)?)
    }
}

/// Prints a report as text or JSON, and writes it as a page and as tables if requested.
pub fn give(
    report: &impl Report,
    from: &SelectionArguments,
    show: &ShowArguments,
) -> Result<Status, Failure> {
    give_as(report, &from.data.data, from.json, None, show)
}

/// Prints a report as text or JSON, or writes it to the file `out`. Also writes it as a page and as
/// tables if requested. `data` is the directory or file that the report is from, which the page's
/// title names.
pub fn give_as(
    report: &impl Report,
    data: &Path,
    is_json: bool,
    out: Option<&Path>,
    show: &ShowArguments,
) -> Result<Status, Failure> {
    let doc = report.document();
    write_forms(&doc, data, show)?;
    let text = if is_json {
        json(report)?
    } else {
        let view = match out {
            None => terminal_view(),
            Some(_) => TextView::default(),
        };
        TextView {
            full_names: show.full_names,
            ..view
        }
        .render(&doc)
    };
    match out {
        None => print_as_is(&text)?,
        Some(path) => write_file(path, format!("{text}\n").as_bytes())?,
    }
    Ok(report.status(notes::tell(report.notes())))
}

/// Writes a document as a page and as tables, if requested.
pub fn write_forms(doc: &Doc, data: &Path, show: &ShowArguments) -> Result<(), Failure> {
    if let Some(path) = &show.html {
        write_file(path, to_page(doc, &data.display().to_string()).as_bytes())?;
    }
    show.parquet.as_ref().map_or(Ok(()), |directory| {
        write_parquet(doc, directory).map_err(Failure::new)
    })
}

/// Writes an output file that the user requested.
pub fn write_file(path: &Path, bytes: &[u8]) -> Result<(), Failure> {
    std::fs::write(path, bytes)
        .map_err(|error| Failure::new(format!("cannot write {}: {error}", path.display())))
}

/// Rows of a report. Text and JSON show at most the first `top` rows; Parquet files and SQL tables
/// have all.
#[derive(Clone, Debug)]
pub struct Top<T> {
    pub rows: Vec<T>,
    /// Maximum number of rows; 0 for all.
    pub top: usize,
}

impl<T> Top<T> {
    pub fn shown(&self) -> usize {
        match self.top {
            0 => self.rows.len(),
            top => top.min(self.rows.len()),
        }
    }
}

impl<T: Serialize> Serialize for Top<T> {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_seq(&self.rows[..self.shown()])
    }
}

/// Declares that the JSON of `$of` is that of `$shape`, to which serialization converts it.
macro_rules! schema_is_of {
    ($of:ty, $shape:ty) => {
        impl schemars::JsonSchema for $of {
            fn schema_name() -> std::borrow::Cow<'static, str> {
                <$shape as schemars::JsonSchema>::schema_name()
            }

            fn json_schema(generator: &mut schemars::SchemaGenerator) -> schemars::Schema {
                <$shape as schemars::JsonSchema>::json_schema(generator)
            }
        }
    };
}
pub(crate) use schema_is_of;

/// Describes the JSON as a list.
impl<T: JsonSchema> JsonSchema for Top<T> {
    fn inline_schema() -> bool {
        true
    }

    fn schema_name() -> Cow<'static, str> {
        Vec::<T>::schema_name()
    }

    fn json_schema(generator: &mut SchemaGenerator) -> Schema {
        Vec::<T>::json_schema(generator)
    }
}
