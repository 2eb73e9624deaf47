//! Filters of outputs and sources.

use std::collections::HashSet;
use std::fmt;
use std::str::FromStr;

use stroboscope_query::{ItemInfo, ProvenanceLog, StoredSpanId};
use stroboscope_search::{Formula, When};

use crate::arguments::parse_formula;

/// Condition on an item.
#[derive(Clone, Debug)]
pub(super) enum ItemFilter {
    /// The name matches this text, in which `*` stands for any text.
    Name(String),
    /// The span in which the item was written (or read, if no log wrote it) matches this formula.
    Span(String, Box<Formula>),
}

impl FromStr for ItemFilter {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        if text.is_empty() {
            return Err("a name is missing, such as 'row of *'".to_owned());
        }
        if !text.starts_with('{') {
            return Ok(Self::Name(text.to_owned()));
        }
        let (text, formula) = parse_formula(text)?;
        let is_of_spans = match &formula {
            Formula::Some(When::ANYWHERE, inner) => matches!(**inner, Formula::Is(_)),
            _ => false,
        };
        match is_of_spans && !formula.names_kernel() {
            true => Ok(Self::Span(text, Box::new(formula))),
            false => Err(
                "only braces about spans are possible, such as { service = \"web\" && .tenant = \"t1\" }"
                    .to_owned(),
            ),
        }
    }
}

impl fmt::Display for ItemFilter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Name(text) | Self::Span(text, _) => f.write_str(text),
        }
    }
}

/// Filters that must all match, each with the spans that match its formula; none for a name.
pub(super) struct ItemFilters<'a>(pub(super) Vec<(&'a ItemFilter, HashSet<StoredSpanId>)>);

impl ItemFilters<'_> {
    /// Reports whether all filters match an item. An item without a description matches none.
    pub(super) fn accept(&self, item: Option<&ItemInfo<'_>>, logs: &[ProvenanceLog<'_>]) -> bool {
        self.0.iter().all(|(filter, spans)| {
            item.is_some_and(|item| match filter {
                ItemFilter::Name(pattern) => is_match(pattern, item.name),
                ItemFilter::Span(..) => logs[item.log].trace.is_some_and(|trace| {
                    let span = item.span;
                    spans.contains(&StoredSpanId { trace, span })
                }),
            })
        })
    }
}

/// Reports whether a pattern matches a whole text.
fn is_match(pattern: &str, text: &str) -> bool {
    let Some((start, rest)) = pattern.split_once('*') else {
        return pattern == text;
    };
    let Some(mut text) = text.strip_prefix(start) else {
        return false;
    };
    let (middle, end) = rest.rsplit_once('*').unwrap_or(("", rest));
    // Matching each part at its first place leaves the most text for the other parts.
    for part in middle.split('*') {
        match text.split_once(part) {
            Some((_, after)) => text = after,
            None => return false,
        }
    }
    text.ends_with(end)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// Tries each text for the first `*`.
    fn is_match_slowly(pattern: &[u8], text: &[u8]) -> bool {
        match (pattern.split_first(), text.split_first()) {
            (None, None) => true,
            (Some((b'*', rest)), _) => {
                (0..=text.len()).any(|skipped| is_match_slowly(rest, &text[skipped..]))
            }
            (Some((a, pattern)), Some((b, text))) => a == b && is_match_slowly(pattern, text),
            _ => false,
        }
    }

    proptest! {
        #[test]
        fn patterns_match_as_by_trial(pattern in "[ab*]{0,7}", text in "[ab]{0,8}") {
            let expected = is_match_slowly(pattern.as_bytes(), text.as_bytes());
            prop_assert_eq!(is_match(&pattern, &text), expected);
        }
    }

    #[test]
    fn formulas_about_time_or_the_kernel_are_rejected() {
        for text in ["{ .a = 1 } then { .b = 2 }", "{ kernel = \"syscall\" }"] {
            let error = text.parse::<ItemFilter>().unwrap_err();
            assert!(error.contains("only braces about spans"), "{text}: {error}");
        }
        let error = "{ service = }".parse::<ItemFilter>().unwrap_err();
        assert!(error.contains('^'), "{error}");
        assert!(
            "{ name = \"a\" } >> { .b = 2 }"
                .parse::<ItemFilter>()
                .is_ok()
        );
    }
}
