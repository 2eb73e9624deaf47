//! Writes `tracing`'s fields into a record.

use std::fmt;

use tracing_core::field::{Field, Visit};

use crate::record::FieldWriter;
use crate::value::{Value, debug, display};

/// Writes fields by their position in the callsite.
pub(crate) struct Visitor<'a, 'w> {
    writer: &'a mut FieldWriter<'w>,
    has_run_code: bool,
}

impl<'a, 'w> Visitor<'a, 'w> {
    pub(crate) fn new(writer: &'a mut FieldWriter<'w>) -> Self {
        Self {
            writer,
            has_run_code: false,
        }
    }

    /// Reports whether a value may have run code of the service, such as a `Debug` implementation.
    pub(crate) fn has_run_code(&self) -> bool {
        self.has_run_code
    }

    #[inline]
    fn write(&mut self, field: &Field, value: &(impl Value + ?Sized)) {
        match u8::try_from(field.index()) {
            Ok(index) => value.write(index, self.writer),
            // A record cannot number the field.
            Err(_) => self.writer.left_out = true,
        }
    }
}

impl Visit for Visitor<'_, '_> {
    fn record_i64(&mut self, field: &Field, value: i64) {
        self.write(field, &value);
    }

    fn record_u64(&mut self, field: &Field, value: u64) {
        self.write(field, &value);
    }

    fn record_f64(&mut self, field: &Field, value: f64) {
        self.write(field, &value);
    }

    fn record_bool(&mut self, field: &Field, value: bool) {
        self.write(field, &value);
    }

    fn record_str(&mut self, field: &Field, value: &str) {
        self.write(field, value);
    }

    fn record_error(&mut self, field: &Field, value: &(dyn std::error::Error + 'static)) {
        self.has_run_code = true;
        self.write(field, &display(value));
    }

    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        self.has_run_code = true;
        self.write(field, &debug(value));
    }
}
