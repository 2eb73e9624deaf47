//! What a service manager such as systemd is told (`sd_notify`), if one asked for it by `NOTIFY_SOCKET`.

use sd_notify::NotifyState;

/// The doors are open.
pub(super) fn ready() {
    tell(&[NotifyState::Ready]);
}

/// What was received is put into the store, then the process ends.
pub(super) fn stopping() {
    tell(&[NotifyState::Stopping]);
}

fn tell(states: &[NotifyState<'_>]) {
    // A manager that cannot be told is no reason to stop; it says so itself, by its own time limit.
    if let Err(error) = sd_notify::notify(states) {
        tracing::warn!(%error, "cannot tell the service manager");
    }
}
