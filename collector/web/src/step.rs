//! Since when requests take as long as they do, in a sentence that leads on.

use chrono::DateTime;
use stroboscope_present::humanise::duration_spaced;
use stroboscope_present::page::Html;
use stroboscope_query::LatencyStep;

use crate::periods::TwoPeriods;

/// The sentence, with the ways to what changed.
pub(crate) fn step_sentence(html: &mut Html, step: &LatencyStep) {
    let [before, after] = step.medians_ns.map(|ns| duration_spaced(ns as f64));
    let [old, new] = step.requests;
    html.text(&match step.requests_needed {
        None => format!(
            "Since about {} the median of {} is {after} rather than {before} (",
            since(step),
            step.root
        ),
        Some(needed) => format!(
            "Since about {} the median of {} may be {after} rather than {before}, which is too short to tell: {old} requests before \
             and {new} after, where some {needed} would show it (",
            since(step),
            step.root
        ),
    });
    let periods = TwoPeriods {
        before: (Some(step.before_from_ns), step.at_ns),
        after: (step.at_ns, step.until_ns),
        root: Some(&step.root),
    };
    periods.link(html, "compare", "compare before and after");
    html.markup(" · ");
    periods.link(html, "explain", "explain what changed");
    html.markup("). ");
}

/// When, with the day where that is not the last one.
fn since(step: &LatencyStep) -> String {
    let at = DateTime::from_timestamp_nanos(step.at_ns);
    let last = DateTime::from_timestamp_nanos(step.until_ns);
    let format = match at.date_naive() == last.date_naive() {
        true => "%H:%M:%S",
        false => "%Y-%m-%d %H:%M:%S",
    };
    at.format(format).to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_day_is_said_where_it_is_another() {
        let day_ns = 86_400_000_000_000;
        let step = |until_ns| LatencyStep {
            root: "web:home<b>".to_owned(),
            before_from_ns: 0,
            at_ns: 52_330_000_000_000,
            until_ns,
            medians_ns: [68_000_000, 150_000_000],
            requests: [100, 50],
            p_value: 0.0005,
            requests_needed: None,
        };
        let said = |step: &LatencyStep| {
            let mut html = Html::new();
            step_sentence(&mut html, step);
            html.into_string()
        };
        let today = said(&step(day_ns - 1));
        assert!(
            today.starts_with(
                "Since about 14:32:10 the median of web:home&lt;b&gt; is 150\u{a0}ms rather than 68.0\u{a0}ms (<a href=\"/compare?before=\
                 1970-01-01T00%3A00%3A00Z..1970-01-01T14%3A32%3A10Z&amp;after="
            ),
            "{today}"
        );
        assert!(today.contains("<a href=\"/explain?before="), "{today}");
        let doubtful = said(&LatencyStep {
            requests: [4, 5],
            requests_needed: Some(23),
            ..step(day_ns - 1)
        });
        assert!(
            doubtful.contains("may be 150\u{a0}ms rather than 68.0\u{a0}ms, which is too short to tell: 4 requests before and 5 after, where some 23 would show it (<a"),
            "{doubtful}"
        );
        assert!(said(&step(2 * day_ns)).starts_with("Since about 1970-01-01 14:32:10 "));
    }
}
