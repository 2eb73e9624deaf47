//! Tests of the content of pages, and of what pages must not contain.

use axum::body::Body;
use axum::http::{Request, StatusCode, header};
use stroboscope_fixtures::workload;
use stroboscope_reports::time::written;
use stroboscope_store::record::{Rows, Strings};

use crate::fixture::{Fixture, Got, HOSTILE};

/// Checks that a page escapes untrusted text, has no inline code except the stylesheet, and loads
/// nothing from other sites.
fn check_page(path: &str, got: &Got) {
    let page = &got.text;
    assert!(!page.contains("<script>"), "{path}: {page}");
    assert!(!page.contains("<img"), "{path}: {page}");
    let policy = got.headers[header::CONTENT_SECURITY_POLICY]
        .to_str()
        .unwrap();
    assert!(
        policy.starts_with("default-src 'none'") && !policy.contains("unsafe"),
        "{path}"
    );
    assert_eq!(
        got.headers[header::X_CONTENT_TYPE_OPTIONS],
        "nosniff",
        "{path}"
    );
    assert!(
        !page.contains(" style=\"") && page.matches("<style").count() == 1,
        "{path}: {page}"
    );
    for source in page.split("src=\"").skip(1) {
        assert!(source.starts_with("/assets/"), "{path}: {source:.40}");
    }
    assert!(
        !page.contains("href=\"http") && !page.contains("href=\"//"),
        "{path}"
    );
    assert_eq!(page.matches("<h1>").count(), 1, "{path}");
    assert!(page.trim_end().ends_with("</html>"), "{path}: {page}");
}

#[tokio::test(flavor = "multi_thread")]
async fn an_empty_store_says_so_on_each_page() {
    let fixture = Fixture::empty();
    // The data directory is that of a collector that has received nothing yet.
    stroboscope_store::data_dir::DataDir::create(fixture.directory.path()).unwrap();
    let got = fixture.get("/").await;
    check_page("/", &got);
    assert_eq!(got.status, StatusCode::OK);
    assert!(got.text.contains("Nothing to show yet"), "{}", got.text);
    let got = fixture.get(&format!("/no-such{}", "%3Cscript%3E")).await;
    check_page("unknown", &got);
    assert_eq!(got.status, StatusCode::NOT_FOUND);
}

#[tokio::test(flavor = "multi_thread")]
async fn the_overview_says_what_requests_wait_for() {
    let fixture = Fixture::of_requests(|_| {}).await;
    let got = fixture.get("/").await;
    check_page("/", &got);
    assert_eq!(got.status, StatusCode::OK, "{}", got.text);
    for part in [
        "<p class=\"lede\">Half of all requests take up to",
        "wait most for ",
        "class=\"cell h8\"",
        "data-live=\"/fragment/overview\"",
        "All requests were recorded completely.",
        "aria-current=\"page\">Overview</a>",
    ] {
        assert!(got.text.contains(part), "{part}: {}", got.text);
    }
    assert!(!got.text.contains("Since "), "{}", got.text);
    let counted: u64 = got
        .text
        .split("data-count=\"")
        .skip(1)
        .filter_map(|rest| rest.split('"').next()?.parse::<u64>().ok())
        .sum();
    assert_eq!(counted, 300);
    let fragment = fixture.get("/fragment/overview").await;
    assert!(
        fragment.text.starts_with("<p class=\"lede\">"),
        "{}",
        fragment.text
    );
    assert!(got.text.contains(&fragment.text));
}

