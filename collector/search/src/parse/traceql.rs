//! Parser of a part of TraceQL: selectors of spans, `count()`, `select` and the hint
//! `most_recent`. It rejects the operators that only formulas have (`then`, `always` …).

use super::{CHARACTERS_MAX, ParseResult, Parser};
use crate::field::Field;
use crate::formula::{Formula, Selector, When};
use crate::syntax_error::SyntaxError;
use crate::token::{Kind, tokens};

const SPANSETS: &str = "a selector such as `{ name = \"read\" }`";
pub(super) const STAGES: &str =
    "`count() > 3` or `select(.bytes)`: of TraceQL's pipelines, these two are supported";

type Relate = fn(Box<Selector>, Box<Selector>) -> Selector;

/// A parsed TraceQL query.
#[derive(Clone, Debug, PartialEq)]
pub struct TraceQl {
    /// Formula that a trace must satisfy.
    pub formula: Formula,
    /// Fields that `select` lists for each span.
    pub select: Vec<Field>,
}

/// Parses a TraceQL query. An empty text selects every trace.
///
/// # Errors
/// Returns a position at which the text does not match TraceQL's grammar, or uses an unsupported
/// part of TraceQL.
pub fn parse_traceql(text: &str) -> Result<TraceQl, SyntaxError> {
    parse_query(text, true)
}

/// Parses a query by TraceQL's grammar. `is_traceql` is false to accept also the fields that only
/// formulas have, and `and`, `or` and `not` in braces.
pub(super) fn parse_query(text: &str, is_traceql: bool) -> ParseResult<TraceQl> {
    let text = if text.trim().is_empty() { "{}" } else { text };
    if text.chars().count() > CHARACTERS_MAX {
        let expected = format!("the end, as a query has {CHARACTERS_MAX} characters at most");
        return Err(SyntaxError::new(
            CHARACTERS_MAX + 1,
            expected,
            "more".to_owned(),
        ));
    }
    let mut parser = Parser {
        tokens: tokens(text)?,
        at: 0,
        depth: 0,
        is_traceql,
    };
    let mut formula = parser.any_spansets()?;
    // Each `count()` counts the spans of the selectors.
    let mut counted: Option<Formula> = None;
    let mut select = Vec::new();
    while parser.is_sign("|") {
        let is_counted = counted.is_some();
        let stage = parser.tokens.get(parser.at + 1).map(|token| &token.kind);
        match stage {
            Some(Kind::Word(word)) if word == "count" => {
                let spans = counted.get_or_insert_with(|| selected_spans(&formula));
                let count = parser.counted(spans)?;
                formula = match is_counted {
                    true => Formula::And(Box::new(formula), Box::new(count)),
                    false => count,
                };
            }
            Some(Kind::Word(word)) if word == "select" => {
                parser.at += 2;
                select.extend(parser.selected()?);
            }
            _ => {
                parser.at += 1;
                return Err(parser.expected(STAGES));
            }
        }
    }
    parser.hints()?;
    match parser.peek().kind {
        Kind::End => Ok(TraceQl {
            formula: formula.of_whole(),
            select,
        }),
        _ => Err(parser.expected("`&&`, `||`, `>>`, `>`, `~`, `|` or the end")),
    }
}

/// Returns a formula that holds for the spans that selectors select. For `&&`, these are the spans
/// of both sides, if each side has any. For `||`, they are the spans of either side.
fn selected_spans(formula: &Formula) -> Formula {
    let spans = spans_of(formula);
    match formula {
        Formula::And(..) => Formula::And(Box::new(spans), Box::new(selects_any(formula))),
        _ => spans,
    }
}

/// Returns a formula that holds for the selected spans, provided that [`selects_any`] holds. An
/// `&&` directly in `&&` needs no condition of its own, so the formula remains short.
fn spans_of(formula: &Formula) -> Formula {
    match formula {
        Formula::And(a, b) => Formula::Or(Box::new(spans_of(a)), Box::new(spans_of(b))),
        Formula::Or(a, b) => Formula::Or(Box::new(selected_spans(a)), Box::new(selected_spans(b))),
        selector => selector.clone(),
    }
}

/// Returns a formula that holds if the selectors select any span.
fn selects_any(formula: &Formula) -> Formula {
    let [a, b] = match formula {
        Formula::And(a, b) | Formula::Or(a, b) => [a, b].map(|side| Box::new(selects_any(side))),
        selector => return Formula::Some(When::ANYWHERE, Box::new(selector.clone())),
    };
    match formula {
        Formula::And(..) => Formula::And(a, b),
        _ => Formula::Or(a, b),
    }
}

