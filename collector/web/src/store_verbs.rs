//! Reports as pages: their forms and their answers.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use clap::ArgMatches;
use stroboscope_reports::failure::{Failure, FailureCode};
use stroboscope_reports::form::VerbPage;
use stroboscope_reports::study::Reader;
use stroboscope_reports::verb::Page;
use stroboscope_store::progress::Observer;
use stroboscope_store::query_memory::QueryMemory;
use tokio::runtime::Handle;

use crate::verbs::{VerbAnswer, Verbs};

/// Subcommands that are pages, over a data directory.
#[derive(Debug)]
pub struct StoreVerbs {
    data: PathBuf,
    runtime: Handle,
    memory: QueryMemory,
    pages: Vec<VerbPage>,
    /// Reports in the order of their pages.
    runs: Vec<Page>,
}

impl StoreVerbs {
    /// Creates the subcommands of these pages, over a data directory.
    #[must_use]
    pub fn of(data: &Path, runs: Vec<Page>, runtime: Handle, memory: &QueryMemory) -> Self {
        Self {
            data: data.to_owned(),
            runtime,
            memory: memory.clone(),
            pages: runs.iter().map(VerbPage::of).collect(),
            runs,
        }
    }

    /// Returns the data directory.
    #[must_use]
    pub fn data(&self) -> &Path {
        &self.data
    }

    /// Returns the runtime that runs readings.
    #[must_use]
    pub fn runtime(&self) -> &Handle {
        &self.runtime
    }

    /// Returns the memory that limits the readings of pages.
    #[must_use]
    pub fn memory(&self) -> &QueryMemory {
        &self.memory
    }

    /// Parses the arguments of a form with clap, as the command line does.
    fn parsed(
        &self,
        verb: &str,
        arguments: &[(String, String)],
    ) -> Result<(&Page, ArgMatches), Failure> {
        let place = self.pages.iter().position(|page| page.name == verb);
        let place = place.ok_or_else(|| {
            Failure::coded(
                FailureCode::Unknown,
                format!("there is no subcommand {verb:?} that reads"),
            )
        })?;
        let (form, page) = (&self.pages[place], &self.runs[place]);
        let matches = form.parsed(page.command, &self.data, arguments)?;
        Ok((page, matches))
    }
}

impl Verbs for StoreVerbs {
    fn pages(&self) -> &[VerbPage] {
        &self.pages
    }

    fn check(&self, verb: &str, arguments: &[(String, String)]) -> Result<(), Failure> {
        self.parsed(verb, arguments).map(|_| ())
    }

    fn answer(
        &self,
        verb: &str,
        arguments: &[(String, String)],
        observer: Arc<dyn Observer>,
    ) -> Result<VerbAnswer, Failure> {
        let (page, matches) = self.parsed(verb, arguments)?;
        let reader = Reader {
            runtime: self.runtime.clone(),
            observer,
            memory: Some(self.memory.clone()),
        };
        let mut answer = VerbAnswer::default();
        (page.serve)(&matches, &reader, &mut |report| {
            answer = VerbAnswer {
                doc: report.document(),
                remarks: report.remarks(),
            };
            Ok(())
        })?;
        Ok(answer)
    }
}

#[cfg(test)]
mod tests {
    use stroboscope_reports::form::FieldKind;

    use super::*;

    fn pages() -> Vec<VerbPage> {
        let runtime = tokio::runtime::Runtime::new().unwrap();
        let memory = QueryMemory::unbounded();
        StoreVerbs::of(
            Path::new("no/such/directory"),
            stroboscope_reports::registry::pages(),
            runtime.handle().clone(),
            &memory,
        )
        .pages
    }

    /// A new report gets a page without any further code.
    #[test]
    fn every_reading_verb_is_a_page_and_none_names_files() {
        let pages = pages();
        let names: Vec<&str> = pages.iter().map(|page| page.name).collect();
        for name in [
            "critical-path",
            "slack",
            "what-if",
            "compare",
            "search",
            "experiment",
            "model",
        ] {
            assert!(names.contains(&name), "{name}: {names:?}");
        }
        for page in &pages {
            assert!(!page.about.is_empty(), "{}", page.name);
            for field in &page.fields {
                let is_file = [
                    "data",
                    "html",
                    "parquet",
                    "junit",
                    "markdown",
                    "save",
                    "load",
                    "merge",
                    "out",
                    "before-data",
                ];
                assert!(
                    !is_file.contains(&&*field.name),
                    "{} {}",
                    page.name,
                    field.name
                );
            }
        }
        for (verb, option) in [
            ("model", "compare"),
            ("compare", "before-where"),
            ("explain", "after-where"),
        ] {
            let page = pages.iter().find(|page| page.name == verb).unwrap();
            let lacks = page.fields.iter().all(|field| field.name != option);
            assert!(lacks, "{verb} {option}");
        }
    }

    #[test]
    fn forms_know_what_options_take() {
        let pages = pages();
        let kind = |verb: &str, option: &str| {
            let page = pages.iter().find(|page| page.name == verb).unwrap();
            let field = page.fields.iter().find(|field| field.name == option);
            field
                .unwrap_or_else(|| panic!("{verb} {option}"))
                .kind
                .clone()
        };
        assert_eq!(kind("what-if", "scale"), FieldKind::Factor);
        assert_eq!(kind("critical-path", "top"), FieldKind::Number);
        assert_eq!(kind("critical-path", "cdf"), FieldKind::Flag);
        assert_eq!(
            kind("anomalies", "slowest"),
            FieldKind::Text("SHARE".into())
        );
        assert!(matches!(kind("compare", "zoom"), FieldKind::Choice(zooms) if zooms.len() == 3));
    }
}
