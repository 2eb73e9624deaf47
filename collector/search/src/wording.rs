//! Formats conditions as text, in the notation of formulas.

use std::fmt;

use super::condition::{Comparison, Condition, Value};

impl fmt::Display for Comparison {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Equal => "=",
            Self::NotEqual => "!=",
            Self::Less => "<",
            Self::AtMost => "<=",
            Self::Greater => ">",
            Self::AtLeast => ">=",
        })
    }
}

impl fmt::Display for Condition {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Any => f.write_str("true"),
            Self::Compare(field, comparison, Value::Text(text)) => {
                write!(f, "{field} {comparison} {text:?}")
            }
            Self::Compare(field, comparison, Value::Number(number)) => {
                let unit = if field.is_time() { "ns" } else { "" };
                write!(f, "{field} {comparison} {number}{unit}")
            }
            Self::Compare(field, comparison, Value::Whole(number)) => {
                write!(f, "{field} {comparison} {number}")
            }
            Self::Matches(field, pattern, is_wanted) => {
                let sign = if *is_wanted { "=~" } else { "!~" };
                write!(f, "{field} {sign} {:?}", pattern.text())
            }
            Self::IsThere(field, is_wanted) => {
                write!(f, "{field} {} nil", if *is_wanted { "!=" } else { "=" })
            }
            Self::Not(inner) => write!(f, "!({inner})"),
            Self::And(a, b) => write!(f, "{a} && {b}"),
            Self::Or(a, b) => write!(f, "({a} || {b})"),
        }
    }
}

#[cfg(test)]
mod tests {
    use crate::{Requirement, parse};

    #[test]
    fn what_is_written_reads_the_same() {
        let whole = r#"{ (name = "a b" || .n >= 5) && !(duration > 2ms) && host =~ "h.*" && .x != nil
            && status = "error" && span.x = 1 && resource.zone = "a" && event:name = "e" && event."a b" = 2 && link:traceID != nil
            && link.x = 1234567890123456789 && instrumentation:name = "n" && instrumentation.x = "y" && event:timeSinceStart > 1ms }"#;
        let spans = |text: &str| {
            Requirement::of(&parse(text).expect("a formula"))
                .spans()
                .to_vec()
        };
        let first = spans(whole);
        let again = format!("{{ {} }}", first[0]);
        assert_eq!(spans(&again), first, "{again}");
    }
}
