//! Sources of `collect`'s options: flags, else the environment, else a TOML file, else defaults.
//!
//! The options are those that clap knows, by their long names: `--flush-interval` is
//! `STROBOSCOPE_COLLECT_FLUSH_INTERVAL`, and `flush-interval` in the section `[collect]`. Values
//! from the environment and the file are inserted before the flags, so that one parser checks all
//! of them. Each inserted option is parsed alone first, so that an error names its source.

use std::ffi::{OsStr, OsString};
use std::fmt;
use std::path::{Path, PathBuf};

use clap::parser::ValueSource;
use clap::{Arg, ArgAction, ArgMatches, Args, Command};
use stroboscope_query::nearest;
use toml::{Table, Value};

use stroboscope_reports::Failure;
use stroboscope_reports::bad_argument::in_our_words;
use stroboscope_reports::output::say;

/// Prefix of the environment variables that set options of `collect`.
const PREFIX: &str = "STROBOSCOPE_COLLECT_";
/// Name of the subcommand, and of its section in the settings file.
const SECTION: &str = "collect";
/// Name of the option that specifies the settings file. The file itself cannot set it.
const CONFIG: &str = "config";

/// Argument that names the file of settings.
#[derive(Clone, Debug, Args)]
pub(super) struct SettingsArguments {
    /// TOML file of settings: its section [collect] has options by their names without leading
    /// dashes. Flags override the environment (STROBOSCOPE_COLLECT_LISTEN for --listen, and so on),
    /// which overrides the file
    #[arg(long, value_name = "FILE")]
    pub config: Option<PathBuf>,
}

/// Source from which the value of an option comes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Origin {
    Default,
    File(PathBuf),
    Environment(String),
    Flag,
}

impl fmt::Display for Origin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Default => f.write_str("default"),
            Self::File(path) => write!(f, "{}", path.display()),
            Self::Environment(name) => f.write_str(name),
            Self::Flag => f.write_str("flag"),
        }
    }
}

/// Value of an option and its source. `values` is empty if the option is not set and has no
/// default.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Setting {
    pub name: String,
    pub values: Vec<String>,
    pub origin: Origin,
    pub is_flag: bool,
    pub is_list: bool,
}

impl Setting {
    /// Converts the setting to command-line arguments.
    fn arguments(&self) -> Vec<OsString> {
        let (name, values) = (&self.name, self.values.iter());
        if self.is_flag {
            let is_on = values.filter(|value| *value == "true");
            return is_on.map(|_| format!("--{name}").into()).collect();
        }
        values
            .map(|value| format!("--{name}={value}").into())
            .collect()
    }
}

/// Inserts the settings from the environment and the file into the process's arguments, if these
/// run `collect` itself and none of its subcommands.
pub(super) fn completed(program: &Command, given: Vec<OsString>) -> Result<Vec<OsString>, Failure> {
    // The final parse reports errors in the arguments.
    let Ok(matches) = program.clone().try_get_matches_from(&given) else {
        return Ok(given);
    };
    let Some((SECTION, of_verb)) = matches.subcommand() else {
        return Ok(given);
    };
    if of_verb.subcommand().is_some() {
        return Ok(given);
    }
    let Some(verb) = program.find_subcommand(SECTION) else {
        return Ok(given);
    };
    let Some(at) = given.iter().position(|word| word == SECTION) else {
        return Ok(given);
    };
    let environment = std::env::vars_os();
    let settings = resolved(verb, of_verb, environment)?;
    let elsewhere = settings
        .iter()
        .filter(|setting| !matches!(setting.origin, Origin::Default | Origin::Flag));
    let more: Vec<OsString> = elsewhere.flat_map(Setting::arguments).collect();
    let mut completed = given;
    completed.splice(at + 1..at + 1, more);
    Ok(completed)
}

