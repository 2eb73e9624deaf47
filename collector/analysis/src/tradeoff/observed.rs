//! Reads the events in which the SDK records tradeoffs and the worth of items.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use crate::pass::Pass;
use crate::record::{AttributeRecord, RecordOwner, SpanFlags, SpanRecord, TraceId, TraceRecords};

/// Name of the event that records a tradeoff.
pub const EVENT: &str = "stroboscope.tradeoff";
/// Name of the event that records the worth of items.
pub const ITEMS_EVENT: &str = "stroboscope.tradeoff.items";

/// Names of the attributes of both events.
pub const ATTRIBUTES: [&str; 15] = [
    "tradeoff.point",
    "tradeoff.kind",
    "tradeoff.proactive",
    "tradeoff.items",
    "tradeoff.omitted",
    "tradeoff.omitted_by",
    "tradeoff.requests_per_second",
    "tradeoff.under_way",
    "tradeoff.policy",
    "tradeoff.explored",
    "tradeoff.by_model",
    "tradeoff.cause",
    "tradeoff_items.point",
    "tradeoff_items.schema",
    "tradeoff_items.rows",
];

/// One decision at a point: a tradeoff, or an exploration.
#[derive(Clone, Debug, PartialEq)]
pub struct TradeoffInstance {
    /// Id of the request.
    pub trace: TraceId,
    /// Start of the component, in nanoseconds since the Unix epoch. The component is the nearest
    /// server span or local root around the decision, or the process's outermost recorded span.
    pub start_ns: i64,
    /// Duration of the component, in nanoseconds.
    pub latency_ns: u64,
    /// The service that made the tradeoff.
    pub service: Arc<str>,
    /// Kind of the tradeoff: `omit` (leaves items out), `default` (uses a default value instead of
    /// a call) or `low_fidelity` (calls an alternative source of lower fidelity).
    pub kind: Arc<str>,
    /// True if the tradeoff was decided in advance; false if a timeout or an error forced it.
    pub is_proactive: bool,
    /// Number of items that the point decided about.
    pub items: u64,
    /// Number of items left out.
    pub omitted: u64,
    /// Numbers of items left out, by the text of the first feature, as far as recorded.
    pub omitted_by: Vec<(Arc<str>, u64)>,
    /// Requests per second at the point, as last measured before the event; 0 if the point measured
    /// nothing, as without a policy and without exploration.
    pub requests_per_second: f64,
    /// Version of the policy in force; 0 if there was none or it was being replaced, or if the
    /// tradeoff was forced.
    pub policy: u64,
    /// True if the request's baggage asked the point to explore; false if the tradeoff was forced.
    pub is_explored: bool,
    /// True unless the tradeoff was forced, or the request explored without asking for the model.
    pub is_by_model: bool,
    /// Cause of a forced tradeoff; empty otherwise.
    pub cause: Arc<str>,
}

impl TradeoffInstance {
    /// Returns the share of items left out, 0 to 1.
    #[must_use]
    pub fn rate(&self) -> f64 {
        if self.items == 0 {
            return 0.0;
        }
        (self.omitted as f64 / self.items as f64).min(1.0)
    }
}

/// Value of one feature of an item.
#[derive(Clone, Debug, PartialEq)]
pub enum FeatureValue {
    /// A value on a continuous scale.
    Number(f64),
    /// One of several discrete values.
    Text(Arc<str>),
}

/// Worth of the recorded items of one whole answer. Items of one span are in order of recording.
#[derive(Clone, Debug, PartialEq)]
pub struct Answer {
    /// Id of the request.
    pub trace: TraceId,
    /// Features of each recorded item, with the loss that the absence of only this one would cause.
    pub rows: Vec<(Vec<FeatureValue>, f64)>,
}

/// Observations of one point.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct PointObserved {
    /// Names of the features of an item.
    pub schema: Vec<Arc<str>>,
    /// Decisions; after [`TradeoffObservations::finish`], in order of start.
    pub made: Vec<TradeoffInstance>,
    /// Whole answers; after [`TradeoffObservations::finish`], in order of trace id.
    pub answers: Vec<Answer>,
    /// Number of answers dropped because a point keeps at most 4,000. The kept answers are an even
    /// sample.
    pub answers_left: u64,
    /// Number of answers that are unsuitable for learning, although the worth of their items was
    /// recorded: the request gave up data, or no record shows that it did not. In a reduced answer,
    /// the remaining items seem worth more than in the whole answer.
    pub answers_reduced: u64,
}

/// Maximum number of answers kept for a point. The answers with the lowest hashes of trace ids are
/// kept, so that merging parts keeps the same answers.
const ANSWERS_MAX: usize = 4_000;

impl PointObserved {
    /// Iterates over the proactive decisions of requests that explored.
    pub fn explored(&self) -> impl Iterator<Item = &TradeoffInstance> {
        self.made
            .iter()
            .filter(|made| made.is_explored && made.is_proactive)
    }

