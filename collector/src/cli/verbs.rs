//! Registry of all subcommands: the reports and the others.

use std::fmt::Write as _;

use clap::{ArgMatches, Command};
use stroboscope_reports::registry::{Entry, other, reports};
use stroboscope_reports::{Failure, Status};
use stroboscope_server::capabilities;
use tokio::runtime::Builder;

use super::{
    burst_set, check, collect, compact, config, delta, import, kernel, mcp, ready, requests, shell,
    sql, top, view, worker,
};

/// Names of the subcommands by topic, in the order of the help. The help lists subcommands without
/// a topic last.
const GROUPS: [(&str, &[&str]); 7] = [
    (
        "Look",
        &[
            "view",
            "top",
            "overview",
            "critical-path",
            "failures",
            "map",
            "operations",
            "requests",
            "timeline",
            "report",
        ],
    ),
    ("Compare", &["compare", "explain", "experiment", "flows"]),
    ("Find", &["search", "anomalies", "provenance", "sql"]),
    ("Plan", &["what-if", "slack", "burst", "tradeoffs", "pool"]),
    ("Run", &["demo", "collect", "worker", "kernel", "mcp"]),
    ("Store", &["import", "store"]),
    (
        "Research",
        &["infer", "merge", "model", "clocks", "predict"],
    ),
];

/// Parents of subcommands in [`verbs`]: name, help if the parent does nothing itself, and names of
/// its subcommands. These names also work at the top level, but are hidden there.
const BELOW: [(&str, Option<&str>, &[&str]); 3] = [
    (
        "store",
        Some(
            "Check or compact a data directory, show it as Delta tables, or set its request operations",
        ),
        &["check", "compact", "delta", "set-requests"],
    ),
    ("collect", None, &["ready", "config"]),
    ("burst", None, &["set"]),
];

/// Returns all subcommands of this build except `store`, which does nothing itself.
pub(super) fn verbs() -> Vec<Entry> {
    let mut verbs = vec![
        #[cfg(feature = "demo")]
        other("demo", super::demo::Demo::run).saying::<super::demo::DemoReport>(),
        other("collect", collect::Collect::run).confined(),
        other("check", check::CheckVerb::run).saying::<check::CheckedDirectory>(),
        other("compact", compact::Compact::run).saying::<compact::CompactionReport>(),
        other("delta", delta::Delta::run).saying::<delta::DeltaReport>(),
        other("set-requests", requests::SetRequests::run).saying::<requests::RequestSetting>(),
        other("config", config::Config::run),
        other("ready", ready::Ready::run),
        other("set", burst_set::BurstSet::run).saying::<stroboscope_server::http::Adoption>(),
        other("view", view::View::run),
        other("worker", worker::WorkerVerb::run),
        other("top", top::TopVerb::run),
        other("mcp", mcp::Mcp::run),
        other("import", import::Import::run),
        other("kernel", kernel::KernelVerb::run).confined(),
    ];
    verbs.extend(reports());
    verbs.push(other("sql", sql::Sql::run));
    verbs.push(other("completions", |asked: shell::Completions, _| {
        asked.run(command(&self::verbs()))
    }));
    verbs.push(other("man", |asked: shell::Man, _| {
        asked.run(command(&self::verbs()))
    }));
    verbs
}

/// Shows what causes what in a distributed service.
///
/// Services record in short bursts, and `collect` gathers their recordings. Reports show the order
/// of a request's segments, which of them make up its latency, and how much slack the others have.
#[derive(Debug, clap::Parser)]
#[command(
    name = "stroboscope",
    version,
    propagate_version = true,
    subcommand_required = true,
    arg_required_else_help = true
)]
struct Program;

/// Builds the command line of these subcommands.
pub(super) fn command(verbs: &[Entry]) -> Command {
    let program = <Program as clap::CommandFactory>::command();
    let program = program.subcommands(verbs.iter().map(|verb| {
        let is_below = BELOW.iter().any(|(_, _, below)| below.contains(&verb.name));
        command_of(verb).hide(is_below)
    }));
    let program = BELOW
        .iter()
        .fold(program, |program, (parent, about, names)| {
            let below = verbs.iter().filter(|verb| names.contains(&verb.name));
            let below: Vec<Command> = below.map(command_of).collect();
            if below.is_empty() {
                return program;
            }
            match about {
                None => program.mut_subcommand(parent, |parent| {
                    parent
                        .args_conflicts_with_subcommands(true)
                        .subcommands(below)
                }),
                Some(about) => {
                    let parent = Command::new(*parent).about(*about).subcommands(below);
                    program.subcommand(
                        parent
                            .subcommand_required(true)
                            .arg_required_else_help(true),
                    )
                }
            }
        });
    let groups = groups(&program);
    program.help_template(format!(
        "{{about-with-newline}}\n{{usage-heading}} {{usage}}\n\n{groups}Options:\n{{options}}\n\n`stroboscope \
         COMMAND --help` describes each command.\n"
    ))
}