/// Resolves the options that the settings file can set, and their sources, in the order of their
/// declaration.
pub(super) fn resolved(
    verb: &Command,
    flags: &ArgMatches,
    environment: impl Iterator<Item = (OsString, OsString)>,
) -> Result<Vec<Setting>, Failure> {
    let environment = of_environment(verb, environment)?;
    let said = |name: &str| environment.iter().find(|(of, _)| of == name);
    let file: Option<PathBuf> = match flags.try_get_one::<PathBuf>(CONFIG) {
        Ok(Some(path)) => Some(path.clone()),
        _ => said(CONFIG).map(|(_, setting)| setting.values.concat().into()),
    };
    let mut in_file = match &file {
        Some(path) => read(path)?,
        None => Table::new(),
    };
    let mut settings = Vec::new();
    for option in options(verb) {
        let name = option.get_long().unwrap_or_default();
        let of_file = in_file.remove(name);
        let setting =
            if flags.value_source(option.get_id().as_str()) == Some(ValueSource::CommandLine) {
                let values = match option.get_action() {
                    ArgAction::SetTrue => vec!["true".to_owned()],
                    _ => raw_values(flags, option),
                };
                setting(option, values, Origin::Flag)
            } else if let Some((_, setting)) = said(name) {
                setting.clone()
            } else if let (Some(value), Some(path)) = (of_file, &file) {
                let values = values_of(value).map_err(|what| wrong(path, name, what))?;
                setting(option, values, Origin::File(path.clone()))
            } else {
                let defaults = option.get_default_values().iter();
                let values = defaults.map(|value| value.to_string_lossy().into_owned());
                setting(option, values.collect(), Origin::Default)
            };
        check(verb, &setting)?;
        settings.push(setting);
    }
    match (in_file.keys().next(), &file) {
        (Some(name), Some(path)) => Err(wrong(path, name, unknown(verb, name))),
        _ => Ok(settings),
    }
}

fn setting(option: &Arg, values: Vec<String>, origin: Origin) -> Setting {
    let is_flag = matches!(option.get_action(), ArgAction::SetTrue);
    Setting {
        name: option.get_long().unwrap_or_default().to_owned(),
        // Spell out the default of a flag, which clap leaves implicit.
        values: if is_flag && origin == Origin::Default {
            vec!["false".to_owned()]
        } else {
            values
        },
        origin,
        is_flag,
        is_list: matches!(option.get_action(), ArgAction::Append),
    }
}

/// Returns the options that the settings file can set. The environment can set these and
/// `--config`.
fn options(verb: &Command) -> impl Iterator<Item = &Arg> {
    let is_setting = |option: &&Arg| {
        let name = option.get_long();
        name.is_some_and(|name| ![CONFIG, "help", "version"].contains(&name))
    };
    verb.get_arguments().filter(is_setting)
}

fn variable(name: &str) -> String {
    format!("{PREFIX}{}", name.to_uppercase().replace('-', "_"))
}

/// Reads the settings from the environment. Returns each with the name of its option.
fn of_environment(
    verb: &Command,
    environment: impl Iterator<Item = (OsString, OsString)>,
) -> Result<Vec<(String, Setting)>, Failure> {
    let mut found = Vec::new();
    for (name, value) in environment {
        let Some(name) = name.to_str().filter(|name| name.starts_with(PREFIX)) else {
            continue;
        };
        let Some(value) = value.to_str() else {
            return Err(Failure::new(format!("{name} is not UTF-8")));
        };
        // An empty variable counts as unset, because scripts unset variables that way.
        if value.is_empty() {
            continue;
        }
        let mut all = verb.get_arguments();
        let Some(option) =
            all.find(|option| option.get_long().is_some_and(|of| variable(of) == name))
        else {
            say!(
                "{name} is unknown and has no effect: {}",
                unknown(verb, &name[PREFIX.len()..])
            );
            continue;
        };
        let values = match option.get_action() {
            ArgAction::Append => parts(value),
            _ => vec![value.to_owned()],
        };
        let setting = setting(option, values, Origin::Environment(name.to_owned()));
        found.push((setting.name.clone(), setting));
    }
    Ok(found)
}

/// Splits a list at its commas, except at those of repetitions such as `[0-9]{13,19}` in a regular
/// expression.
fn parts(list: &str) -> Vec<String> {
    let is_digit = |c: char| c.is_ascii_digit();
    let is_repetition = |at: usize| {
        let before = list[..at].trim_end_matches(is_digit);
        let after = list[at + 1..].trim_start_matches(is_digit);
        before.ends_with('{') && after.starts_with('}')
    };
    let mut parts = Vec::new();
    let mut from = 0;
    for (at, _) in list
        .match_indices(',')
        .filter(|(at, _)| !is_repetition(*at))
    {
        parts.push(list[from..at].trim().to_owned());
        from = at + 1;
    }
    parts.push(list[from..].trim().to_owned());
    parts
}

