//! Parser of the conditions in braces.

use crate::KernelKind;
use crate::condition::{Comparison, Condition, Pattern, Value};
use crate::field::{FIELDS, Field, OWN_FIELDS};
use crate::token::{Kind, Token};

use super::{ParseResult, Parser};
use crate::syntax_error::SyntaxError;

const COMPARISONS: &str = "`=`, `!=`, `<`, `<=`, `>`, `>=`, `=~` or `!~`";
const KERNEL_KINDS: &str = "`syscall`, `off_cpu` or `lock_wait`";
const KINDS: [&str; 6] = [
    "server",
    "client",
    "producer",
    "consumer",
    "internal",
    "unspecified",
];
const STATUSES: [&str; 3] = ["error", "ok", "unset"];
/// Fields, without aliases, that formulas accept, but TraceQL does not, for error messages.
const MORE_FIELDS: &str = "; `service`, `host` or `kernel`";
const TRACEQL: &str = "what TraceQL has: `&&`, `||`, `!`, `resource.service.name` and attributes with a dot, such as `.host`";

impl Parser {
    /// Parses an attribute such as `.block`.
    pub(super) fn attribute(&mut self) -> ParseResult<Field> {
        let field = match &self.peek().kind {
            Kind::Word(word) => Field::of_word(word),
            _ => None,
        };
        let is_attribute =
            |field: &Field| matches!(field, Field::AnyScope(_) | Field::Attribute(_));
        let field = field.filter(is_attribute);
        let field = field.ok_or_else(|| self.expected("an attribute such as `.block`"))?;
        self.at += 1;
        Ok(field)
    }

    /// Parses a field. In TraceQL, rejects fields that TraceQL does not have.
    pub(super) fn field(&mut self) -> ParseResult<Field> {
        let more = if self.is_traceql { "" } else { MORE_FIELDS };
        let Kind::Word(word) = &self.peek().kind else {
            return Err(self.expected(format!("{FIELDS}{more}")));
        };
        if self.is_traceql && OWN_FIELDS.contains(&word.as_str()) {
            return Err(self.expected(TRACEQL));
        }
        let Some(field) = Field::of_word(word) else {
            let is_plain = word.starts_with(char::is_alphabetic) && !word.contains(['.', ':']);
            let dot = match is_plain {
                true => format!("; attributes begin with a dot: `.{word}`"),
                false => String::new(),
            };
            return Err(self.expected(format!("{FIELDS}{more}{dot}")));
        };
        self.at += 1;
        Ok(field)
    }

    /// Accepts a word that formulas allow instead of a sign, such as `and` for `&&`. In TraceQL,
    /// returns an error for such a word.
    fn take_own_word(&mut self, word: &str) -> ParseResult<bool> {
        if self.is_traceql && self.is_word(word) {
            return Err(self.expected(TRACEQL));
        }
        Ok(self.take_word(word))
    }

    pub(super) fn condition(&mut self) -> ParseResult<Condition> {
        if self.is_sign("}") {
            return Ok(Condition::Any);
        }
        self.deeper(Self::any_of)
    }

    fn any_of(&mut self) -> ParseResult<Condition> {
        let mut left = self.all_of()?;
        while self.take_sign("||") || self.take_own_word("or")? {
            left = Condition::Or(Box::new(left), Box::new(self.all_of()?));
        }
        Ok(left)
    }

    fn all_of(&mut self) -> ParseResult<Condition> {
        let mut left = self.one()?;
        while self.take_sign("&&") || self.take_own_word("and")? {
            left = Condition::And(Box::new(left), Box::new(self.one()?));
        }
        Ok(left)
    }

    fn one(&mut self) -> ParseResult<Condition> {
        if self.take_sign("!") || self.take_own_word("not")? {
            let inner = self.deeper(Self::one)?;
            return Ok(Condition::Not(Box::new(inner)));
        }
        if self.take_sign("(") {
            let inner = self.deeper(Self::any_of)?;
            self.need_sign(")")?;
            return Ok(inner);
        }
        if self.is_word("true") || self.is_word("false") {
            let is_true = self.take_word("true") || !self.take_word("false");
            return Ok(match is_true {
                true => Condition::Any,
                false => Condition::Not(Box::new(Condition::Any)),
            });
        }
        self.comparison()
    }

