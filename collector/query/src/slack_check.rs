//! Validates slack: if a server's segment has slack, its duration should not correlate with latency
//! (The Mystery Machine, §5.2, figures 8 to 10).

use stroboscope_analysis::distribution::Distribution;
use stroboscope_analysis::pass::{Pass, TraceView};
use stroboscope_analysis::slack_validation::{ServerTime, SlackValidation};

use super::categories::{Categories, CategoryChoice, CategoryEvidence};
use super::notes::Notes;
use super::query_error::QueryError;
use super::study::{Question, Study, StudyInput};
use stroboscope_store::tables::AttributeKeys;

/// Slack of requests, with its validation.
#[derive(Debug)]
pub struct SlackCheck {
    /// Slack of each request's last server segment before the answer: the time by which the segment
    /// could have ended later without delaying the request.
    pub slack: Distribution,
    /// Correlation of server time and latency, in buckets of slack with about equally many
    /// requests.
    pub validation: SlackValidation,
    /// Number of requests left out because no server segment ended before or with the answer.
    pub without_server: u64,
    /// Notes about the data that the query read.
    pub notes: Notes,
}

/// Validates slack over all selected requests, in `buckets` buckets with about equally many
/// requests. Reads the critical paths twice: to find the edges of the buckets, and to fill them.
///
/// # Errors
/// Fails if the store cannot be read, if no trace is selected and complete, if no segment is of the
/// category that `server` names, or if there is too little memory.
pub fn check_slack(
    study: &Study,
    server: &CategoryChoice,
    buckets: usize,
) -> Result<SlackCheck, QueryError> {
    let found = study.ask(&ServerSlackQuestion(server))?;
    let question = ValidationQuestion {
        slack: &found.slack,
        buckets,
        server: &found.server,
    };
    let (validation, notes) = study.ask(&question)?;
    Ok(SlackCheck {
        slack: found.slack,
        validation,
        without_server: found.without_server,
        notes,
    })
}

/// Categories of segments, and the number of the server's category.
#[derive(Clone, Debug)]
struct Server {
    categories: Categories,
    number: usize,
}

impl Server {
    fn time(&self, seen: &TraceView<'_>) -> Option<ServerTime> {
        ServerTime::of(seen.path, |segment| {
            self.categories.of(segment) == self.number
        })
    }
}

/// Asks for the server's slack in each request.
struct ServerSlackQuestion<'q>(&'q CategoryChoice);

struct ServerSlack {
    slack: Distribution,
    without_server: u64,
    server: Server,
}

impl Question for ServerSlackQuestion<'_> {
    type Records = CategoryEvidence;
    type Preparation = Server;
    type Paths<'a>
        = Slacks<'a>
    where
        Self: 'a;
    type Answer = ServerSlack;

    fn what(&self) -> &'static str {
        "finding slack"
    }

    fn record_keys(&self) -> AttributeKeys {
        self.0.rule.keys([])
    }

    fn records(&self) -> CategoryEvidence {
        CategoryEvidence::new(&self.0.rule)
    }

    fn prepare(
        &self,
        studied: StudyInput<'_>,
        records: CategoryEvidence,
    ) -> Result<Server, QueryError> {
        let categories = records.categories(studied)?;
        Ok(Server {
            number: categories.number(&self.0.name)?,
            categories,
        })
    }

    fn paths<'a>(&'a self, _: StudyInput<'a>, server: &'a Server) -> Slacks<'a> {
        Slacks {
            server,
            slack: Distribution::default(),
            without_server: 0,
        }
    }

    fn answer(
        &self,
        _: StudyInput<'_>,
        server: &Server,
        paths: Slacks<'_>,
        _: Notes,
    ) -> Result<ServerSlack, QueryError> {
        Ok(ServerSlack {
            slack: paths.slack,
            without_server: paths.without_server,
            server: server.clone(),
        })
    }
}

struct Slacks<'a> {
    server: &'a Server,
    slack: Distribution,
    without_server: u64,
}

impl Pass<TraceView<'_>> for Slacks<'_> {
    fn observe(&mut self, seen: &TraceView<'_>) {
        match self.server.time(seen) {
            Some(request) => self.slack.record(request.slack_ns),
            None => self.without_server += 1,
        }
    }

    fn merge(&mut self, other: Self) {
        self.slack.merge(&other.slack);
        self.without_server += other.without_server;
    }
}

/// Asks for the correlation of latency and server time, by slack.
struct ValidationQuestion<'q> {
    slack: &'q Distribution,
    buckets: usize,
    server: &'q Server,
}

impl Question for ValidationQuestion<'_> {
    type Records = ();
    type Preparation = ();
    type Paths<'a>
        = Validation<'a>
    where
        Self: 'a;
    type Answer = (SlackValidation, Notes);

    fn what(&self) -> &'static str {
        "validating slack"
    }

    fn records(&self) {}

    fn prepare(&self, _: StudyInput<'_>, (): ()) -> Result<(), QueryError> {
        Ok(())
    }

    fn paths<'a>(&'a self, _: StudyInput<'a>, (): &'a ()) -> Validation<'a> {
        Validation {
            server: self.server,
            validation: SlackValidation::new(self.slack, self.buckets),
        }
    }

    fn answer(
        &self,
        _: StudyInput<'_>,
        (): &(),
        paths: Validation<'_>,
        notes: Notes,
    ) -> Result<(SlackValidation, Notes), QueryError> {
        Ok((paths.validation, notes))
    }
}

struct Validation<'a> {
    server: &'a Server,
    validation: SlackValidation,
}

impl Pass<TraceView<'_>> for Validation<'_> {
    fn observe(&mut self, seen: &TraceView<'_>) {
        if let Some(request) = self.server.time(seen) {
            self.validation.observe(request);
        }
    }

    fn merge(&mut self, other: Self) {
        self.validation.merge(&other.validation);
    }
}
