//! List of requests: a search form, and the requests that match.

use stroboscope_query::{RequestList, RequestOrder, RequestsWanted, TimeRange};
use stroboscope_render::humanise::{counted, duration_spaced as duration};
use stroboscope_render::page::{Html, body};
use stroboscope_render::show::Doc;
use stroboscope_reports::requests::RequestRow;
use stroboscope_search::{Formula, parse};
use url::form_urlencoded::{Serializer, parse as parse_form};

use super::instants::{parse_duration, readable_duration};
use crate::periods::TwoPeriods;
use crate::scope::Scope;

/// Number of requests on a page of the list.
const PER_PAGE: usize = 50;
/// Maximum number of pages; a more specific query finds requests beyond them.
const PAGES_MAX: usize = 200;

/// Query of the list, as written in the address.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct ListQuery {
    pub(super) formula: String,
    pub(super) service: String,
    pub(super) operation: String,
    pub(super) min: String,
    pub(super) max: String,
    /// `yes` to list only failed requests; any other text lists all.
    pub(super) failed: String,
    pub(super) order: String,
    /// Number of the page, from 1.
    pub(super) page: usize,
}

impl ListQuery {
    /// Parses the query of an address; ignores unknown parameters.
    pub(super) fn of(query: &str) -> Self {
        let mut asked = Self {
            page: 1,
            ..Self::default()
        };
        for (name, value) in parse_form(query.as_bytes()) {
            let value = value.trim().to_owned();
            match &*name {
                "q" => asked.formula = value,
                "service" => asked.service = value,
                "operation" => asked.operation = value,
                "min" => asked.min = value,
                "max" => asked.max = value,
                "failed" => asked.failed = value,
                "order" => asked.order = value,
                "page" => asked.page = value.parse().unwrap_or(1).clamp(1, PAGES_MAX),
                _ => {}
            }
        }
        asked
    }

    /// Returns the query as an address; equal queries have equal addresses.
    pub(super) fn address(&self) -> String {
        let mut form = Serializer::new(String::new());
        for (name, value) in self.fields() {
            if !value.is_empty() {
                form.append_pair(name, value);
            }
        }
        if self.page > 1 {
            form.append_pair("page", &self.page.to_string());
        }
        let query = form.finish();
        if query.is_empty() {
            "/traces".to_owned()
        } else {
            format!("/traces?{query}")
        }
    }

    fn fields(&self) -> [(&'static str, &str); 7] {
        [
            ("q", &self.formula),
            ("service", &self.service),
            ("operation", &self.operation),
            ("min", &self.min),
            ("max", &self.max),
            ("failed", &self.failed),
            ("order", &self.order),
        ]
    }

    /// Returns the kind of requests that come first.
    pub(super) fn first(&self) -> &'static str {
        match &*self.order {
            "latest" => "latest",
            _ => "slowest",
        }
    }

    /// Converts the query to a search. Returns an error if a field is invalid.
    pub(super) fn wanted(&self) -> Result<RequestsWanted, String> {
        let some = |text: &str| (!text.is_empty()).then(|| text.to_owned());
        let formula = some(&self.formula)
            .map(|text| {
                parse(&text).map_err(|error| format!("The formula cannot be read: {error}"))
            })
            .transpose()?;
        if formula.as_ref().is_some_and(Formula::names_kernel) {
            return Err(
                "This list does not read the kernel's events. The page Search does.".to_owned(),
            );
        }
        let duration = |text: &str| some(text).map(|text| parse_duration(&text)).transpose();
        Ok(RequestsWanted {
            formula,
            service: some(&self.service),
            operation: some(&self.operation),
            failed: self.failed == "yes",
            min_ns: duration(&self.min)?,
            max_ns: duration(&self.max)?,
            order: match &*self.order {
                "" | "slowest" => RequestOrder::Slowest,
                "latest" => RequestOrder::Latest,
                other => {
                    return Err(format!(
                        "There is no order {other:?}: use slowest or latest."
                    ));
                }
            },
            kept_max: self.page.saturating_mul(PER_PAGE),
        })
    }
}

