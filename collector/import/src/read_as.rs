//! Reads the records of a source according to its format.

use super::BadLine;
use super::documents::Documents;
use super::format::{Form, Format, SourceForm, recognise};
use super::mapped::LineMapper;
use super::mapping::FieldMapping;
use super::outcome::{ImportError, ImportSummary, StopReason};
use super::protobuf::Messages;
use super::sink::Sink;
use super::source::UnpackedSource;
use super::take::{self, Take as _};
use super::time::{TimeRule, TimeUnit, Times};
use stroboscope_store::limits::{IMPORT_RECORD_BYTES_MAX, Limits};

/// Options that determine how sources are read.
#[derive(Debug, Default)]
pub(super) struct ReadAs {
    /// Requested format; `None` detects it.
    pub(super) format: Option<Format>,
    /// Mapping that parses logs of other schemas; `None` if the format decides.
    pub(super) mapping: Option<FieldMapping>,
    /// Unit of the times of an event log or a mapped log; `None` leaves it to the mapping's rule,
    /// or to the rules of [`time`](super::time).
    pub(super) time_unit: Option<TimeUnit>,
}

impl ReadAs {
    /// Returns the identifier of a source whose bytes have this hash. It contains the options,
    /// because other options can make other rows of the same bytes.
    pub(super) fn content(&self, hash: &str) -> String {
        let mut content = hash.to_owned();
        if let Some(format) = self.format {
            content += &format!("-{format:?}").to_ascii_lowercase();
        }
        if let Some(mapping) = &self.mapping {
            content += &format!("-map{:032x}", mapping.hash());
        }
        if let Some(unit) = self.time_unit {
            content += &format!("-{unit}");
        }
        content
    }

    /// Reads a whole source.
    ///
    /// # Errors
    /// Returns an error if the source cannot be read or has no known form, if a unit is given for a
    /// format that fixes it, or if the store cannot be written. Damage to a compressed source is
    /// reported as a bad line instead.
    pub(super) fn read(
        &self,
        name: &str,
        source: UnpackedSource,
        mut sink: Sink<'_>,
        limits: &Limits,
    ) -> Result<ImportSummary, ImportError> {
        let is_packed = source.is_packed;
        let mut line = 0;
        let read = match &self.mapping {
            Some(mapping) => {
                let mapper = LineMapper::new(mapping, self.time_unit, limits);
                mapper.read(source.bytes, &mut sink, &mut line)
            }
            None => self.unmapped(name, source, &mut sink, &mut line, limits),
        };
        let source_name = name.to_owned();
        match read {
            Ok(()) => {}
            Err(StopReason::Import(error)) => return Err(error),
            Err(StopReason::Unknown(holds)) => {
                return Err(ImportError::UnknownForm { source_name, holds });
            }
            // An error of the operating system is no damage to the content, and a retry may
            // succeed.
            Err(StopReason::Source(error)) if is_packed && error.raw_os_error().is_none() => {
                sink.bad(line, &BadLine::Packed(error.to_string()));
            }
            Err(StopReason::Source(source)) => {
                return Err(ImportError::Source {
                    source_name,
                    source,
                });
            }
        }
        sink.finish()
    }

    fn unmapped(
        &self,
        name: &str,
        source: UnpackedSource,
        sink: &mut Sink<'_>,
        line: &mut u64,
        limits: &Limits,
    ) -> Result<(), StopReason> {
        let recognised = recognise(&source.head, self.format);
        let fixed = match recognised {
            SourceForm::Kernel(format) => Some(format!("{format:?}")),
            SourceForm::Protobuf => Some(format!("{:?}", Format::OtlpProtobuf)),
            SourceForm::Json {
                form: Form::Event | Form::Unknown,
                ..
            } => None,
            SourceForm::Json { .. } => Some("of a form".to_owned()),
        };
        if let (Some(what), true) = (fixed, self.time_unit.is_some()) {
            let source_name = name.to_owned();
            return Err(ImportError::FixedUnit { source_name, what }.into());
        }
        match recognised {
            SourceForm::Kernel(format) => Ok(sink.kernel(format, source.bytes, line)?),
            SourceForm::Protobuf => messages(source, sink, line),
            SourceForm::Json { form, is_lines } => {
                let times = Times::new(self.time_unit.map_or(TimeRule::Recognised, TimeRule::Unit));
                let content = sink.content().to_owned();
                let mut documents = Documents::new(self.format, times, limits, &content);
                documents.read(source.bytes, (form, is_lines), sink, line)
            }
        }
    }
}

fn messages(source: UnpackedSource, sink: &mut Sink<'_>, at: &mut u64) -> Result<(), StopReason> {
    let mut messages = Messages::new(source.bytes, &source.head, IMPORT_RECORD_BYTES_MAX);
    loop {
        let next = messages.next_message();
        if let Ok(Some((number, _))) = &next {
            *at = *number;
        }
        // Fields after the last message are counted, too.
        for name in messages.not_taken() {
            sink.not_taken(*at, &name, 1);
        }
        let Some((number, message)) = next? else {
            return Ok(());
        };
        sink.step()?;
        match message {
            Ok(of_resource) => {
                stroboscope_otlp::spans_of(number, &of_resource, &mut take::Spans(sink));
            }
            Err(reason) => sink.bad(number, &reason),
        }
    }
}
