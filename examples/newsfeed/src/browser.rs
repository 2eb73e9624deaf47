//! Loads one page as a browser does: receives, downloads and executes pagelets in a pipeline.

use std::sync::Arc;
use std::time::Duration;

use stroboscope::FutureExt;
use stroboscope::baggage::Provenance;
use stroboscope::tracked;
use tokio::sync::mpsc;
use tokio::task::JoinHandle;
use tonic::{Code, Status};

use crate::cpu::Cpu;
use crate::delay::delay;
use crate::engine::{Engine, script_time};
use crate::link::{Downlink, LinkKind};
use crate::session;
use crate::upstream::Upstream;
use crate::wire::page_client::PageClient;
use crate::wire::{PageRequest, Pagelet};

/// Capacity of the queue between two stages, in pagelets. A page has fewer, so no stage waits for
/// the next one.
const QUEUE: usize = 8;

/// Running time of the page's background script.
const BACKGROUND_TIME: Duration = Duration::from_micros(200);

/// Running time of the handlers that the page registered for its `onload`.
const ONLOAD_TIME: Duration = Duration::from_micros(200);

/// Maximum number of a pagelet's first bytes that are recorded with its provenance.
const SHOWN_BYTES_MAX: usize = 4_096;

/// Loads pages over one connection to the edge.
#[derive(Debug, Clone)]
pub(crate) struct Browser {
    edge: PageClient<Upstream>,
    cpu: Cpu,
}

/// A visit to the newsfeed.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Visit {
    pub(crate) user: u64,
    pub(crate) link: LinkKind,
    /// Bytes by which the browser's log has grown.
    pub(crate) count: u64,
    /// Time from the request until the page's background script asks for the engine.
    pub(crate) background_after: Duration,
}

/// Reason why a page did not load. All failures with one gRPC code have one text, so that they can
/// be counted.
pub(crate) type Cause = String;

impl Browser {
    pub(crate) fn new(edge: Upstream, cpu: Cpu) -> Self {
        Self {
            edge: PageClient::new(edge),
            cpu,
        }
    }

    /// Loads the page of `visit`, up to and including its `onload`.
    ///
    /// # Errors
    /// Returns the gRPC code of a failed call, that pagelets are missing, or that a stage panicked.
    #[stroboscope::trace(name = "page", fields(user = visit.user, link = visit.link.name(), count = visit.count))]
    pub(crate) async fn load(&self, visit: Visit) -> Result<(), Cause> {
        let engine = Arc::new(Engine::new(self.cpu));
        let (received, to_download) = mpsc::channel(QUEUE);
        let (downloaded, to_execute) = mpsc::channel(QUEUE);
        let background = tokio::spawn(run_background(Arc::clone(&engine), visit).in_current_span());
        let downloads =
            tokio::spawn(download_all(visit.link, to_download, downloaded).in_current_span());
        let executions =
            tokio::spawn(execute_all(Arc::clone(&engine), to_execute).in_current_span());

        let expected = self.receive(visit, received).await;
        finish(downloads).await?;
        let executed = finish(executions).await?;
        finish(background).await?;
        let expected = expected.map_err(|status| cause_of(&status))?;
        if expected == 0 || executed != expected {
            return Err("incomplete page".to_owned());
        }
        onload(&engine).await;
        Ok(())
    }

    /// Passes pagelets on as they arrive. Returns the number of pagelets that the page has; 0 if
    /// none arrived.
    async fn receive(&self, visit: Visit, received: mpsc::Sender<Pagelet>) -> Result<u32, Status> {
        let request = PageRequest {
            user: visit.user,
            session_token: session::token(visit.user),
            count: visit.count,
        };
        let mut pagelets = self.edge.clone().load(request).await?.into_inner();
        let mut expected = 0;
        while let Some(pagelet) = pagelets.message().await? {
            expected = pagelet.count;
            if received.send(pagelet).await.is_err() {
                break;
            }
        }
        Ok(expected)
    }
}

/// Downloads the pagelets. The link transfers one at a time, in the order in which they were sent.
async fn download_all(
    link: LinkKind,
    mut received: mpsc::Receiver<Pagelet>,
    downloaded: mpsc::Sender<Pagelet>,
) {
    let mut downlink = Downlink::new(link);
    while let Some(pagelet) = received.recv().await {
        download(&mut downlink, &pagelet).await;
        if downloaded.send(pagelet).await.is_err() {
            break;
        }
    }
}

#[stroboscope::trace(fields(element = pagelet.index, bytes = pagelet.body.len()))]
async fn download(downlink: &mut Downlink, pagelet: &Pagelet) {
    downlink.transfer(pagelet.body.len()).await;
}

/// Executes pagelets in order of arrival. Returns their number.
async fn execute_all(engine: Arc<Engine>, mut downloaded: mpsc::Receiver<Pagelet>) -> u32 {
    let mut executed = 0;
    while let Some(pagelet) = downloaded.recv().await {
        engine.run(|cpu| execute(cpu, pagelet)).await;
        executed += 1;
    }
    executed
}

#[stroboscope::trace(fields(element = pagelet.index))]
fn execute(cpu: &Cpu, pagelet: Pagelet) {
    cpu.work(script_time(pagelet.body.len()), pagelet.index.into());
    tracked::scope(|| {
        let provenance = Provenance::from_text(&pagelet.provenance);
        let shown = tracked::receive(&provenance, &pagelet.name, pagelet.body);
        let name = format!("page: {}", pagelet.name);
        tracked::send_with_content(&shown, &name, SHOWN_BYTES_MAX);
    });
}

/// Runs a script that may run before, between or after the pagelets' scripts. Only the engine keeps
/// it from overlapping with them.
async fn run_background(engine: Arc<Engine>, visit: Visit) {
    delay(visit.background_after).await;
    engine.run(|cpu| background(cpu, visit.user)).await;
}

#[stroboscope::trace]
fn background(cpu: &Cpu, user: u64) {
    cpu.work(BACKGROUND_TIME, user);
}

#[stroboscope::trace]
async fn onload(engine: &Engine) {
    engine.run(|cpu| cpu.work(ONLOAD_TIME, 0)).await;
}

async fn finish<T>(stage: JoinHandle<T>) -> Result<T, Cause> {
    stage
        .await
        .map_err(|error| format!("a stage of the page died: {error}"))
}

/// Returns a fixed text for each gRPC code, because the message may differ from call to call.
fn cause_of(status: &Status) -> Cause {
    match status.code() {
        Code::Unavailable => "unavailable".to_owned(),
        Code::Cancelled => "cancelled".to_owned(),
        Code::Unauthenticated => "unauthenticated".to_owned(),
        Code::NotFound => "not found".to_owned(),
        Code::DeadlineExceeded => "deadline exceeded".to_owned(),
        code => format!("gRPC code {}: {}", code as i32, code.description()),
    }
}