/// Builds the form, filled in with the query. Sends time range and root operation along as hidden
/// fields, because the strip above the page has their form.
pub(super) fn form(asked: &ListQuery, scope: &Scope) -> Html {
    let mut html = Html::new();
    html.markup("<form class=\"options\" method=\"get\" action=\"/traces\"><div class=\"fields\">");
    let mut field =
        |name: &'static str, label: &'static str, value: &str, example: &'static str| {
            html.markup("<p class=\"field\">")
                .markup("<label for=\"f-")
                .markup(name)
                .markup("\">")
                .markup(label)
                .markup("</label><input type=\"text\" id=\"f-")
                .markup(name)
                .markup("\" name=\"")
                .markup(name)
                .markup("\" placeholder=\"")
                .text(example)
                .markup("\" value=\"")
                .text(value)
                .markup(match name {
                    "service" => "\" list=\"services",
                    "operation" => "\" list=\"operations",
                    _ => "",
                })
                .markup("\"/></p>");
        };
    field("service", "Service", &asked.service, "any");
    field("operation", "Operation", &asked.operation, "any");
    let (min, max) = (readable_duration(&asked.min), readable_duration(&asked.max));
    field("min", "Takes at least", &min, "2ms");
    field("max", "Takes less than", &max, "1s");
    field(
        "q",
        "Formula",
        &asked.formula,
        "{ name = \"read\" } then { name = \"read\" } within 5ms",
    );
    html.markup("<p class=\"field\"><label for=\"f-failed\">Failed</label><select id=\"f-failed\" name=\"failed\">");
    options(
        &mut html,
        &asked.failed,
        &[("", "or not"), ("yes", "only those")],
    );
    html.markup("</select></p><p class=\"field\"><label for=\"f-order\">Order</label><select id=\"f-order\" name=\"order\">");
    options(
        &mut html,
        &asked.order,
        &[("slowest", "slowest first"), ("latest", "latest first")],
    );
    html.markup("</select></p></div>");
    scope.hidden(&mut html);
    html.markup("<p class=\"go\"><button type=\"submit\">Search</button></p></form>\n");
    html
}

/// Writes the choices of a field, with the current one selected.
fn options(html: &mut Html, asked: &str, choices: &[(&'static str, &'static str)]) {
    for (value, name) in choices {
        html.markup("<option value=\"").markup(value).markup("\"");
        if asked == *value {
            html.markup(" selected=\"\"");
        }
        html.markup(">").markup(name).markup("</option>");
    }
}

/// Builds links that compare the query's period with earlier ones, for all requests or for those of
/// the root operation, which the links carry. Returns nothing unless the period has both ends.
fn ways_before(range: TimeRange, root: Option<&str>) -> Html {
    let mut html = Html::new();
    let (Some(from_ns), Some(to_ns)) = (range.since_ns, range.until_ns) else {
        return html;
    };
    let Some(length_ns) = to_ns
        .checked_sub(from_ns)
        .filter(|length_ns| *length_ns > 0)
    else {
        return html;
    };
    let just_before = from_ns.saturating_sub(length_ns);
    let periods = |since_ns| TwoPeriods {
        before_from_ns: since_ns,
        at_ns: from_ns,
        until_ns: Some(to_ns),
        root,
    };
    let of = root.map_or_else(String::new, |root| format!("of {root} "));
    html.markup("<p class=\"ways\">All requests ")
        .text(&of)
        .markup("of this time (")
        .text(&duration(length_ns as f64))
        .markup("): ");
    periods(Some(just_before)).link(&mut html, "compare", "compare with as long before");
    html.markup(" · ");
    periods(None).link(&mut html, "compare", "compare with all before");
    html.markup(" · ");
    periods(None).link(&mut html, "explain", "explain what changed");
    html.markup("</p>\n");
    html
}

/// Builds the list of matching requests.
pub(super) fn found(
    asked: &ListQuery,
    (range, root): (TimeRange, Option<&str>),
    list: &RequestList,
) -> Html {
    let mut html = ways_before(range, root);
    choices(&mut html, list);
    html.markup("<p class=\"lede\">")
        .text(&sentence(asked, list))
        .markup("</p>\n");
    let first = (asked.page - 1) * PER_PAGE;
    let shown = list.requests.get(first..).unwrap_or_default();
    if shown.is_empty() {
        html.markup("<p>").markup(if list.matched == 0 {
            "Clear some fields: each one narrows the search."
        } else {
            "The list has fewer pages."
        });
        html.markup("</p>\n");
    } else {
        let rows: Vec<RequestRow> = shown.iter().map(RequestRow::of).collect();
        let mut doc = Doc::new();
        doc.table("Requests", &rows, usize::MAX);
        html.html(&body(&doc));
    }
    pages(&mut html, asked, list);
    for (cause, count) in &list.notes.incomplete {
        let count = counted(*count, "request");
        let means = stroboscope_analysis::completeness::explanation(cause);
        html.markup("<p class=\"about\">")
            .text(&format!("{count} not complete ({cause}): {means}"))
            .markup("</p>\n");
    }
    let damaged = list.notes.damage.len() as u64;
    if damaged > 0 {
        html.markup("<div class=\"notice\"><p>").text(&format!(
            "{} could not be read in full, so requests may be missing: {}",
            counted(damaged, "file"),
            list.notes
                .damage
                .iter()
                .take(3)
                .map(ToString::to_string)
                .collect::<Vec<_>>()
                .join("; ")
        ));
        html.markup("</p></div>\n");
    }
    html
}

