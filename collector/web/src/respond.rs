//! Sends an answer as a page: at once if it is cached, in pieces if it takes long.
//!
//! The first piece is the frame, so that the page is visible at once. Progress reports follow, then
//! the content. The stylesheet hides the progress reports once the content has arrived.

use std::convert::Infallible;
use std::time::Duration;

use axum::body::Body;
use axum::http::{HeaderMap, HeaderValue, StatusCode, header};
use axum::response::{IntoResponse as _, Response};
use bytes::Bytes;
use stroboscope_render::page::{Asset, Html, PageHead, policy};
use stroboscope_store::query_memory::QueryLack;
use tokio::runtime::Handle;
use tokio::sync::mpsc;
use tokio_stream::wrappers::ReceiverStream;

use crate::answer_cache::{Answer, Lookup, MadeOf, PendingAnswer};
use crate::progress::{ProgressSender, Step};
use crate::range_strip::{RangeUse, range_strip};
use crate::scope::Scope;
use crate::site::Site;

/// Time within which an answer is sent in one piece, with its status. Also the time for which a
/// page waits for a later reading of requests over time.
const PATIENCE: Duration = Duration::from_millis(20);
/// Time for which a page waits for the first reading of requests over time. After that, its strip
/// has no picture.
const FIRST_PATIENCE: Duration = Duration::from_millis(250);
/// Interval between progress reports.
const TOLD_EVERY: Duration = Duration::from_millis(500);
/// Maximum number of progress reports in one response, after the first one.
const TOLD_MAX: usize = 600;

/// A page before its content is known.
#[derive(Clone, Debug)]
pub(crate) struct Head {
    pub(crate) title: String,
    pub(crate) about: String,
    /// Path of the navigation link to which this page belongs.
    pub(crate) current: String,
    /// JavaScript modules that the page loads, besides those of all pages.
    pub(crate) scripts: &'static [Asset],
    /// Content above the answer: the form of the page's options.
    pub(crate) before: Html,
    /// Time range and root operation of the page's address.
    pub(crate) scope: Scope,
    /// Use of the time range and the root operation by the page.
    pub(crate) steered: RangeUse,
}

impl Head {
    pub(crate) fn new(
        title: impl Into<String>,
        current: impl Into<String>,
        scope: &Scope,
        steered: RangeUse,
    ) -> Self {
        Self {
            title: title.into(),
            about: String::new(),
            current: current.into(),
            scripts: &[],
            before: Html::new(),
            scope: scope.clone(),
            steered,
        }
    }

    fn begin(&self, site: &Site) -> String {
        let mut html = PageHead {
            title: &self.title,
            about: &self.about,
            of: site.name(),
            navigation: site.navigation(),
            current: &self.current,
            scripts: self.scripts,
            above: &range_strip(&self.scope, self.steered, site.rates()),
        }
        .begin();
        html.html(&self.before);
        self.carry(html.as_str())
    }

    /// Adds time range, periods and root operation to the links of markup.
    fn carry(&self, markup: &str) -> String {
        self.scope.carried.carry(markup)
    }
}

/// Reason for the lack of content.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct NoPage {
    pub(crate) status: StatusCode,
    /// Description of the problem for users, often with a remedy.
    pub(crate) message: String,
}

impl NoPage {
    pub(crate) fn not_found(message: impl Into<String>) -> Self {
        Self {
            status: StatusCode::NOT_FOUND,
            message: message.into(),
        }
    }

    pub(crate) fn bad_request(message: impl Into<String>) -> Self {
        Self {
            status: StatusCode::BAD_REQUEST,
            message: message.into(),
        }
    }

    pub(crate) fn failed(message: impl Into<String>) -> Self {
        Self {
            status: StatusCode::INTERNAL_SERVER_ERROR,
            message: message.into(),
        }
    }

    /// Creates the error for a lack of memory.
    pub(crate) fn lack(lack: QueryLack, message: impl std::fmt::Display) -> Self {
        let status = match lack {
            QueryLack::Query(..) => StatusCode::PAYLOAD_TOO_LARGE,
            QueryLack::All => StatusCode::SERVICE_UNAVAILABLE,
        };
        Self {
            status,
            message: format!("{message}."),
        }
    }

    /// Returns the error as the content of a page.
    pub(crate) fn content(&self) -> Html {
        let mut html = Html::new();
        html.markup(if self.status.is_success() {
            "<div class=\"notice\" role=\"status\"><p>"
        } else {
            "<div class=\"notice error\" role=\"alert\"><p>"
        })
        .text(&self.message)
        .markup("</p></div>\n");
        html
    }
}

/// Identifies an answer in the cache.
#[derive(Clone, Debug)]
pub(crate) struct Key {
    /// Text that identifies the answer, usually the page's address.
    text: String,
    made_of: MadeOf,
}

/// Key of an answer that reads the store.
impl<T: AsRef<str> + ?Sized> From<&T> for Key {
    fn from(text: &T) -> Self {
        Self {
            text: text.as_ref().to_owned(),
            made_of: MadeOf::Store,
        }
    }
}

