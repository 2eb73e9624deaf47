//! What stands in braces.

use std::sync::Arc;

use crate::KernelKind;
use crate::condition::{Comparison, Condition, Field, Pattern, Value};
use crate::token::{Kind, Token};

use super::{Parsed, Parser};
use crate::syntax_error::SyntaxError;

const FIELDS: &str = "a field: `name`, `service`, `host`, `duration`, `kind`, `kernel`, `rootName`, `rootServiceName`, `traceDuration` or an attribute such as `.bytes`";
const COMPARISONS: &str = "`=`, `!=`, `<`, `<=`, `>`, `>=`, `=~` or `!~`";
const KERNEL_KINDS: &str = "`syscall`, `off_cpu` or `lock_wait`";
const KINDS: [&str; 5] = ["server", "client", "producer", "consumer", "internal"];

/// The attribute's name, of a field that is not one of the known ones.
fn attribute(word: &str) -> Option<&str> {
    let scopes = ["span.", "resource.", "event.", "."];
    scopes
        .iter()
        .find_map(|scope| word.strip_prefix(scope))
        .filter(|name| !name.is_empty())
}

fn field(word: &str) -> Option<Field> {
    // Of any scope, as TraceQL says them.
    Some(match word {
        "name" | "span:name" => Field::Name,
        "service" | "service.name" | "resource.service.name" | ".service.name" => Field::Service,
        "host" | "host.name" | "resource.host.name" | ".host.name" => Field::Host,
        "duration" | "span:duration" => Field::Duration,
        "kind" | "span:kind" | "span.kind" => Field::Kind,
        "kernel" => Field::Kernel,
        "rootName" | "trace:rootName" => Field::RootName,
        "rootServiceName" | "trace:rootService" => Field::RootService,
        "traceDuration" | "trace:duration" => Field::RootDuration,
        _ => Field::Attribute(attribute(word)?.into()),
    })
}

impl Parser {
    /// `.block`
    pub(super) fn attribute(&mut self) -> Parsed<Arc<str>> {
        let name = match &self.peek().kind {
            Kind::Word(word) => attribute(word).map(Arc::from),
            _ => None,
        };
        let name = name.ok_or_else(|| self.expected("an attribute such as `.block`"))?;
        self.at += 1;
        Ok(name)
    }

    pub(super) fn condition(&mut self) -> Parsed<Condition> {
        if self.is_sign("}") {
            return Ok(Condition::Any);
        }
        self.deeper(Self::any_of)
    }

    fn any_of(&mut self) -> Parsed<Condition> {
        let mut left = self.all_of()?;
        while self.take_sign("||") || self.take_word("or") {
            left = Condition::Or(Box::new(left), Box::new(self.all_of()?));
        }
        Ok(left)
    }

    fn all_of(&mut self) -> Parsed<Condition> {
        let mut left = self.one()?;
        while self.take_sign("&&") || self.take_word("and") {
            left = Condition::And(Box::new(left), Box::new(self.one()?));
        }
        Ok(left)
    }

    fn one(&mut self) -> Parsed<Condition> {
        if self.take_sign("!") || self.take_word("not") {
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

    fn comparison(&mut self) -> Parsed<Condition> {
        let Kind::Word(word) = &self.peek().kind else {
            return Err(self.expected(FIELDS));
        };
        let Some(field) = field(word) else {
            let attribute = match word.starts_with(|c: char| c.is_alphabetic()) {
                true => format!("{FIELDS}; attributes begin with a dot: `.{word}`"),
                false => FIELDS.to_owned(),
            };
            return Err(self.expected(attribute));
        };
        self.at += 1;
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

    fn pattern(&mut self, field: Field, is_wanted: bool) -> Parsed<Condition> {
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

    fn value(&mut self, field: &Field) -> Parsed<Value> {
        let is_time = matches!(field, Field::Duration | Field::RootDuration);
        let value = match &self.peek().kind {
            Kind::Duration(ns) => Value::Number(*ns),
            Kind::Number(_) if is_time => {
                return Err(self.expected("a duration with its unit, such as 2ms"));
            }
            Kind::Number(number) => Value::Number(*number),
            Kind::Text(_) if is_time => return Err(self.expected("a duration such as 2ms")),
            Kind::Text(text) | Kind::Word(text)
                if *field == Field::Kernel
                    && KernelKind::ALL.iter().all(|kind| kind.name() != *text) =>
            {
                return Err(self.expected(KERNEL_KINDS));
            }
            Kind::Word(word) if *field == Field::Kernel => Value::Text(word.clone()),
            Kind::Text(text) => Value::Text(text.clone()),
            Kind::Word(word) if word == "true" || word == "false" => Value::Text(word.clone()),
            Kind::Word(word) if *field == Field::Kind && KINDS.contains(&word.as_str()) => {
                Value::Text(word.clone())
            }
            _ if is_time => return Err(self.expected("a duration such as 2ms")),
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
