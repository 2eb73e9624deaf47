//! Reads lines of CSV. The first record names the columns.

use csv_core::{ReadRecordResult, Reader, ReaderBuilder, Terminator};

use crate::BadLine;
use stroboscope_store::limits::IMPORT_LINE_BYTES_MAX;

/// Reads lines of CSV one by one. A quoted field may continue in the next line.
#[derive(Debug)]
pub(crate) struct Csv {
    reader: Reader,
    header: Vec<String>,
    values: Vec<String>,
    /// Length of an unfinished record so far, in bytes, with a line end after each line; 0 between
    /// records. `begun_on` is the number of its first line.
    begun: usize,
    begun_on: u64,
    /// Buffers for the text and the ends of the record's fields, and the used length of each.
    output: Vec<u8>,
    ends: Vec<usize>,
    written: usize,
    ended: usize,
}

/// Result of reading a line.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum CsvLine {
    /// The line ends the record that names the columns.
    Header,
    /// The line is part of a record that continues on the next line.
    Part,
    /// The line ends a record. The value is the number of the line on which the record began.
    Record(u64),
}

impl Csv {
    pub(super) fn new(delimiter: u8) -> Self {
        let mut builder = ReaderBuilder::new();
        // A carriage return inside a line ends no record.
        builder.terminator(Terminator::Any(b'\n'));
        Self {
            reader: builder.delimiter(delimiter).build(),
            header: Vec::new(),
            values: Vec::new(),
            begun: 0,
            begun_on: 0,
            output: vec![0; 1 << 12],
            ends: vec![0; 64],
            written: 0,
            ended: 0,
        }
    }

    /// Reads the line `number`.
    ///
    /// # Errors
    /// Fails if the record so far exceeds [`IMPORT_LINE_BYTES_MAX`] bytes, is not UTF-8, or has
    /// another number of fields than the first record.
    pub(crate) fn take(&mut self, number: u64, line: &[u8]) -> Result<CsvLine, BadLine> {
        if self.begun == 0 {
            self.reader.reset();
            (self.begun_on, self.written, self.ended) = (number, 0, 0);
        }
        self.begun += line.len() + 1;
        let is_open = !(self.read(line) || self.read(b"\n"));
        if self.begun > IMPORT_LINE_BYTES_MAX + 1 {
            self.begun = 0;
            let (begun_on, limit) = (self.begun_on, IMPORT_LINE_BYTES_MAX);
            let open = || format!("the quote opened on line {begun_on} does not close");
            return Err(match is_open {
                true => BadLine::Csv(open()),
                false => BadLine::RecordTooLong { limit },
            });
        }
        if is_open {
            return Ok(CsvLine::Part);
        }
        self.begun = 0;
        let values = self.fields()?;
        if self.header.is_empty() {
            self.header = values;
            return Ok(CsvLine::Header);
        }
        if values.len() != self.header.len() {
            let (found, wanted) = (values.len(), self.header.len());
            let what = format!("{found} fields, but the first line names {wanted} columns");
            return Err(BadLine::Csv(what));
        }
        self.values = values;
        Ok(CsvLine::Record(self.begun_on))
    }

    /// Returns the line on which an unfinished record began; `None` if there is none.
    pub(crate) fn unfinished(&self) -> Option<u64> {
        (self.begun > 0).then_some(self.begun_on)
    }

    /// Returns the names of the columns, none before the header, and the values of the last record
    /// read.
    pub(crate) fn columns(&self) -> (&[String], &[String]) {
        (&self.header, &self.values)
    }

    /// Reads further text of the record. Returns true if the record ends.
    fn read(&mut self, mut text: &[u8]) -> bool {
        while !text.is_empty() {
            let (result, read, wrote, fields) = self.reader.read_record(
                text,
                &mut self.output[self.written..],
                &mut self.ends[self.ended..],
            );
            text = &text[read..];
            self.written += wrote;
            self.ended += fields;
            match result {
                ReadRecordResult::InputEmpty => {}
                ReadRecordResult::OutputFull => self.output.resize(self.output.len() * 2, 0),
                ReadRecordResult::OutputEndsFull => self.ends.resize(self.ends.len() * 2, 0),
                ReadRecordResult::Record | ReadRecordResult::End => return true,
            }
        }
        false
    }

    fn fields(&self) -> Result<Vec<String>, BadLine> {
        let mut from = 0;
        let fields = self.ends[..self.ended].iter().map(|&to| {
            let field = std::str::from_utf8(&self.output[std::mem::replace(&mut from, to)..to]);
            field.map(str::to_owned).map_err(BadLine::from)
        });
        fields.collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn records_are_split() {
        let mut csv = Csv::new(b';');
        assert_eq!(csv.take(1, b"id;\"the name\";x"), Ok(CsvLine::Header));
        assert_eq!(csv.take(2, b"1;\"a;\"\"b\"\"\";"), Ok(CsvLine::Record(2)));
        assert_eq!(csv.columns().0, ["id", "the name", "x"]);
        assert_eq!(csv.columns().1, ["1", "a;\"b\"", ""]);
        assert_eq!(csv.take(3, b"2;\"two"), Ok(CsvLine::Part));
        assert_eq!(csv.unfinished(), Some(3));
        assert_eq!(csv.take(4, b"lines\";z"), Ok(CsvLine::Record(3)));
        assert_eq!(
            (csv.columns().1[1].as_str(), csv.unfinished()),
            ("two\nlines", None)
        );
        let error = csv.take(5, b"1;2").unwrap_err().to_string();
        assert_eq!(error, "2 fields, but the first line names 3 columns");
        // A quote inside a field opens nothing, and a carriage return there ends nothing.
        for value in ["5\" disk", "a\rb"] {
            let line = format!("3;{value};");
            assert_eq!(csv.take(5, line.as_bytes()), Ok(CsvLine::Record(5)));
            assert_eq!(csv.columns().1, ["3", value, ""]);
        }
        let long = "x".repeat(10_000);
        assert_eq!(
            csv.take(6, format!("{long};;{long}").as_bytes()),
            Ok(CsvLine::Record(6))
        );
        let many: Vec<String> = (0..500).map(|i| i.to_string()).collect();
        let mut wide = Csv::new(b',');
        assert_eq!(wide.take(1, many.join(",").as_bytes()), Ok(CsvLine::Header));
        assert_eq!(wide.columns().0, many);
    }

    #[test]
    fn a_record_of_several_lines_has_the_limit_of_a_line() {
        let mut csv = Csv::new(b',');
        assert_eq!(csv.take(1, b"id"), Ok(CsvLine::Header));
        let half = "x".repeat(IMPORT_LINE_BYTES_MAX / 2);
        let (first, last) = (format!("\"{half}"), format!("{half}\""));
        assert_eq!(csv.take(2, first.as_bytes()), Ok(CsvLine::Part));
        let limit = IMPORT_LINE_BYTES_MAX;
        assert_eq!(
            csv.take(3, last.as_bytes()),
            Err(BadLine::RecordTooLong { limit })
        );
        assert_eq!(csv.take(4, b"7"), Ok(CsvLine::Record(4)));
    }
}
