//! Strip above a page: its time range and root operation as a form, and requests over time, where
//! a reader can select a part.

use std::fmt::Write as _;
use std::ops::Range;

use chrono::DateTime;
use stroboscope_query::RequestRate;
use stroboscope_render::humanise::{counted, duration_spaced};
use stroboscope_render::page::Html;
use url::form_urlencoded::Serializer;

use crate::rates::Rates;
use crate::scope::Scope;

/// Preset time ranges: the value of `since`, and the text of the link.
const PRESETS: [(&str, &str); 4] = [
    ("15min", "Last 15 min"),
    ("1h", "1 h"),
    ("24h", "24 h"),
    ("", "All"),
];
/// Maximum number of root operations offered, besides the current one.
const ROOTS_OFFERED_MAX: usize = 300;
/// Height of the picture in its own units; its width is the number of columns, and it is stretched.
const HEIGHT: f64 = 24.0;

/// Use of time range and root operation by a page.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum RangeUse {
    /// The page uses neither the time range nor the root operation. Its links still carry both.
    #[default]
    Not,
    /// The page uses the time range and the root operation.
    RangeAndRoot,
    /// A page below the list of requests. The form leads to that list.
    Below,
}

/// Divisor of the store's length. If the range is shorter than the quotient, the picture shows only
/// the range and eight times its length on each side, unless nothing began in that time.
const RANGE_PART_MIN: i64 = 16;

/// Returns the strip; nothing for a page that uses neither range nor root operation.
pub(crate) fn range_strip(scope: &Scope, steered: RangeUse, rates: &Rates) -> Html {
    if steered == RangeUse::Not {
        return Html::new();
    }
    let whole = rates.known();
    let around = whole.as_deref().and_then(|whole| window(scope, whole));
    let shown = around.and_then(|around| rates.known_between(around));
    let shown = shown.filter(|shown| !shown.columns.is_empty());
    strip(scope, steered, whole.as_deref(), shown.as_ref())
}

/// Returns the part of the store around the range, in ns since the Unix epoch. Returns `None` if
/// the range is invalid, is empty, or is long enough to be visible within the whole store.
fn window(scope: &Scope, whole: &RequestRate) -> Option<Range<i64>> {
    let (begin_ns, end_ns) = (whole.from_ns, column_ns(whole, whole.columns.len()));
    let range = scope.range(whole.newest_ns).ok()?;
    let since_ns = range.since_ns.unwrap_or(begin_ns).max(begin_ns);
    let until_ns = range.until_ns.unwrap_or(end_ns).min(end_ns);
    let length_ns = until_ns.saturating_sub(since_ns);
    let is_small = length_ns > 0 && length_ns < end_ns.saturating_sub(begin_ns) / RANGE_PART_MIN;
    let beside_ns = length_ns.saturating_mul(RANGE_PART_MIN) / 2;
    is_small.then(|| since_ns.saturating_sub(beside_ns)..until_ns.saturating_add(beside_ns))
}

/// Builds the strip of a store. `shown` is the part of it in the picture; `None` shows all of it.
fn strip(
    scope: &Scope,
    steered: RangeUse,
    whole: Option<&RequestRate>,
    shown: Option<&RequestRate>,
) -> Html {
    let mut html = Html::new();
    let is_below = steered == RangeUse::Below;
    html.markup("<form class=\"range\" method=\"get\"")
        .markup(if is_below { " action=\"../traces\"" } else { "" })
        .markup(" data-range=\"\"><div class=\"range-row\"><span class=\"presets\" role=\"group\" aria-label=\"Time range\">");
    for (since, name) in PRESETS {
        let is_chosen = scope.until.is_empty() && scope.since == since;
        html.markup("<a href=\"")
            .text(&address(scope, is_below, since))
            .markup(if is_chosen {
                "\" aria-current=\"true\">"
            } else {
                "\">"
            })
            .markup(name)
            .markup("</a>");
    }
    html.markup("</span>");
    custom(&mut html, scope);
    roots(&mut html, scope, whole);
    if !is_below {
        for (name, value) in kept(scope) {
            html.hidden(name, value);
        }
    }
    html.markup("<button class=\"range-go\">Show</button></div>");
    if let Some(rate) = shown.or(whole).filter(|rate| !rate.columns.is_empty()) {
        picture(&mut html, scope, rate);
    }
    html.markup("</form>\n");
    html
}

