//! Temporal search: finds the requests and bursts that satisfy a formula of temporal logic.
//!
//! Sources: Ardelean, Diwan and Erdman, "Performance Analysis of Cloud Applications" (NSDI 2018),
//! §3.3.1, which searches bursts by temporal logic; Ryckbosch and Diwan, "Analyzing performance
//! traces using temporal formulas" (2014); TraceQL of Grafana Tempo, the source of the selectors.
//!
//! # Grammar
//!
//! ```text
//! formula   = or [ "implies" formula ]
//! or        = and { ( "or" | "||" ) and }
//! and       = until { ( "and" | "&&" ) until }
//! until     = pair [ ( "until" | "since" ) pair [ within ] ]
//! pair      = prefix { ( "then" | "before" | "during" | "overlaps" ) prefix { qualifier } }
//! qualifier = within | "at the same" ( "service" | "host" | "process" ) | "with the same" ATTRIBUTE
//!           | "in the same request" | "in another request"
//! prefix    = ( "not" | "!" ) prefix | "never" pair
//!           | ( "always" | "eventually" | "historically" | "once" ) [ within ] pair
//!           | "at" ( "least" | "most" ) NUMBER "of" prefix [ within ]
//!           | spans [ "|" "count" "(" ")" ( ">" | ">=" | "=" | "!=" | "<=" | "<" ) NUMBER ]
//! spans     = operand { ( ">>" | ">" | "~" ) operand }
//! operand   = "(" formula ")" | braces
//! within    = "within" DURATION
//! ```
//!
//! Both operands of `>>`, `>` and `~` must be braces, or braces combined by these operators. A text
//! that matches TraceQL's grammar is a TraceQL query, which may also have `| select(…)` and a hint.
//!
//! Braces contain fields, such as `name`, `service`, `host`, `duration`, `kind`, `status`,
//! `kernel`, `rootName`, `rootServiceName`, `traceDuration`, `event:name`, and attributes such as
//! `.bytes`. Operators (`=`, `!=`, `<`, `<=`, `>`, `>=`, `=~`, `!~`) compare fields with `"texts"`,
//! numbers, durations, `nil` or words such as `server` and `true`. `&&`, `||`, `!` (also `and`,
//! `or`, `not`) and parentheses combine the comparisons.
//!
//! # Meaning
//!
//! A formula is about one span. A request satisfies outer braces, `then` and similar relations if
//! some span of the request does; outer `and`, `or`, `not` and `implies` combine these results. An
//! outer operator about time (`always`, `eventually`, `until` …) is evaluated at the request's
//! first span instead. `at least` and `at most` with `within` count spans from each span's start
//! on, and without `within` in the whole request. The position of a span in time is its start.
//! `a before b` compares the starts of both, and `a then b` the end of `a` with the start of `b`.
//!
//! Braces that name `kernel` select kernel events of the request; all other braces select spans and
//! log events. Operators about time consider kernel events only if their operand names `kernel`.
//!
//! Truth has three values. A trace that is cut by a burst's edge may lack a span. The order of two
//! spans is unknown if their hosts' clocks may err by the time between the spans or more. In both
//! cases, a formula may be [`Truth::Unknown`].
//!
//! ```
//! use stroboscope_search::{Truth, Unit, parse};
//!
//! let slow_then_retried = parse(r#"{ name = "read" && duration > 2ms } then { name = "read" } within 5ms"#)?;
//! # let records = stroboscope_analysis::record::TraceRecords::default();
//! let found = Unit::of_request(&records, false).search(&slow_then_retried);
//! assert_eq!(found.truth, Truth::False);
//! # Ok::<(), stroboscope_search::SyntaxError>(())
//! ```

mod among;
mod clock;
mod condition;
mod evaluate;
mod field;
mod formula;
mod kernel_event;
mod need;
mod parse;
mod parts;
mod select;
mod span_facts;
mod spanning;
mod spanset;
mod syntax_error;
#[cfg(test)]
mod tests;
mod token;
mod truth;
mod unit;
mod until;
mod values;
mod witness;
mod wording;

pub use condition::{Comparison, Condition, Pattern, Value};
pub use evaluate::Evaluation;
pub use field::{EventField, Field, LinkField};
pub use formula::{Formula, Order, Relation, Selector, SharedProperty, Side, When};
pub use kernel_event::{KernelEvent, KernelKind};
pub use need::{FieldFacts, Requirement};
pub use parse::{CHARACTERS_MAX, TraceQl, parse, parse_traceql};
pub use span_facts::{is_own_name, kind_of, status_of};
pub use syntax_error::SyntaxError;
pub use truth::Truth;
pub use unit::Unit;
