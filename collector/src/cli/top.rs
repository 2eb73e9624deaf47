//! The `top` subcommand.

mod picture;
mod snapshot;
mod source;
mod state;
mod terminal;

use std::io::{self, IsTerminal as _};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::mpsc::{Receiver, SyncSender, TryRecvError, sync_channel};
use std::time::{Duration, Instant};

use clap::Args;
use crossterm::event::{Event, KeyEventKind, poll, read};
use tokio::runtime::Runtime;
use tokio::signal::unix::{SignalKind, signal};

use self::snapshot::Snapshot;
use self::source::TopSource;
use self::state::{KeyAsks, TopState};
use self::terminal::Screen;
use super::ask::HttpArguments;
use stroboscope_reports::arguments::{DataArguments, parse_duration};
use stroboscope_reports::output::{has_colour, print, width};
use stroboscope_reports::{Failure, Status};

/// Maximum wait for a key before the loop looks for a new snapshot, and minimum pause between two
/// snapshots.
const KEY_PATIENCE: Duration = Duration::from_millis(50);

/// Watch what requests wait for, live in the terminal
///
/// Shows a table of operations by their share of the latest requests' critical path. Each has
/// percentiles of its own work, its slack, and the share of its spans that failed. Lines above the
/// table show how many processes ship, how much, in which bursts, and losses and failures. Reads
/// the live model of a running collector (`--http`), or a store (`--data`), which may be in use.
///
/// Keys: `q` quits, `s` sorts by the next column, `/` filters, `p` pauses, `?` shows all keys.
/// Without a terminal, or with `--once`, prints one picture as text and exits, with status 2 if the
/// collector does not respond. The live view retries instead. Sends the token in STROBOSCOPE_TOKEN
/// if it is set.
#[derive(Debug, Args)]
pub(super) struct TopVerb {
    #[command(flatten)]
    collector: HttpArguments,
    /// Watch a store instead: the data directory, or a store that was published to an object store
    #[arg(long, value_name = "DIR", conflicts_with_all = ["http", "ca"])]
    data: Option<PathBuf>,
    /// With --data, maximum age of requests, such as 5min or 1d
    #[arg(long, value_name = "DURATION", default_value = "5min", requires = "data", value_parser = parse_duration)]
    last: Duration,
    /// Interval between refreshes, in seconds, 0.1 to 3600
    #[arg(long, value_name = "SECONDS", default_value = "1", value_parser = parse_interval)]
    interval: Duration,
    /// Print one picture as text, and exit. Without --data, takes one interval, because rates need
    /// two samples
    #[arg(long)]
    once: bool,
}

fn parse_interval(text: &str) -> Result<Duration, String> {
    match text.parse::<f64>() {
        Ok(seconds) if (0.1..=3_600.0).contains(&seconds) => Ok(Duration::from_secs_f64(seconds)),
        _ => Err("a number of seconds from 0.1 to 3600, such as 2".to_owned()),
    }
}

impl TopVerb {
    pub(super) fn run(self, runtime: &Runtime) -> Result<Status, Failure> {
        let watched = match self.data {
            None => TopSource::Collector(self.collector.client()?),
            Some(data) => TopSource::Store {
                data: DataArguments { data },
                last: self.last,
                runtime: runtime.handle().clone(),
            },
        };
        if self.once || !io::stdout().is_terminal() {
            return once(&watched, self.interval);
        }
        let ends = Arc::new(AtomicBool::new(false));
        runtime.block_on(async {
            for kind in [
                SignalKind::interrupt(),
                SignalKind::terminate(),
                SignalKind::hangup(),
            ] {
                let mut heard = signal(kind).map_err(Failure::of)?;
                let ends = ends.clone();
                tokio::spawn(async move {
                    heard.recv().await;
                    ends.store(true, Relaxed);
                    terminal::end_soon();
                });
            }
            Ok::<(), Failure>(())
        })?;
        let hung_up = ends.clone();
        let thread = std::thread::Builder::new().name("top-hangup".to_owned());
        let wait = move || {
            if terminal::wait_for_hangup().is_ok() {
                hung_up.store(true, Relaxed);
                terminal::end_soon();
            }
        };
        thread.spawn(wait).map_err(Failure::of)?;
        let seen = looking(watched.clone(), self.interval)?;
        let screen = Screen::take(has_colour()).map_err(|error| of_terminal(&error))?;
        let ended = watch(&watched, &seen, &screen, &ends).map_err(|error| of_terminal(&error));
        drop(screen);
        ended.map(|()| Status::Done)
    }
}

