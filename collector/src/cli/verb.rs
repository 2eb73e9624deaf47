//! What every verb that reads is made of: it makes a report of a [`Study`], and a report is shown here, in any form.

use std::borrow::Cow;

use schemars::{JsonSchema, Schema, SchemaGenerator};
use serde::Serialize;
use tokio::runtime::Runtime;

use super::arguments::{ReadingArguments, SelectionArguments, ShowArguments};
use super::output::{has_colour, print_as_is, print_json, width};
use super::study::Study;
use super::{Failure, Status, notes};
use stroboscope_present::picture::to_page;
use stroboscope_present::show::{Doc, TableSpec, TextView, write_parquet};
use stroboscope_query::Notes;

/// A result, once for all: its JSON is its fields, and all else is its [`Doc`].
pub(super) trait Report: Serialize + JsonSchema {
    /// What was noticed on the way.
    fn notes(&self) -> &Notes;

    /// What it says, to people and as tables.
    fn show(&self, doc: &mut Doc);
}

/// A verb that reads the store and gives a report.
pub(super) trait ReadingVerb {
    /// What it gives.
    type Report: Report;
    /// The tables of its document, for SQL.
    const TABLES: &'static [TableSpec];

    /// What it reads, and where its result goes.
    fn arguments(&self) -> (ReadingArguments, &ShowArguments);

    /// The report.
    fn answer(&self, study: &Study) -> Result<Self::Report, Failure>;

    /// Answers, and prints.
    fn run(&self, runtime: &Runtime) -> Result<Status, Failure> {
        let (reading, show) = self.arguments();
        give(&self.answer(&Study::of(&reading, runtime.handle())?)?, &reading.from, show)
    }
}

/// The document of a verb as it is without arguments, for SQL.
pub(super) fn document(verb: &impl ReadingVerb, study: &Study) -> Result<Doc, Failure> {
    let mut doc = Doc::new();
    verb.answer(study)?.show(&mut doc);
    Ok(doc)
}

/// Prints a report, and writes it where else it is asked for.
pub(super) fn give(
    report: &impl Report,
    from: &SelectionArguments,
    show: &ShowArguments,
) -> Result<Status, Failure> {
    let mut doc = Doc::new();
    report.show(&mut doc);
    if let Some(path) = &show.html {
        let page = to_page(&doc, &from.data.data.display().to_string());
        std::fs::write(path, page)
            .map_err(|error| Failure(format!("cannot write {}: {error}", path.display())))?;
    }
    if let Some(folder) = &show.parquet {
        write_parquet(&doc, folder).map_err(Failure)?;
    }
    if from.json {
        print_json(report)?;
    } else {
        let view = TextView { width: width(), full_names: show.full_names, colour: has_colour() };
        print_as_is(&view.render(&doc))?;
    }
    Ok(notes::tell(report.notes()))
}

/// Rows of a report, of which so many are shown to people and in JSON; tables have all.
#[derive(Clone, Debug)]
pub(super) struct Top<T> {
    pub rows: Vec<T>,
    /// 0: all.
    pub top: usize,
}

impl<T> Top<T> {
    pub(super) fn shown(&self) -> usize {
        if self.top == 0 { self.rows.len() } else { self.top.min(self.rows.len()) }
    }
}

impl<T: Serialize> Serialize for Top<T> {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_seq(&self.rows[..self.shown()])
    }
}

/// Whoever reads the JSON sees a list.
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
