//! Recursive-descent parser of formulas. Most rules of the grammar have a function of their own.

mod condition;
mod traceql;

use traceql::{STAGES, parse_query};
pub use traceql::{TraceQl, parse_traceql};

use super::formula::{Formula, Order, Relation, Selector, SharedProperty, Side, When};
use super::syntax_error::SyntaxError;
use super::token::{Kind, Token, tokens};

/// Maximum number of characters of a formula or TraceQL query.
pub const CHARACTERS_MAX: usize = 16_384;
/// Maximum depth of the parser's nested rules. A pair of parentheses takes two levels, or one in
/// braces and in TraceQL.
const DEPTH_MAX: u32 = 128;

const FORMULA: &str = "a formula, such as `{ name = \"read\" }` or `always …`";
const OPERATORS: &str =
    "`then`, `before`, `during`, `overlaps`, `until`, `since`, `and`, `or`, `implies` or the end";

/// Parses a formula about a whole request or burst. A text that is not blank and matches the
/// grammar of [`parse_traceql`] is a TraceQL query, even if it names fields that only formulas
/// have.
///
/// # Errors
/// Returns a position at which the text does not match the grammar, with the expected text. An
/// excessive length is reported first, then an invalid token, then other errors.
pub fn parse(text: &str) -> Result<Formula, SyntaxError> {
    if text.chars().count() > CHARACTERS_MAX {
        return Err(SyntaxError::new(
            CHARACTERS_MAX + 1,
            format!("the end, as a formula has {CHARACTERS_MAX} characters at most"),
            "more".to_owned(),
        ));
    }
    if !text.trim().is_empty()
        && let Ok(query) = parse_query(text, false)
    {
        return Ok(query.formula);
    }
    let mut parser = Parser {
        tokens: tokens(text)?,
        at: 0,
        depth: 0,
        is_traceql: false,
    };
    let formula = parser.formula()?;
    match parser.peek().kind {
        Kind::End => Ok(formula.of_whole()),
        _ => Err(parser.expected(OPERATORS)),
    }
}

const fn side(is_past: bool) -> Side {
    if is_past { Side::Past } else { Side::Future }
}

struct Parser {
    /// Tokens of the text; the last token marks the end.
    tokens: Vec<Token>,
    at: usize,
    depth: u32,
    /// True to reject fields and words that TraceQL does not have.
    is_traceql: bool,
}

type ParseResult<T> = Result<T, SyntaxError>;

impl Parser {
    fn peek(&self) -> &Token {
        &self.tokens[self.at.min(self.tokens.len() - 1)]
    }

    fn next(&mut self) -> Token {
        let token = self.peek().clone();
        self.at += 1;
        token
    }

    fn expected(&self, what: impl Into<String>) -> SyntaxError {
        let Token { kind, column } = self.peek();
        SyntaxError::new(*column, what, kind.said())
    }

    fn is_sign(&self, sign: &str) -> bool {
        matches!(self.peek().kind, Kind::Sign(found) if found == sign)
    }

    fn is_word(&self, word: &str) -> bool {
        matches!(&self.peek().kind, Kind::Word(found) if found.eq_ignore_ascii_case(word))
    }

    fn take_sign(&mut self, sign: &str) -> bool {
        let is_so = self.is_sign(sign);
        self.at += usize::from(is_so);
        is_so
    }

    fn take_word(&mut self, word: &str) -> bool {
        let is_so = self.is_word(word);
        self.at += usize::from(is_so);
        is_so
    }

    fn need_sign(&mut self, sign: &str) -> ParseResult<()> {
        if self.take_sign(sign) {
            return Ok(());
        }
        Err(self.expected(format!("`{sign}`")))
    }

    fn need_word(&mut self, word: &str) -> ParseResult<()> {
        if self.take_word(word) {
            return Ok(());
        }
        Err(self.expected(format!("`{word}`")))
    }

    fn deeper<T>(&mut self, parse: impl FnOnce(&mut Self) -> ParseResult<T>) -> ParseResult<T> {
        if self.depth >= DEPTH_MAX {
            return Err(self.expected(format!("no more than {DEPTH_MAX} levels")));
        }
        self.depth += 1;
        let parsed = parse(self);
        self.depth -= 1;
        parsed
    }

    /// Parses a formula such as `a implies b`. `implies` has the lowest precedence.
    fn formula(&mut self) -> ParseResult<Formula> {
        self.deeper(|parser| {
            let left = parser.or()?;
            if parser.take_word("implies") {
                let right = parser.formula()?;
                return Ok(Formula::Implies(Box::new(left), Box::new(right)));
            }
            Ok(left)
        })
    }

