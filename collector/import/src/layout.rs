//! Locations of the records in a JSON document.

/// List that a record is an element of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum List {
    /// A list of records that determine their own form.
    Any,
    /// `ResourceSpans` of OTLP.
    Spans,
    /// `ResourceLogs` of OTLP.
    Logs,
    Metrics,
    Profiles,
    /// Events of Chrome's tracing.
    ChromeEvents,
    /// Rows of KUtrace.
    KutraceRows,
}

/// Treatment of an object's member.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum MemberStep {
    /// Enter the member, and decide for each of its own members.
    Enter,
    /// Read the member's elements as records.
    List(List),
    /// Read the member's value as a record.
    Record,
    /// Pass the member on: it contains no records.
    Member,
}

/// Rule that locates the records in a JSON document.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Layout {
    /// Each document that is an object is a record.
    Whole,
    /// Records are in the lists of the known forms, or are the objects `data` or `_source`.
    Known,
    /// Records are in KUtrace's list.
    Kutrace,
    /// Records are at this path of keys.
    Path(Vec<String>),
}

impl Layout {
    /// Decides how to treat the member `key` whose value begins with `opening`. `depth` is the
    /// number of objects entered inside the document's outermost object.
    pub(super) fn step(&self, depth: usize, key: &str, opening: u8) -> MemberStep {
        match self {
            Self::Whole => MemberStep::Member,
            Self::Known => known(depth, key, opening),
            Self::Kutrace if key == "events" && opening == b'[' => {
                MemberStep::List(List::KutraceRows)
            }
            Self::Kutrace => MemberStep::Member,
            Self::Path(path) => match (path.get(depth), depth + 1 == path.len(), opening) {
                (Some(wanted), true, b'[') if wanted == key => MemberStep::List(List::Any),
                (Some(wanted), true, b'{') if wanted == key => MemberStep::Record,
                (Some(wanted), false, b'{') if wanted == key => MemberStep::Enter,
                _ => MemberStep::Member,
            },
        }
    }
}

fn known(depth: usize, key: &str, opening: u8) -> MemberStep {
    match (key, opening) {
        ("resourceSpans" | "resource_spans" | "batches", b'[') => MemberStep::List(List::Spans),
        ("resourceLogs" | "resource_logs", b'[') => MemberStep::List(List::Logs),
        ("resourceMetrics" | "resource_metrics", b'[') => MemberStep::List(List::Metrics),
        ("resourceProfiles" | "resource_profiles", b'[') => MemberStep::List(List::Profiles),
        ("traceEvents", b'[') => MemberStep::List(List::ChromeEvents),
        ("data", b'[') => MemberStep::List(List::Any),
        // A response of Elasticsearch has its records in `hits.hits`.
        ("hits", b'[') if depth == 1 => MemberStep::List(List::Any),
        ("result" | "trace" | "hits", b'{') if depth == 0 => MemberStep::Enter,
        ("data" | "_source", b'{') => MemberStep::Record,
        _ => MemberStep::Member,
    }
}
