//! The recorder's own `getpid` with arguments, which identifies it to its programs.

#![allow(unsafe_code)]

use stroboscope_analysis::kernel::marker::MARK;

/// Kind of the marker by which a recorder identifies its process.
const HELLO: u64 = 0x7f;

/// Marks this thread's process as the recorder for the loaded programs, which recognise it by
/// `nonce`.
pub(crate) fn hello(nonce: u64) {
    // SAFETY: getpid has no arguments; the kernel ignores their registers.
    unsafe {
        libc::syscall(
            libc::SYS_getpid,
            MARK | HELLO,
            nonce,
            0_u64,
            0_u64,
            0_u64,
            0_u64,
        )
    };
}
