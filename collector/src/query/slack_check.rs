//! Does slack mean what it says? Correlation of server time and latency by slack (The Mystery Machine, §5.2, figures 8
//! to 10).

use stroboscope_analysis::distribution::Distribution;
use stroboscope_analysis::slack_validation::{ServerTime, SlackValidation};

use super::categories::{CategoryChoice, segments_of};
use super::infer::Inference;
use super::paths::{Visit, fold_traces};
use super::source::{Notes, QueryError, Selection, Source};
use crate::store::AttributeKeys;

/// Requests by slack.
#[derive(Debug)]
pub struct SlackCheck {
    /// Slack of the last server segment of each request: how much later its last answer could have come.
    pub slack: Distribution,
    /// By buckets of about equal size.
    pub validation: SlackValidation,
    /// Requests without a server segment, which are left out.
    pub without_server: u64,
    /// What was noticed on the way.
    pub notes: Notes,
}

/// Puts all selected requests into so many buckets of about equal size by slack. Reads them three times: for
/// categories, for the edges of the buckets, and to fill them.
///
/// # Errors
/// When the store cannot be read, or no segment is of the server's category.
pub fn check_slack(
    source: &Source,
    selection: Selection,
    inference: &Inference,
    server: &CategoryChoice,
    buckets: usize,
) -> Result<SlackCheck, QueryError> {
    let is_server = segments_of(source, selection, inference, server)?;
    let none = AttributeKeys::none();
    let new = || (Distribution::default(), 0);
    let take = |(slack, without_server): &mut (Distribution, u64), visit: Visit<'_>| match ServerTime::of(
        &visit.path,
        &is_server,
    ) {
        Some(request) => slack.record(request.slack_ns),
        None => *without_server += 1,
    };
    let (parts, _) = fold_traces("finding slack", source, selection, inference, &none, new, take)?;
    let (mut slack, mut without_server) = new();
    for (slack_of_part, without) in &parts {
        slack.merge(slack_of_part);
        without_server += without;
    }
    let new = || SlackValidation::new(&slack, buckets);
    let take = |validation: &mut SlackValidation, visit: Visit<'_>| {
        if let Some(request) = ServerTime::of(&visit.path, &is_server) {
            validation.observe(request);
        }
    };
    let (parts, notes) = fold_traces("validating slack", source, selection, inference, &none, new, take)?;
    let mut validation = new();
    parts.iter().for_each(|part| validation.merge(part));
    Ok(SlackCheck { slack, validation, without_server, notes })
}