/// Returns the other parameters of the page, except the page number: its list restarts at the first
/// page.
fn kept(scope: &Scope) -> impl Iterator<Item = (&str, &str)> {
    let others = scope.others.iter();
    let others = others.map(|(name, value)| (&**name, &**value));
    others.filter(|(name, _)| *name != "page")
}

/// Returns the address of the page, or of the list above it, with a range from `since` without an
/// end. The address is relative, because parameters of the scope are added to absolute addresses
/// only.
fn address(scope: &Scope, is_below: bool, since: &str) -> String {
    let mut form = Serializer::new(String::new());
    if !since.is_empty() {
        form.append_pair("since", since);
    }
    if !scope.root.is_empty() {
        form.append_pair("root", &scope.root);
    }
    if !is_below {
        form.extend_pairs(kept(scope));
    }
    let path = if is_below { "../traces" } else { "" };
    format!("{path}?{}", form.finish())
}

/// Writes text fields for both ends of the range.
fn custom(html: &mut Html, scope: &Scope) {
    let is_preset =
        scope.until.is_empty() && PRESETS.iter().any(|(since, _)| *since == scope.since);
    html.markup("<details class=\"custom\"><summary")
        .markup(if is_preset {
            ">"
        } else {
            " aria-current=\"true\">"
        })
        .markup("Custom</summary><div>");
    for (name, label, value, example) in [
        ("since", "From", &scope.since, "30min or 2026-11-21 10:00"),
        ("until", "Until", &scope.until, "2026-11-21 11:00"),
    ] {
        html.markup("<label>")
            .markup(label)
            .markup(" <input type=\"text\" autocomplete=\"off\" spellcheck=\"false\" name=\"")
            .markup(name)
            .markup("\" placeholder=\"")
            .markup(example)
            .markup("\" value=\"")
            .text(value)
            .markup("\"/></label>");
    }
    html.markup("</div></details>");
}

/// Writes the choice of root operations, the most frequent first. The current one precedes them if
/// it is not among them.
fn roots(html: &mut Html, scope: &Scope, rate: Option<&RequestRate>) {
    let known = rate.map(RequestRate::by_requests).unwrap_or_default();
    html.markup("<label class=\"root\">Root operation <select name=\"root\"><option value=\"\">all</option>");
    let mut option = |name: &str| {
        html.markup("<option")
            .markup(if name == scope.root {
                " selected=\"\">"
            } else {
                ">"
            })
            .text(name)
            .markup("</option>");
    };
    let offered = &known[..known.len().min(ROOTS_OFFERED_MAX)];
    if !scope.root.is_empty() && !offered.iter().any(|(name, _)| *name == scope.root) {
        option(&scope.root);
    }
    for (name, _) in offered {
        option(name);
    }
    html.markup("</select></label>");
}

/// Counts the spans that begin a request, by column. If a root operation is selected, counts only
/// its spans, and returns `None` if it has no counts over time.
fn counts(scope: &Scope, rate: &RequestRate) -> Option<Vec<u64>> {
    let columns = rate.columns.iter();
    if scope.root.is_empty() {
        return Some(columns.map(|column| column.values().sum()).collect());
    }
    let root = rate.roots.iter().position(|name| *name == scope.root)?;
    let root = u32::try_from(root).ok()?;
    let of_root = columns.map(|column| column.get(&root).copied().unwrap_or(0));
    Some(of_root.collect())
}