fn command_of(verb: &Entry) -> Command {
    (verb.command)(Command::new(verb.name))
}

/// Returns the words that a user types to call a subcommand.
#[cfg(test)]
pub(super) fn words(name: &str) -> String {
    let parent = BELOW.iter().find(|(_, _, below)| below.contains(&name));
    parent.map_or_else(
        || name.to_owned(),
        |(parent, _, _)| format!("{parent} {name}"),
    )
}

/// Formats the visible subcommands under the headings of their groups.
fn groups(program: &Command) -> String {
    let shown = program.get_subcommands().filter(|of| !of.is_hide_set());
    let mut rest: Vec<&Command> = shown.collect();
    let longest = rest.iter().map(|of| of.get_name().len()).max();
    let indent = longest.unwrap_or(0);
    let mut text = String::new();
    let mut group = |heading: &str, commands: Vec<&Command>| {
        if commands.is_empty() {
            return;
        }
        let _ = writeln!(text, "{heading}:");
        for command in commands {
            let about = command.get_about().map(ToString::to_string);
            let (name, about) = (command.get_name(), about.unwrap_or_default());
            let _ = writeln!(text, "  {name:indent$}  {about}");
        }
        text.push('\n');
    };
    for (heading, names) in GROUPS {
        let (of_group, others) = rest
            .into_iter()
            .partition(|of| names.contains(&of.get_name()));
        rest = others;
        let mut of_group: Vec<&Command> = of_group;
        of_group.sort_by_key(|of| names.iter().position(|name| *name == of.get_name()));
        group(heading, of_group);
    }
    group("Other", rest);
    text
}

/// Runs the subcommand that the arguments request.
pub(super) fn run(verbs: &[Entry], matches: &ArgMatches) -> Result<Status, Failure> {
    let asked = matches.subcommand().map(|(name, of_verb)| {
        let parent = BELOW.iter().find(|(parent, _, _)| *parent == name);
        let names = parent.map_or(&[][..], |(_, _, names)| names);
        let below = of_verb
            .subcommand()
            .filter(|(below, _)| names.contains(below));
        below.unwrap_or((name, of_verb))
    });
    let found = asked
        .and_then(|(name, of_verb)| Some((verbs.iter().find(|verb| verb.name == name)?, of_verb)));
    let Some((verb, of_verb)) = found else {
        return Err(Failure::new(
            "no subcommand was given; see --help".to_owned(),
        ));
    };
    let mut runtime = Builder::new_multi_thread();
    if verb.is_confined {
        runtime.on_thread_start(capabilities::drop_all);
    }
    let runtime = runtime.enable_all().build().map_err(Failure::of)?;
    (verb.run)(of_verb, &runtime)
}

#[cfg(test)]
mod tests {
    use clap::Args;
    use schemars::JsonSchema;
    use serde::Serialize;

    use super::*;
    use stroboscope_query::Notes;
    use stroboscope_render::rows;
    use stroboscope_render::show::Doc;
    use stroboscope_render::show::{Row as _, TableSpec};
    use stroboscope_reports::arguments::{ReadingArguments, ShowArguments};
    use stroboscope_reports::registry::{parsed, reading, tables};
    use stroboscope_reports::study::NamedStudy;
    use stroboscope_reports::verb::ReadingVerb;
    use stroboscope_reports::verb::Report;
    use tokio::runtime::Runtime;

    /// A subcommand that counts segments. To add a subcommand, one writes such a type, which
    /// defines the result, and a line in the registry.
    #[derive(Debug, Args)]
    struct Dummy {
        #[command(flatten)]
        reading: ReadingArguments,
        #[command(flatten)]
        show: ShowArguments,
    }

    #[derive(Serialize, JsonSchema)]
    struct Segments {
        #[serde(skip)]
        notes: Notes,
        segments: u64,
    }

