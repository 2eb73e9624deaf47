//! The recorder's own `getpid` with arguments, which identifies it to its programs.

#![allow(unsafe_code)]

use stroboscope_analysis::kernel::marker::MARK;

/// Kind of the marker by which a recorder identifies its process.
const HELLO: u64 = 0x7f;

/// Tells the loaded programs that this thread's process is the recorder. They recognise it by
/// `nonce`.
pub(crate) fn hello(nonce: u64) {
    // SAFETY: getpid has no arguments; the kernel ignores what stands in their registers.
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