fn of_terminal(error: &io::Error) -> Failure {
    Failure::new(format!(
        "the terminal cannot be used ({error}); --once prints a picture as text"
    ))
}

/// Prints one picture, with rates if the source is a collector.
fn once(watched: &TopSource, interval: Duration) -> Result<Status, Failure> {
    let began = Instant::now();
    let mut state = TopState::of(watched.name());
    state.take(Ok(watched.look()?), began.elapsed());
    // Only the rates of a collector are printed. They need a second snapshot.
    if matches!(watched, TopSource::Collector(_)) {
        std::thread::sleep(interval);
        state.take(Ok(watched.look()?), began.elapsed());
    }
    print(&picture::text(&state, width(), began.elapsed()))?;
    Ok(Status::Done)
}

type LookResult = Result<Snapshot, String>;

/// Polls on a separate thread, so that keys never wait for a snapshot. The thread ends with the
/// process, or with the first snapshot after the receiver is dropped.
fn looking(watched: TopSource, interval: Duration) -> Result<Receiver<LookResult>, Failure> {
    let (sender, seen): (SyncSender<LookResult>, _) = sync_channel(1);
    let body = move || {
        loop {
            let began = Instant::now();
            let found = watched.look().map_err(|failure| failure.to_string());
            if sender.send(found).is_err() {
                return;
            }
            std::thread::sleep(interval.saturating_sub(began.elapsed()).max(KEY_PATIENCE));
        }
    };
    let thread = std::thread::Builder::new().name("top-look".to_owned());
    thread.spawn(body).map_err(Failure::of)?;
    Ok(seen)
}

/// Draws pictures and handles keys until the user quits or `ends` is set.
fn watch(
    watched: &TopSource,
    seen: &Receiver<LookResult>,
    screen: &Screen,
    ends: &AtomicBool,
) -> io::Result<()> {
    let began = Instant::now();
    let mut state = TopState::of(watched.name());
    let mut shown = Vec::new();
    let mut shown_in = None;
    while !ends.load(Relaxed) {
        match seen.try_recv() {
            Ok(found) => state.take(found, began.elapsed()),
            Err(TryRecvError::Empty) => {}
            Err(TryRecvError::Disconnected) => {
                return Err(io::Error::other("the polling thread has ended"));
            }
        }
        let size = Screen::size()?;
        let lines = picture::picture(&mut state, size, began.elapsed());
        // Most iterations have nothing new to draw.
        if lines != shown || shown_in != Some(size) {
            screen.draw(&lines)?;
            (shown, shown_in) = (lines, Some(size));
        }
        if !poll(KEY_PATIENCE)? {
            continue;
        }
        if let Event::Key(key) = read()?
            && key.kind != KeyEventKind::Release
        {
            match state.press(key) {
                KeyAsks::Nothing => {}
                KeyAsks::Quit => return Ok(()),
                KeyAsks::Suspend => {
                    screen.suspend()?;
                    shown_in = None;
                }
            }
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nonsense_is_no_interval() {
        assert_eq!(parse_interval("0.5"), Ok(Duration::from_millis(500)));
        for text in ["0", "-1", "NaN", "inf", "1e9", "", "2s"] {
            assert!(parse_interval(text).is_err(), "{text}");
        }
    }
}
