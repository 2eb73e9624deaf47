//! Parameters of a request: texts by name, times and durations.

use std::collections::BTreeMap;

use chrono::DateTime;
use stroboscope_analysis::duration::parse_ns;

const QUERY_BYTES_MAX: usize = 64 << 10;

/// Parameters of a request, in their order.
#[derive(Clone, Debug, Default)]
pub(crate) struct Parameters(Vec<(String, String)>);

/// Description of a wrong parameter, for the client.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub(crate) struct BadParameter(pub(crate) String);

impl Parameters {
    pub(crate) fn of(query: Option<&str>) -> Result<Self, BadParameter> {
        let query = query.unwrap_or_default();
        if query.len() > QUERY_BYTES_MAX {
            let bytes = query.len();
            return Err(BadParameter(format!(
                "the query has {bytes} bytes; the limit is {QUERY_BYTES_MAX}"
            )));
        }
        let pairs = url::form_urlencoded::parse(query.as_bytes()).into_owned();
        Ok(Self(pairs.collect()))
    }

    /// Returns the first non-empty value of any of these names.
    pub(crate) fn text(&self, names: &[&str]) -> Option<&str> {
        let is_it =
            |(name, value): &&(String, String)| names.contains(&name.as_str()) && !value.is_empty();
        self.0.iter().find(is_it).map(|(_, value)| value.as_str())
    }

    /// Returns all values of a name that may be repeated.
    pub(crate) fn texts<'a>(&'a self, name: &'a str) -> impl Iterator<Item = &'a str> {
        let values = self.0.iter().filter(move |(known, _)| known == name);
        values.map(|(_, value)| value.as_str())
    }

    /// Reports whether the parameter is present, with a value or without.
    pub(crate) fn has(&self, name: &str) -> bool {
        self.0.iter().any(|(known, _)| known == name)
    }

    /// Parses the parameter with one of these names as a whole number.
    pub(crate) fn number(&self, names: &[&str]) -> Result<Option<u64>, BadParameter> {
        let number = |text: &str| {
            let number = text.parse();
            number.map_err(|_| wrong(names, text, "a whole number"))
        };
        self.text(names).map(number).transpose()
    }

    /// Returns the maximum number of spans of a trace to return: `max_spans`, or `usize::MAX` if it
    /// is missing or 0.
    pub(crate) fn spans_max(&self) -> Result<usize, BadParameter> {
        let most = self.number(&["max_spans"])?.filter(|most| *most > 0);
        Ok(most.map_or(usize::MAX, |most| {
            usize::try_from(most).unwrap_or(usize::MAX)
        }))
    }

    /// Parses a time since the Unix epoch, or a duration, in units of `unit_ns`, to ns.
    pub(crate) fn time_ns(&self, name: &str, unit_ns: i64) -> Result<Option<i64>, BadParameter> {
        let ns = |text: &str| {
            let wrong = |_| wrong(&[name], text, "a whole number since the Unix epoch");
            let count: i64 = text.parse().map_err(wrong)?;
            Ok(count.saturating_mul(unit_ns))
        };
        self.text(&[name]).map(ns).transpose()
    }

    /// Parses a time of RFC 3339 to ns since the Unix epoch.
    pub(crate) fn instant_ns(&self, names: &[&str]) -> Result<Option<i64>, BadParameter> {
        let Some(text) = self.text(names) else {
            return Ok(None);
        };
        let parsed = DateTime::parse_from_rfc3339(text);
        let parsed = parsed.map_err(|error| {
            let expected = format!("a time such as 2026-03-01T12:00:00.5Z ({error})");
            wrong(names, text, &expected)
        })?;
        // Times outside the range, from 1677 to 2262, become its nearer end.
        let end = if parsed.timestamp() < 0 {
            i64::MIN
        } else {
            i64::MAX
        };
        Ok(Some(parsed.timestamp_nanos_opt().unwrap_or(end)))
    }

    /// Parses a duration such as `1h30m` or `1.2s` to ns; a plain `0` needs no unit.
    pub(crate) fn duration_ns(&self, names: &[&str]) -> Result<Option<i64>, BadParameter> {
        let ns = |text: &str| match text {
            "0" => Ok(0),
            text => parse_ns(text)
                .and_then(|ns| i64::try_from(ns).ok())
                .ok_or_else(|| wrong(names, text, "a duration such as 1.2s, 100ms or 500us")),
        };
        self.text(names).map(ns).transpose()
    }

    /// Parses a JSON object, and returns its values as texts: strings as they are, others as JSON.
    /// The map is empty if the parameter is missing.
    pub(crate) fn object(&self, names: &[&str]) -> Result<BTreeMap<String, String>, BadParameter> {
        let Some(text) = self.text(names) else {
            return Ok(BTreeMap::new());
        };
        let parsed: Result<BTreeMap<String, serde_json::Value>, _> = serde_json::from_str(text);
        let parsed =
            parsed.map_err(|error| wrong(names, text, &format!("an object of JSON ({error})")))?;
        let as_text = |(key, value): (String, serde_json::Value)| match value {
            serde_json::Value::String(text) => (key, text),
            other => (key, other.to_string()),
        };
        Ok(parsed.into_iter().map(as_text).collect())
    }
}

/// Returns the error for a value that is not as expected. The first name stands for all.
fn wrong(names: &[&str], text: &str, expected: &str) -> BadParameter {
    let name = names.first().copied().unwrap_or_default();
    BadParameter(format!("{name}={text}: expected {expected}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_are_as_go_writes_them() {
        let of = |text: &str| {
            let query = format!("d={text}");
            Parameters::of(Some(&query)).unwrap().duration_ns(&["d"])
        };
        assert_eq!(of("1h30m"), Ok(Some(5_400_000_000_000)));
        assert_eq!(of("0"), Ok(Some(0)));
        for wrong in ["5", "s", "-5s", "1.2.3s", "5days", "99999w"] {
            assert!(of(wrong).unwrap_err().0.contains("a duration"), "{wrong}");
        }
    }

    #[test]
    fn parameters_say_what_is_wrong() {
        let of = |query: &str| Parameters::of(Some(query)).unwrap();
        assert_eq!(of("start=12").time_ns("start", 1_000), Ok(Some(12_000)));
        assert_eq!(of("a=&b=x").text(&["a", "b"]), Some("x"));
        let error = of("start=yesterday").time_ns("start", 1).unwrap_err();
        assert!(error.0.contains("start=yesterday"), "{error}");
        let error = of("tags=%7Bx").object(&["tags"]).unwrap_err();
        assert!(error.0.contains("an object of JSON"), "{error}");
        let tags = of(r#"tags={"error":true,"n":5,"s":"t"}"#)
            .object(&["tags"])
            .unwrap();
        let expected = [("error", "true"), ("n", "5"), ("s", "t")];
        assert!(tags.iter().map(|(k, v)| (&**k, &**v)).eq(expected));
        let time = of("t=1970-01-01T00:00:01.5Z").instant_ns(&["t"]);
        assert_eq!(time, Ok(Some(1_500_000_000)));
        let long = "x".repeat(QUERY_BYTES_MAX + 1);
        assert!(Parameters::of(Some(&long)).is_err());
    }
}