    fn or(&mut self) -> ParseResult<Formula> {
        let mut left = self.and()?;
        while self.take_word("or") || self.take_sign("||") {
            left = Formula::Or(Box::new(left), Box::new(self.and()?));
        }
        Ok(left)
    }

    fn and(&mut self) -> ParseResult<Formula> {
        let mut left = self.until()?;
        while self.take_word("and") || self.take_sign("&&") {
            left = Formula::And(Box::new(left), Box::new(self.until()?));
        }
        Ok(left)
    }

    fn until(&mut self) -> ParseResult<Formula> {
        let left = self.pair()?;
        let side = side(self.is_word("since"));
        if !self.take_word("until") && !self.take_word("since") {
            return Ok(left);
        }
        let right = self.pair()?;
        let within_ns = self.within()?;
        let when = When { side, within_ns };
        Ok(Formula::Until(Box::new(left), when, Box::new(right)))
    }

    /// Parses `a then b within 5ms then c`. Each operator relates a formula to the next formula.
    fn pair(&mut self) -> ParseResult<Formula> {
        let mut done = Vec::new();
        let mut last = self.prefix()?;
        while let Some(order) = self.order() {
            let right = self.prefix()?;
            let relation = self.qualifiers(order)?;
            done.push((std::mem::replace(&mut last, right), relation));
        }
        Ok(done.into_iter().rfold(last, |right, (left, relation)| {
            Formula::Pair(Box::new(left), relation, Box::new(right))
        }))
    }

    fn order(&mut self) -> Option<Order> {
        [
            ("then", Order::Then),
            ("before", Order::Before),
            ("during", Order::During),
            ("overlaps", Order::Overlaps),
        ]
        .into_iter()
        .find_map(|(word, order)| self.take_word(word).then_some(order))
    }

    /// Parses qualifiers such as `within 5ms`, `at the same host`, `with the same .block` and
    /// `in another request`, in any order.
    fn qualifiers(&mut self, order: Order) -> ParseResult<Relation> {
        let mut relation = Relation {
            order,
            within_ns: None,
            same: Vec::new(),
            same_request: None,
        };
        loop {
            if self.is_word("within") {
                if matches!(order, Order::During | Order::Overlaps) {
                    return Err(self.expected(
                        "no `within`, as `during` and `overlaps` already constrain time",
                    ));
                }
                relation.within_ns = self.within()?;
            } else if self.take_word("at") {
                self.need_word("the")?;
                self.need_word("same")?;
                let shared = [
                    ("service", SharedProperty::Service),
                    ("host", SharedProperty::Host),
                    ("process", SharedProperty::Process),
                ];
                let found = shared
                    .into_iter()
                    .find_map(|(word, shared)| self.take_word(word).then_some(shared));
                let found = found.ok_or_else(|| self.expected("`service`, `host` or `process`"))?;
                relation.same.push(found);
            } else if self.take_word("with") {
                self.need_word("the")?;
                self.need_word("same")?;
                relation
                    .same
                    .push(SharedProperty::Attribute(self.attribute()?));
            } else if self.take_word("in") {
                relation.same_request = Some(if self.take_word("another") {
                    false
                } else {
                    self.need_word("the")?;
                    self.need_word("same")?;
                    true
                });
                self.need_word("request")?;
            } else {
                return Ok(relation);
            }
        }
    }

    /// Parses an optional `within 5ms`. Returns the duration in ns, or `None` if there is none.
    fn within(&mut self) -> ParseResult<Option<u64>> {
        if !self.take_word("within") {
            return Ok(None);
        }
        match self.peek().kind {
            Kind::Duration(ns) if ns >= 0.0 => {
                self.at += 1;
                Ok(Some(ns.round() as u64))
            }
            _ => Err(self.expected("a duration such as 5ms, 1.5s or 200us")),
        }
    }

    fn prefix(&mut self) -> ParseResult<Formula> {
        self.deeper(Self::prefix_here)
    }

    fn prefix_here(&mut self) -> ParseResult<Formula> {
        if self.take_word("not") || self.take_sign("!") {
            return Ok(Formula::Not(Box::new(self.prefix()?)));
        }
        if self.take_word("never") {
            let inner = Formula::Some(When::ANYWHERE, Box::new(self.pair()?));
            return Ok(Formula::Not(Box::new(inner)));
        }
        for (word, is_past, is_all) in [
            ("always", false, true),
            ("eventually", false, false),
            ("historically", true, true),
            ("once", true, false),
        ] {
            if self.take_word(word) {
                let within_ns = self.within()?;
                let when = When {
                    side: side(is_past),
                    within_ns,
                };
                let inner = Box::new(self.pair()?);
                return Ok(if is_all {
                    Formula::All(when, inner)
                } else {
                    Formula::Some(when, inner)
                });
            }
        }
        if self.is_word("at") {
            return self.at_least();
        }
        self.primary()
    }

