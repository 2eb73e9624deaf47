//! The parts of each report: a verb answers a [`NamedStudy`] with a report, and this module shows it in any form.

use std::borrow::Cow;
use std::path::Path;

use clap::{ArgMatches, Command};
use schemars::{JsonSchema, Schema, SchemaGenerator};
use serde::Serialize;
use tokio::runtime::Runtime;

use crate::arguments::{ReadingArguments, SelectionArguments, ShowArguments};
use crate::output::{json, print_as_is, terminal_view};
use crate::study::{NamedStudy, Reader};
use crate::{Failure, Status, notes};
use stroboscope_present::page::to_page;
use stroboscope_present::show::{Doc, TableSpec, TextView, write_parquet};
use stroboscope_query::Notes;

/// A result: its fields are its JSON, and its [`Doc`] is all else.
pub trait Report: Serialize + JsonSchema {
    /// Remarks on the reading.
    fn notes(&self) -> &Notes;

    /// Writes the result for people, and as tables.
    fn show(&self, doc: &mut Doc);
}

/// A verb that reads the store and gives a report.
pub trait ReadingVerb {
    /// The report that it answers with.
    type Report: Report;
    /// The tables of its document, for SQL.
    const TABLES: &'static [TableSpec];

    /// The arguments of its reading, and of its output.
    fn arguments(&self) -> (ReadingArguments, &ShowArguments);

    /// Answers with the report.
    fn answer(&self, study: &NamedStudy) -> Result<Self::Report, Failure>;

    /// Answers, and prints.
    fn run(&self, runtime: &Runtime) -> Result<Status, Failure> {
        let (reading, show) = self.arguments();
        give(
            &self.answer(&NamedStudy::of(&reading, runtime.handle())?)?,
            &reading.from,
            show,
        )
    }
}

/// The document of a verb as it is without arguments, for SQL.
pub fn document(verb: &impl ReadingVerb, study: &NamedStudy) -> Result<Doc, Failure> {
    let mut doc = Doc::new();
    verb.answer(study)?.show(&mut doc);
    Ok(doc)
}

/// The document of a page with remarks on its reading, or the reason why there is none.
pub type PageSays = Result<(Doc, Notes), Failure>;

/// A verb that is a page as well.
pub trait PageVerb {
    /// Reads, and makes the document. It prints and writes nothing.
    fn document(&self, reader: &Reader) -> PageSays;
}

/// A verb as a page.
#[derive(Clone, Copy, Debug)]
pub struct Page {
    /// Its name on the command line,
    pub name: &'static str,
    /// with what it is below.
    pub words: &'static str,
    /// Arguments that a page does not have.
    pub without: &'static [&'static str],
    pub command: fn(Command) -> Command,
    pub document: fn(&ArgMatches, &Reader) -> PageSays,
}

/// The tables of a verb without arguments.
#[derive(Clone, Copy, Debug)]
pub struct Tables {
    /// The tables of its document.
    pub specs: &'static [TableSpec],
    /// Makes its document of a study of this data folder.
    pub document: fn(&Path, &NamedStudy) -> Result<Doc, Failure>,
}

/// Each verb that answers a study with a report is a page.
impl<V: ReadingVerb> PageVerb for V {
    fn document(&self, reader: &Reader) -> PageSays {
        let study = NamedStudy::read_by(&self.arguments().0, reader)?;
        Ok(said(&self.answer(&study)?))
    }
}

/// The document of a report with its remarks, for a page.
pub fn said(report: &impl Report) -> (Doc, Notes) {
    let mut doc = Doc::new();
    report.show(&mut doc);
    (doc, report.notes().clone())
}

/// Prints a report, and writes it where else it is asked for.
pub fn give(
    report: &impl Report,
    from: &SelectionArguments,
    show: &ShowArguments,
) -> Result<Status, Failure> {
    give_as(
        report,
        &Form {
            data: &from.data.data,
            is_json: from.json,
            out: None,
        },
        show,
    )
}

/// The form of a printed result.
#[derive(Clone, Copy, Debug)]
pub struct Form<'a> {
    /// The data folder that the result is of.
    pub data: &'a Path,
    /// True for JSON, false for a text for people.
    pub is_json: bool,
    /// The file that it goes to; none: standard output.
    pub out: Option<&'a Path>,
}

/// Prints a report in this form.
pub fn give_as(
    report: &impl Report,
    form: &Form<'_>,
    show: &ShowArguments,
) -> Result<Status, Failure> {
    let mut doc = Doc::new();
    report.show(&mut doc);
    write_forms(&doc, form.data, show)?;
    let text = if form.is_json {
        json(report)?
    } else {
        let view = match form.out {
            None => terminal_view(),
            Some(_) => TextView::default(),
        };
        TextView {
            full_names: show.full_names,
            ..view
        }
        .render(&doc)
    };
    match form.out {
        None => print_as_is(&text)?,
        Some(path) => write_file(path, format!("{text}\n").as_bytes())?,
    }
    Ok(notes::tell(report.notes()))
}

/// Writes a document as a page and as tables, if that is asked for.
pub fn write_forms(doc: &Doc, data: &Path, show: &ShowArguments) -> Result<(), Failure> {
    if let Some(path) = &show.html {
        write_file(path, to_page(doc, &data.display().to_string()).as_bytes())?;
    }
    show.parquet.as_ref().map_or(Ok(()), |folder| {
        write_parquet(doc, folder).map_err(Failure::new)
    })
}

/// Writes a file that was asked for.
pub fn write_file(path: &Path, bytes: &[u8]) -> Result<(), Failure> {
    std::fs::write(path, bytes)
        .map_err(|error| Failure::new(format!("cannot write {}: {error}", path.display())))
}

/// Rows of a report, of which so many are shown to people and in JSON; tables have all.
#[derive(Clone, Debug)]
pub struct Top<T> {
    pub rows: Vec<T>,
    /// 0: all.
    pub top: usize,
}

impl<T> Top<T> {
    pub fn shown(&self) -> usize {
        if self.top == 0 {
            self.rows.len()
        } else {
            self.top.min(self.rows.len())
        }
    }
}

impl<T: Serialize> Serialize for Top<T> {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_seq(&self.rows[..self.shown()])
    }
}

/// The JSON of `$of` is that of `$shape`, which it is turned into when it is printed.
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

/// The JSON is a list.
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
