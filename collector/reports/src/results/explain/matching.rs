//! Link and command that search for the later requests that satisfy the conditions of a leaf.

use stroboscope_analysis::decision_tree::Test;
use stroboscope_analysis::explain::{ParameterCondition, ParameterTest};
use stroboscope_query::TimeRange;
use stroboscope_render::page::path_segment;

use crate::arguments::ReadingArguments;
use crate::suggest::{command_on, quoted};
use crate::time::written;

/// Address of the page that lists the matching requests, and the equivalent command.
#[derive(Debug)]
pub(super) struct RequestsLink {
    pub(super) path: String,
    pub(super) command: String,
}

impl RequestsLink {
    /// Creates a link to the requests of a period that satisfy these conditions; `None` if no
    /// formula can express one of the conditions.
    pub(super) fn of(
        conditions: &[ParameterCondition],
        range: TimeRange,
        reading: &ReadingArguments,
    ) -> Option<Self> {
        let formula = formula(conditions)?;
        let formula = match &reading.from.filter {
            Some((filter, _)) => format!("({filter}) and {formula}"),
            None => formula,
        };
        let mut path = format!("/traces?q={}", path_segment(&formula));
        let mut words = format!("requests --where {}", quoted(&formula));
        let ends = [("since", range.since_ns), ("until", range.until_ns)];
        let ends = ends.map(|(name, ns)| (name, ns.map(written)));
        let root = ("root", reading.from.root.clone());
        for (name, value) in ends.into_iter().chain([root]) {
            if let Some(value) = value {
                path += &format!("&{name}={}", path_segment(&value));
                words += &format!(" --{name} {}", quoted(&value));
            }
        }
        let command = command_on(&words, &reading.from.data.data);
        Some(Self { path, command })
    }
}

fn formula(conditions: &[ParameterCondition]) -> Option<String> {
    let formulas: Option<Vec<String>> = conditions.iter().map(of_condition).collect();
    formulas.map(|formulas| formulas.join(" and "))
}

/// Returns the formula of one condition; `None` for a parameter named like the largest or smallest
/// of several numbers, which no formula can express.
fn of_condition(condition: &ParameterCondition) -> Option<String> {
    let parameter = &condition.parameter;
    if parameter.recorded() != *parameter {
        return None;
    }
    let field = match &*parameter.key {
        "host" => "host".to_owned(),
        key => format!(".{}", text(key.strip_prefix("resource.").unwrap_or(key))),
    };
    let of_each = |sign: &str, values: Vec<String>, between: &str| {
        let each = values
            .into_iter()
            .map(|value| format!("{field} {sign} {value}"));
        each.collect::<Vec<_>>().join(between)
    };
    let test = match &condition.test {
        ParameterTest::Value(Test::Between(above, most)) => {
            let above = above.is_finite().then(|| format!("{field} > {above}"));
            let most = most.is_finite().then(|| format!("{field} <= {most}"));
            let ends: Vec<String> = above.into_iter().chain(most).collect();
            ends.join(" && ")
        }
        ParameterTest::Value(Test::OneOf(texts)) => {
            let any = of_each("=", texts.iter().map(|one| text(one)).collect(), " || ");
            match texts.len() {
                1 => any,
                _ => format!("({any})"),
            }
        }
        ParameterTest::Value(Test::NoneOf(texts)) => {
            let none = texts.iter().map(|one| text(one));
            of_each(
                "!=",
                ["nil".to_owned()].into_iter().chain(none).collect(),
                " && ",
            )
        }
        ParameterTest::Recorded(true) => format!("{field} != nil"),
        ParameterTest::Recorded(false) => {
            return Some(format!(
                "not {{ {field} != nil{} }}",
                of_operation(condition)
            ));
        }
    };
    Some(format!("{{ {test}{} }}", of_operation(condition)))
}

/// Returns a term that selects spans of the condition's operation; empty without a service. Omits
/// the name if it has variable parts.
fn of_operation(condition: &ParameterCondition) -> String {
    let Some((service, name)) = condition.parameter.operation.split_once(':') else {
        return String::new();
    };
    let name = match name.contains('*') {
        true => String::new(),
        false => format!(" && name = {}", text(name)),
    };
    format!(" && service = {}{name}", text(service))
}

/// Quotes a text for formulas.
fn text(text: &str) -> String {
    format!("\"{}\"", text.replace('\\', "\\\\").replace('"', "\\\""))
}

#[cfg(test)]
mod tests {
    use stroboscope_analysis::explain::Parameter;
    use stroboscope_search::parse;

    use super::*;

    #[test]
    fn conditions_are_formulas() {
        let check = |key: &str, operation: &str, test: ParameterTest, expected: &str| {
            let parameter = Parameter {
                operation: operation.into(),
                key: key.into(),
            };
            let found = formula(&[ParameterCondition { parameter, test }]).unwrap();
            assert_eq!(found, expected);
            parse(&found).unwrap();
        };
        let value = ParameterTest::Value;
        let texts = |texts: &[&str]| texts.iter().map(|text| (*text).into()).collect();
        check(
            "tenant",
            "shop:GET /item/{id}",
            value(Test::OneOf(texts(&["t\"2", "t3"]))),
            r#"{ (."tenant" = "t\"2" || ."tenant" = "t3") && service = "shop" && name = "GET /item/{id}" }"#,
        );
        check(
            "resource.service.version",
            "",
            value(Test::NoneOf(texts(&["1"]))),
            r#"{ ."service.version" != nil && ."service.version" != "1" }"#,
        );
        check(
            "host",
            "web:GET /*",
            value(Test::OneOf(texts(&["a"]))),
            r#"{ host = "a" && service = "web" }"#,
        );
        check(
            "count",
            "",
            value(Test::Between(f64::NEG_INFINITY, 4_096.5)),
            r#"{ ."count" <= 4096.5 }"#,
        );
        check(
            "a b",
            "",
            ParameterTest::Recorded(false),
            r#"not { ."a b" != nil }"#,
        );
        let largest = Parameter {
            operation: "".into(),
            key: "largest count".into(),
        };
        let test = value(Test::Between(1.0, f64::INFINITY));
        assert_eq!(
            formula(&[ParameterCondition {
                parameter: largest,
                test
            }]),
            None
        );
    }
}
