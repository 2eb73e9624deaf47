//! Root of a request: its root span, the operation that names it, and the presence of a caller that
//! waits.
//!
//! **Root.** The span without a parent; of several, the first to start (of those, the longest). A
//! span whose parent was not recorded is no root: its request's operation is unknown. A request of
//! an event log has no root: its tasks are peers, and the first one to log is chance.
//!
//! **Callers.** A root that is a server's or a client's span shows that a caller waits for its end:
//! it is a user's request. Any other root may be a periodic job, a worker, or a service whose spans
//! record no kinds. These cases cannot be distinguished, and are not guessed.

use crate::name_rule::normalise;
use crate::record::{SpanFlags, SpanRecord, TraceRecords};
use std::borrow::Cow;

/// Name of fragments, which have no root, in lists of operations.
pub const NO_ROOT: &str = "(no root)";
/// Name of event logs, which have no root, in lists of operations.
pub const EVENT_LOG: &str = "(event log)";

impl SpanRecord {
    /// Returns `service:name`, the name by the [rule for names of high
    /// cardinality](crate::name_rule).
    pub fn operation(&self) -> String {
        format!("{}:{}", self.service, normalise(&self.name))
    }
}

impl TraceRecords {
    /// Returns the request's root, by the rule of the [module](self).
    pub fn root(&self) -> Option<&SpanRecord> {
        let roots = self.spans.iter().filter(|span| span.parent_id == 0);
        roots.min_by(|a, b| {
            // Prefers the longest of those that start at once; the rest only makes the order total.
            let times = (a.start_ns, b.end_ns).cmp(&(b.start_ns, a.end_ns));
            times.then_with(|| {
                (&a.service, &a.name, a.span_id).cmp(&(&b.service, &b.name, b.span_id))
            })
        })
    }

    /// Returns the operation of the request's root; `None` for a fragment or an event log.
    pub fn root_operation(&self) -> Option<String> {
        self.root().map(SpanRecord::operation)
    }

    /// Returns the name of the root operation, or [`NO_ROOT`] or [`EVENT_LOG`] without a root.
    pub fn root_name(&self) -> Cow<'static, str> {
        let without = if self.spans.is_empty() && !self.events.is_empty() {
            EVENT_LOG
        } else {
            NO_ROOT
        };
        self.root_operation()
            .map_or(Cow::Borrowed(without), Cow::Owned)
    }

    /// Reports whether the request is known to have a caller that waits for it, by the rule of the
    /// [module](self).
    pub fn has_caller(&self) -> bool {
        let is = |kind| self.root().is_some_and(|root| root.flags.contains(kind));
        is(SpanFlags::SERVER) || is(SpanFlags::CLIENT)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Spans as (service:name, parent, start, end, flags).
    #[track_caller]
    fn check(
        spans: &[(&str, u64, i64, i64, SpanFlags)],
        operation: Option<&str>,
        has_caller: bool,
    ) {
        let span = |(number, (full, parent_id, start_ns, end_ns, flags)): (
            usize,
            &(&str, u64, i64, i64, SpanFlags),
        )| {
            let (service, name) = full.split_once(':').expect("service:name");
            SpanRecord {
                span_id: number as u64 + 1,
                parent_id: *parent_id,
                service: service.into(),
                name: name.into(),
                host: "h".into(),
                process: 1,
                start_ns: *start_ns,
                end_ns: *end_ns,
                flags: *flags,
                events: Vec::new(),
            }
        };
        let mut records = TraceRecords {
            spans: spans.iter().enumerate().map(span).collect(),
            ..TraceRecords::default()
        };
        for _ in 0..2 {
            assert_eq!(records.root_operation().as_deref(), operation);
            assert_eq!(records.root_name(), operation.unwrap_or(NO_ROOT));
            assert_eq!(records.has_caller(), has_caller);
            records.spans.reverse();
        }
    }

    #[test]
    fn requests_are_named_by_their_roots() {
        let none = SpanFlags::default();
        check(&[], None, false);
        check(&[("web:inner", 7, 0, 9, SpanFlags::SERVER)], None, false);
        check(
            &[("web:GET /users/42", 0, 0, 9, SpanFlags::SERVER)],
            Some("web:GET /users/*"),
            true,
        );
        check(
            &[
                ("job:tick", 0, 0, 9, none),
                ("db:read", 1, 1, 2, SpanFlags::SERVER),
            ],
            Some("job:tick"),
            false,
        );
        check(
            &[
                ("app:load", 0, 3, 9, SpanFlags::CLIENT),
                ("a:b", 1, 0, 9, none),
            ],
            Some("app:load"),
            true,
        );
        check(
            &[("a:second", 0, 5, 9, none), ("a:first", 0, 4, 5, none)],
            Some("a:first"),
            false,
        );
        check(
            &[("a:short", 0, 4, 5, none), ("a:long", 0, 4, 9, none)],
            Some("a:long"),
            false,
        );
        check(
            &[("a:y", 0, 4, 9, none), ("a:x", 0, 4, 9, none)],
            Some("a:x"),
            false,
        );
    }
}
