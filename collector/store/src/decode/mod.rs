//! Checks received data and converts them to rows. Checks of a batch cover every column's length,
//! every string index, and every time that the tables will contain. After [`CheckedBatch::check`],
//! the conversion of a batch cannot fail.

mod attributes;
mod checked;
mod foreign;
mod loss;
mod otlp;
mod otlp_logs;
mod refusal;
mod rows;

pub use checked::CheckedBatch;
pub use foreign::rows_of_span;
pub use loss::{loses_records, loss_cause_name};
pub use otlp::{
    NotOtlp, OtlpTaken, check_otlp_protobuf, otlp_json, otlp_protobuf, otlp_protobuf_slowly,
};
pub use otlp_logs::{otlp_logs_json, otlp_logs_protobuf};
pub use refusal::Refusal;