/// Writes the services and root operations that the form's fields suggest.
fn choices(html: &mut Html, list: &RequestList) {
    let mut of = |id: &'static str, names: &mut dyn Iterator<Item = &str>| {
        html.markup("<datalist id=\"").markup(id).markup("\">");
        for name in names {
            html.markup("<option value=\"")
                .text(name)
                .markup("\"></option>");
        }
        html.markup("</datalist>");
    };
    of("services", &mut list.services.iter().map(|name| &**name));
    of("operations", &mut list.roots.keys().map(|name| &**name));
}

fn sentence(asked: &ListQuery, list: &RequestList) -> String {
    let unknown = match list.unknown {
        0 => String::new(),
        unknown => format!(
            "; {unknown} of them cannot be judged, as they are cut or their clocks are too inaccurate"
        ),
    };
    let slowest = list
        .requests
        .first()
        .filter(|_| asked.order != "latest" && asked.page == 1);
    let slowest = slowest.map_or_else(String::new, |request| {
        format!(". The slowest took {}", duration(request.latency_ns as f64))
    });
    let of = counted(list.searched, "request");
    if list.matched == list.searched {
        format!("{of}{slowest}.")
    } else {
        format!("{} of {of}{unknown}{slowest}.", list.matched)
    }
}

fn pages(html: &mut Html, asked: &ListQuery, list: &RequestList) {
    let count = usize::try_from(list.matched)
        .unwrap_or(usize::MAX)
        .div_ceil(PER_PAGE);
    if count <= 1 {
        return;
    }
    html.markup("<nav class=\"pager\" aria-label=\"Pages of the list\">");
    let mut link = |page: usize, name: &'static str| {
        let to = ListQuery {
            page,
            ..asked.clone()
        };
        html.markup("<a href=\"")
            .text(&to.address())
            .markup("\">")
            .markup(name)
            .markup("</a> ");
    };
    if asked.page > 1 {
        link(asked.page - 1, "‹ before");
    }
    if asked.page < count.min(PAGES_MAX) {
        link(asked.page + 1, "next ›");
    }
    html.markup("<span>page ")
        .shown(asked.page)
        .markup(" of ")
        .shown(count);
    if count > PAGES_MAX {
        html.markup("; the first ")
            .shown(PAGES_MAX)
            .markup(" are listed");
    }
    html.markup("</span></nav>\n");
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_question_is_an_address() {
        let asked = ListQuery::of(
            "q=%7B%20name%20%3D%20%22a%22%20%7D&min=2ms&service=web&x=y&page=3&order=latest",
        );
        let wanted = asked.wanted().expect("plain");
        assert_eq!(wanted.min_ns, Some(2_000_000));
        assert_eq!(wanted.service.as_deref(), Some("web"));
        assert_eq!(wanted.order, RequestOrder::Latest);
        assert_eq!(wanted.kept_max, 3 * PER_PAGE);
        assert!(wanted.formula.is_some());
        assert_eq!(
            ListQuery::of(asked.address().split_once('?').expect("a query").1),
            asked
        );
        assert_eq!(ListQuery::of("").address(), "/traces");
    }

    #[test]
    fn a_time_leads_to_what_was_before_it() {
        let ways = |query: &str| {
            let scope = Scope::of(query).unwrap();
            ways_before(scope.range(None).unwrap(), scope.root().as_deref()).into_string()
        };
        let page = ways("from=1000000000&to=3000000000&min=5");
        for link in [
            "/compare?before=1969-12-31T23%3A59%3A59Z..1970-01-01T00%3A00%3A01Z&amp;after=1970-01-01T00%3A00%3A01Z..1970-01-01T00%3A00%3A03Z",
            "/compare?before=..1970-01-01T00%3A00%3A01Z&amp;after=",
            "/explain?before=..1970-01-01T00%3A00%3A01Z&amp;after=",
        ] {
            assert!(page.contains(&format!("href=\"{link}")), "{link}: {page}");
        }
        assert!(page.contains("All requests of this time"), "{page}");
        let of_root = ways("from=1000000000&to=3000000000&root=web:a");
        assert!(
            of_root.contains("All requests of web:a of this time"),
            "{of_root}"
        );
        // Times as people write them in the form.
        assert!(
            ways("from=2026-11-21+10:00&to=2026-11-21+10:30")
                .contains("before=2026-11-21T09%3A30%3A00Z..")
        );
        for none in ["", "from=5", "to=5"] {
            assert_eq!(ways(none), "", "{none}");
        }
    }

    #[test]
    fn what_cannot_be_understood_is_said() {
        for (query, said) in [
            ("min=soon", "soon"),
            ("q=%7B", "formula"),
            ("order=nicest", "nicest"),
        ] {
            let wrong = ListQuery::of(query).wanted().expect_err(query);
            assert!(wrong.contains(said), "{query}: {wrong}");
        }
        assert_eq!(ListQuery::of("page=0").page, 1);
        assert_eq!(ListQuery::of("page=99999999999999999999").page, 1);
        assert_eq!(ListQuery::of("page=100000").page, PAGES_MAX);
    }
}
