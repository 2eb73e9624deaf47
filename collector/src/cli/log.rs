//! Log formats: lines for people, for systemd's journal, or for programs.

use std::fmt::{self, Write as _};
use std::io::IsTerminal as _;

use clap::{ArgMatches, Args, FromArgMatches as _, ValueEnum};
use serde::Serialize;
use serde_json::{Map, Value};
use stroboscope_render::show::{escaped_json, shortened};
use tracing::field::{Field, Visit};
use tracing::{Event, Level, Subscriber};
use tracing_subscriber::filter::Targets;
use tracing_subscriber::fmt::format::{Format, Full, Writer};
use tracing_subscriber::fmt::time::{FormatTime as _, SystemTime};
use tracing_subscriber::fmt::{FmtContext, FormatEvent, FormatFields};
use tracing_subscriber::layer::SubscriberExt as _;
use tracing_subscriber::registry::LookupSpan;
use tracing_subscriber::util::SubscriberInitExt as _;

use stroboscope_reports::output::say;

/// Subcommands that accept the log options.
const WITH_ARGUMENTS: [&str; 2] = ["collect", "config"];
/// Prefix of the log targets of our crates. Other crates log at most warnings and errors, because
/// at level `debug` the HTTP crates log headers, which contain tokens.
const OURS: &str = "stroboscope";

#[derive(Args, Clone, Copy, Debug)]
#[command(next_help_heading = "Logging")]
pub(super) struct LogArguments {
    /// Format of the log on standard error, with one line per event. With json, `collect` logs what
    /// it otherwise prints on standard output. In text, lines have priorities instead of times and
    /// levels if systemd's journal reads them
    #[arg(long, value_name = "FORMAT", value_enum, default_value = "text")]
    log_format: LogFormat,
    /// Lowest level to log
    #[arg(long, value_name = "LEVEL", value_enum, default_value = "info")]
    log_level: LogLevel,
}

