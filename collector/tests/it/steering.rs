//! Pages that lead from a change to the affected requests: the first sentences of `explain`, the
//! targets of links, and the parameters that links keep.

use crate::common::{check, json_of};
use crate::explain::{AFTER_NS, BEFORE_NS, import, users};
use crate::failures;
use crate::viewing::Viewing;

/// Returns the addresses of links whose text begins with `text`.
fn links(page: &str, text: &str) -> Vec<String> {
    let links = page.split("<a href=\"").skip(1);
    let links = links.filter_map(|rest| rest.split_once("\">"));
    let links = links.filter(|(_, said)| said.starts_with(text));
    links
        .map(|(address, _)| address.replace("&amp;", "&"))
        .collect()
}

fn link(page: &str, text: &str) -> String {
    let found = links(page, text);
    found
        .first()
        .unwrap_or_else(|| panic!("{text}: {page}"))
        .clone()
}

fn answer(page: &str) -> &str {
    page.split_once("class=\"answer\"").map_or(page, |of| of.1)
}

#[test]
fn explain_says_first_who_is_slower_and_leads_to_them() {
    let directory = tempfile::tempdir().unwrap();
    let (old, new) = (users(BEFORE_NS, 0), users(AFTER_NS, 5_000_000));
    import(directory.path(), "data", &format!("{old}{new}"));
    let viewing = Viewing::start(directory.path(), &[]);
    let periods =
        "before=2026-11-21T10:00..2026-11-21T10:30&after=2026-11-21T11:00..2026-11-21T11:30";
    let page = viewing.page(&format!("/explain?{periods}"), 200);
    // The form is folded, and the answer begins with the affected requests.
    assert!(
        page.contains("<details class=\"folded\"><summary>Periods and options"),
        "{page}"
    );
    let first = answer(&page).split_once("<h2").unwrap().1;
    let (heading, rest) = first.split_once("</h2>").unwrap();
    assert!(
        heading.ends_with(">Requests with partition = 1 are slower"),
        "{heading}"
    );
    let (harm, _) = rest.split_once("</p>").unwrap();
    assert!(
        harm.contains("(p50) and ") && harm.contains("others of the later period"),
        "{harm}"
    );
    // The link lists exactly the affected requests, about half of 400.
    let matching = viewing.page(&link(&page, "List these requests"), 200);
    let found = json_of(
        directory.path(),
        &[
            "explain",
            "--json",
            "--data",
            "data",
            "--before",
            "2026-11-21T10:00..2026-11-21T10:30",
            "--after",
            "2026-11-21T11:00..2026-11-21T11:30",
        ],
    );
    let leaf = &found["leaves"][0];
    let requests = leaf["requests"].as_u64().unwrap();
    assert!((100..300).contains(&requests), "{leaf}");
    assert!(
        matching.contains(&format!("{requests} of 400 requests")),
        "{requests}: {matching}"
    );
    let p50 = |of: &str| leaf[of]["p50_ns"].as_u64().unwrap();
    assert!(p50("latency") > p50("others_latency") + 4_000_000, "{leaf}");
    // The latency of the same users before, as a list of their requests gives it.
    let earlier = json_of(
        directory.path(),
        &[
            "requests",
            "--json",
            "--data",
            "data",
            "--top",
            "1000",
            "--where",
            "{ .partition = 1 }",
            "--since",
            "2026-11-21T10:00",
            "--until",
            "2026-11-21T10:30",
        ],
    );
    let earlier = earlier["requests"].as_array().unwrap().iter();
    let mut earlier: Vec<u64> = earlier
        .map(|of| of["latency_ns"].as_u64().unwrap())
        .collect();
    earlier.sort_unstable();
    assert_eq!(
        p50("earlier_latency"),
        earlier[(earlier.len() - 1) / 2],
        "{leaf}"
    );
    assert!(harm.contains(" instead of "), "{harm}");
    // Links lead to the other page of two periods, and to pages of the later period.
    let to_compare = link(&page, "Compare");
    for part in ["before=2026-11-21T10%3A00..", "after=2026-11-21T11%3A00.."] {
        assert!(to_compare.contains(part), "{to_compare}");
    }
    viewing.page(&to_compare, 200);
    for text in ["Traces", "Failures"] {
        let address = link(&page, text);
        assert!(
            address.ends_with("?since=2026-11-21T11%3A00&until=2026-11-21T11%3A30"),
            "{address}"
        );
        viewing.page(&address, 200);
    }
}

#[test]
fn periods_without_a_change_lead_to_some_with_one() {
    let directory = tempfile::tempdir().unwrap();
    let (old, new) = (users(BEFORE_NS, 0), users(AFTER_NS, 5_000_000));
    import(directory.path(), "data", &format!("{old}{new}"));
    let viewing = Viewing::start(directory.path(), &[]);
    let periods = "before=2026-11-21T10:00:00..2026-11-21T10:00:02&after=2026-11-21T10:00:02..2026-11-21T10:00:04";
    let page = viewing.page(&format!("/explain?{periods}"), 200);
    assert!(page.contains("there is no cause 1"), "{page}");
    let wider = link(&page, "Take all requests before and since then");
    let page = viewing.page(&wider, 200);
    assert!(page.contains("partition = 1"), "{page}");
    // One request is too few, and the page has the same link.
    let periods = "before=2026-11-21T10:00:00..2026-11-21T11:00:00&after=2026-11-21T11:00:00..2026-11-21T11:00:00.005";
    let page = viewing.page(&format!("/explain?{periods}"), 200);
    let wider = link(&page, "Take all requests before and since then");
    assert!(
        viewing
            .page(&wider, 200)
            .contains("Requests with partition = 1")
    );
}

#[test]
fn what_describes_a_failure_does_not_explain_it() {
    let directory = failures::imported();
    let periods = [
        "--before",
        "1970-01-01T00:00:00..1970-01-01T00:06:00",
        "--after",
        "1970-01-01T00:06:00..1970-01-01T00:11:00",
    ];
    let compared = json_of(
        directory.path(),
        &[&["compare", "--json"], &periods[..]].concat(),
    );
    let causes = compared["causes"].as_array().unwrap();
    let failing = causes.iter().find(|cause| cause["kind"] == "failure");
    let rank = failing.unwrap_or_else(|| panic!("{compared}"))["rank"].to_string();
    let asked = [&["explain", "--json", "--cause", &rank], &periods[..]].concat();
    let found = json_of(directory.path(), &asked);
    let left_out = found["left_out"].as_array().unwrap();
    let describing: Vec<&str> = left_out
        .iter()
        .filter(|of| of["why"] == "describes the failure")
        .filter_map(|of| of["parameter"].as_str())
        .collect();
    assert!(
        describing.contains(&"http.status_code (shop:checkout)"),
        "{found}"
    );
    let leaves = found["leaves"].to_string();
    assert!(
        !leaves.contains("status_code") && !leaves.contains("error"),
        "{leaves}"
    );
    let (text, _) = check(directory.path(), &["map"], 0);
    assert!(text.contains("origins of failures: `"), "{text}");
}
