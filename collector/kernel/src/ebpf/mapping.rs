//! Maps the memory of eBPF maps into this process.

#![allow(unsafe_code)]

use std::io;
use std::os::fd::{AsRawFd, BorrowedFd};
use std::ptr::NonNull;
use std::sync::atomic::AtomicU64;

/// Mapped memory of an eBPF map, as words of 8 bytes. The programs and the recorder may change a
/// word at any time.
#[derive(Debug)]
pub(super) struct MapMemory {
    start: NonNull<AtomicU64>,
    words: usize,
}

// SAFETY: the memory belongs to the mapping, not to a thread, and is only reached through atomics.
unsafe impl Send for MapMemory {}
// SAFETY: as above; shared references reach atomics only.
unsafe impl Sync for MapMemory {}

impl MapMemory {
    /// Maps the first `words` words of a map.
    pub(super) fn new(map: BorrowedFd<'_>, words: usize) -> io::Result<Self> {
        let page_bytes = 4096;
        let bytes = (words * 8).next_multiple_of(page_bytes);
        // SAFETY: a new mapping at a place of the kernel's choice; nothing that exists is touched.
        let start = unsafe {
            libc::mmap(
                std::ptr::null_mut(),
                bytes,
                libc::PROT_READ | libc::PROT_WRITE,
                libc::MAP_SHARED,
                map.as_raw_fd(),
                0,
            )
        };
        if start == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        let start =
            NonNull::new(start.cast()).ok_or_else(|| io::Error::other("mapped at address 0"))?;
        Ok(Self { start, words })
    }

    pub(super) fn words(&self) -> &[AtomicU64] {
        // SAFETY: `new` mapped at least this many words, readable, writable and aligned to a page,
        // and they stay mapped as long as `self` lives; atomics allow others to write to them
        // meanwhile.
        unsafe { std::slice::from_raw_parts(self.start.as_ptr(), self.words) }
    }
}

impl Drop for MapMemory {
    fn drop(&mut self) {
        // SAFETY: exactly what `new` mapped, and no slice outlives `self`.
        unsafe {
            libc::munmap(
                self.start.as_ptr().cast(),
                (self.words * 8).next_multiple_of(4096),
            )
        };
    }
}
