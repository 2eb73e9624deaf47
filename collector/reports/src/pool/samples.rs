//! Reads samples of other systems from a file.

use std::collections::BTreeMap;
use std::path::Path;

use serde::Deserialize;
use stroboscope_query::{TimeRange, UsesByService};

const BYTES_MAX: u64 = 1 << 30;

/// Usage of one process at one time.
#[derive(Clone, Debug, PartialEq, Deserialize)]
struct Sample {
    #[serde(default)]
    service: String,
    process: String,
    ts_ns: i64,
    value: f64,
}

/// Reads the samples of a time range from a file of CSV or JSON lines.
///
/// # Errors
/// Returns a description of the problem, with the number of the line if one is wrong. Having no
/// samples in the range is a problem, too.
pub(super) fn read_samples(file: &Path, range: TimeRange) -> Result<UsesByService, String> {
    let cannot = |error: std::io::Error| format!("cannot read {}: {error}", file.display());
    let length = std::fs::metadata(file).map_err(cannot)?.len();
    if length > BYTES_MAX {
        return Err(format!(
            "{} has {length} bytes; at most {BYTES_MAX} are read: leave out some of the time",
            file.display()
        ));
    }
    let text = std::fs::read_to_string(file).map_err(cannot)?;
    let samples = parse(&text).map_err(|error| format!("{}:{error}", file.display()))?;
    let mut processes: BTreeMap<(String, String), Vec<(i64, f64)>> = BTreeMap::new();
    for sample in samples {
        if range.contains(sample.ts_ns) {
            let of = (sample.service, sample.process);
            let own = processes.entry(of).or_default();
            own.push((sample.ts_ns, sample.value));
        }
    }
    if processes.is_empty() {
        return Err(format!(
            "{} has no samples{}",
            file.display(),
            if range == TimeRange::default() {
                ""
            } else {
                " between --since and --until"
            }
        ));
    }
    let processes = processes.into_iter();
    Ok(UsesByService::of(processes.map(
        |((service, process), samples)| match service.is_empty() {
            true => ("all".to_owned(), process, samples),
            false => (service, process, samples),
        },
    )))
}

/// Parses the samples, or returns the number of the first bad line and the reason.
fn parse(text: &str) -> Result<Vec<Sample>, String> {
    let lines = (1_usize..).zip(text.lines().map(str::trim));
    let mut lines = lines.filter(|(_, line)| !line.is_empty()).peekable();
    let is_json = lines.peek().is_some_and(|(_, line)| line.starts_with('{'));
    let columns = match lines.peek() {
        Some((at, line)) if !is_json => {
            let columns = Columns::of(line).map_err(|error| format!("{at}: {error}"))?;
            lines.next();
            Some(columns)
        }
        _ => None,
    };
    let sample = |line: &str| match &columns {
        Some(columns) => columns.sample(line),
        None => serde_json::from_str(line).map_err(|error| error.to_string()),
    };
    lines
        .map(|(at, line)| {
            let sample: Sample = sample(line).map_err(|error| format!("{at}: {error}"))?;
            match sample.value.is_finite() {
                true => Ok(sample),
                false => Err(format!("{at}: the value is no finite number")),
            }
        })
        .collect()
}

/// Positions of the columns of CSV whose fields contain no commas.
struct Columns {
    process: usize,
    ts_ns: usize,
    value: usize,
    service: Option<usize>,
}

impl Columns {
    fn of(line: &str) -> Result<Columns, String> {
        let names: Vec<&str> = fields(line).collect();
        let find = |name: &str| names.iter().position(|known| *known == name);
        let needed = |name: &str| {
            find(name).ok_or_else(|| {
                format!(
                    "no column {name}; the first line names them: process,ts_ns,value, and service if there are several"
                )
            })
        };
        Ok(Columns {
            process: needed("process")?,
            ts_ns: needed("ts_ns")?,
            value: needed("value")?,
            service: find("service"),
        })
    }

    fn sample(&self, line: &str) -> Result<Sample, String> {
        let fields: Vec<&str> = fields(line).collect();
        let get = |place: usize| {
            let found = fields.get(place).copied();
            found.ok_or_else(|| format!("{} fields are too few", fields.len()))
        };
        let (ts_ns, value) = (get(self.ts_ns)?, get(self.value)?);
        Ok(Sample {
            service: self.service.map_or(Ok(""), get)?.to_owned(),
            process: get(self.process)?.to_owned(),
            ts_ns: ts_ns
                .parse()
                .map_err(|_| format!("ts_ns is a whole number of nanoseconds, not {ts_ns:?}"))?,
            value: value
                .parse()
                .map_err(|_| format!("value is a number, not {value:?}"))?,
        })
    }
}

fn fields(line: &str) -> impl Iterator<Item = &str> {
    line.split(',').map(|field| field.trim().trim_matches('"'))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sample(service: &str, process: &str, ts_ns: i64, value: f64) -> Sample {
        Sample {
            service: service.to_owned(),
            process: process.to_owned(),
            ts_ns,
            value,
        }
    }

    #[test]
    fn csv_and_json_are_the_same() {
        let csv = "value,process,ts_ns,service\n0.5,a,1000,web\n\n1e-3, b ,2000,store\n";
        let json = r#"{"process":"a","ts_ns":1000,"value":0.5,"service":"web"}
{"process":"b","ts_ns":2000,"value":0.001,"service":"store","unit":"cores"}"#;
        let expected = vec![
            sample("web", "a", 1000, 0.5),
            sample("store", "b", 2000, 0.001),
        ];
        assert_eq!(parse(csv), Ok(expected.clone()));
        assert_eq!(parse(json), Ok(expected));
        assert_eq!(
            parse("process,ts_ns,value\n\"a\",5,2"),
            Ok(vec![sample("", "a", 5, 2.0)])
        );
    }

    #[test]
    fn what_is_wrong_is_said_with_its_line() {
        let check = |text: &str, says: &str| {
            let error = parse(text).expect_err(text);
            assert!(error.contains(says), "{error} lacks {says}");
        };
        check("process,time,value\na,1,2", "1: no column ts_ns");
        check("process,ts_ns,value\na,1,2\na,2", "3: 2 fields are too few");
        check("process,ts_ns,value\na,1.5,2", "2: ts_ns is a whole number");
        check(
            "process,ts_ns,value\na,1,much",
            "2: value is a number, not \"much\"",
        );
        check("process,ts_ns,value\na,1,NaN", "2: the value is no finite");
        check(r#"{"process":"a","ts_ns":1}"#, "1: missing field `value`");
        assert_eq!(parse(""), Ok(vec![]));
    }
}
