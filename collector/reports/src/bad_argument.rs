//! Rewords errors of the standard library's parsers, such as `invalid digit found in string`.

use std::error::Error as _;
use std::net::AddrParseError;
use std::num::{IntErrorKind, ParseFloatError, ParseIntError};
use std::str::ParseBoolError;

use clap::Error;
use clap::error::{ContextKind, ContextValue};

/// Returns the error of an argument. If the standard library's parser of numbers, addresses or
/// booleans rejected the value, the error states what the argument accepts.
pub fn in_our_words(error: Error) -> Error {
    let Some(takes) = error.source().and_then(what_it_takes) else {
        return error;
    };
    let said = |kind| match error.get(kind) {
        Some(ContextValue::String(text)) => text.as_str(),
        _ => "",
    };
    let (value, argument) = (
        said(ContextKind::InvalidValue),
        said(ContextKind::InvalidArg),
    );
    let text = format!(
        "invalid value '{value}' for '{argument}': it takes {takes}\n\nFor more information, try '--help'.\n"
    );
    Error::raw(error.kind(), text)
}

fn what_it_takes(source: &(dyn std::error::Error + 'static)) -> Option<&'static str> {
    if let Some(error) = source.downcast_ref::<ParseIntError>() {
        return Some(match error.kind() {
            IntErrorKind::PosOverflow => "a smaller whole number",
            IntErrorKind::NegOverflow => "a larger whole number",
            _ => "a whole number, such as 20",
        });
    }
    if source.is::<ParseFloatError>() {
        return Some("a number, such as 2.5");
    }
    if source.is::<AddrParseError>() {
        return Some("an address and a port, such as 127.0.0.1:4317");
    }
    source.is::<ParseBoolError>().then_some("true or false")
}
