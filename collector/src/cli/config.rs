//! The `collect config` subcommand.

use clap::{ArgMatches, Args, Command, FromArgMatches};
use tokio::runtime::Runtime;
use toml::Value;

use super::collect::Collect;
use super::settings::{Origin, Setting, resolved};
use stroboscope_reports::output::print;
use stroboscope_reports::{Failure, Status};

/// Parsed options, which are those of `collect`.
#[derive(Clone, Debug)]
pub(super) struct Config(ArgMatches);

const ABOUT: &str = "Print the effective settings of `collect` and the source of each";
const LONG_ABOUT: &str = "Print the effective settings of `collect` and the source of each\n\nCombines the options, \
    the environment and the file of `collect`, and prints the result as such a file. Starts nothing.";

impl FromArgMatches for Config {
    fn from_arg_matches(matches: &ArgMatches) -> Result<Self, clap::Error> {
        Ok(Self(matches.clone()))
    }

    fn update_from_arg_matches(&mut self, matches: &ArgMatches) -> Result<(), clap::Error> {
        self.0 = matches.clone();
        Ok(())
    }
}

impl Args for Config {
    fn augment_args(command: Command) -> Command {
        Collect::augment_args(command)
            .about(ABOUT)
            .long_about(LONG_ABOUT)
    }

    fn augment_args_for_update(command: Command) -> Command {
        Self::augment_args(command)
    }
}

impl Config {
    pub(super) fn run(self, _: &Runtime) -> Result<Status, Failure> {
        let verb = Self::augment_args(Command::new("collect"));
        let settings = resolved(&verb, &self.0, std::env::vars_os())?;
        let lines: Vec<String> = settings.iter().map(line).collect();
        print(&format!("[collect]\n{}", lines.join("\n")))?;
        Ok(Status::Done)
    }
}

fn line(setting: &Setting) -> String {
    let Setting { name, values, .. } = setting;
    let texts = || values.iter().cloned().map(Value::String);
    let value = if setting.is_flag {
        values.concat()
    } else if setting.is_list {
        Value::Array(texts().collect()).to_string()
    } else {
        texts()
            .next()
            .map_or_else(String::new, |text| text.to_string())
    };
    match &setting.origin {
        Origin::Default if values.is_empty() => format!("# {name} is not set"),
        origin => format!("{name} = {value}  # {origin}"),
    }
}
