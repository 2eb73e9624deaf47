//! Roles of the one binary, and the function that runs one.

use std::ffi::OsString;
use std::process::ExitCode;

use clap::{Parser, Subcommand};
use stroboscope::{Guard, InitError};

use crate::client::{self, ClientOptions};
use crate::edge::{self, EdgeOptions};
use crate::notice::notice;
use crate::ranker::{self, RankerOptions};
use crate::role_error::RoleError;
use crate::stop::Stop;
use crate::store::{self, StoreOptions};
use crate::web::{self, WebOptions};

/// One process of the newsfeed, with its flags.
#[derive(Debug, Subcommand)]
pub enum Role {
    /// Key-value store over a real file.
    Store(StoreOptions),
    /// Gathers candidate stories and scores them.
    Ranker(RankerOptions),
    /// Generates pages as streams of pagelets.
    Web(WebOptions),
    /// Proxy between the browsers and the web server.
    Edge(EdgeOptions),
    /// Load generator: browsers on links of different speed.
    Client(ClientOptions),
}

/// Command-line flags that all roles accept.
#[derive(Debug, clap::Args)]
pub(crate) struct Supervision {
    /// Stop when standard input ends, as a supervisor's children do.
    #[arg(long, global = true, hide = true)]
    stop_with_stdin: bool,
}

/// Command line of one role: `ROLE [FLAG…]`.
#[derive(Debug, Parser)]
#[command(name = "newsfeed", about = "One process of the newsfeed.")]
pub(crate) struct RoleLine {
    #[command(flatten)]
    pub(crate) supervision: Supervision,
    #[command(subcommand)]
    pub(crate) role: Role,
}

impl Role {
    /// Returns the role's name on the command line, which is also its service in traces unless
    /// `STROBOSCOPE_SERVICE` is set.
    #[must_use]
    pub const fn name(&self) -> &'static str {
        match self {
            Self::Store(_) => "store",
            Self::Ranker(_) => "ranker",
            Self::Web(_) => "web",
            Self::Edge(_) => "edge",
            Self::Client(_) => "client",
        }
    }

    /// Returns the number of worker threads. Two are enough for all but the store, whose readers
    /// block each other at its locks.
    const fn worker_threads(&self) -> usize {
        match self {
            Self::Store(_) => 4,
            _ => 2,
        }
    }

    async fn run(self, stop: &Stop) -> Result<(), RoleError> {
        match self {
            Self::Store(options) => store::run(options, stop).await,
            Self::Ranker(options) => ranker::run(options, stop).await,
            Self::Web(options) => web::run(options, stop).await,
            Self::Edge(options) => edge::run(options, stop).await,
            Self::Client(options) => client::run(options, stop).await,
        }
    }
}

/// Runs the role that `args` describe (`["web", "--store", URL, …]`, without the program's own
/// name) until it has finished or is stopped. Prints errors to standard error; the status is 2 for
/// bad flags and 1 for any other error. A role that does not stop within 6 s of the end of its
/// standard input exits the process with status 3.
pub fn run_role<I>(args: I) -> ExitCode
where
    I: IntoIterator,
    I::Item: Into<OsString>,
{
    let line = std::iter::once(OsString::from("newsfeed")).chain(args.into_iter().map(Into::into));
    match RoleLine::try_parse_from(line) {
        Ok(line) => run_line(line.role, &line.supervision),
        Err(error) => refuse(&error),
    }
}

pub(crate) fn run_line(role: Role, supervision: &Supervision) -> ExitCode {
    let name = role.name();
    match run(role, supervision) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            notice(format_args!("newsfeed {name}: {error}"));
            ExitCode::FAILURE
        }
    }
}

/// Prints the error of a command line, or the requested help.
pub(crate) fn refuse(error: &clap::Error) -> ExitCode {
    // A failure to print has no remedy.
    let _ = error.print();
    ExitCode::from(u8::try_from(error.exit_code()).unwrap_or(2))
}

/// Starts recording if `STROBOSCOPE_COLLECTOR` is set and not empty; other `STROBOSCOPE_…`
/// variables configure the recording. Without recording, each annotation only checks a flag.
fn record(service: &str) -> Result<Option<Guard>, InitError> {
    let collector =
        std::env::var_os(stroboscope::ENV_COLLECTOR).filter(|address| !address.is_empty());
    collector.map(|_| stroboscope::init(service)).transpose()
}

fn run(role: Role, supervision: &Supervision) -> Result<(), RoleError> {
    // Drop the guard last, so that it also ships records made while the runtime shuts down.
    let _recording = record(role.name())?;
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(role.worker_threads())
        .enable_all()
        .build()?;
    let result = runtime.block_on(async {
        let stop = Stop::on_signals(supervision.stop_with_stdin)?;
        role.run(&stop).await
    });
    // Do not wait for tasks in progress, because their peers are gone.
    runtime.shutdown_background();
    result
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(args: &str, expected: Result<&str, &str>) {
        let line = std::iter::once("newsfeed").chain(args.split_whitespace());
        match (RoleLine::try_parse_from(line), expected) {
            (Ok(line), Ok(name)) => assert_eq!(line.role.name(), name),
            (Err(error), Err(part)) => assert!(error.to_string().contains(part), "{error}"),
            (result, _) => panic!("{args:?} gave {result:?}, not {expected:?}"),
        }
    }

    #[test]
    fn roles_are_parsed() {
        check("store", Ok("store"));
        check(
            "store --listen 127.0.0.1:7001 --fault store.read=+5ms --fault store.lock=+1ms@5%",
            Ok("store"),
        );
        check(
            "ranker --store http://127.0.0.1:7001 --stop-with-stdin",
            Ok("ranker"),
        );
        check("web --store http://a:1 --ranker http://a:2", Ok("web"));
        check("edge --web http://a:3", Ok("edge"));
        check(
            "client --edge http://a:4 --rate 5 --mix fast=100",
            Ok("client"),
        );
    }

    #[test]
    fn bad_flags_are_refused_by_name() {
        check("", Err("Usage"));
        check("cache", Err("cache"));
        check("store --listen here", Err("--listen"));
        check(
            "store --fault store.write=+1ms",
            Err("unknown point \"store.write\"; accepted: client.small-count"),
        );
        check("client --edge http://a:1 --mix fast=1", Err("sum to 1"));
    }
}
