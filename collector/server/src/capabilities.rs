//! Drops capabilities that a collector no longer needs and prevents programs it executes from
//! gaining any. Linux only.
//!
//! Capabilities belong to threads, and a new thread inherits those of the thread that starts it. So
//! each thread drops its own capabilities, if possible before it starts other threads.

#[cfg(target_os = "linux")]
pub use rustix::thread::CapabilitySet;

/// Returns the capability with which the calling thread changes eBPF maps: CAP_BPF if the thread
/// has it, else CAP_SYS_ADMIN. CAP_BPF exists since Linux 5.8.
#[cfg(target_os = "linux")]
pub fn bpf() -> CapabilitySet {
    match rustix::thread::capabilities(None) {
        Ok(has) if has.permitted.contains(CapabilitySet::BPF) => CapabilitySet::BPF,
        _ => CapabilitySet::SYS_ADMIN,
    }
}

/// Drops the calling thread's capabilities except those for files of other users and ports below
/// 1024, which a collector may need. Does nothing on systems other than Linux.
pub fn drop_all() {
    #[cfg(target_os = "linux")]
    drop_all_but(CapabilitySet::empty());
}

/// Drops the calling thread's capabilities except `needed` and those for files of other users and
/// ports below 1024. The thread and the programs it executes cannot gain others. Logs a warning if
/// that fails.
#[cfg(target_os = "linux")]
pub fn drop_all_but(needed: CapabilitySet) {
    if let Err(error) = try_to_drop_all_but(needed) {
        tracing::warn!(%error, "cannot drop the capabilities of a thread");
    }
}

#[cfg(target_os = "linux")]
fn try_to_drop_all_but(needed: CapabilitySet) -> rustix::io::Result<()> {
    use rustix::thread::{CapabilitySets, capabilities, set_capabilities, set_no_new_privs};

    // Data directories, sockets and watched files may belong to other users. Ports may be below
    // 1024.
    let kept = CapabilitySet::DAC_OVERRIDE
        | CapabilitySet::DAC_READ_SEARCH
        | CapabilitySet::FOWNER
        | CapabilitySet::NET_BIND_SERVICE
        | needed;
    set_no_new_privs(true)?;
    let has = capabilities(None)?;
    let sets = CapabilitySets {
        effective: has.effective & kept,
        permitted: has.permitted & kept,
        inheritable: CapabilitySet::empty(),
    };
    // Sandboxes may refuse the call even if there is nothing to drop.
    if sets == has {
        return Ok(());
    }
    set_capabilities(None, sets)
}