    rows! {
        Segments as row, "dummy": "A count.";
        segments: Count, "segments" = row.segments;
    }

    impl Report for Segments {
        fn notes(&self) -> &Notes {
            &self.notes
        }

        fn show(&self, doc: &mut Doc) {
            doc.table("Segments", [self], 1);
        }
    }

    impl ReadingVerb for Dummy {
        type Report = Segments;
        const TABLES: &'static [TableSpec] = &[Segments::TABLE];

        fn arguments(&self) -> (ReadingArguments, &ShowArguments) {
            (self.reading.clone(), &self.show)
        }

        fn answer(&self, study: &NamedStudy) -> Result<Segments, Failure> {
            Ok(Segments {
                notes: Notes::default(),
                segments: study.known()?.inference.segments().count() as u64,
            })
        }
    }

    /// Fails if the help of `sql` omits the table of any report.
    #[test]
    fn the_help_of_sql_names_every_table() {
        let mut sql = super::super::sql::Sql::augment_args(clap::Command::new("sql"));
        let help = sql.render_long_help().to_string();
        let words: Vec<&str> = help
            .split(|c: char| !c.is_alphanumeric() && c != '_')
            .collect();
        for spec in tables().iter().flat_map(|of| of.specs) {
            assert!(words.contains(&spec.name), "{} is not in {help}", spec.name);
        }
    }

    /// Imports two events into the data directory `data` in a new directory.
    fn directory() -> tempfile::TempDir {
        let directory = tempfile::tempdir().unwrap();
        let log = directory.path().join("log");
        let line = |ts_ns: u64, event: &str| {
            format!(r#"{{"trace":"r1","host":"h","ts_ns":{ts_ns},"event":"{event}","task":"t"}}"#)
        };
        std::fs::write(
            &log,
            [
                line(1_700_000_000_000_000_001, "a"),
                line(1_700_000_000_000_000_017, "b"),
            ]
            .join("\n"),
        )
        .unwrap();
        let (data, log) = (directory.path().join("data"), log.display().to_string());
        let matches = command(&verbs()).try_get_matches_from([
            "stroboscope",
            "import",
            "--data",
            &data.display().to_string(),
            &log,
        ]);
        assert_eq!(run(&verbs(), &matches.unwrap()).unwrap(), Status::Done);
        directory
    }

    #[test]
    fn a_new_verb_is_a_type_and_a_line() {
        let runtime = Runtime::new().unwrap();
        let directory = directory();
        let path = |name: &str| directory.path().join(name).display().to_string();
        // This is the line in the registry.
        let verbs = [reading::<Dummy>("dummy")];
        let arguments = [
            "stroboscope",
            "dummy",
            "--data",
            &path("data"),
            "--html",
            &path("page.html"),
            "--parquet",
            &path("tables"),
        ];
        let matches = command(&verbs).try_get_matches_from(arguments).unwrap();
        assert_eq!(run(&verbs, &matches).unwrap(), Status::Done);
        let page = std::fs::read_to_string(path("page.html")).unwrap();
        assert!(page.contains("data-value=\"1\">1</td>"), "{page}");
        assert!(directory.path().join("tables/dummy.parquet").exists());
        let tables = verbs[0].tables.unwrap();
        let reading = Dummy::augment_args(Command::new("verb"));
        let dummy: Dummy = parsed(
            &reading
                .try_get_matches_from(["verb", "--data", &path("data")])
                .unwrap(),
        )
        .unwrap();
        let study = NamedStudy::of(&dummy.reading, runtime.handle()).unwrap();
        let doc = (tables.document)(&directory.path().join("data"), &study).unwrap();
        let names: Vec<&str> = doc.tables().iter().map(|table| table.spec.name).collect();
        assert_eq!(
            names,
            tables
                .specs
                .iter()
                .map(|spec| spec.name)
                .collect::<Vec<_>>()
        );
        assert_eq!(
            stroboscope_render::show::batch(&doc.tables()[0])
                .unwrap()
                .num_rows(),
            1
        );
    }

    #[test]
    fn tables_have_names_of_their_own() {
        let all = tables();
        let mut names: Vec<&str> = all
            .iter()
            .flat_map(|of| of.specs.iter().map(|spec| spec.name))
            .collect();
        let count = names.len();
        names.sort_unstable();
        names.dedup();
        assert!(names.len() == count && count > 3, "{names:?}");
    }
}
