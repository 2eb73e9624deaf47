//! Page of a subcommand: a form of its options, its answer, and the equivalent command line.

use std::collections::BTreeSet;
use std::ops::Range;

use axum::extract::{RawQuery, State};
use axum::http::StatusCode;
use axum::response::Response;
use stroboscope_query::attribute_choices;
use stroboscope_render::page::{Html, NavLink, PagedRows, paged_body};
use stroboscope_reports::failure::{Failure, FailureCode};
use stroboscope_reports::notes::Remark;
use tokio::runtime::Handle;
use url::form_urlencoded::{Serializer, parse};

use crate::changes::changes;
use crate::command_line::command_line;
use crate::periods::TwoPeriods;
use crate::progress::ProgressSender;
use crate::range_strip::RangeUse;
use crate::respond::{Head, NoPage, page, page_now};
use crate::scope::{Scope, is_of_scope};
use crate::site::Site;
use crate::verb_form::{form, suggestions};
use stroboscope_reports::form::{FieldKind, VerbPage};

/// Groups of the header, with the pages in each and their titles; other pages are under "More".
const GROUPS: [(&str, &[(&str, &str)]); 3] = [
    (
        "Understand",
        &[
            ("map", "Service map"),
            ("operations", "Operations"),
            ("failures", "Failures"),
            ("critical-path", "Critical path"),
            ("slack", "Slack"),
            ("model", "Causal model"),
            ("anomalies", "Anomalies"),
            ("flows", "Flows"),
        ],
    ),
    (
        "Ask",
        &[
            ("what-if", "What if"),
            ("compare", "Compare"),
            ("explain", "Explain"),
            ("experiment", "Experiment"),
            ("predict", "Predict"),
            ("search", "Search"),
            ("provenance", "Origin of bytes"),
        ],
    ),
    (
        "Recording",
        &[
            ("timeline", "Kernel"),
            ("clocks", "Clocks"),
            ("infer", "Inference"),
            ("tradeoffs", "Tradeoffs"),
        ],
    ),
];

/// Describes a page in a line. Drops the first word of a help text that begins with `Show` or
/// `List`, such as `Show which segments …`.
fn about_page(page: &VerbPage) -> String {
    let about = match page.name {
        "model" => "Order of operations that no request contradicts",
        "infer" => "The inferred causal model and its confidence",
        "timeline" => "The kernel's work for requests",
        "tradeoffs" => "Results left out, with the policy and the reason",
        _ => &page.about,
    };
    let (verb, rest) = about.split_once(' ').unwrap_or(("", about));
    let said = match verb {
        "Show" | "List" => rest,
        _ => about,
    };
    let mut characters = said.chars();
    let first = characters.next().map(|first| first.to_uppercase());
    first.into_iter().flatten().chain(characters).collect()
}

/// Returns a page's group, its position there, and its title.
fn place(name: &str) -> (&'static str, usize, Option<&'static str>) {
    for (group, pages) in GROUPS {
        if let Some(at) = pages.iter().position(|(verb, _)| *verb == name) {
            return (group, at, Some(pages[at].1));
        }
    }
    ("More", 0, None)
}

fn title(name: &str) -> String {
    let (_, _, known) = place(name);
    known.map_or_else(|| name.replace('-', " "), str::to_owned)
}

/// Returns the links to all pages, group by group.
pub(crate) fn links(pages: &[VerbPage]) -> Vec<NavLink> {
    let mut placed: Vec<(usize, usize, NavLink)> = pages
        .iter()
        .map(|page| {
            let (group, at, _) = place(page.name);
            let of_group = GROUPS.iter().position(|(name, _)| *name == group);
            let link = NavLink {
                path: format!("/{}", page.name),
                name: title(page.name),
                group,
            };
            (of_group.unwrap_or(GROUPS.len()), at, link)
        })
        .collect();
    placed.sort_by_key(|(group, at, _)| (*group, *at));
    placed.into_iter().map(|(_, _, link)| link).collect()
}

/// Returns the page's use of the time range and the root operation. Reports that take a range also
/// take a root operation.
fn steered(page: &VerbPage) -> RangeUse {
    match page.fields.iter().any(|field| field.name == "since") {
        true => RangeUse::RangeAndRoot,
        false => RangeUse::Not,
    }
}

fn takes_two_periods(page: &VerbPage) -> bool {
    let has = |name| page.fields.iter().any(|field| field.name == name);
    has("before") && has("after")
}

