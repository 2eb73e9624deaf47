//! How services learn that somebody records the kernel: a lock on a file.
//!
//! The recorder holds a shared lock on `/run/stroboscope/kernel-recorder` (or what `STROBOSCOPE_KERNEL_RECORDER` names)
//! while it records; the SDK *asks* for the lock's state at each opening and never takes it. So any number of recorders
//! and services get along, a killed recorder's lock is gone with it, and a container sees it by a bind mount of the
//! folder.

#![allow(unsafe_code)]

use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

use crate::start_error::StartError;

/// While it lives, services write markers.
#[derive(Debug)]
pub(crate) struct Listening {
    _file: File,
}

impl Listening {
    pub(crate) fn announce(path: &Path) -> Result<Self, StartError> {
        let failed = |source| {
            StartError::system(
                format!("announcing the recorder by {}", path.display()),
                source,
            )
        };
        if let Some(folder) = path.parent() {
            std::fs::create_dir_all(folder).map_err(failed)?;
        }
        let file = File::options()
            .read(true)
            .write(true)
            .create(true)
            .truncate(false)
            .mode(0o644)
            .open(path)
            .map_err(failed)?;
        lock_shared(&file).map_err(failed)?;
        Ok(Self { _file: file })
    }
}

fn lock_shared(file: &File) -> io::Result<()> {
    // SAFETY: all fields of `flock` are integers; zero is valid for each.
    let mut lock: libc::flock = unsafe { std::mem::zeroed() };
    lock.l_type = libc::F_RDLCK as libc::c_short;
    lock.l_whence = libc::SEEK_SET as libc::c_short;
    // SAFETY: the descriptor is open for as long as `file` is borrowed, and `lock` is a valid request.
    match unsafe { libc::fcntl(file.as_raw_fd(), libc::F_OFD_SETLK, &raw const lock) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}
