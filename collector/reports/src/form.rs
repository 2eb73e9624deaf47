//! Arguments of subcommands as forms: fields with kinds, for pages and tools, and their values as
//! clap parses them.

use std::collections::BTreeSet;
use std::ffi::OsString;
use std::path::Path;

use clap::builder::ValueParser;
use clap::{Arg, ArgAction, ArgMatches, Args, Command, value_parser};

use crate::Failure;
use crate::arguments::ReadingArguments;
use crate::bad_argument::in_our_words;
use crate::verb::Page;

/// Arguments that forms lack, because they concern printing or this process's memory.
const OF_PRINTING: [&str; 5] = ["json", "full_names", "each", "help", "memory_limit"];

/// Form of a subcommand that servers answer, as a page or as a tool.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct VerbPage {
    /// Name of the subcommand; for a nested one, that of its parent. The page is `/NAME`, unless a
    /// richer page replaces it.
    pub name: &'static str,
    /// Full name of the subcommand, such as `tradeoffs log`.
    pub words: &'static str,
    /// Description in one line.
    pub about: String,
    /// Description in several paragraphs.
    pub more: String,
    /// Options that the form offers.
    pub fields: Vec<Field>,
}

/// One option of a subcommand.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Field {
    /// Name in the address of the page and, unless `is_positional`, after `--` on the command line.
    pub name: String,
    pub help: String,
    pub kind: FieldKind,
    /// Value if the option is not given; `None` if it has no default.
    pub default: Option<String>,
    /// True if the option is given without its name on the command line.
    pub is_positional: bool,
    /// True if the option is required.
    pub is_required: bool,
    /// True if the option may be given several times.
    pub is_list: bool,
    /// True if the option is one of [`ReadingArguments`].
    pub is_common: bool,
}

/// Kind of value that an option takes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum FieldKind {
    /// No value: the option is given or not.
    Flag,
    /// One of these texts.
    Choice(Vec<String>),
    /// A number without a unit.
    Number,
    /// A factor: 0 or more, where 1 changes nothing.
    Factor,
    /// Any text. The value is the option's value name, such as `DURATION`, which describes the
    /// text.
    Text(String),
}

impl VerbPage {
    /// Creates the form of a subcommand. It lacks arguments that name files, those that concern
    /// printing or this process's memory, and those in [`Page::without`].
    pub fn of(page: &Page) -> Self {
        let command = (page.command)(Command::new(page.name));
        let common: BTreeSet<String> = ReadingArguments::augment_args(Command::new("reading"))
            .get_arguments()
            .map(|argument| argument.get_id().to_string())
            .collect();
        let text = |text: Option<&clap::builder::StyledStr>| text.map(ToString::to_string);
        let fields = command
            .get_arguments()
            .filter(|argument| is_asked_remotely(argument, page))
            .map(|argument| Field {
                is_common: common.contains(argument.get_id().as_str()),
                ..field_of(argument)
            });
        Self {
            name: page.name,
            words: page.words,
            about: text(command.get_about()).unwrap_or_default(),
            more: text(command.get_long_about()).unwrap_or_default(),
            fields: fields.collect(),
        }
    }

    /// Parses names and values of fields with clap, as the command line does. `command` adds the
    /// arguments of the subcommand, and `data` is its data directory.
    ///
    /// # Errors
    /// Fails if the form has no such field, or if clap rejects the values.
    pub fn parsed(
        &self,
        command: fn(Command) -> Command,
        data: &Path,
        arguments: &[(String, String)],
    ) -> Result<ArgMatches, Failure> {
        let verb = self.name;
        let mut words: Vec<OsString> = vec![verb.into(), "--data".into(), data.into()];
        let mut last = Vec::new();
        for (name, value) in arguments {
            let field = self.fields.iter().find(|field| field.name == *name);
            let field = field.ok_or_else(|| {
                let names: Vec<&str> = self.fields.iter().map(|field| &*field.name).collect();
                Failure {
                    remedy: Some(format!("it has {}", names.join(", "))),
                    ..Failure::asked(format!("{verb} has no option {name:?} here"))
                }
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
        let matches = command(Command::new(verb)).try_get_matches_from(words);
        matches.map_err(|error| {
            let error = in_our_words(error).to_string();
            Failure::asked(what_is_wrong(&error))
        })
    }
}

/// Returns clap's error without its prefix, its usage and its hint at `--help`.
fn what_is_wrong(error: &str) -> String {
    let said = error.split("\n\nUsage:").next().unwrap_or(error);
    let mut parts = said.split("\n\nFor more information");
    let said = parts.next().unwrap_or(said);
    said.strip_prefix("error: ")
        .unwrap_or(said)
        .trim()
        .to_owned()
}

/// Reports whether a form offers the argument. Readers of pages and agents cannot name files.
fn is_asked_remotely(argument: &Arg, page: &Page) -> bool {
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
        ValueParser::from(value_parser!(u16)).type_id(),
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

    /// Checks that defaults of number fields are numbers, because browsers do not show others, such
    /// as `1%`, there.
    #[test]
    fn defaults_of_numbers_are_numbers() {
        for page in crate::registry::pages() {
            let fields = VerbPage::of(&page).fields.into_iter();
            for field in fields.filter(|field| field.kind == FieldKind::Number) {
                let number = field.default.as_deref().map(str::parse::<f64>);
                assert!(!matches!(number, Some(Err(_))), "{}: {field:?}", page.words);
            }
        }
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
