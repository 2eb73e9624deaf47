//! The recorder's own `getpid` with arguments: how it tells its programs who it is.

#![allow(unsafe_code)]

use stroboscope_analysis::kernel::marker::MARK;

/// The kind by which a recorder says: this process is me.
const HELLO: u64 = 0x7f;

/// Says to the loaded programs that the process of this thread is the recorder's. They know it by `nonce`.
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
