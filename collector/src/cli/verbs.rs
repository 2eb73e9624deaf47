//! The verbs, one line each: what is registered here is a command, and if it reads the store, tables of SQL as well.

use std::path::Path;

use clap::{ArgMatches, Args, Command};
use schemars::{JsonSchema, Schema, SchemaGenerator};
use tokio::runtime::{Builder, Runtime};

use super::{check, collect, compact, config, import, kernel, ready, sql, top, view};
use stroboscope_present::show::Doc;
use stroboscope_reports::study::NamedStudy;
use stroboscope_reports::verb::{Page, PageVerb, ReadingVerb, Tables, document};
use stroboscope_reports::{
    Failure, Status, anomalies, burst, clocks, compare, critical_path, experiment, explain, flows,
    infer, model, pool, predict, report, search, slack, timeline, tradeoffs, what_if,
};
use stroboscope_server::capabilities;

type Run = Box<dyn Fn(&ArgMatches, &Runtime) -> Result<Status, Failure>>;

/// A verb as it is registered.
pub(super) struct Entry {
    pub name: &'static str,
    command: fn(Command) -> Command,
    run: Run,
    tables: Option<Tables>,
    /// True if the threads of the subcommand drop capabilities that no collector needs.
    pub is_confined: bool,
    /// Its page, if it is one.
    page: Option<Page>,
    /// Of what it says in JSON.
    #[cfg_attr(not(test), allow(dead_code, reason = "the documents are made of it"))]
    pub schema: Option<fn(&mut SchemaGenerator) -> Schema>,
}

impl Entry {
    /// With the type of what it says in JSON.
    fn saying<R: JsonSchema>(self) -> Self {
        Self {
            schema: Some(R::json_schema),
            ..self
        }
    }

    /// With a page of the same arguments, but those that say how the answer is printed.
    fn paged<V: PageVerb + Args>(self, without: &'static [&'static str]) -> Self {
        let words = self.name;
        self.paged_as::<V>(words, without)
    }

    /// With threads that drop capabilities from their start; its own thread, it drops itself.
    fn confined(self) -> Self {
        Self {
            is_confined: true,
            ..self
        }
    }

    /// With the page of a verb below it.
    fn paged_as<V: PageVerb + Args>(
        self,
        words: &'static str,
        without: &'static [&'static str],
    ) -> Self {
        let page = Page {
            name: self.name,
            words,
            without,
            command: V::augment_args,
            document: |matches, reader| parsed::<V>(matches)?.document(reader),
        };
        Self {
            page: Some(page),
            ..self
        }
    }
}

/// All of them, in the order of the help.
pub(super) fn verbs() -> Vec<Entry> {
    vec![
        #[cfg(feature = "demo")]
        other("demo", super::demo::Demo::run).saying::<super::demo::DemoReport>(),
        other("collect", |verb: collect::Collect, runtime| {
            verb.run(pages(), runtime)
        })
        .confined(),
        other("check", check::CheckVerb::run).saying::<check::CheckedFolder>(),
        other("compact", compact::Compact::run).saying::<compact::Compacted>(),
        other("config", config::Config::run),
        other("ready", ready::Ready::run),
        other("view", |verb: view::View, runtime| {
            verb.run(pages(), runtime)
        }),
        other("top", top::TopVerb::run),
        other("import", import::Import::run),
        other("infer", infer::Infer::run)
            .saying::<infer::Inferred<'_>>()
            .paged::<infer::Infer>(&[]),
        other("model", model::ModelVerb::run)
            .saying::<model::ModelSays<'_>>()
            .paged::<model::ModelVerb>(&["compare", "top", "false_discoveries", "dot"]),
        reading::<critical_path::CriticalPath>("critical-path"),
        reading::<slack::Slack>("slack"),
        reading::<anomalies::AnomaliesVerb>("anomalies"),
        reading::<what_if::WhatIfVerb>("what-if"),
        reading::<compare::CompareVerb>("compare"),
        reading::<experiment::ExperimentVerb>("experiment"),
        other("pool", pool::PoolVerb::run).saying::<pool::PoolSays>(),
        reading::<explain::ExplainVerb>("explain"),
        reading::<flows::FlowsVerb>("flows"),
        other("kernel", kernel::KernelVerb::run).confined(),
        other("timeline", timeline::TimelineVerb::run)
            .saying::<timeline::TimelineSays>()
            .paged::<timeline::TimelineVerb>(&["format"]),
        reading::<predict::PredictVerb>("predict"),
        reading::<search::SearchVerb>("search"),
        other("report", report::ReportVerb::run).saying::<report::WrittenPage<'_>>(),
        reading::<clocks::Clocks>("clocks"),
        other("burst", burst::Burst::run).saying::<burst::BurstSays>(),
        other("tradeoffs", tradeoffs::TradeoffsVerb::run)
            .saying::<stroboscope_reports::results::tradeoffs::TradeoffsSay>()
            .paged_as::<tradeoffs::LogVerb>("tradeoffs log", &[]),
        other("sql", |verb: sql::Sql, runtime| verb.run(tables(), runtime)),
    ]
}

