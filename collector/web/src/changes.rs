//! Lists changes found in a store, each with a link to a page that compares before and after.

use stroboscope_analysis::by_root::OTHER_ROOTS;
use stroboscope_query::{InferSettings, QueryError, StepQuestion, Study, failures};
use stroboscope_render::page::Html;
use stroboscope_reports::failures::change_text;
use stroboscope_reports::overview::step_text;
use tokio::runtime::Handle;

use crate::periods::TwoPeriods;
use crate::progress::ProgressSender;
use crate::scope::Scope;
use crate::site::Site;

/// Maximum number of changes to list.
const SHOWN: usize = 5;

/// Lists changes of latency and of the share of failed requests in a time range, as links to the
/// page of a subcommand that takes two periods.
pub(crate) fn changes(
    verb: &str,
    scope: &Scope,
    site: &Site,
    runtime: &Handle,
    telling: &ProgressSender,
) -> Html {
    let mut html = Html::new();
    // Show no error if the store cannot be read, because answers report it.
    let Ok(found) = found(scope, site, runtime, telling) else {
        return html;
    };
    if found.is_empty() {
        html.markup("<p>No change of latency or of the share of failed requests was found in this time range.</p>\n");
        return html;
    }
    html.markup("<h2>Changes found</h2><ul>");
    for (text, [before_from_ns, at_ns, until_ns], root) in found.iter().take(SHOWN) {
        html.markup("<li>").text(text).markup(": ");
        let periods = TwoPeriods {
            before_from_ns: Some(*before_from_ns),
            at_ns: *at_ns,
            until_ns: Some(*until_ns),
            // The name that stands for further root operations finds no request.
            root: Some(root.as_str()).filter(|root| *root != OTHER_ROOTS),
        };
        periods.link(&mut html, verb, &format!("{verb} before and after"));
        html.markup("</li>");
    }
    html.markup("</ul>\n");
    html
}

/// A change: its description; the beginning of the period before it, its time, and the end of the
/// period after it, in ns since the Unix epoch; and its root operation.
type Change = (String, [i64; 3], String);

fn found(
    scope: &Scope,
    site: &Site,
    runtime: &Handle,
    telling: &ProgressSender,
) -> Result<Vec<Change>, QueryError> {
    let source = site.source(runtime, telling.observer())?;
    let source = source.with_root(scope.root());
    let Ok(selection) = scope.selection(site, runtime) else {
        return Ok(Vec::new());
    };
    let study = Study::new(source, selection, InferSettings::default());
    let step = study.ask(&StepQuestion)?;
    let sure = step.filter(|step| step.requests_needed.is_none());
    let slower = sure.map(|step| {
        let times_ns = [step.before_from_ns, step.at_ns, step.until_ns];
        (step_text(&step), times_ns, step.root)
    });
    let failing = failures(study.source(), selection, None)?.changes;
    let failing = failing.into_iter().map(|change| {
        let times_ns = [change.before_from_ns, change.at_ns, change.until_ns];
        (change_text(&change), times_ns, change.root)
    });
    Ok(slower.into_iter().chain(failing).collect())
}
