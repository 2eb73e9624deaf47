//! Notifies a service manager such as systemd (`sd_notify`), if `NOTIFY_SOCKET` is set.

use sd_notify::NotifyState;

/// Reports that the ports are open.
pub(super) fn ready() {
    tell(&[NotifyState::Ready]);
}

/// Reports that the collector is stopping.
pub(super) fn stopping() {
    tell(&[NotifyState::Stopping]);
}

fn tell(states: &[NotifyState<'_>]) {
    // An unreachable manager is no reason to stop; it has its own timeout for the start.
    if let Err(error) = sd_notify::notify(states) {
        tracing::warn!(%error, "cannot tell the service manager");
    }
}
