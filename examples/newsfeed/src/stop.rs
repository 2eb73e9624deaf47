//! Stop conditions of a role: SIGINT, SIGTERM, or the end of its standard input.

use std::io::Read;
use std::time::Duration;

use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::watch;

use crate::notice::notice;

/// Time after which a process whose input ended, and that has not stopped by itself, is ended.
const GRACE: Duration = Duration::from_secs(6);

/// Exit status of a process that had to be ended.
const STUCK: i32 = 3;

/// Signals every part of a role to stop. Clones share one state.
#[derive(Debug, Clone)]
pub(crate) struct Stop {
    stopped: watch::Receiver<bool>,
    sender: watch::Sender<bool>,
}

impl Stop {
    /// Stops only when [`Stop::now`] is called.
    #[must_use]
    pub(crate) fn manual() -> Self {
        let (sender, stopped) = watch::channel(false);
        Self { stopped, sender }
    }

    /// Stops on SIGTERM and, unless a supervisor decides for this process, on SIGINT. Call inside a
    /// runtime.
    ///
    /// With a supervisor (`with_stdin`), the end of standard input stops it: the pipe closes
    /// whenever the supervisor ends, for any reason, so that no role outlives it. SIGINT, which a
    /// terminal sends to the whole group, is left to the supervisor then.
    ///
    /// # Errors
    /// Returns an error if the signal handlers cannot be installed.
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

    /// Stops now.
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
    // An input that fails counts as ended: the supervisor is out of reach.
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
