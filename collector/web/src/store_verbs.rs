//! Reports as pages: their forms and their answers.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use clap::builder::ValueParser;
use clap::{Arg, ArgAction, ArgMatches, Args, Command, value_parser};
use stroboscope_reports::arguments::ReadingArguments;
use stroboscope_reports::bad_argument::in_our_words;
use stroboscope_reports::failure::{Failure, FailureCode};
use stroboscope_reports::notes::remarks;
use stroboscope_reports::study::Reader;
use stroboscope_reports::verb::Page;
use stroboscope_store::progress::Observer;
use stroboscope_store::query_memory::QueryMemory;
use tokio::runtime::Handle;

use crate::verbs::{Field, FieldKind, VerbAnswer, VerbPage, Verbs};

/// Arguments that pages lack, because they concern printing or this process's memory.
const OF_PRINTING: [&str; 5] = ["json", "full_names", "each", "help", "memory_limit"];

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
            pages: runs.iter().map(page_of).collect(),
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
        let (about, page) = (&self.pages[place], &self.runs[place]);
        let mut words = vec![
            verb.into(),
            "--data".into(),
            self.data.clone().into_os_string(),
        ];
        let mut last = Vec::new();
        for (name, value) in arguments {
            let field = about.fields.iter().find(|field| field.name == *name);
            let field = field.ok_or_else(|| {
                Failure::coded(
                    FailureCode::Asked,
                    format!("{verb} has no option {name:?} on its page"),
                )
            })?;
            match (&field.kind, field.is_positional) {
                (FieldKind::Flag, _) => words.push(format!("--{name}").into()),
                // One word per option keeps a value from being taken for an option.
                (_, false) => words.push(format!("--{name}={value}").into()),
                (_, true) => last.push(value.into()),
            }
        }
        words.push("--".into());
        words.extend(last);
        let command = (page.command)(Command::new(about.name));
        let matches = command.try_get_matches_from(words).map_err(|error| {
            Failure::coded(
                FailureCode::Asked,
                what_is_wrong(&in_our_words(error).to_string()),
            )
        })?;
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
        let (doc, noticed) = (page.document)(&matches, &reader)?;
        Ok(VerbAnswer {
            doc,
            remarks: remarks(&noticed),
        })
    }
}

/// Returns the part of clap's error before its usage.
fn what_is_wrong(error: &str) -> String {
    let said = error.split("\n\nUsage:").next().unwrap_or(error);
    let said = said
        .split("\n\nFor more information")
        .next()
        .unwrap_or(said);
    said.strip_prefix("error: ")
        .unwrap_or(said)
        .trim()
        .to_owned()
}

fn page_of(page: &Page) -> VerbPage {
    let command = (page.command)(Command::new(page.name));
    let common: BTreeSet<String> = ReadingArguments::augment_args(Command::new("reading"))
        .get_arguments()
        .map(|argument| argument.get_id().to_string())
        .collect();
    let text = |text: Option<&clap::builder::StyledStr>| text.map(ToString::to_string);
    let fields = command
        .get_arguments()
        .filter(|argument| is_asked_on_pages(argument, page))
        .map(|argument| Field {
            is_common: common.contains(argument.get_id().as_str()),
            ..field_of(argument)
        });
    VerbPage {
        name: page.name,
        words: page.words,
        about: text(command.get_about()).unwrap_or_default(),
        more: text(command.get_long_about()).unwrap_or_default(),
        fields: fields.collect(),
    }
}

/// Reports whether a page offers the argument. A reader of a page cannot name files.
fn is_asked_on_pages(argument: &Arg, page: &Page) -> bool {
    let id = argument.get_id().as_str();
    let takes_path = argument.get_value_parser().type_id() == ValueParser::path_buf().type_id();
    !takes_path && !OF_PRINTING.contains(&id) && !page.without.contains(&id)
}

fn field_of(argument: &Arg) -> Field {
    let name = argument.get_long().unwrap_or(argument.get_id().as_str());
    let defaults = argument.get_default_values();
    let value_name = argument.get_value_names().and_then(|names| names.first());
    let help = argument.get_help().map(ToString::to_string);
    let is_flag = matches!(argument.get_action(), ArgAction::SetTrue);
    Field {
        name: name.to_owned(),
        help: help.unwrap_or_default(),
        kind: kind_of(argument, value_name.map_or("", |name| name.as_str())),
        default: defaults
            .first()
            .filter(|_| !is_flag)
            .map(|value| value.to_string_lossy().into_owned()),
        is_positional: argument.is_positional(),
        is_required: argument.is_required_set(),
        is_list: matches!(argument.get_action(), ArgAction::Append),
        is_common: false,
    }
}

fn kind_of(argument: &Arg, value_name: &str) -> FieldKind {
    if matches!(argument.get_action(), ArgAction::SetTrue) {
        return FieldKind::Flag;
    }
    let choices = argument.get_possible_values();
    if !choices.is_empty() {
        let names = choices.iter().map(|value| value.get_name().to_owned());
        return FieldKind::Choice(names.collect());
    }
    if value_name == "FACTOR" {
        return FieldKind::Factor;
    }
    let parser = argument.get_value_parser().type_id();
    let numbers = [
        ValueParser::from(value_parser!(usize)).type_id(),
        ValueParser::from(value_parser!(u64)).type_id(),
        ValueParser::from(value_parser!(u32)).type_id(),
        ValueParser::from(value_parser!(u8)).type_id(),
        ValueParser::from(value_parser!(f64)).type_id(),
    ];
    // A share is a number, too, but can also be written like 5%.
    if value_name != "SHARE" && numbers.contains(&parser) {
        return FieldKind::Number;
    }
    FieldKind::Text(value_name.to_owned())
}

#[cfg(test)]
mod tests {
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
        let model = pages.iter().find(|page| page.name == "model").unwrap();
        assert!(model.fields.iter().all(|field| field.name != "compare"));
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

    #[test]
    fn what_is_wrong_is_said_without_the_usage() {
        let said = "error: invalid value 'x' for '--top <COUNT>': not a number\n\nFor more information, try '--help'.\n";
        assert_eq!(
            what_is_wrong(said),
            "invalid value 'x' for '--top <COUNT>': not a number"
        );
    }
}