/// Draws the number of spans that begin a request over time, and shades the parts that [`shaded`]
/// returns.
fn picture(html: &mut Html, scope: &Scope, rate: &RequestRate) {
    let Some(counts) = counts(scope, rate) else {
        html.markup("<p class=\"rate-ends hint\"><span class=\"rate-said\">No request rates of ")
            .text(&scope.root)
            .markup(".</span></p>");
        return;
    };
    let most = counts.iter().copied().max().unwrap_or(0);
    let width = counts.len() as f64;
    let end_ns = column_ns(rate, counts.len());
    let of = match &*scope.root {
        "" => String::new(),
        root => format!(" of {root}"),
    };
    html.markup("<svg class=\"rate\" role=\"img\" preserveAspectRatio=\"none\" viewBox=\"0 0 ")
        .shown(width)
        .markup(" ")
        .shown(HEIGHT)
        .markup("\" data-x0-ns=\"")
        .shown(rate.from_ns)
        .markup("\" data-x1-ns=\"")
        .shown(end_ns)
        .markup("\" aria-label=\"")
        .text(&format!(
            "Spans that begin a request{of}: {}, from {} to {}",
            counts.iter().sum::<u64>(),
            moment(rate.from_ns),
            moment(end_ns)
        ))
        .markup("\"><path class=\"load\" d=\"")
        .text(&bars(&counts, most))
        .markup("\"/>");
    for (class, range_ns) in shaded(scope, rate) {
        let x = |at_ns: i64| {
            let at = at_ns.saturating_sub(rate.from_ns) as f64 / rate.column_ns as f64;
            at.clamp(0.0, width)
        };
        let (from, to) = (x(range_ns.start), x(range_ns.end));
        html.markup("<rect class=\"")
            .markup(class)
            .markup("\" y=\"0\" height=\"24\" x=\"")
            .shown(from)
            .markup("\" width=\"")
            .shown((to - from).max(0.0))
            .markup("\"/>");
    }
    html.markup("</svg><p class=\"rate-ends hint\"><span>")
        .text(&moment(rate.from_ns))
        .markup("</span><span class=\"rate-said\">")
        .text(&said(scope, rate, most))
        .markup("</span><span>")
        .text(&moment(end_ns))
        .markup("</span></p>");
}

/// Returns the shaded parts of the picture with their classes: the periods that the page compares,
/// or else the time outside the range.
fn shaded(scope: &Scope, rate: &RequestRate) -> Vec<(&'static str, Range<i64>)> {
    let Some(newest_ns) = rate.newest_ns else {
        return Vec::new();
    };
    let periods = scope.periods(newest_ns).into_iter();
    let periods: Vec<_> = periods
        .map(|(name, period)| {
            (
                if name == "before" {
                    "period before"
                } else {
                    "period"
                },
                period,
            )
        })
        .collect();
    match scope.range(Some(newest_ns)) {
        Ok(range) if periods.is_empty() => vec![
            ("outside", i64::MIN..range.since_ns.unwrap_or(i64::MIN)),
            ("outside", range.until_ns.unwrap_or(i64::MAX)..i64::MAX),
        ],
        _ => periods,
    }
}

fn column_ns(rate: &RequestRate, column: usize) -> i64 {
    let columns = i64::try_from(column).unwrap_or(i64::MAX);
    let length_ns = columns.saturating_mul(rate.column_ns);
    rate.from_ns.saturating_add(length_ns)
}

/// Returns one SVG path for all bars. A column with requests is at least one unit high.
fn bars(counts: &[u64], most: u64) -> String {
    let mut path = String::new();
    for (column, count) in counts.iter().enumerate().filter(|(_, count)| **count > 0) {
        let height = (*count as f64 / most as f64 * HEIGHT).max(1.0);
        // Writing to a String cannot fail.
        let _ = write!(path, "M{column} {HEIGHT}v-{height:.1}h.9v{height:.1}z");
    }
    path
}

fn said(scope: &Scope, rate: &RequestRate, most: u64) -> String {
    let column_ns = rate.column_ns.max(1) as f64;
    let most = match most as f64 * 1e9 / column_ns {
        // In columns shorter than a second, a single request would give a high rate, so show the
        // count.
        _ if column_ns < 1e9 => format!("{most} in {}", duration_spaced(column_ns)),
        each_second if each_second >= 1.0 => format!("{each_second:.0} a second"),
        each_second => format!("{:.1} a minute", each_second * 60.0),
    };
    let ahead = match rate.ahead {
        0 => String::new(),
        ahead => format!(
            ", without {} that began in the future",
            counted(ahead, "span")
        ),
    };
    let most = format!("spans that begin a request: up to {most}{ahead}");
    if rate
        .newest_ns
        .is_some_and(|newest_ns| !scope.periods(newest_ns).is_empty())
    {
        return format!(
            "{most} · this page compares periods of its own: before in blue, after in orange"
        );
    }
    match rate.newest_ns.filter(|_| scope.is_relative()) {
        Some(newest_ns) => format!(
            "{most} · counted back from the newest request, {}",
            moment(newest_ns)
        ),
        None => most,
    }
}

