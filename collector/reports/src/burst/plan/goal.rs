//! Parses goals in words, such as `overhead 1 %, 200 whole requests an hour`.

use std::time::Duration;

use crate::arguments::{parse_duration, parse_share};

/// Goal of a plan; parts that the user did not give are `None`.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct GoalArguments {
    pub longest: Option<Duration>,
    /// Maximum share of a process's CPU time.
    pub overhead: Option<f64>,
    /// Maximum share of all time.
    pub duty: Option<f64>,
    pub whole_per_hour: Option<f64>,
}

impl GoalArguments {
    /// Merges two goals; the parts of `other` take precedence.
    pub(super) fn and(self, other: GoalArguments) -> GoalArguments {
        GoalArguments {
            longest: other.longest.or(self.longest),
            overhead: other.overhead.or(self.overhead),
            duty: other.duty.or(self.duty),
            whole_per_hour: other.whole_per_hour.or(self.whole_per_hour),
        }
    }
}

const FORMS: &str =
    "`requests up to 30 ms`, `overhead 1 %`, `duty 1 %`, `200 whole requests an hour`";

/// Parses a goal such as `requests up to 30 ms, overhead 1 %, 200 whole requests an hour`: one or
/// more parts in the forms of [`FORMS`], each form at most once, in any order.
pub(super) fn parse_goal(text: &str) -> Result<GoalArguments, String> {
    let mut wanted = GoalArguments::default();
    for part in text.split(',').map(str::trim) {
        let words = part.to_lowercase();
        let wrong = |error: String| format!("{part:?}: {error}");
        let no_spaces = |text: &str| text.split_whitespace().collect::<String>();
        let is_twice = if let Some(length) = after(&words, &["requests up to", "request up to"]) {
            let longest = parse_duration(&no_spaces(length)).map_err(wrong)?;
            wanted.longest.replace(longest).is_some()
        } else if let Some(share) = after(&words, &["overhead up to", "overhead"]) {
            let share = parse_share(&no_spaces(share)).map_err(wrong)?;
            wanted.overhead.replace(share).is_some()
        } else if let Some(share) = after(&words, &["duty up to", "duty"]) {
            let share = parse_share(&no_spaces(share)).map_err(wrong)?;
            wanted.duty.replace(share).is_some()
        } else {
            let rate = rate(&words).ok_or_else(|| wrong(format!("not one of {FORMS}")))?;
            wanted.whole_per_hour.replace(rate).is_some()
        };
        if is_twice {
            return Err(wrong("given twice".to_owned()));
        }
    }
    Ok(wanted)
}

fn after<'a>(words: &'a str, heads: &[&str]) -> Option<&'a str> {
    heads.iter().find_map(|head| words.strip_prefix(head))
}

/// Parses `200 whole requests an hour` as a rate per hour.
fn rate(words: &str) -> Option<f64> {
    let words: Vec<&str> = words.split_whitespace().collect();
    let (count, rest) = words.split_first()?;
    let count: f64 = count.parse().ok()?;
    let rest = rest.strip_prefix(&["whole"]).unwrap_or(rest);
    let rest = rest
        .strip_prefix(&["requests"])
        .or(rest.strip_prefix(&["request"]))?;
    let [every, unit] = rest else { return None };
    let per_hour = match *unit {
        "minute" => 60.0,
        "hour" => 1.0,
        "day" => 1.0 / 24.0,
        _ => return None,
    };
    let is_rate = ["a", "an", "per", "every"].contains(every);
    (is_rate && count.is_finite() && count > 0.0).then_some(count * per_hour)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn goals_are_read() {
        let wanted = parse_goal("requests up to 30 ms, overhead 1 %, 200 whole requests an hour");
        let expected = GoalArguments {
            longest: Some(Duration::from_millis(30)),
            overhead: Some(0.01),
            duty: None,
            whole_per_hour: Some(200.0),
        };
        assert_eq!(wanted, Ok(expected));
        let other = parse_goal("5 requests a minute, duty 0.5%").unwrap();
        assert_eq!(
            (other.whole_per_hour, other.duty),
            (Some(300.0), Some(0.005))
        );
        let both = expected.and(other);
        assert_eq!(
            (both.longest, both.overhead, both.duty, both.whole_per_hour),
            (expected.longest, Some(0.01), Some(0.005), Some(300.0))
        );
        assert_eq!(
            parse_goal("48 whole requests per day")
                .unwrap()
                .whole_per_hour,
            Some(2.0)
        );
    }

    #[test]
    fn what_is_no_goal_is_said() {
        let check = |text: &str, says: &str| {
            let error = parse_goal(text).expect_err(text);
            assert!(error.contains(says), "{error} lacks {says}");
        };
        check("fast", "not one of `requests up to");
        check("requests up to 30", "500us, 3ms, 10s");
        check("overhead 200 %", "a share above 0");
        check("0 whole requests an hour", "not one of");
        check("200 whole requests an eternity", "not one of");
        check("duty 1 %, duty 2 %", "given twice");
        check("", "not one of");
    }
}
