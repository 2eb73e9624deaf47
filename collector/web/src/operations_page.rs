//! `/operations`: how often each is done, how long it takes, and what requests wait for it.

use std::collections::BTreeMap;

use axum::extract::State;
use axum::response::Response;
use stroboscope_present::humanise::counted;
use stroboscope_present::page::{Html, body};
use stroboscope_present::roots::requests_text;
use stroboscope_present::show::Doc;
use stroboscope_query::{
    CategoryRule, InferSettings, OperationsQuestion, PathsQuestion, Selection, Study, by_time,
};
use tokio::runtime::Handle;

use crate::overview::{damage, unreadable};
use crate::progress::Telling;
use crate::respond::{Head, NoPage, page};
use crate::site::Site;
use crate::store_rows::OperationRow;

/// More than these nobody reads on a page; the filter above them finds by name.
const OPERATIONS_SHOWN: usize = 500;

pub(crate) async fn operations_page(State(site): State<Site>) -> Response {
    let mut head = Head::new("Operations", "/operations");
    head.about = "Every operation in complete requests. Its name leads to what would be if it took half as long; the longest of \
                  each, to the request."
        .to_owned();
    page(&site, head, "/operations", content_of).await
}

fn content_of(site: &Site, runtime: &Handle, telling: &Telling) -> Result<Html, NoPage> {
    let source = site
        .source(runtime, telling.observer())
        .map_err(|error| unreadable(&error))?;
    let study = Study::new(source, Selection::default(), InferSettings::default());
    let asked = (OperationsQuestion, PathsQuestion(CategoryRule::default()));
    let (found, paths) = study.ask(&asked).map_err(|error| unreadable(&error))?;
    let inference = study.inference().map_err(|error| unreadable(&error))?;
    let waited: BTreeMap<String, f64> = by_time(&paths.aggregate, inference.model.labels())
        .into_iter()
        .map(|one| (one.operation, one.share_of_time))
        .collect();
    let mut rows: Vec<OperationRow<'_>> = found
        .of
        .iter()
        .map(|(name, times)| OperationRow {
            name,
            times,
            share: waited.get(name).copied().unwrap_or_default(),
        })
        .collect();
    rows.sort_by(|a, b| b.share.total_cmp(&a.share));
    let mut html = Html::new();
    damage(&mut html, &paths.notes);
    let mut doc = Doc::new();
    doc.heading(format!(
        "{} in {}",
        counted(rows.len() as u64, "operation"),
        requests_text(paths.aggregate.traces())
    ));
    if found.others > 0 {
        doc.sentence(format!(
            "In none of these: {} of operations that found no room.",
            counted(found.others, "span")
        ));
    }
    doc.table("", &rows, OPERATIONS_SHOWN);
    html.html(&body(&doc));
    Ok(html)
}