impl LogArguments {
    /// Reports whether the log is in JSON.
    pub(super) fn is_json(self) -> bool {
        self.log_format == LogFormat::Json
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum LogFormat {
    Text,
    Json,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum LogLevel {
    Error,
    Warn,
    Info,
    Debug,
}

impl LogLevel {
    fn level(self) -> Level {
        match self {
            Self::Error => Level::ERROR,
            Self::Warn => Level::WARN,
            Self::Info => Level::INFO,
            Self::Debug => Level::DEBUG,
        }
    }
}

/// Format of the log's lines.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Lines {
    /// Line of text with the time.
    Text,
    /// Text with a priority as in sd-daemon(3); the journal adds the time.
    Journal,
    Json,
}

/// Running log of the program, with the format of its lines.
#[derive(Clone, Copy, Debug)]
pub(super) struct Log(Lines);

impl Log {
    /// Starts the log with the options of the subcommand.
    pub(super) fn begin(matches: &ArgMatches) -> Self {
        let asked = matches.subcommand();
        let below = asked.and_then(|(_, matches)| matches.subcommand());
        let mut verbs = below.into_iter().chain(asked);
        let of_verb = verbs.find(|(verb, _)| WITH_ARGUMENTS.contains(verb));
        let said = of_verb.and_then(|(_, matches)| LogArguments::from_arg_matches(matches).ok());
        let level = said.map_or(Level::INFO, |said| said.log_level.level());
        let lines = match said.map(|said| said.log_format) {
            Some(LogFormat::Json) => Lines::Json,
            Some(LogFormat::Text) if is_read_by_journal() => Lines::Journal,
            _ => Lines::Text,
        };
        let targets = Targets::new()
            .with_default(level.min(Level::WARN))
            .with_target(OURS, level);
        let layer = tracing_subscriber::fmt::layer()
            .with_writer(std::io::stderr)
            .with_ansi(false)
            .event_format(lines);
        tracing_subscriber::registry()
            .with(targets)
            .with(layer)
            .init();
        Self(lines)
    }

    /// Logs the failure that ended the subcommand as JSON, or prints it as text.
    pub(super) fn failure(self, failure: &super::Failure) {
        match self.0 {
            Lines::Json => tracing::error!("{failure}"),
            _ => say!("stroboscope: {failure}"),
        }
    }
}

/// Reports whether standard error is the stream that systemd's journal names in `JOURNAL_STREAM`. A
/// process that a service started may have inherited the variable but not the stream.
fn is_read_by_journal() -> bool {
    use std::os::unix::fs::MetadataExt as _;
    let Ok(named) = std::env::var("JOURNAL_STREAM") else {
        return false;
    };
    // `/dev/stderr` is a link; `metadata` follows it to the open file.
    let is_it = |about: std::fs::Metadata| named == format!("{}:{}", about.dev(), about.ino());
    !std::io::stderr().is_terminal() && std::fs::metadata("/dev/stderr").is_ok_and(is_it)
}

impl<S, N> FormatEvent<S, N> for Lines
where
    S: Subscriber + for<'a> LookupSpan<'a>,
    N: for<'a> FormatFields<'a> + 'static,
{
    fn format_event(
        &self,
        context: &FmtContext<'_, S, N>,
        mut writer: Writer<'_>,
        event: &Event<'_>,
    ) -> fmt::Result {
        let text: Format<Full> = tracing_subscriber::fmt::format();
        let text = text.with_target(false).with_ansi(false);
        let mut line = String::new();
        match self {
            Self::Text => text.format_event(context, Writer::new(&mut line), event)?,
            Self::Journal => {
                write!(line, "<{}>", priority(*event.metadata().level()))?;
                text.without_time().with_level(false).format_event(
                    context,
                    Writer::new(&mut line),
                    event,
                )?;
            }
            Self::Json => return writeln!(writer, "{}", json(event)?),
        }
        writeln!(writer, "{}", shortened(line.trim_end(), LINE_CHARS_MAX))
    }
}

/// Maximum length of a line of text, or of a text field in JSON, in characters. Longer texts, such
/// as errors that quote a client's message, lose their middle.
const LINE_CHARS_MAX: usize = 1_000;

/// Returns the priority of syslog for a level.
fn priority(level: Level) -> u8 {
    match level {
        Level::ERROR => 3,
        Level::WARN => 4,
        Level::INFO => 6,
        _ => 7,
    }
}

/// One line of the JSON log.
#[derive(Serialize)]
struct JsonLine {
    time: String,
    level: String,
    what: String,
    #[serde(flatten)]
    fields: Map<String, Value>,
}

fn json(event: &Event<'_>) -> Result<String, fmt::Error> {
    let mut time = String::new();
    SystemTime.format_time(&mut Writer::new(&mut time))?;
    let mut said = EventText::default();
    event.record(&mut said);
    let line = JsonLine {
        time,
        level: event.metadata().level().to_string().to_lowercase(),
        what: said.what,
        fields: said.fields,
    };
    let line = serde_json::to_string(&line).map_err(|_| fmt::Error)?;
    Ok(escaped_json(&line))
}

/// Message and fields of an event.
#[derive(Default)]
struct EventText {
    what: String,
    fields: Map<String, Value>,
}

impl EventText {
    fn put(&mut self, field: &Field, value: impl Into<Value>) {
        self.fields.insert(field.name().to_owned(), value.into());
    }
}

impl Visit for EventText {
    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        if field.name() == "message" {
            self.what = shortened(&format!("{value:?}"), LINE_CHARS_MAX);
        } else {
            self.record_str(field, &format!("{value:?}"));
        }
    }

    fn record_str(&mut self, field: &Field, value: &str) {
        self.put(field, shortened(value, LINE_CHARS_MAX));
    }

    fn record_u64(&mut self, field: &Field, value: u64) {
        self.put(field, value);
    }

    fn record_i64(&mut self, field: &Field, value: i64) {
        self.put(field, value);
    }

    fn record_bool(&mut self, field: &Field, value: bool) {
        self.put(field, value);
    }

    fn record_f64(&mut self, field: &Field, value: f64) {
        self.put(field, value);
    }
}

#[cfg(test)]
mod tests {
    use std::io;
    use std::sync::{Arc, Mutex};

    use super::*;

    #[derive(Clone, Default)]
    struct LogBuffer(Arc<Mutex<Vec<u8>>>);

    impl io::Write for LogBuffer {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.0.lock().unwrap().write(bytes)
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn long_lines_lose_their_middle() {
        for lines in [Lines::Text, Lines::Journal, Lines::Json] {
            let kept = LogBuffer::default();
            let into = kept.clone();
            let layer = tracing_subscriber::fmt::layer()
                .with_writer(move || into.clone())
                .event_format(lines);
            tracing::subscriber::with_default(tracing_subscriber::registry().with(layer), || {
                let body = format!("begin\u{9b}31m{}end", "x".repeat(100_000));
                tracing::error!(body, "refused: {body}");
                tracing::info!("short");
            });
            let said = String::from_utf8(kept.0.lock().unwrap().clone()).unwrap();
            let each: Vec<&str> = said.lines().collect();
            assert_eq!(each.len(), 2, "{lines:?}: {said}");
            assert!(each[0].contains("refused: begin") && each[0].contains("…"));
            assert!(
                each[0].contains("end") && each[0].len() < 2_500,
                "{lines:?}"
            );
            assert!(!said.contains('\u{9b}'), "{lines:?}");
            assert!(each[1].contains("short"));
        }
    }
}