/// Returns the options that the address gives, and the scope's parameters that the subcommand
/// takes: only `root` if the address has periods. Drops options that are empty or equal to their
/// default, and factors if a duration, or no other option, is given.
fn asked(page: &VerbPage, query: Option<&str>, scope: &Scope) -> Vec<(String, String)> {
    let pairs = parse(query.unwrap_or_default().as_bytes());
    let mut asked: Vec<(String, String)> = pairs
        .map(|(name, value)| (name.into_owned(), value.trim().to_owned()))
        .filter(|(name, value)| !value.is_empty() && !is_of_scope(name))
        .collect();
    let field = |name: &str| page.fields.iter().find(|field| field.name == name);
    // A form also sends the defaults.
    asked.retain(|(name, value)| {
        field(name).is_none_or(|field| field.default.as_ref() != Some(value))
    });
    // A slider always sends a factor. If the user gave a duration, that is the change, and the
    // factor is dropped.
    let is_duration = |name: &str| {
        field(name).is_some_and(|field| field.kind == FieldKind::Text("DURATION".to_owned()))
    };
    if asked.iter().any(|(name, _)| is_duration(name)) {
        asked.retain(|(name, _)| field(name).is_none_or(|field| field.kind != FieldKind::Factor));
    }
    // The user has not chosen an operation yet, so the factor applies to nothing.
    let is_only_factor = asked
        .iter()
        .all(|(name, _)| field(name).is_some_and(|field| field.kind == FieldKind::Factor));
    if is_only_factor {
        asked.clear();
    }
    // A range in the address would narrow the periods to compare, which have ends of their own.
    let is_taken = |name: &str| field(name).is_some() && (name == "root" || !scope.has_period());
    let parameters = scope.parameters().filter(|(name, _)| is_taken(name));
    asked.extend(parameters.map(|(name, value)| (name.to_owned(), value.to_owned())));
    asked
}

/// Returns the address of a page with its options, to which `rows=COUNT` can be appended. Omits
/// time range and root operation, which all links carry.
fn address_before_rows(name: &str, asked: &[(String, String)]) -> String {
    let own = asked.iter().filter(|(name, _)| !is_of_scope(name));
    let query = Serializer::new(String::new()).extend_pairs(own).finish();
    match query.is_empty() {
        true => format!("/{name}?"),
        false => format!("/{name}?{query}&"),
    }
}

/// Sends the page of a subcommand.
pub(crate) async fn verb_page(
    name: &'static str,
    State(site): State<Site>,
    scope: Scope,
    RawQuery(query): RawQuery,
) -> Response {
    let pages = site.verbs().pages();
    let Some(about) = pages.iter().find(|page| page.name == name).cloned() else {
        let none = NoPage::not_found(format!("There is no subcommand {name:?}."));
        return page_now(
            &site,
            Head::new("No such page", "", &scope, RangeUse::Not),
            Err(none),
        )
        .await;
    };
    let asked = asked(&about, query.as_deref(), &scope);
    // Time range and root operation carry over between pages, and do not count as options of this
    // one.
    let is_asked = asked.iter().any(|(name, _)| !is_of_scope(name));
    let mut head = Head::new(title(name), format!("/{name}"), &scope, steered(&about));
    head.about = about_page(&about);
    let options = form(&about, &asked, &scope);
    // The answer for two periods comes first: its form is too large to fit above it.
    head.before = match is_asked && takes_two_periods(&about) {
        true => folded("Periods and options", &options),
        false => options,
    };
    if head.steered != RangeUse::Not
        && let Err(wrong) = scope.check()
    {
        return page_now(&site, head, Err(NoPage::bad_request(wrong))).await;
    }
    let key = Serializer::new(format!("/{name}?"))
        .extend_pairs(&asked)
        .finish();
    let key = match is_asked {
        true => scope.key_of_rows(&key),
        false => scope.key(&key),
    };
    let address = address_before_rows(name, &asked);
    if let Err(error) = site.verbs().check(name, &asked) {
        if is_asked {
            return page_now(&site, head, Err(no_page(&error))).await;
        }
        // Without any options, the page explains what to enter instead of reporting an error.
        return page(&site, head, &key, move |site, runtime, telling| {
            Ok(invitation(&about, &scope, site, runtime, telling))
        })
        .await;
    }
    page(&site, head, &key, move |site, runtime, telling| {
        let asked = Scope::fixed(&asked, site, runtime).map_err(NoPage::bad_request)?;
        let answer = site.verbs().answer(name, &asked, telling.observer());
        let answer = match answer {
            Ok(answer) => answer,
            Err(failure) if !is_asked && failure.code == FailureCode::NeedsMore => {
                return Ok(invitation(&about, &scope, site, runtime, telling));
            }
            // Without options, the usual failure is that there is nothing to show.
            Err(failure) if !is_asked && failure.code == FailureCode::Failed => {
                return Err(NoPage {
                    status: StatusCode::OK,
                    message: failure.to_string(),
                });
            }
            Err(failure) if failure.code == FailureCode::NothingToExplain => {
                return Ok(other_periods(
                    &about, &failure, &scope, site, runtime, telling,
                ));
            }
            Err(error) => return Err(no_page(&error)),
        };
        let rows = PagedRows {
            rows: scope.rows,
            address: &address,
        };
        let mut html = Html::new();
        let (errors, notes): (Vec<&Remark>, Vec<&Remark>) = answer
            .remarks
            .iter()
            .partition(|remark| matches!(remark, Remark::Error(_)));
        if !errors.is_empty() {
            html.markup("<div class=\"notice error\" role=\"alert\">");
            for error in errors {
                html.markup("<p>").text(&error.to_string()).markup("</p>");
            }
            html.markup("</div>\n");
        }
        html.html(&paged_body(&answer.doc, rows));
        if !notes.is_empty() {
            html.markup("<details class=\"notes\"><summary>Notes on the data</summary><ul>");
            for remark in notes {
                let (Remark::Note(text) | Remark::Detail(text) | Remark::Error(text)) = remark;
                html.markup("<li>").text(text).markup("</li>");
            }
            html.markup("</ul></details>\n");
        }
        html.markup("<p class=\"command\"><span>On the command line</span><code tabindex=\"0\">")
            .text(&command_line(&about, site.name(), &asked))
            .markup("</code></p>\n")
            .html(&choices(site, runtime, &about, telling));
        Ok(html)
    })
    .await
}