impl Key {
    /// Creates the key of an answer that reads one request.
    pub(crate) fn of_request(text: impl Into<String>) -> Self {
        Self {
            text: text.into(),
            made_of: MadeOf::Request,
        }
    }
}

/// Returns the content of a page without its frame, from the cache or computed by `make`.
pub(crate) async fn content(
    site: &Site,
    key: impl Into<Key>,
    make: impl FnOnce(&Site, &Handle, &ProgressSender) -> Result<Html, NoPage> + Send + 'static,
) -> Answer {
    let made = find(site, key.into(), move |site, runtime, telling| {
        of_content(make(site, runtime, telling))
    });
    match made.await {
        Lookup::Kept(answer) => answer,
        Lookup::Awaited(mut awaited) => awaited.answer().await.unwrap_or_else(fallen),
    }
}

fn of_content(content: Result<Html, NoPage>) -> Answer {
    let (status, content) = match content {
        Ok(content) => (StatusCode::OK, content),
        Err(none) => (none.status, none.content()),
    };
    Answer {
        status,
        content_type: "text/html; charset=utf-8",
        bytes: content.into_string().into(),
    }
}

/// Sends a page. `make` computes its content, unless the content for this `key` and the same files
/// of the store is cached or being computed. `make` may take long, and is not async.
pub(crate) async fn page(
    site: &Site,
    head: Head,
    key: impl Into<Key>,
    make: impl FnOnce(&Site, &Handle, &ProgressSender) -> Result<Html, NoPage> + Send + 'static,
) -> Response {
    if head.steered != RangeUse::Not {
        read_rate(site).await;
    }
    let found = find(site, key.into(), move |site, runtime, telling| {
        of_content(make(site, runtime, telling))
    })
    .await;
    let awaited = match found {
        Lookup::Kept(answer) => return whole(site, head, answer).await,
        Lookup::Awaited(awaited) => awaited,
    };
    let mut waiting = awaited.clone();
    match tokio::time::timeout(PATIENCE, waiting.answer()).await {
        Ok(Some(answer)) => whole(site, head, answer).await,
        Ok(None) => whole(site, head, fallen()).await,
        Err(_) => in_pieces(site, head, awaited).await,
    }
}

/// Reads requests over time if the store has changed. Waits up to [`FIRST_PATIENCE`] for the first
/// reading, and up to [`PATIENCE`] for a later one. If a later one takes longer, the page shows the
/// previous reading.
async fn read_rate(site: &Site) {
    let rates = site.rates();
    let patience = match (rates.known().is_some(), rates.is_being_read()) {
        (true, true) => return,
        (true, false) => PATIENCE,
        (false, true) => {
            let _ = tokio::time::timeout(FIRST_PATIENCE, rates.wait()).await;
            return;
        }
        (false, false) => FIRST_PATIENCE,
    };
    let (of_site, runtime) = (site.clone(), Handle::current());
    let reading = tokio::task::spawn_blocking(move || drop(of_site.rate(&runtime)));
    let _ = tokio::time::timeout(patience, reading).await;
}

/// Sends data other than a page, such as numbers for a picture: `make` returns its bytes.
pub(crate) async fn data(
    site: &Site,
    content_type: &'static str,
    key: impl Into<Key>,
    make: impl FnOnce(&Site, &Handle, &ProgressSender) -> Result<Vec<u8>, NoPage> + Send + 'static,
) -> Response {
    let found = find(site, key.into(), move |site, runtime, telling| {
        match make(site, runtime, telling) {
            Ok(bytes) => Answer {
                status: StatusCode::OK,
                content_type,
                bytes: bytes.into(),
            },
            Err(none) => Answer {
                status: none.status,
                content_type: "text/plain; charset=utf-8",
                bytes: (none.message + "\n").into(),
            },
        }
    })
    .await;
    let answer = match found {
        Lookup::Kept(answer) => Some(answer),
        Lookup::Awaited(mut awaited) => awaited.answer().await,
    };
    let answer = answer.unwrap_or_else(fallen);
    answer.alone()
}

impl Answer {
    /// Adds time range, periods and root operation to the links of the answer.
    pub(crate) fn carrying(self, scope: &Scope) -> Self {
        let bytes = scope.carried.carry(&String::from_utf8_lossy(&self.bytes));
        Self {
            bytes: bytes.into(),
            ..self
        }
    }

    /// Sends the answer without a frame.
    pub(crate) fn alone(self) -> Response {
        let mut headers = headers(self.content_type);
        headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-cache"));
        come_again(self.status, &mut headers);
        (self.status, headers, self.bytes).into_response()
    }
}

/// Sends a page whose content is ready.
pub(crate) async fn page_now(site: &Site, head: Head, content: Result<Html, NoPage>) -> Response {
    whole(site, head, of_content(content)).await
}