    /// Reports whether the point decides about calls, which are made in full or not, instead of
    /// items.
    #[must_use]
    pub fn is_of_calls(&self) -> bool {
        self.made.iter().any(|made| &*made.kind != "omit")
    }

    fn thin(&mut self) {
        if self.answers.len() > 2 * ANSWERS_MAX {
            self.keep_lowest();
        }
    }

    fn keep_lowest(&mut self) {
        if self.answers.len() <= ANSWERS_MAX {
            return;
        }
        self.answers
            .sort_by_key(|answer| (answer.trace.0 as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15));
        self.answers_left += (self.answers.len() - ANSWERS_MAX) as u64;
        self.answers.truncate(ANSWERS_MAX);
    }
}

/// Observations of all points.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct TradeoffObservations {
    /// Points by name.
    pub points: BTreeMap<Arc<str>, PointObserved>,
    /// Number of events left out because their span was not recorded, because their component ends
    /// before it starts, or because their attributes are missing or unreadable.
    pub malformed: u64,
    /// Number of tradeoffs left out because the edge of a burst cut their component, or because the
    /// end of the component was never seen.
    pub cut: u64,
}

impl TradeoffObservations {
    /// Sorts the observations, and limits the answers of each point.
    pub fn finish(&mut self) {
        for point in self.points.values_mut() {
            point.made.sort_by(|a, b| {
                (a.start_ns, a.trace, a.omitted).cmp(&(b.start_ns, b.trace, b.omitted))
            });
            point.keep_lowest();
            point.answers.sort_by_key(|answer| answer.trace);
        }
    }

    fn take(
        &mut self,
        records: &TraceRecords,
        owner: u64,
        event: &Event<'_>,
        whole: &BTreeSet<&str>,
    ) {
        if let Some(name) = event.get("tradeoff_items.point") {
            let point = self.points.entry(name.as_str().into()).or_default();
            match answer(event) {
                Some(_) if !whole.contains(name.as_str()) => {}
                Some((schema, rows)) => {
                    point.schema = schema;
                    match point
                        .answers
                        .iter_mut()
                        .rev()
                        .find(|known| known.trace == records.id)
                    {
                        // Long answers are split into several events.
                        Some(known) => known.rows.extend(rows),
                        None => point.answers.push(Answer {
                            trace: records.id,
                            rows,
                        }),
                    }
                    point.thin();
                }
                None => self.malformed += 1,
            }
            return;
        }
        let (Some(point), Some(component)) =
            (event.get("tradeoff.point"), component(records, owner))
        else {
            self.malformed += 1;
            return;
        };
        let is_cut = [
            SpanFlags::CUT_OPEN,
            SpanFlags::CUT_CLOSE,
            SpanFlags::UNFINISHED,
        ]
        .into_iter()
        .any(|cut| component.flags.contains(cut));
        if is_cut {
            self.cut += 1;
            return;
        }
        match made(records.id, component, event) {
            Some(made) => {
                let point = point.as_str().into();
                self.points.entry(point).or_default().made.push(made);
            }
            None => self.malformed += 1,
        }
    }
}

impl Pass<TraceRecords> for TradeoffObservations {
    fn observe(&mut self, records: &TraceRecords) {
        let owned = owned(records);
        let events: Vec<(u64, Event<'_>)> = owned
            .iter()
            .flat_map(|(owner, attributes)| {
                events(attributes).into_iter().map(|event| (*owner, event))
            })
            .collect();
        let whole = decided_in_full(&events);
        for (owner, event) in &events {
            self.take(records, *owner, event, &whole);
        }
        let metered = events
            .iter()
            .filter_map(|(_, event)| event.get("tradeoff_items.point"));
        let metered: BTreeSet<&str> = metered.map(|name| name.as_str()).collect();
        for reduced in metered.difference(&whole) {
            self.points
                .entry((*reduced).into())
                .or_default()
                .answers_reduced += 1;
        }
    }

    fn merge(&mut self, other: Self) {
        self.malformed += other.malformed;
        self.cut += other.cut;
        for (name, of_other) in other.points {
            let own = self.points.entry(name).or_default();
            if own.schema.is_empty() {
                own.schema = of_other.schema;
            }
            own.made.extend(of_other.made);
            own.answers.extend(of_other.answers);
            own.answers_left += of_other.answers_left;
            own.answers_reduced += of_other.answers_reduced;
            own.thin();
        }
    }
}

/// Attributes of one event, by key.
type Event<'a> = BTreeMap<&'a str, &'a String>;

/// Returns the attributes of tradeoff events, by the span that contains the event.
fn owned(records: &TraceRecords) -> BTreeMap<u64, Vec<(&str, String)>> {
    let mut owned: BTreeMap<u64, Vec<(&str, String)>> = BTreeMap::new();
    for AttributeRecord { owner, key, value } in &records.attributes {
        if let RecordOwner::InSpan(span, _) = owner
            && ATTRIBUTES.contains(&&**key)
        {
            owned
                .entry(*span)
                .or_default()
                .push((key, value.to_string()));
        }
    }
    owned
}

/// Splits a span's attributes into events. The attributes are stored one event after the other, and
/// events of the same name have the same keys. A repeated key therefore begins the next event.
fn events<'a>(attributes: &'a [(&'a str, String)]) -> Vec<Event<'a>> {
    let mut done = Vec::new();
    // One open event of each kind: tradeoffs, and worth of items.
    let mut open: [Event<'a>; 2] = [Event::new(), Event::new()];
    for (key, value) in attributes {
        let kind = usize::from(key.starts_with("tradeoff_items."));
        if open[kind].contains_key(key) {
            done.push(std::mem::take(&mut open[kind]));
        }
        open[kind].insert(key, value);
    }
    done.extend(open.into_iter().filter(|event| !event.is_empty()));
    done
}

/// Returns the points at which a request decided, if the request gave up nothing at any point.
/// Returns no points otherwise, because the answer is then not whole.
fn decided_in_full<'a>(events: &[(u64, Event<'a>)]) -> BTreeSet<&'a str> {
    let mut points = BTreeSet::new();
    for (_, event) in events {
        let Some(point) = event.get("tradeoff.point") else {
            continue;
        };
        if event
            .get("tradeoff.omitted")
            .is_none_or(|count| *count != "0")
        {
            return BTreeSet::new();
        }
        points.insert(point.as_str());
    }
    points
}

