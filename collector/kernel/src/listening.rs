//! Announces to services that the kernel is being recorded, by a lock on a file.
//!
//! While it records, the recorder holds a shared lock on the file that its settings name: by
//! default `/run/stroboscope/kernel-recorder`, or the file that `STROBOSCOPE_KERNEL_RECORDER`
//! names. The SDK *queries* the lock's state up to ten times per second, and never acquires the
//! lock. Any number of recorders and services can thus coexist, a killed recorder's lock disappears
//! with it, and a container sees the lock through a bind mount of the directory.

#![allow(unsafe_code)]

use std::fs::{File, Permissions};
use std::io::{self, ErrorKind};
use std::os::fd::AsRawFd;
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};

use stroboscope_burst::marker::ENV_KERNEL_RECORDER;

/// Reason why services do not learn of a recorder. By default, they then write no markers.
#[derive(Debug, thiserror::Error)]
#[error(
    "services write no markers, because the recorder cannot lock {}: {source}; as root, create its directory for the \
     recorder's user, or set {ENV_KERNEL_RECORDER}, for the recorder and the services, to a file that the recorder may \
     create",
    path.display()
)]
pub struct UnannouncedError {
    path: PathBuf,
    source: io::Error,
}

/// Announcement that makes services, by default, write markers while it exists.
#[derive(Debug)]
pub(crate) struct MarkerFile {
    _file: File,
}

impl MarkerFile {
    pub(crate) fn announce(path: &Path) -> Result<Self, UnannouncedError> {
        let locked = open(path).and_then(|file| {
            lock_shared(&file)?;
            Ok(Self { _file: file })
        });
        locked.map_err(|source| UnannouncedError {
            path: path.to_owned(),
            source,
        })
    }
}

/// Opens the file, or creates it and its directory. The lock needs only the right to read, so the
/// file may be another user's.
fn open(path: &Path) -> io::Result<File> {
    let file = match File::open(path) {
        Err(error) if error.kind() == ErrorKind::NotFound => create(path)?,
        opened => opened?,
    };
    // Services of every user read this file, whatever this process's umask.
    if file.metadata()?.mode() & 0o044 != 0o044 {
        set_mode(path, 0o644)?;
    }
    Ok(file)
}

fn create(path: &Path) -> io::Result<File> {
    if let Some(directory) = path.parent().filter(|directory| !directory.exists()) {
        std::fs::create_dir_all(directory)?;
        set_mode(directory, 0o755)?;
    }
    File::options()
        .read(true)
        .write(true)
        .create(true)
        .truncate(false)
        .open(path)
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_error_names_the_file_and_the_remedy() {
        let directory = tempfile::tempdir().unwrap();
        let file = directory.path().join("file");
        std::fs::write(&file, "").unwrap();
        let path = file.join("kernel-recorder");
        let said = MarkerFile::announce(&path).unwrap_err().to_string();
        assert!(said.contains(&*path.to_string_lossy()), "{said}");
        assert!(said.contains("set STROBOSCOPE_KERNEL_RECORDER,"), "{said}");
    }

    #[test]
    fn a_file_that_may_only_be_read_suffices() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("below/kernel-recorder");
        drop(MarkerFile::announce(&path).unwrap());
        set_mode(&path, 0o444).unwrap();
        let _first = MarkerFile::announce(&path).unwrap();
        let _second = MarkerFile::announce(&path).unwrap();
    }
}
