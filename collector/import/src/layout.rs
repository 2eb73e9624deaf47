//! Locations of the records in a JSON document.

/// List that a record is an element of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum List {
    /// A list of records that determine their own form.
    Any,
    /// `ResourceSpans` of OTLP.
    Spans,
    /// `ResourceLogs`, `ResourceMetrics` and `ResourceProfiles` of OTLP.
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
    /// Read its members in turn.
    Enter,
    /// Read its elements as records.
    List(List),
    /// Read it as a record.
    Record,
    /// Pass it on as a member.
    Member,
}

/// Locations of the records.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Layout {
    /// Each document is a record.
    Whole,
    /// In the lists of the known forms.
    Known,
    /// In KUtrace's list.
    Kutrace,
    /// At this path.
    Path(Vec<String>),
}

impl Layout {
    /// Decides how to treat the member `key` whose value begins with `opening`, inside `depth`
    /// objects that were entered.
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
        // A response of Elasticsearch holds its records in `hits.hits`.
        ("hits", b'[') if depth == 1 => MemberStep::List(List::Any),
        ("result" | "trace" | "hits", b'{') if depth == 0 => MemberStep::Enter,
        ("data" | "_source", b'{') => MemberStep::Record,
        _ => MemberStep::Member,
    }
}
