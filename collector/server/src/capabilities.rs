//! Drops capabilities that a collector needs no more, and gains none by executing programs. Linux only.
//!
//! Capabilities belong to threads, and a thread begins with those of the one that started it: a thread drops its own before it
//! starts others.

#[cfg(target_os = "linux")]
pub use rustix::thread::CapabilitySet;

/// The capability by which the calling thread changes eBPF's maps: before Linux 5.8 it is CAP_SYS_ADMIN.
#[cfg(target_os = "linux")]
pub fn bpf() -> CapabilitySet {
    match rustix::thread::capabilities(None) {
        Ok(has) if has.permitted.contains(CapabilitySet::BPF) => CapabilitySet::BPF,
        _ => CapabilitySet::SYS_ADMIN,
    }
}

/// Drops the calling thread's capabilities, but for those that every collector needs. Elsewhere there are none.
pub fn drop_all() {
    #[cfg(target_os = "linux")]
    drop_all_but(CapabilitySet::empty());
}

/// Drops the calling thread's capabilities, but for those that every collector needs and these. A failure is logged.
#[cfg(target_os = "linux")]
pub fn drop_all_but(needed: CapabilitySet) {
    if let Err(error) = try_to_drop_all_but(needed) {
        tracing::warn!(%error, "cannot drop the capabilities of a thread");
    }
}

#[cfg(target_os = "linux")]
fn try_to_drop_all_but(needed: CapabilitySet) -> rustix::io::Result<()> {
    use rustix::thread::{CapabilitySets, capabilities, set_capabilities, set_no_new_privs};

    // Data directories, sockets, and files that are read again when they change may belong to other users; ports may be
    // below 1024.
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
    // Sandboxes may refuse the call, also where there is nothing to drop.
    if sets == has {
        return Ok(());
    }
    set_capabilities(None, sets)
}