fn moment(at_ns: i64) -> String {
    DateTime::from_timestamp_nanos(at_ns)
        .format("%Y-%m-%d %H:%M:%S")
        .to_string()
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;

    fn rate() -> RequestRate {
        RequestRate {
            from_ns: 0,
            column_ns: 1 << 30,
            columns: vec![
                BTreeMap::from([(0, 4), (1, 9)]),
                BTreeMap::new(),
                BTreeMap::from([(0, 8)]),
            ],
            roots: vec!["web:a\"<b>".to_owned(), "web:b".to_owned()],
            newest_ns: Some(3_000_000_000),
            ahead: 0,
        }
    }

    #[track_caller]
    fn check(query: &str, steered: RangeUse, parts: &[&str], absent: &[&str]) {
        let strip = strip(&Scope::of(query).unwrap(), steered, Some(&rate()), None).into_string();
        for part in parts {
            assert!(strip.contains(part), "{query}: {part}: {strip}");
        }
        for part in absent {
            assert!(!strip.contains(part), "{query}: {part}: {strip}");
        }
    }

    #[test]
    fn the_range_changes_and_all_else_of_the_page_stays() {
        check(
            "by=user&page=3&since=1h&root=web:b",
            RangeUse::RangeAndRoot,
            &[
                "<a href=\"?since=15min&amp;root=web%3Ab&amp;by=user\">Last 15 min</a>",
                "<a href=\"?since=1h&amp;root=web%3Ab&amp;by=user\" aria-current=\"true\">1 h</a>",
                "<a href=\"?root=web%3Ab&amp;by=user\">All</a>",
                "<input type=\"hidden\" name=\"by\" value=\"user\"/>",
                "<option>web:a&quot;&lt;b&gt;</option><option selected=\"\">web:b</option>",
                "Spans that begin a request of web:b: 9, from",
                "spans that begin a request: up to 8 a second · counted",
                "counted back from the newest request, 1970-01-01 00:00:03",
            ],
            &["\"page\"", "web:a\"<b>"],
        );
        check(
            "since=2000000000&until=2999999999&root=web:gone",
            RangeUse::RangeAndRoot,
            &[
                "<summary aria-current=\"true\">Custom",
                "value=\"1970-01-01T00:00:02Z\"",
                "<option selected=\"\">web:gone</option>",
                "No request rates of web:gone.",
            ],
            &["counted back", "<svg"],
        );
        check(
            "since=2000000000&until=2999999999",
            RangeUse::RangeAndRoot,
            &["Spans that begin a request: 21, from", "M0 24v-24.0h.9"],
            &["counted back", "M1 24", "in the future"],
        );
        check(
            "before=..1970-01-01T00:00:02Z&after=1970-01-01T00:00:02Z..&since=1h",
            RangeUse::RangeAndRoot,
            &[
                "<rect class=\"period before\" y=\"0\" height=\"24\" x=\"0\"",
                "<rect class=\"period\" ",
                "before in blue",
            ],
            &["outside", "counted back"],
        );
        check(
            "spans=5",
            RangeUse::Below,
            &["action=\"../traces\"", "href=\"../traces?since=1h\""],
            &["spans=5", "\"spans\""],
        );
    }

    #[test]
    fn a_small_range_is_shown_with_its_surroundings() {
        let whole = RequestRate {
            columns: vec![BTreeMap::from([(0, 1)]); 128],
            ..rate()
        };
        let check = |query: &str, expected: Option<Range<i64>>| {
            let scope = Scope::of(query).unwrap();
            assert_eq!(window(&scope, &whole), expected, "{query}");
        };
        check("", None);
        check("since=0&until=90000000000", None);
        check(
            "since=10000000000&until=11000000000",
            Some(2_000_000_000..19_000_000_000),
        );
        // Later than the whole store.
        check("since=1970-01-02", None);
        let whole = RequestRate {
            from_ns: 1_800_000_000_000_000_000,
            ..whole
        };
        let long_before = Scope::of("until=1700-01-01").unwrap();
        assert_eq!(window(&long_before, &whole), None);
    }

    #[test]
    fn what_is_said_is_what_was_counted() {
        let check = |column_ns: i64, most: u64, ahead: u64, expected: &str| {
            let rate = RequestRate {
                column_ns,
                ahead,
                ..rate()
            };
            let said = said(&Scope::default(), &rate, most);
            assert_eq!(
                said,
                format!("spans that begin a request: up to {expected}")
            );
        };
        check(1 << 20, 1, 0, "1 in 1.05\u{a0}ms");
        check(1 << 30, 107, 0, "100 a second");
        check(
            1 << 36,
            1,
            2,
            "0.9 a minute, without 2 spans that began in the future",
        );
    }
}