/// The overview reports a latency change first, with links to its causes.
#[tokio::test(flavor = "multi_thread")]
async fn a_step_of_latency_is_said_first() {
    let late = |rows: &mut Rows| {
        let starts: Vec<i64> = rows.spans.iter().map(|span| span.start_ns).collect();
        let first = starts.iter().min().copied().unwrap_or_default();
        let last = starts.iter().max().copied().unwrap_or_default();
        for span in rows.spans.iter_mut().filter(|span| span.parent_id == 0) {
            if span.start_ns > first + (last - first) / 3 * 2 {
                span.end_ns += 400_000_000;
            }
        }
    };
    let fixture = Fixture::of_requests(late).await;
    let got = fixture.get("/").await;
    check_page("/", &got);
    for part in [
        "<p class=\"lede\">Since ",
        " rather than ",
        "(<a href=\"/compare?before=",
        "\">explain what changed</a>).</p>\n<p>Half of all requests take up to",
        "<line class=\"since\"",
        // The pictures of the root operation also mark the change.
        "<path class=\"since\"",
    ] {
        assert!(got.text.contains(part), "{part}: {}", got.text);
    }
    let got = fixture
        .get("/traces?from=2026-01-02+03:00&to=2026-01-02+04:00")
        .await;
    check_page("/traces", &got);
    assert!(
        got.text.contains("compare with as long before</a>"),
        "{}",
        got.text
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn long_tables_lead_to_more_rows_of_the_same() {
    let fixture = Fixture::of_reports(|_| {}).await;
    let first = fixture.get("/operations?top=1&since=300h").await;
    check_page("/operations", &first);
    let all = first
        .text
        .split("<a href=\"/operations?top=1&amp;rows=all")
        .nth(1);
    let all = all.and_then(|rest| rest.split('"').next());
    assert_eq!(all, Some("&amp;since=300h#row-1-1"), "{}", first.text);
    let all = fixture.get("/operations?top=1&rows=all&since=300h").await;
    check_page("/operations", &all);
    let rows = |got: &Got| got.text.matches("<td class=\"name\"").count();
    assert!(rows(&all) > rows(&first), "{}", all.text);
    assert!(all.text.contains("id=\"row-1-1\"") && !all.text.contains("rows=all"));
    // Neither the command nor the form contains the number of rows.
    assert!(all.text.contains("operations --data") && !all.text.contains("--rows"));
    let overview = fixture.get("/?rows=all").await;
    let live = "data-live=\"/fragment/overview?rows=all\"";
    assert!(overview.text.contains(live), "{}", overview.text);
}

/// The answer has suggestions for a field, if the page has such a field.
#[tokio::test(flavor = "multi_thread")]
async fn fields_for_attributes_offer_those_that_there_are() {
    let with_attribute = |rows: &mut Rows| {
        for span in &mut rows.spans {
            span.attributes = Some("{\"tenant<b>\":\"a\",\"host\":1}".into());
        }
    };
    let fixture = Fixture::of_requests(with_attribute).await;
    for path in ["/slack?top=7", "/needs"] {
        let got = fixture.get(path).await;
        check_page(path, &got);
        for part in [
            "list=\"attributes\"",
            "<datalist id=\"attributes\">",
            "<option value=\"service\"></option>",
            "<option value=\"tenant&lt;b&gt;\"></option>",
            // The prefix distinguishes the attribute from the property of that name.
            "<option value=\"recorded:host\"></option>",
        ] {
            assert!(got.text.contains(part), "{path}: {part}: {}", got.text);
        }
        assert_eq!(got.text.matches("list=\"attributes\"").count(), 1, "{path}");
    }
}

/// Pages suggest the store's operations where a form takes one.
#[tokio::test(flavor = "multi_thread")]
async fn fields_for_operations_offer_those_that_there_are() {
    let fixture = Fixture::of_reports(|_| {}).await;
    let listed = fixture.get("/operations").await.text;
    let operation = listed
        .split("data-label=\"operation\" data-value=\"")
        .nth(1);
    let operation = operation.and_then(|rest| rest.split('"').next()).unwrap();
    for path in [
        "/what-if".to_owned(),
        format!("/what-if?operation={operation}&scale=0.5"),
    ] {
        let got = fixture.get(&path).await;
        check_page(&path, &got);
        for part in [
            "list=\"operations\"",
            "<datalist id=\"operations\">",
            &format!("<option value=\"{operation}\"></option>"),
        ] {
            assert!(got.text.contains(part), "{path}: {part}: {}", got.text);
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn operations_lead_to_requests_and_on() {
    let fixture = Fixture::of_reports(|_| {}).await;
    let got = fixture.get("/operations").await;
    check_page("/operations", &got);
    assert!(
        got.text.contains("<a href=\"/what-if?operation="),
        "{}",
        got.text
    );
    assert!(
        got.text.matches("<a href=\"/traces/").count() > 3,
        "{}",
        got.text
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn names_with_markup_are_names() {
    let hostile = |rows: &mut Rows| {
        let mut strings = Strings::default();
        for text in rows.strings.iter() {
            let hostile = format!("{text}{HOSTILE}");
            strings.intern(if text.is_empty() { text } else { &hostile });
        }
        rows.strings = strings;
    };
    let fixture = Fixture::of_reports(hostile).await;
    for path in ["/", "/operations", "/map", "/fragment/overview"] {
        let got = fixture.get(path).await;
        assert_eq!(got.status, StatusCode::OK, "{path}: {}", got.text);
        assert!(
            !got.text.contains("<script>") && !got.text.contains("<img"),
            "{path}"
        );
        assert!(
            got.text.contains("&lt;script&gt;alert(1)"),
            "{path}: {}",
            got.text
        );
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_damaged_file_is_named_and_all_else_is_shown() {
    let fixture = Fixture::of_requests(|_| {}).await;
    let spans = fixture
        .directory
        .path()
        .join("spans/date=2024-01-01/hour=00");
    std::fs::create_dir_all(&spans).unwrap();
    std::fs::write(
        spans.join("seg-0000000099.parquet"),
        b"PAR1 this is no table PAR1",
    )
    .unwrap();
    let got = fixture.get("/").await;
    check_page("/", &got);
    assert_eq!(got.status, StatusCode::OK);
    assert!(
        got.text.contains("seg-0000000099") && got.text.contains("role=\"alert\""),
        "{}",
        got.text
    );
    assert!(got.text.contains("<p class=\"lede\">"), "{}", got.text);
}

#[tokio::test(flavor = "multi_thread")]
async fn verbs_are_pages_with_forms_and_commands() {
    let fixture = Fixture::empty();
    let got = fixture
        .get("/slack?top=7&by=user%20id&cdf=on&zoom=far&scale=")
        .await;
    check_page("/slack", &got);
    assert_eq!(got.status, StatusCode::OK);
    for part in [
        "<h1>Slack</h1>",
        "<p class=\"lines\">top is 7</p>",
        "value=\"user id\"",
        "type=\"checkbox\" id=\"f-cdf\" name=\"cdf\" aria-describedby=\"h-cdf\" checked=\"\"",
        "<option selected=\"\">far</option>",
        // The summary of a fold lists the given options.
        "<details><summary>More options: Top 7, Cdf, Zoom far</summary>",
        "--top 7 --by &#39;user id&#39; --cdf --zoom far</code>",
        "<li>something</li>",
        "role=\"alert\"><p>error: &lt;/title&gt;",
    ] {
        assert!(got.text.contains(part), "{part}: {}", got.text);
    }
    let wrong = fixture.get("/fails?by=x").await;
    check_page("/fails", &wrong);
    assert_eq!(wrong.status, StatusCode::BAD_REQUEST);
    let introduced = fixture.get("/needs").await;
    check_page("/needs", &introduced);
    assert_eq!(introduced.status, StatusCode::OK);
    assert!(
        introduced.text.contains("<p>More of it.</p>"),
        "{}",
        introduced.text
    );
    let fallen = fixture.get("/falls").await;
    check_page("/falls", &fallen);
    assert!(
        fallen.text.contains("the program panicked"),
        "{}",
        fallen.text
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn files_of_pages_are_kept_for_good() {
    let fixture = Fixture::empty();
    let page = fixture.get("/slack").await.text;
    let paths: Vec<&str> = page
        .split('"')
        .filter(|word| word.starts_with("/assets/"))
        .collect();
    assert_eq!(paths.len(), 2, "{paths:?}");
    for path in paths {
        let got = fixture.get(path).await;
        assert_eq!(got.status, StatusCode::OK, "{path}");
        assert!(
            got.headers[header::CACHE_CONTROL]
                .to_str()
                .unwrap()
                .contains("immutable")
        );
        let tag = got.headers[header::ETAG].clone();
        let again = Request::get(path).header(header::IF_NONE_MATCH, tag);
        let again = fixture.ask(again.body(Body::empty()).unwrap()).await;
        assert_eq!(
            (again.status, again.text.len()),
            (StatusCode::NOT_MODIFIED, 0)
        );
        let packed = Request::get(path).header(header::ACCEPT_ENCODING, "br, gzip");
        let packed = fixture.ask(packed.body(Body::empty()).unwrap()).await;
        assert_eq!(packed.headers[header::CONTENT_ENCODING], "gzip");
    }
    assert_eq!(
        fixture.get("/assets/style-0.css").await.status,
        StatusCode::NOT_FOUND
    );
}

/// Returns the root operations that the form of a page offers.
fn offered_roots(page: &str) -> Vec<&str> {
    let (_, select) = page
        .split_once("<select name=\"root\">")
        .expect("a selector");
    let (select, _) = select.split_once("</select>").unwrap();
    let options = select.split("</option>");
    options
        .filter_map(|option| option.rsplit('>').next())
        .filter(|name| name.contains(':'))
        .collect()
}

/// Checks that links to pages carry these parameters, except links that have a range of their own.
#[track_caller]
fn check_links(page: &str, parameters: &[&str]) {
    let links = page.split(" href=\"").skip(1);
    let links = links.filter_map(|rest| rest.split('"').next());
    let links: Vec<&str> = links
        .filter(|link| link.starts_with('/') && !link.starts_with("/assets/"))
        .filter(|link| !link.ends_with("/perfetto") && !link.contains("from="))
        .collect();
    assert!(links.len() > 5, "{links:?}");
    for link in links {
        for parameter in parameters {
            assert!(link.contains(parameter), "{parameter}: {link}");
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn time_range_and_root_operation_hold_on_all_pages() {
    let fixture = Fixture::of_reports(|_| {}).await;
    // An answer for a relative time waits until the site has counted requests over time. Other
    // pages show the counts if they are known.
    fixture.get("/?since=1h").await;
    let all = fixture.get("/").await;
    check_page("/", &all);
    let roots = offered_roots(&all.text);
    assert!(!roots.is_empty(), "{}", all.text);
    let root = roots[0].replace(':', "%3A").replace(' ', "+");
    // The range is the last hour of the store, which is long ago.
    for path in ["/", "/traces", "/operations", "/slack"] {
        let got = fixture.get(&format!("{path}?since=1h&root={root}")).await;
        check_page(path, &got);
        assert_eq!(got.status, StatusCode::OK, "{path}: {}", got.text);
        assert!(
            got.text
                .contains("counted back from the newest request, 2026-01-02"),
            "{path}: {}",
            got.text
        );
        check_links(&got.text, &["since=1h", "root="]);
        assert!(
            got.text
                .contains(&format!("<option selected=\"\">{}</option>", roots[0])),
            "{path}: {}",
            got.text
        );
    }
    // The command line does not count back from the newest request, so it gets the time. The page's
    // form sends the range along.
    let got = fixture.get("/operations?since=1h").await;
    for part in [
        " --since 2026-01-02T0",
        "<input type=\"hidden\" name=\"since\" value=\"1h\"/>",
    ] {
        assert!(got.text.contains(part), "{part}: {}", got.text);
    }
    let later = fixture.get("/?since=2026-01-03").await;
    assert_eq!(later.status, StatusCode::OK);
    assert!(later.text.contains("Nothing to show"), "{}", later.text);
    let long = format!("/traces?root={}", "a".repeat(2_000));
    for wrong in [
        "/?since=soon",
        "/traces?until=x",
        "/slack?since=1min&until=1h",
    ] {
        let got = fixture.get(wrong).await;
        check_page(wrong, &got);
        assert_eq!(got.status, StatusCode::BAD_REQUEST, "{wrong}: {}", got.text);
    }
    let got = fixture.get(&long).await;
    assert_eq!(got.status, StatusCode::BAD_REQUEST);
    assert!(got.text.len() < 100, "{}", got.text);
    let mixed = fixture.get("/traces?since=1h&until=2026-11-21T11:00").await;
    assert!(mixed.text.contains("<table"), "{}", mixed.text);
}

#[tokio::test(flavor = "multi_thread")]
async fn pages_that_take_no_range_do_not_check_one() {
    let fixture = Fixture::empty();
    let got = fixture.get("/slack?since=soon&top=7").await;
    assert_eq!(got.status, StatusCode::OK, "{}", got.text);
    assert!(got.text.contains("top is 7"), "{}", got.text);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_time_ago_needs_a_request() {
    let fixture = Fixture::of_reports(|rows| rows.spans.clear()).await;
    for path in ["/", "/traces", "/operations"] {
        let got = fixture.get(&format!("{path}?since=1h")).await;
        assert!(
            got.text.contains("1h cannot be counted back"),
            "{path}: {}",
            got.text
        );
    }
}

/// Periods are compared as requested, whatever range the link to the page had.
#[tokio::test(flavor = "multi_thread")]
async fn the_range_does_not_narrow_periods() {
    let fixture = Fixture::of_reports(|_| {}).await;
    let rows = workload::rows(7, 300, 0);
    let mut starts: Vec<i64> = rows.spans.iter().map(|span| span.start_ns).collect();
    starts.sort_unstable();
    let middle = written(starts[starts.len() / 2]);
    for period in [format!("after={middle}.."), format!("before=..{middle}")] {
        let got = fixture.get(&format!("/compare?{period}&since=1ms")).await;
        assert_eq!(got.status, StatusCode::OK, "{period}: {}", got.text);
        let (_, command) = got.text.split_once("<code").expect("a command");
        assert!(!command.contains("--since"), "{period}: {command}");
    }
}

/// A page that needs options shows its introduction if only the range is given.
#[tokio::test(flavor = "multi_thread")]
async fn a_range_asks_nothing_of_a_page() {
    let fixture = Fixture::of_reports(|_| {}).await;
    for path in ["/compare?since=1h", "/search?since=1h"] {
        let got = fixture.get(path).await;
        assert_eq!(got.status, StatusCode::OK, "{path}: {}", got.text);
        assert!(
            got.text.contains("<div class=\"introduction\">"),
            "{path}: {}",
            got.text
        );
    }
}
