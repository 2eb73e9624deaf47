//! From the wire to rows, checked: every column's length, every string's index, every time. After
//! [`CheckedBatch::check`] nothing about a batch can go wrong any more.

mod attributes;
mod checked;
mod loss;
mod refusal;
mod rows;

pub use checked::CheckedBatch;
pub use loss::{loses_records, loss_cause_name};
pub use refusal::Refusal;
