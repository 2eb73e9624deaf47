//! Stop conditions of a role: SIGINT, SIGTERM, or the end of its standard input.

use std::io::Read;
use std::time::Duration;

use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::watch;

use crate::notice::notice;

/// Time from the end of standard input after which a process that has not stopped ends itself.
const GRACE: Duration = Duration::from_secs(6);

/// Exit status of a process that did not stop within [`GRACE`].
const STUCK: i32 = 3;

/// Signal that tells all parts of a role to stop. All clones receive the signal that one of them
/// gives.
#[derive(Debug, Clone)]
pub(crate) struct Stop {
    stopped: watch::Receiver<bool>,
    sender: watch::Sender<bool>,
}

impl Stop {
    /// Creates a signal that is given only by [`Stop::now`].
    #[must_use]
    pub(crate) fn manual() -> Self {
        let (sender, stopped) = watch::channel(false);
        Self { stopped, sender }
    }

    /// Creates a signal that is given on SIGTERM and, unless a supervisor started this process, on
    /// SIGINT. Must be called inside a tokio runtime.
    ///
    /// With a supervisor (`with_stdin`), the end of standard input stops the role. The pipe closes
    /// when the supervisor ends, for any reason, so no role outlives its supervisor by more than
    /// [`GRACE`]. The role ignores SIGINT, which a terminal sends to the whole process group,
    /// because the supervisor handles it.
    ///
    /// # Errors
    /// Returns an error if the signal handlers cannot be installed, or the thread that watches
    /// standard input cannot start.
    pub(crate) fn on_signals(with_stdin: bool) -> std::io::Result<Self> {
        let stop = Self::manual();
        let (mut terminate, mut interrupt) = (
            signal(SignalKind::terminate())?,
            signal(SignalKind::interrupt())?,
        );
        let on_signal = stop.clone();
        tokio::spawn(async move {
            loop {
                tokio::select! {
                    _ = terminate.recv() => on_signal.now(),
                    _ = interrupt.recv() => if !with_stdin { on_signal.now() },
                }
            }
        });
        if with_stdin {
            let on_end = stop.clone();
            std::thread::Builder::new()
                .name("stdin".to_owned())
                .spawn(move || watch_stdin(&on_end))?;
        }
        Ok(stop)
    }

    /// Gives the signal to stop.
    pub(crate) fn now(&self) {
        self.sender.send_replace(true);
    }

    /// Returns true once the role must stop.
    #[must_use]
    pub(crate) fn is_stopped(&self) -> bool {
        *self.stopped.borrow()
    }

    /// Resolves once the role must stop.
    pub(crate) async fn wait(&self) {
        let mut stopped = self.stopped.clone();
        // `self` holds a sender, so the channel cannot close while this waits.
        let _ = stopped.wait_for(|stopped| *stopped).await;
    }
}

fn watch_stdin(stop: &Stop) {
    let mut ignored = [0; 256];
    let mut stdin = std::io::stdin().lock();
    // Treat a read error as the end of input, because the supervisor can no longer be reached.
    while matches!(stdin.read(&mut ignored), Ok(1..)) {}
    stop.now();
    std::thread::sleep(GRACE);
    notice(format_args!(
        "this role did not stop within {} s after its supervisor did; it is ended now",
        GRACE.as_secs()
    ));
    std::process::exit(STUCK);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn everyone_hears_it() {
        let stop = Stop::manual();
        let other = stop.clone();
        assert!(!other.is_stopped());
        let waiting = tokio::spawn(async move { other.wait().await });
        stop.now();
        waiting.await.expect("woken");
        assert!(stop.is_stopped());
        stop.wait().await;
    }
}