/// Builds the page of a subcommand without options.
fn invitation(
    about: &VerbPage,
    scope: &Scope,
    site: &Site,
    runtime: &Handle,
    telling: &ProgressSender,
) -> Html {
    let mut html = Html::new();
    if takes_two_periods(about) {
        html.html(&changes(about.name, scope, site, runtime, telling));
        html.markup("<p>Without two periods: <a href=\"/failures\">attributes that distinguish failed requests</a>.</p>\n");
    }
    html.html(&introduction(about))
        .html(&choices(site, runtime, about, telling));
    html
}

/// Builds the content for two periods without a change that can be explained: the reason, and links
/// to other periods.
fn other_periods(
    about: &VerbPage,
    failure: &Failure,
    scope: &Scope,
    site: &Site,
    runtime: &Handle,
    telling: &ProgressSender,
) -> Html {
    let none = NoPage {
        status: StatusCode::OK,
        message: failure.to_string(),
    };
    let mut html = none.content();
    let root = scope.root();
    let newest_ns = site.rate(runtime).and_then(|rate| rate.newest_ns);
    let periods = scope.periods(newest_ns.unwrap_or_default());
    let has_more =
        |(_, period): &(&str, Range<i64>)| period.start > i64::MIN && period.end < i64::MAX;
    let after = periods.iter().find(|(name, _)| *name == "after");
    if let Some((_, after)) = after.filter(|_| periods.iter().any(has_more)) {
        let longest = TwoPeriods {
            before_from_ns: None,
            at_ns: after.start,
            until_ns: None,
            root: root.as_deref(),
        };
        html.markup("<p>");
        longest.link(
            &mut html,
            about.name,
            "Take all requests before and since then",
        );
        html.markup("</p>\n");
    }
    html.html(&changes(about.name, scope, site, runtime, telling));
    html
}

fn folded(summary: &'static str, content: &Html) -> Html {
    let mut html = Html::new();
    html.markup("<details class=\"folded\"><summary>")
        .markup(summary)
        .markup("</summary>")
        .html(content)
        .markup("</details>\n");
    html
}

/// Returns the attributes and operations that a page's form suggests; none if the store cannot be
/// read.
fn choices(site: &Site, runtime: &Handle, about: &VerbPage, telling: &ProgressSender) -> Html {
    suggestions(about, |list| match list {
        "attributes" => site
            .opened(runtime)
            .map(|source| attribute_choices(&source))
            .unwrap_or_default(),
        _ => {
            let model = site.model(runtime, telling.observer());
            let names: Option<BTreeSet<String>> = model.ok().map(|model| {
                let segments = model.segments();
                segments.map(|(_, label)| label.operation()).collect()
            });
            names.into_iter().flatten().collect()
        }
    })
}

/// Describes a subcommand, for a page without options.
fn introduction(page: &VerbPage) -> Html {
    let mut html = Html::new();
    let more = page.more.strip_prefix(&page.about).unwrap_or(&page.more);
    html.markup("<div class=\"introduction\">");
    for paragraph in more.split("\n\n").filter(|text| !text.trim().is_empty()) {
        // An indented paragraph is an example.
        if paragraph.trim_start_matches('\n').starts_with("  ") {
            html.markup("<pre tabindex=\"0\">")
                .text(paragraph.trim_matches('\n'))
                .markup("</pre>");
        } else {
            html.markup("<p>").text(paragraph.trim()).markup("</p>");
        }
    }
    html.markup("</div>\n");
    html
}

fn no_page(failure: &Failure) -> NoPage {
    let status = match failure.code {
        FailureCode::Unknown => StatusCode::NOT_FOUND,
        FailureCode::Asked => StatusCode::BAD_REQUEST,
        FailureCode::Busy => StatusCode::SERVICE_UNAVAILABLE,
        FailureCode::TooLarge => StatusCode::PAYLOAD_TOO_LARGE,
        FailureCode::NeedsMore | FailureCode::NothingToExplain | FailureCode::Failed => {
            StatusCode::UNPROCESSABLE_ENTITY
        }
    };
    NoPage {
        status,
        message: failure.to_string(),
    }
}
