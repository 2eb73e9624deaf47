//! Root of a request: its root span, the name of its operation, and whether a caller waits for it.
//!
//! **Root.** The root is the span without a parent. Of several such spans, it is the first to
//! start; if several start first, the longest of these. A span whose parent was not recorded is not
//! a root; without another root, the operation of the request is unknown. A request of an event log
//! has no root: its tasks are peers, and chance decides which of them logs first.
//!
//! **Callers.** A root that is a server or client span shows that a caller waits for its end. Any
//! other root may be a periodic job, a worker, or a request to a service whose spans record no
//! kinds. The records do not distinguish these cases, so [`TraceRecords::has_caller`] returns
//! `false`.

use crate::name_rule::normalise;
use crate::record::{SpanFlags, SpanRecord, TraceRecords};
use std::borrow::Cow;

/// Name of the root operation for fragments, which have no root.
pub const NO_ROOT: &str = "(no root)";
/// Name of the root operation for requests of event logs, which have no root.
pub const EVENT_LOG: &str = "(event log)";

impl SpanRecord {
    /// Returns `service:name`. The [name rule](crate::name_rule) replaces ids in the name by `*`.
    pub fn operation(&self) -> String {
        format!("{}:{}", self.service, normalise(&self.name))
    }
}

impl TraceRecords {
    /// Returns the request's root by the rule of the [module](self); `None` if no span lacks a
    /// parent.
    pub fn root(&self) -> Option<&SpanRecord> {
        let roots = self.spans.iter().filter(|span| span.parent_id == 0);
        roots.min_by(|a, b| {
            // Of the roots that start first, the longest wins. The other keys only make the order
            // total.
            let times = (a.start_ns, b.end_ns).cmp(&(b.start_ns, a.end_ns));
            times.then_with(|| {
                (&a.service, &a.name, a.span_id).cmp(&(&b.service, &b.name, b.span_id))
            })
        })
    }

    /// Returns the operation of the request's root; `None` without a root.
    pub fn root_operation(&self) -> Option<String> {
        self.root().map(SpanRecord::operation)
    }

    /// Returns the name of the root operation. Without a root, returns [`EVENT_LOG`] for an event
    /// log and [`NO_ROOT`] otherwise.
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

    /// Checks the root operation and caller of a trace, with its spans in either order. A span is
    /// given as (service:name, parent, start, end, flags).
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
