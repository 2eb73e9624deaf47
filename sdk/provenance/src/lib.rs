//! Sets of the input bytes on which output bytes depend.

#![cfg_attr(not(any(feature = "std", test)), no_std)]
#![forbid(unsafe_code)]

extern crate alloc;

mod set;

pub use set::InputSet;