/// A verb that makes a report of a study.
fn reading<V: ReadingVerb + Args>(name: &'static str) -> Entry {
    let run: Run = Box::new(|matches, runtime| parsed::<V>(matches)?.run(runtime));
    let tables = Tables {
        specs: V::TABLES,
        document: document_of::<V>,
    };
    Entry {
        name,
        command: V::augment_args,
        run,
        tables: Some(tables).filter(|tables| !tables.specs.is_empty()),
        is_confined: false,
        page: None,
        schema: None,
    }
    .saying::<V::Report>()
    .paged::<V>(&[])
}

/// Any other verb.
fn other<V: Args + 'static>(
    name: &'static str,
    run: impl Fn(V, &Runtime) -> Result<Status, Failure> + 'static,
) -> Entry {
    let run: Run = Box::new(move |matches, runtime| run(parsed::<V>(matches)?, runtime));
    Entry {
        name,
        command: V::augment_args,
        run,
        tables: None,
        is_confined: false,
        page: None,
        schema: None,
    }
}

fn parsed<V: Args>(matches: &ArgMatches) -> Result<V, Failure> {
    // What the command took, its type takes.
    V::from_arg_matches(matches).map_err(Failure::of)
}

fn document_of<V: ReadingVerb + Args>(data: &Path, study: &NamedStudy) -> Result<Doc, Failure> {
    let command = V::augment_args(Command::new("verb"));
    let arguments = ["verb".as_ref(), "--data".as_ref(), data.as_os_str()];
    let matches = command
        .try_get_matches_from(arguments)
        .map_err(Failure::of)?;
    document(&parsed::<V>(&matches)?, study)
}

/// Shows what causes what in a distributed service.
///
/// Services record in short bursts, `collect` gathers what they recorded, and the other verbs say which segments of a
/// request come before which, which of them its latency is made of, and how much slack the others have.
#[derive(Debug, clap::Parser)]
#[command(
    name = "stroboscope",
    version,
    propagate_version = true,
    subcommand_required = true,
    arg_required_else_help = true
)]
struct Program;

/// The command line of these verbs.
pub(super) fn command(verbs: &[Entry]) -> Command {
    let program = <Program as clap::CommandFactory>::command();
    program.subcommands(
        verbs
            .iter()
            .map(|verb| (verb.command)(Command::new(verb.name))),
    )
}

/// Runs the verb that was asked for.
pub(super) fn run(verbs: &[Entry], matches: &ArgMatches) -> Result<Status, Failure> {
    let asked = matches.subcommand();
    let found = asked
        .and_then(|(name, of_verb)| Some((verbs.iter().find(|verb| verb.name == name)?, of_verb)));
    let Some((verb, of_verb)) = found else {
        return Err(Failure("no verb was given; see --help".to_owned()));
    };
    let mut runtime = Builder::new_multi_thread();
    if verb.is_confined {
        runtime.on_thread_start(capabilities::drop_all);
    }
    let runtime = runtime.enable_all().build().map_err(Failure::of)?;
    (verb.run)(of_verb, &runtime)
}

/// The pages of all verbs that have one.
pub(super) fn pages() -> Vec<Page> {
    verbs().into_iter().filter_map(|verb| verb.page).collect()
}

/// The tables of all verbs that have any.
fn tables() -> Vec<Tables> {
    verbs().into_iter().filter_map(|verb| verb.tables).collect()
}

#[cfg(test)]
mod tests {
    use clap::Args;
    use schemars::JsonSchema;
    use serde::Serialize;

    use super::*;
    use stroboscope_present::rows;
    use stroboscope_present::show::{Row as _, TableSpec};
    use stroboscope_query::Notes;
    use stroboscope_reports::arguments::{ReadingArguments, ShowArguments};
    use stroboscope_reports::verb::Report;

    /// Counts segments: the first place, which says what the result is.
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

    /// Whoever adds a table says so there.
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

    /// One line of an event log, imported.
    fn folder() -> tempfile::TempDir {
        let folder = tempfile::tempdir().unwrap();
        let log = folder.path().join("log");
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
        let (data, log) = (folder.path().join("data"), log.display().to_string());
        let matches = command(&verbs()).try_get_matches_from([
            "stroboscope",
            "import",
            "--data",
            &data.display().to_string(),
            &log,
        ]);
        assert_eq!(run(&verbs(), &matches.unwrap()).unwrap(), Status::Done);
        folder
    }

    #[test]
    fn a_new_verb_is_a_type_and_a_line() {
        let runtime = Runtime::new().unwrap();
        let folder = folder();
        let path = |name: &str| folder.path().join(name).display().to_string();
        // The second place.
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
        assert!(folder.path().join("tables/dummy.parquet").exists());
        let tables = verbs[0].tables.unwrap();
        let reading = Dummy::augment_args(Command::new("verb"));
        let dummy: Dummy = parsed(
            &reading
                .try_get_matches_from(["verb", "--data", &path("data")])
                .unwrap(),
        )
        .unwrap();
        let study = NamedStudy::of(&dummy.reading, runtime.handle()).unwrap();
        let doc = (tables.document)(&folder.path().join("data"), &study).unwrap();
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
            stroboscope_present::show::batch(&doc.tables()[0])
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
