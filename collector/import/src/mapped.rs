//! Reads a source with a mapping.

use std::io::BufRead;

use super::BadLine;
use super::json_records::{JsonRecords, NextRecord};
use super::layout::Layout;
use super::lines::Lines;
use super::mapping::{CsvLine, FieldMapping, MappedLine, RawRecord, Scratch};
use super::outcome::StopReason;
use super::sink::Sink;
use super::take::Take as _;
use super::time::{TimeUnit, Times};
use stroboscope_otlp::typed::count_of;
use stroboscope_store::limits::{IMPORT_LINE_BYTES_MAX, IMPORT_RECORD_BYTES_MAX, Limits};

/// Reader that parses one source with a mapping.
pub(super) struct LineMapper<'a> {
    mapping: &'a FieldMapping,
    limits: &'a Limits,
    times: Times,
    scratch: Scratch,
}

impl<'a> LineMapper<'a> {
    pub(super) fn new(
        mapping: &'a FieldMapping,
        time_unit: Option<TimeUnit>,
        limits: &'a Limits,
    ) -> Self {
        Self {
            mapping,
            limits,
            times: mapping.times(time_unit),
            scratch: Scratch::default(),
        }
    }

    /// Reads a whole source.
    ///
    /// # Errors
    /// Returns the errors of the source and of the store.
    pub(super) fn read(
        mut self,
        source: impl BufRead,
        sink: &mut Sink<'_>,
        at: &mut u64,
    ) -> Result<(), StopReason> {
        match self.mapping.layout() {
            Some(layout) => self.documents(source, &layout, sink, at),
            None => self.lines(source, sink, at),
        }
    }

    fn lines(
        &mut self,
        source: impl BufRead,
        sink: &mut Sink<'_>,
        at: &mut u64,
    ) -> Result<(), StopReason> {
        let mut lines = Lines::new(source, IMPORT_LINE_BYTES_MAX);
        let (mut line, mut csv) = (Vec::new(), self.mapping.csv());
        while let Some(read) = lines.next_into(&mut line)? {
            sink.step()?;
            let number = lines.number();
            *at = number;
            let is_inside = csv.as_ref().is_some_and(|csv| csv.unfinished().is_some());
            if read.is_ok() && !is_inside && line.iter().all(u8::is_ascii_whitespace) {
                continue;
            }
            let Some(csv) = &mut csv else {
                match read {
                    Ok(()) => self.record(number, RawRecord::Text(&line), sink),
                    Err(reason) => sink.bad(number, &reason),
                }
                continue;
            };
            match read.and_then(|()| csv.take(number, &line)) {
                Ok(CsvLine::Record(number)) => self.record(number, RawRecord::Csv(csv), sink),
                Ok(CsvLine::Header | CsvLine::Part) => {}
                // Without the names, the next record would pass for them.
                Err(reason) if csv.columns().0.is_empty() => {
                    let what = format!(
                        "nothing is imported, because the first record, which names the columns, \
                         cannot be read: {reason}; correct it and import the file again"
                    );
                    sink.bad(number, &BadLine::Csv(what));
                    return Ok(());
                }
                Err(reason) => sink.bad(number, &reason),
            }
        }
        if let Some(number) = csv.and_then(|csv| csv.unfinished()) {
            let what = "the quote opened here does not close".to_owned();
            sink.bad(number, &BadLine::Csv(what));
        }
        Ok(())
    }

    fn documents(
        &mut self,
        source: impl BufRead,
        layout: &Layout,
        sink: &mut Sink<'_>,
        at: &mut u64,
    ) -> Result<(), StopReason> {
        let mut elements = JsonRecords::new(source, layout, IMPORT_RECORD_BYTES_MAX, 1);
        let mut record = Vec::new();
        while let Some((line, found)) = elements.next_into(&mut record)? {
            sink.step()?;
            *at = line;
            match found {
                NextRecord::Record(_) => self.record(line, RawRecord::Text(&record), sink),
                NextRecord::Member => {
                    let count = std::str::from_utf8(&record).map_or(1, count_of);
                    let name = format!("{} beside the records", elements.key());
                    sink.not_taken(line, &name, count);
                }
                NextRecord::OpenList => {
                    let reason = "the document ends in the middle".to_owned();
                    sink.bad(line, &BadLine::Json(reason));
                }
                NextRecord::Bad(reason) => sink.bad(line, &reason),
            }
        }
        Ok(())
    }

    fn record(&mut self, number: u64, written: RawRecord<'_>, sink: &mut Sink<'_>) {
        let (times, scratch) = (&mut self.times, &mut self.scratch);
        let record = (number, written);
        let read = self
            .mapping
            .read_record(record, times, scratch, self.limits, sink);
        match read {
            Ok(MappedLine::Taken) => {}
            Ok(MappedLine::Ignored) => sink.ignored(),
            Err(reason) => sink.bad(number, &reason),
        }
    }
}