    fn comparison(&mut self) -> ParseResult<Condition> {
        let field = self.field()?;
        for (sign, is_wanted) in [("=~", true), ("!~", false)] {
            if self.take_sign(sign) {
                return self.pattern(field, is_wanted);
            }
        }
        let comparisons = [
            ("=", Comparison::Equal),
            ("!=", Comparison::NotEqual),
            ("<", Comparison::Less),
            ("<=", Comparison::AtMost),
            (">", Comparison::Greater),
            (">=", Comparison::AtLeast),
        ];
        let found = comparisons
            .into_iter()
            .find_map(|(sign, comparison)| self.take_sign(sign).then_some(comparison));
        let comparison = found.ok_or_else(|| self.expected(COMPARISONS))?;
        if self.take_word("nil") {
            return match comparison {
                Comparison::Equal => Ok(Condition::IsThere(field, false)),
                Comparison::NotEqual => Ok(Condition::IsThere(field, true)),
                _ => Err(self.expected("`= nil` or `!= nil`")),
            };
        }
        let value = self.value(&field)?;
        Ok(Condition::Compare(field, comparison, value))
    }

    fn pattern(&mut self, field: Field, is_wanted: bool) -> ParseResult<Condition> {
        let Token { kind, column } = self.next();
        let Kind::Text(text) = kind else {
            self.at -= 1;
            return Err(self.expected("a regular expression in quotes"));
        };
        let pattern = Pattern::new(&text).map_err(|error| {
            let why = error.to_string();
            let why = why.lines().last().unwrap_or_default().trim().to_owned();
            SyntaxError::new(
                column,
                format!("a regular expression ({why})"),
                format!("{text:?}"),
            )
        })?;
        Ok(Condition::Matches(field, pattern, is_wanted))
    }

    fn value(&mut self, field: &Field) -> ParseResult<Value> {
        let is_time = field.is_time();
        let value = match &self.peek().kind {
            Kind::Duration(ns) => Value::Number(*ns),
            Kind::Number(_) | Kind::Whole(_) if is_time => {
                return Err(self.expected("a duration with its unit, such as 2ms"));
            }
            Kind::Number(number) => Value::Number(*number),
            Kind::Whole(number) => Value::Whole(*number),
            Kind::Text(_) if is_time => return Err(self.expected("a duration such as 2ms")),
            Kind::Text(text) | Kind::Word(text)
                if *field == Field::Kernel
                    && KernelKind::ALL.iter().all(|kind| kind.name() != *text) =>
            {
                return Err(self.expected(KERNEL_KINDS));
            }
            Kind::Word(word) if *field == Field::Kernel => Value::Text(word.clone()),
            Kind::Word(word) | Kind::Text(word)
                if *field == Field::Status && STATUSES.contains(&word.as_str()) =>
            {
                Value::Text(word.clone())
            }
            _ if *field == Field::Status => {
                return Err(self.expected("`error`, `ok` or `unset`"));
            }
            Kind::Text(text) => Value::Text(text.clone()),
            Kind::Word(word) if word == "true" || word == "false" => Value::Text(word.clone()),
            Kind::Word(word) if *field == Field::Kind && KINDS.contains(&word.as_str()) => {
                Value::Text(word.clone())
            }
            _ if is_time => return Err(self.expected("a duration such as 2ms")),
            Kind::Word(_) if *field == Field::Kind => {
                return Err(self.expected(format!("one of {}", KINDS.join(", "))));
            }
            Kind::Word(word) => {
                let expected = format!("a value; texts stand in quotes: \"{word}\"");
                return Err(self.expected(expected));
            }
            _ => return Err(self.expected("a text in quotes, a number or a duration")),
        };
        self.at += 1;
        Ok(value)
    }
}
