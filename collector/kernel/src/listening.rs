//! Announces to services that the kernel is being recorded, by a lock on a file.
//!
//! The recorder holds a shared lock on `/run/stroboscope/kernel-recorder` (or the file that
//! `STROBOSCOPE_KERNEL_RECORDER` names) while it records. The SDK *queries* the lock's state up to
//! ten times per second, and never acquires the lock. Any number of recorders and services can thus
//! coexist, a killed recorder's lock disappears with it, and a container sees the lock through a
//! bind mount of the directory.

#![allow(unsafe_code)]

use std::fs::{File, Permissions};
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};
use std::path::Path;

use crate::start_error::StartError;

/// Announcement that makes services write markers while it exists.
#[derive(Debug)]
pub(crate) struct MarkerFile {
    _file: File,
}

impl MarkerFile {
    pub(crate) fn announce(path: &Path) -> Result<Self, StartError> {
        let failed = |source| {
            StartError::system(
                format!("announcing the recorder by {}", path.display()),
                source,
            )
        };
        if let Some(directory) = path.parent().filter(|directory| !directory.exists()) {
            std::fs::create_dir_all(directory).map_err(failed)?;
            set_mode(directory, 0o755).map_err(failed)?;
        }
        let file = File::options()
            .read(true)
            .write(true)
            .create(true)
            .truncate(false)
            .open(path)
            .map_err(failed)?;
        // Services of every user read this file, whatever this process's umask.
        if file.metadata().map_err(failed)?.mode() & 0o044 != 0o044 {
            set_mode(path, 0o644).map_err(failed)?;
        }
        lock_shared(&file).map_err(failed)?;
        Ok(Self { _file: file })
    }
}

fn set_mode(path: &Path, mode: u32) -> io::Result<()> {
    std::fs::set_permissions(path, Permissions::from_mode(mode))
}

fn lock_shared(file: &File) -> io::Result<()> {
    // SAFETY: all fields of `flock` are integers; zero is valid for each.
    let mut lock: libc::flock = unsafe { std::mem::zeroed() };
    lock.l_type = libc::F_RDLCK as libc::c_short;
    lock.l_whence = libc::SEEK_SET as libc::c_short;
    // SAFETY: the descriptor is open for as long as `file` is borrowed, and `lock` is a valid
    // request.
    match unsafe { libc::fcntl(file.as_raw_fd(), libc::F_OFD_SETLK, &raw const lock) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}