    /// Parses formulas such as `at least 3 of {…} within 5ms` and `at most 3 of {…}`.
    fn at_least(&mut self) -> ParseResult<Formula> {
        self.need_word("at")?;
        let is_most = self.is_word("most");
        if !self.take_word("least") && !self.take_word("most") {
            return Err(self.expected("`least` or `most`, as in `at least 3 of {…} within 5ms`"));
        }
        let count = self.count()?;
        self.need_word("of")?;
        let of = Box::new(self.prefix()?);
        let within_ns = self.within()?;
        let when = match within_ns {
            None => When::ANYWHERE,
            within_ns => When {
                side: Side::Future,
                within_ns,
            },
        };
        Ok(if is_most {
            // The limit applies to every stretch of time, wherever it begins.
            let more = Formula::AtLeast(count.saturating_add(1), when, of);
            Formula::Not(Box::new(Formula::Some(When::ANYWHERE, Box::new(more))))
        } else {
            Formula::Some(When::ANYWHERE, Box::new(Formula::AtLeast(count, when, of)))
        })
    }

    fn count(&mut self) -> ParseResult<u64> {
        match self.peek().kind {
            Kind::Number(number) if number >= 0.0 && number.fract() == 0.0 => {
                self.at += 1;
                Ok(number as u64)
            }
            Kind::Whole(number) if number > 0 => {
                self.at += 1;
                Ok(u64::try_from(number).unwrap_or(u64::MAX))
            }
            _ => Err(self.expected("a whole number")),
        }
    }

    fn primary(&mut self) -> ParseResult<Formula> {
        let mut formula = if self.take_sign("(") {
            let inner = self.formula()?;
            self.need_sign(")")?;
            inner
        } else if self.is_sign("{") {
            Formula::Is(self.braces()?)
        } else {
            return Err(self.expected(FORMULA));
        };
        // Further selectors may follow, as in `{…} >> {…}`.
        while let Formula::Is(left) = &formula {
            let left = Box::new(left.clone());
            let related = |right: Box<Selector>, sign: &str| match sign {
                ">>" => Selector::Descendant(left, right),
                ">" => Selector::Child(left, right),
                _ => Selector::Sibling(left, right),
            };
            let Some(sign) = [">>", ">", "~"].into_iter().find(|sign| self.is_sign(sign)) else {
                break;
            };
            self.at += 1;
            let column = self.peek().column;
            let right = if self.is_sign("{") {
                self.braces()?
            } else if self.take_sign("(") {
                let inner = self.formula()?;
                self.need_sign(")")?;
                match inner {
                    Formula::Is(selector) => selector,
                    _ => {
                        return Err(SyntaxError::new(
                            column,
                            "a selector in braces",
                            "a formula".to_owned(),
                        ));
                    }
                }
            } else {
                return Err(self.expected("a selector in braces, such as `{ name = \"read\" }`"));
            };
            formula = Formula::Is(related(Box::new(right), sign));
        }
        if self.is_sign("|") {
            return self.counted(&formula);
        }
        Ok(formula)
    }

    /// Parses `| count() > 3`, as in TraceQL.
    fn counted(&mut self, of: &Formula) -> ParseResult<Formula> {
        self.need_sign("|")?;
        if !self.take_word("count") {
            return Err(self.expected(STAGES));
        }
        self.need_sign("(")?;
        self.need_sign(")")?;
        let signs = [">=", "<=", "!=", ">", "<", "="];
        let Some(sign) = signs.into_iter().find(|sign| self.is_sign(sign)) else {
            return Err(self.expected("`>`, `>=`, `=`, `!=`, `<=` or `<`"));
        };
        self.at += 1;
        let count = self.count()?;
        let at_least = |count: u64| Formula::AtLeast(count, When::ANYWHERE, Box::new(of.clone()));
        let not = |formula| Formula::Not(Box::new(formula));
        let equal = || {
            Formula::And(
                Box::new(at_least(count)),
                Box::new(not(at_least(count.saturating_add(1)))),
            )
        };
        Ok(match sign {
            ">=" => at_least(count),
            ">" => at_least(count.saturating_add(1)),
            "<" => not(at_least(count)),
            "<=" => not(at_least(count.saturating_add(1))),
            "=" => equal(),
            _ => not(equal()),
        })
    }

    fn braces(&mut self) -> ParseResult<Selector> {
        self.need_sign("{")?;
        let condition = self.condition()?;
        self.need_sign("}")?;
        Ok(Selector::Where(condition))
    }
}