/// Returns the component of a span: the nearest server span or local root, from the span itself
/// upwards, or else the outermost recorded span of the same process. Returns `None` if the span is
/// not recorded.
fn component(records: &TraceRecords, span: u64) -> Option<&SpanRecord> {
    let find = |id: u64| records.spans.iter().find(|span| span.span_id == id);
    let mut at = find(span)?;
    // The limit ends the walk if parents form a cycle.
    for _ in 0..records.spans.len() {
        let is_root =
            at.flags.contains(SpanFlags::LOCAL_ROOT) || at.flags.contains(SpanFlags::SERVER);
        match find(at.parent_id) {
            Some(parent) if !is_root && parent.process == at.process => at = parent,
            _ => break,
        }
    }
    Some(at)
}

fn made(trace: TraceId, component: &SpanRecord, event: &Event<'_>) -> Option<TradeoffInstance> {
    let text = |key: &str| event.get(key).map(|value| value.as_str());
    let number = |key: &str| text(key)?.parse::<u64>().ok();
    let flag = |key: &str| text(key)?.parse::<bool>().ok();
    let counts = text("tradeoff.omitted_by").unwrap_or_default();
    let omitted_by = counts.split(' ').filter_map(|count| {
        let (class, count) = count.rsplit_once('=')?;
        Some((class.into(), count.parse().ok()?))
    });
    let per_second: f64 = text("tradeoff.requests_per_second")?.parse().ok()?;
    Some(TradeoffInstance {
        trace,
        start_ns: component.start_ns,
        latency_ns: u64::try_from(component.end_ns.saturating_sub(component.start_ns)).ok()?,
        service: component.service.clone(),
        kind: text("tradeoff.kind")?.into(),
        is_proactive: flag("tradeoff.proactive")?,
        items: number("tradeoff.items")?,
        omitted: number("tradeoff.omitted")?,
        omitted_by: omitted_by.collect(),
        requests_per_second: Some(per_second).filter(|rate| rate.is_finite() && *rate >= 0.0)?,
        policy: number("tradeoff.policy")?,
        is_explored: flag("tradeoff.explored")?,
        is_by_model: flag("tradeoff.by_model")?,
        cause: text("tradeoff.cause").unwrap_or_default().into(),
    })
}

/// Names of the features, and the features and loss of each item.
type Rows = (Vec<Arc<str>>, Vec<(Vec<FeatureValue>, f64)>);

fn answer(event: &Event<'_>) -> Option<Rows> {
    let schema: Vec<Arc<str>> = event
        .get("tradeoff_items.schema")?
        .split('\t')
        .filter(|name| !name.is_empty())
        .map(Arc::from)
        .collect();
    let rows = event.get("tradeoff_items.rows")?.lines().map(|line| {
        let (features, loss) = line.rsplit_once('\t').unwrap_or(("", line));
        let value = |text: &str| match text.parse::<f64>() {
            Ok(number) => FeatureValue::Number(number),
            Err(_) => FeatureValue::Text(text.into()),
        };
        let features: Vec<FeatureValue> = match schema.len() {
            0 => Vec::new(),
            _ => features.split('\t').map(value).collect(),
        };
        let loss: f64 = loss.parse().ok()?;
        (features.len() == schema.len() && loss.is_finite()).then_some((features, loss))
    });
    let rows: Option<Vec<_>> = rows.collect();
    Some((schema, rows?))
}
