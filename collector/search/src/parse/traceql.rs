//! TraceQL, as far as Grafana's Explore writes it: selectors of spans, what is counted of them, `select` and hints. Nothing else of
//! this language's own (`then`, `always` …) is part of it.

use super::{CHARACTERS_MAX, Parsed, Parser};
use crate::formula::{Formula, Selector};
use crate::syntax_error::SyntaxError;
use crate::token::{Kind, tokens};

const SPANSETS: &str = "a selector such as `{ name = \"read\" }`";
const STAGES: &str =
    "`count() > 3` or `select(.bytes)`: of TraceQL's pipelines, these two are supported";
/// Words by which this language, and not TraceQL, says something inside of braces.
const OWN_WORDS: [&str; 7] = [
    "and",
    "or",
    "not",
    "service",
    "host",
    "service.name",
    "host.name",
];
/// The attribute that a span's status is asked of.
const STATUS: &str = "span:status";
/// Before the name of an attribute that may be of the span or of its resource.
const OF_ANY: &str = "any:";

type Relate = fn(Box<Selector>, Box<Selector>) -> Selector;

/// A query of TraceQL. Attributes are named as they are kept: those of resources by `resource.KEY`; `any:KEY` is of a span or else
/// of its resource, `span:status` is `error`, `ok` or `unset`.
#[derive(Clone, Debug, PartialEq)]
pub struct TraceQl {
    /// What holds of a trace.
    pub formula: Formula,
    /// The fields that are to be told of each span, by these names.
    pub select: Vec<String>,
}

/// Reads TraceQL; nothing is every trace.
///
/// # Errors
/// The first thing that is not as TraceQL has it, or is not supported.
pub fn parse_traceql(text: &str) -> Result<TraceQl, SyntaxError> {
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
    };
    parser.translate()?;
    let mut formula = parser.any_spansets()?;
    let mut select = Vec::new();
    while parser.is_sign("|") {
        let stage = parser.tokens.get(parser.at + 1).map(|token| &token.kind);
        match stage {
            Some(Kind::Word(word)) if word == "count" => formula = parser.counted(&formula)?,
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

impl Parser {
    /// Names fields as they are kept, and refuses what only this language has.
    fn translate(&mut self) -> Parsed<()> {
        let mut depth = 0_u32;
        for at in 0..self.tokens.len() {
            let is_status = at >= 2
                && matches!(&self.tokens[at - 2].kind, Kind::Word(word) if word == &format!(".{STATUS}"));
            let kind = match &self.tokens[at].kind {
                Kind::Sign("{") => {
                    depth += 1;
                    continue;
                }
                Kind::Sign("}") => {
                    depth = depth.saturating_sub(1);
                    continue;
                }
                Kind::Word(word) if depth > 0 || word.starts_with(['.', 'r', 's']) => {
                    if OWN_WORDS.contains(&word.as_str()) {
                        self.at = at;
                        return Err(self.expected("what TraceQL has: `&&`, `||`, `!` and attributes with a dot, such as `.host`"));
                    }
                    match &**word {
                        "status" | "span:status" => Kind::Word(format!(".{STATUS}")),
                        "error" | "ok" | "unset" if is_status => Kind::Text(word.clone()),
                        "resource.service.name" | ".service.name" => continue,
                        _ => match (word.strip_prefix("resource."), word.strip_prefix('.')) {
                            (Some(key), _) if !key.is_empty() => {
                                Kind::Word(format!(".resource.{key}"))
                            }
                            (_, Some(key)) if !key.is_empty() => {
                                Kind::Word(format!(".{OF_ANY}{key}"))
                            }
                            _ => continue,
                        },
                    }
                }
                _ => continue,
            };
            self.tokens[at].kind = kind;
        }
        Ok(())
    }

    fn any_spansets(&mut self) -> Parsed<Formula> {
        self.deeper(|parser| {
            let mut left = parser.all_spansets()?;
            while parser.take_sign("||") {
                left = Formula::Or(Box::new(left), Box::new(parser.all_spansets()?));
            }
            Ok(left)
        })
    }

    fn all_spansets(&mut self) -> Parsed<Formula> {
        let mut left = self.related()?;
        while self.take_sign("&&") {
            left = Formula::And(Box::new(left), Box::new(self.related()?));
        }
        Ok(left)
    }

    /// `{…} >> {…} > {…}`, from the left.
    fn related(&mut self) -> Parsed<Formula> {
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

    fn spanset(&mut self) -> Parsed<Formula> {
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

    /// `(.bytes, name)`
    fn selected(&mut self) -> Parsed<Vec<String>> {
        self.need_sign("(")?;
        let mut names = Vec::new();
        loop {
            let Kind::Word(word) = &self.peek().kind else {
                return Err(self.expected("a field, such as `.bytes` or `name`"));
            };
            names.push(word.strip_prefix('.').unwrap_or(word).to_owned());
            self.at += 1;
            if !self.take_sign(",") {
                break;
            }
        }
        self.need_sign(")")?;
        Ok(names)
    }

    /// `with (most_recent=true)`: it is so anyway.
    fn hints(&mut self) -> Parsed<()> {
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
    }

    #[test]
    fn fields_are_named_as_they_are_kept() {
        let text = "{ status = error && resource.zone = \"a\" && span.n > 1 && .any = 2 } | select(.x, resource.y, name) with(most_recent=true)";
        let parsed = parse_traceql(text).unwrap();
        assert_eq!(
            parsed.formula.keys(),
            ["any:any", "n", "resource.zone", "span:status"]
        );
        assert_eq!(parsed.select, ["any:x", "resource.y", "name"]);
        assert_eq!(parse_traceql("").unwrap().formula.keys(), [""; 0]);
        assert!(
            parse_traceql(
                "{ status = 3 || kind = server } >> { duration > 5ms } && ({} ~ {}) | count() > 2"
            )
            .is_ok()
        );
    }
}