async fn find(
    site: &Site,
    key: Key,
    make: impl FnOnce(&Site, &Handle, &ProgressSender) -> Answer + Send + 'static,
) -> Lookup {
    let (of_site, runtime) = (site.clone(), Handle::current());
    let (looking, handle) = (site.clone(), runtime.clone());
    let state = tokio::task::spawn_blocking(move || looking.state(&handle)).await;
    let text = format!("{} {}", state.unwrap_or_default(), key.text);
    site.answers().find(&text, key.made_of, move |telling| {
        make(&of_site, &runtime, telling)
    })
}

/// Returns the answer for a computation that panicked.
fn fallen() -> Answer {
    let none = NoPage::failed(
        "this page could not be generated: the program panicked; its log has the details",
    );
    Answer {
        status: none.status,
        content_type: "text/html; charset=utf-8",
        bytes: none.content().into_string().into(),
    }
}

fn headers(content_type: &'static str) -> HeaderMap {
    let mut headers = HeaderMap::new();
    for (name, value) in [
        (header::CONTENT_TYPE, content_type),
        (header::CONTENT_SECURITY_POLICY, policy()),
        (header::X_CONTENT_TYPE_OPTIONS, "nosniff"),
        (header::REFERRER_POLICY, "no-referrer"),
    ] {
        headers.insert(name, HeaderValue::from_static(value));
    }
    headers
}

fn html_headers() -> HeaderMap {
    let mut headers = headers("text/html; charset=utf-8");
    headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-cache"));
    headers
}

async fn whole(site: &Site, head: Head, answer: Answer) -> Response {
    let mut headers = html_headers();
    come_again(answer.status, &mut headers);
    let status = answer.status;
    let page = written(site, move |site| {
        let mut page = head.begin(site);
        page.push_str(OPEN);
        page.push_str(&head.carry(&String::from_utf8_lossy(&answer.bytes)));
        page.push_str(CLOSE);
        page.push_str(PageHead::end().as_str());
        page
    });
    (status, headers, page.await).into_response()
}

/// Writes a page or its beginning on a blocking thread, because its strip looks through the rates
/// of all files.
async fn written(site: &Site, write: impl FnOnce(&Site) -> String + Send + 'static) -> String {
    let site = site.clone();
    let written = tokio::task::spawn_blocking(move || write(&site)).await;
    written.unwrap_or_else(|_| String::from_utf8_lossy(&fallen().bytes).into_owned())
}

/// Adds `Retry-After` to a response that fails for a lack of capacity.
fn come_again(status: StatusCode, headers: &mut HeaderMap) {
    if status == StatusCode::SERVICE_UNAVAILABLE {
        headers.insert(header::RETRY_AFTER, HeaderValue::from_static("5"));
    }
}

/// Markup before the content; `CLOSE` is the markup after the content.
const OPEN: &str = "<div class=\"answer\">";
const CLOSE: &str = "</div>";

async fn in_pieces(site: &Site, head: Head, mut awaited: PendingAnswer) -> Response {
    let (sender, receiver) = mpsc::channel::<Result<Bytes, Infallible>>(4);
    let carried = head.scope.carried.clone();
    let mut first = written(site, move |site| head.begin(site)).await;
    tokio::spawn(async move {
        first.push_str(&told(&awaited.step.borrow_and_update().clone()));
        if sender.send(Ok(first.into())).await.is_err() {
            return;
        }
        let mut answering = awaited.clone();
        let answer = answering.answer();
        tokio::pin!(answer);
        let mut told_times = 0;
        let answer = loop {
            tokio::select! {
                answer = &mut answer => break answer,
                () = tokio::time::sleep(TOLD_EVERY), if told_times < TOLD_MAX => {
                    told_times += 1;
                    let step = awaited.step.borrow_and_update().clone();
                    // The client has disconnected; the computation continues.
                    if sender.send(Ok(told(&step).into())).await.is_err() {
                        return;
                    }
                }
            }
        };
        let answer = answer.unwrap_or_else(fallen);
        for piece in [
            Bytes::from_static(OPEN.as_bytes()),
            carried
                .carry(&String::from_utf8_lossy(&answer.bytes))
                .into(),
            Bytes::from_static(CLOSE.as_bytes()),
            PageHead::end().into_string().into(),
        ] {
            if sender.send(Ok(piece)).await.is_err() {
                return;
            }
        }
    });
    let body = Body::from_stream(ReceiverStream::new(receiver));
    (StatusCode::OK, html_headers(), body).into_response()
}

/// Formats the progress as one line. The stylesheet hides the line once the next one, or the
/// content, follows.
fn told(step: &Step) -> String {
    let mut html = Html::new();
    html.markup("<p class=\"progress\" role=\"status\">");
    if step.task.is_empty() {
        html.markup("waiting: other pages are generated first …");
    } else {
        html.text(step.task).markup(" … ");
        if step.done > 0 {
            html.shown(step.done);
            if let Some(total) = step.total {
                html.markup(" of ").shown(total);
            }
            html.markup(" ").text(step.unit);
        }
    }
    html.markup("</p>\n");
    html.into_string()
}