impl Parser {
    fn any_spansets(&mut self) -> ParseResult<Formula> {
        self.deeper(|parser| {
            let mut left = parser.all_spansets()?;
            while parser.take_sign("||") {
                left = Formula::Or(Box::new(left), Box::new(parser.all_spansets()?));
            }
            Ok(left)
        })
    }

    fn all_spansets(&mut self) -> ParseResult<Formula> {
        let mut left = self.related()?;
        while self.take_sign("&&") {
            left = Formula::And(Box::new(left), Box::new(self.related()?));
        }
        Ok(left)
    }

    /// Parses selectors such as `{…} >> {…} > {…}`. The operators are left-associative.
    fn related(&mut self) -> ParseResult<Formula> {
        let mut left = self.spanset()?;
        let signs: [(&str, Relate); 3] = [
            (">>", Selector::Descendant),
            (">", Selector::Child),
            ("~", Selector::Sibling),
        ];
        while let Some((_, relate)) = signs.iter().find(|(sign, _)| self.is_sign(sign)) {
            let Formula::Is(of) = left else {
                return Err(self.expected("selectors on both sides of `>>`, `>` and `~`"));
            };
            self.at += 1;
            match self.spanset()? {
                Formula::Is(right) => {
                    left = Formula::Is(relate(Box::new(of), Box::new(right)));
                }
                _ => return Err(self.expected("selectors on both sides of `>>`, `>` and `~`")),
            }
        }
        Ok(left)
    }

    fn spanset(&mut self) -> ParseResult<Formula> {
        if self.take_sign("(") {
            let inner = self.any_spansets()?;
            self.need_sign(")")?;
            return Ok(inner);
        }
        if self.is_sign("{") {
            return self.braces().map(Formula::Is);
        }
        Err(self.expected(SPANSETS))
    }

    /// Parses a list of fields such as `(.bytes, name)`.
    fn selected(&mut self) -> ParseResult<Vec<Field>> {
        self.need_sign("(")?;
        let mut fields = Vec::new();
        loop {
            fields.push(self.field()?);
            if !self.take_sign(",") {
                break;
            }
        }
        self.need_sign(")")?;
        Ok(fields)
    }

    /// Parses an optional hint, `with (most_recent=true)` or `with (most_recent=false)`. It has no
    /// effect.
    fn hints(&mut self) -> ParseResult<()> {
        if !self.take_word("with") {
            return Ok(());
        }
        self.need_sign("(")?;
        loop {
            self.need_word("most_recent")?;
            self.need_sign("=")?;
            if !self.take_word("true") && !self.take_word("false") {
                return Err(self.expected("`true` or `false`"));
            }
            if !self.take_sign(",") {
                break;
            }
        }
        self.need_sign(")")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_not_supported_is_said_where_it_is() {
        let check = |text: &str, column: usize, part: &str| {
            let error = parse_traceql(text).unwrap_err().to_string();
            assert!(
                error.contains(part) && error.contains(&column.to_string()),
                "{text}: {error}"
            );
        };
        check("{} | rate()", 6, "`select(.bytes)`");
        check("{ .a = 1 } then {}", 12, "`&&`");
        check("always {}", 1, "a selector");
        check("{ .a = 1 and .b = 2 }", 10, "what TraceQL has");
        check("{ service = \"x\" }", 3, "what TraceQL has");
        check("{ .a = }", 8, "a text in quotes");
        check("{} with (sample=true)", 10, "most_recent");
        check("{} | select(", 13, "a field");
        check("{ kernel = syscall }", 3, "what TraceQL has");
        check("{ span:childCount > 2 }", 3, "`event:name`");
        check("{ parent.x = 1 }", 3, "`resource.zone`");
        check("{ trace.x = 1 }", 3, "`resource.zone`");
        check("{ status = failed }", 12, "`unset`");
        check("{ kind = sender }", 10, "producer");
    }

    #[test]
    fn fields_are_named_as_they_are_kept() {
        let text = "{ status = error && resource.zone = \"a\" && span.n > 1 && .any = 2 } | select(.x, resource.y, name) with(most_recent=true)";
        let parsed = parse_traceql(text).unwrap();
        assert_eq!(
            parsed.formula.keys(),
            [
                "any",
                "error",
                "n",
                "otel.own_names",
                "otel.status_code",
                "resource.any",
                "resource.zone"
            ]
        );
        let selected = ["x", "resource.y"].map(Into::into);
        let [x, y] = selected;
        assert_eq!(
            parsed.select,
            [Field::AnyScope(x), Field::Attribute(y), Field::Name]
        );
        assert_eq!(parse_traceql("").unwrap().formula.keys(), [""; 0]);
        assert!(
            parse_traceql(
                "{ status = ok || kind = server } >> { duration > 5ms } && ({} ~ {}) | count() > 2"
            )
            .is_ok()
        );
    }
}