fn unknown(verb: &Command, name: &str) -> String {
    let names: Vec<&str> = options(verb).filter_map(Arg::get_long).collect();
    match nearest(&name.replace('_', "-"), names.iter().copied()) {
        Some(nearest) => format!("there is no such setting; did you mean {nearest}?"),
        None => format!("there is no such setting; there are {}", names.join(", ")),
    }
}

fn read(path: &Path) -> Result<Table, Failure> {
    let text = std::fs::read_to_string(path).map_err(|error| {
        Failure::new(format!(
            "cannot read the settings in {}: {error}",
            path.display()
        ))
    })?;
    let mut sections: Table = toml::from_str(&text).map_err(|error| {
        let error = error.to_string();
        Failure::new(format!(
            "{} is no TOML: {}",
            path.display(),
            error.trim_end()
        ))
    })?;
    let found = sections.remove(SECTION);
    if let Some(other) = sections.keys().next() {
        let what = format!("settings are in the section [{SECTION}]");
        return Err(wrong(path, other, what));
    }
    match found {
        None => Ok(Table::new()),
        Some(Value::Table(settings)) => Ok(settings),
        Some(_) => Err(wrong(
            path,
            SECTION,
            format!("is not a section [{SECTION}]"),
        )),
    }
}

fn values_of(value: Value) -> Result<Vec<String>, String> {
    match value {
        Value::String(text) => Ok(vec![text]),
        Value::Integer(number) => Ok(vec![number.to_string()]),
        Value::Float(number) => Ok(vec![number.to_string()]),
        Value::Boolean(is_so) => Ok(vec![is_so.to_string()]),
        Value::Array(values) => {
            let values: Result<Vec<_>, _> = values.into_iter().map(values_of).collect();
            Ok(values?.concat())
        }
        Value::Datetime(_) | Value::Table(_) => {
            Err("a text, a number, true or false, or a list of them is expected".to_owned())
        }
    }
}

fn wrong(path: &Path, name: &str, what: impl fmt::Display) -> Failure {
    Failure::new(format!("{}: {name}: {what}", path.display()))
}

/// Checks a setting from the environment or the file as the command line would, and names its
/// source in the error.
fn check(verb: &Command, setting: &Setting) -> Result<(), Failure> {
    let place = match &setting.origin {
        Origin::Default | Origin::Flag => return Ok(()),
        Origin::File(path) => format!("{}: {}", path.display(), setting.name),
        Origin::Environment(name) => name.clone(),
    };
    let is_bool = |value: &String| value == "true" || value == "false";
    if setting.is_flag && !setting.values.iter().all(is_bool) {
        return Err(Failure::new(format!("{place}: true or false is expected")));
    }
    // Check the option alone: the final parse reports what other options it requires.
    let verb = verb.clone().no_binary_name(true).ignore_errors(false);
    let error = match verb.try_get_matches_from(setting.arguments()) {
        Ok(_) => return Ok(()),
        Err(error) => error,
    };
    use clap::error::ErrorKind as Kind;
    if matches!(
        error.kind(),
        Kind::MissingRequiredArgument | Kind::ArgumentConflict
    ) {
        return Ok(());
    }
    let text = in_our_words(error).to_string();
    let line = text.lines().next().unwrap_or_default();
    Err(Failure::new(format!(
        "{place}: {}",
        line.trim_start_matches("error: ")
    )))
}

/// Returns the values of an option as they were typed.
fn raw_values(matches: &ArgMatches, option: &Arg) -> Vec<String> {
    let values = matches.try_get_raw(option.get_id().as_str()).ok().flatten();
    let text = |value: &OsStr| value.to_string_lossy().into_owned();
    values.into_iter().flatten().map(text).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_list_is_split_outside_of_repetitions() {
        let check = |list: &str, expected: &[&str]| assert_eq!(parts(list), expected);
        check("a", &["a"]);
        check("a, b,,c", &["a", "b", "", "c"]);
        check(
            "mask:[0-9]{13,19},drop:a,mask:x{2,}",
            &["mask:[0-9]{13,19}", "drop:a", "mask:x{2,}"],
        );
        check("a{1,b}", &["a{1", "b}"]);
    }
}
