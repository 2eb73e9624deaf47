//! Tradeoffs and what items were worth, as the SDK records them.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use crate::pass::Pass;
use crate::record::{AttributeRecord, RecordOwner, SpanFlags, SpanRecord, TraceId, TraceRecords};

/// The event that is a tradeoff.
pub const EVENT: &str = "stroboscope.tradeoff";
/// The event that says what items were worth.
pub const ITEMS_EVENT: &str = "stroboscope.tradeoff.items";

/// The attributes of both events.
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

/// One tradeoff, or one exploration.
#[derive(Clone, Debug, PartialEq)]
pub struct Made {
    /// The request.
    pub trace: TraceId,
    /// When the component began, ns since the Unix epoch.
    pub start_ns: i64,
    /// How long the component took: the first span of the request in its process.
    pub latency_ns: u64,
    /// The service that made it.
    pub service: Arc<str>,
    /// `omit`, `default` or `low_fidelity`.
    pub kind: Arc<str>,
    /// Decided before trying, and not forced by a timeout or an error.
    pub is_proactive: bool,
    /// Items there were.
    pub items: u64,
    /// Items left out.
    pub omitted: u64,
    /// How many of which class.
    pub omitted_by: Vec<(Arc<str>, u64)>,
    /// Requests per second at the point.
    pub requests_per_second: f64,
    /// The version of the policy; 0: none.
    pub policy: u64,
    /// The request was told to.
    pub is_explored: bool,
    /// What was left out was chosen by a model, and not at random.
    pub is_by_model: bool,
    /// Of a tradeoff that was forced: by what.
    pub cause: Arc<str>,
}

impl Made {
    /// The share that was left out, 0 to 1.
    #[must_use]
    pub fn rate(&self) -> f64 {
        if self.items == 0 {
            return 0.0;
        }
        (self.omitted as f64 / self.items as f64).min(1.0)
    }
}

/// The value of a feature of an item.
#[derive(Clone, Debug, PartialEq)]
pub enum FeatureValue {
    /// On a continuous scale.
    Number(f64),
    /// One of several.
    Text(Arc<str>),
}

/// What the items of one whole answer were worth, best first as the answer has them.
#[derive(Clone, Debug, PartialEq)]
pub struct Answer {
    /// The request.
    pub trace: TraceId,
    /// The features of each item, and what its absence alone would cost.
    pub rows: Vec<(Vec<FeatureValue>, f64)>,
}

/// What was observed of one point.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct PointObserved {
    /// Names of features.
    pub schema: Vec<Arc<str>>,
    /// In order of begin.
    pub made: Vec<Made>,
    /// By trace.
    pub answers: Vec<Answer>,
    /// Answers beyond 4,000 that were left aside, an even sample being kept.
    pub answers_left: u64,
    /// Metered answers that nothing is learned from: their request gave something up, or nothing says that it did not. What
    /// remains of an answer is worth more than it is beside what was left out.
    pub answers_reduced: u64,
}

/// Answers that are kept of a point: those whose trace ids hash lowest, so that a merge keeps the same.
const ANSWERS_MAX: usize = 4_000;

impl PointObserved {
    /// Requests that explored, proactively.
    pub fn explored(&self) -> impl Iterator<Item = &Made> {
        self.made
            .iter()
            .filter(|made| made.is_explored && made.is_proactive)
    }

    /// Whether the point decides about calls, each of which is made in full or not, and not about items.
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

/// What was observed of all points.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Observed {
    /// By name.
    pub points: BTreeMap<Arc<str>, PointObserved>,
    /// Events whose attributes cannot be read.
    pub malformed: u64,
    /// Tradeoffs whose component was not seen whole: cut by a burst's edge.
    pub cut: u64,
}

impl Observed {
    /// Puts all into an order that does not depend on how it was read.
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
                        // Long answers come in several events.
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

impl Pass<TraceRecords> for Observed {
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

/// The attributes of one event, by key.
type Event<'a> = BTreeMap<&'a str, &'a String>;

/// The attributes of tradeoffs by the span they happened in.
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

/// The attributes of a span's events stand one event after the other, and events of a name have the same keys: a key that
/// is there already begins the next.
fn events<'a>(attributes: &'a [(&'a str, String)]) -> Vec<Event<'a>> {
    let mut done = Vec::new();
    // Of each kind one that is being read.
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

/// The points that a request decided about, if it gave nothing up anywhere: only then is its answer whole.
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

/// The first span of the request in the process in which a span is.
fn component(records: &TraceRecords, span: u64) -> Option<&SpanRecord> {
    let find = |id: u64| records.spans.iter().find(|span| span.span_id == id);
    let mut at = find(span)?;
    // Parents form no circle in what was read; a bound costs nothing.
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

fn made(trace: TraceId, component: &SpanRecord, event: &Event<'_>) -> Option<Made> {
    let text = |key: &str| event.get(key).map(|value| value.as_str());
    let number = |key: &str| text(key)?.parse::<u64>().ok();
    let flag = |key: &str| text(key)?.parse::<bool>().ok();
    let counts = text("tradeoff.omitted_by").unwrap_or_default();
    let omitted_by = counts.split(' ').filter_map(|count| {
        let (class, count) = count.rsplit_once('=')?;
        Some((class.into(), count.parse().ok()?))
    });
    let per_second: f64 = text("tradeoff.requests_per_second")?.parse().ok()?;
    Some(Made {
        trace,
        start_ns: component.start_ns,
        latency_ns: u64::try_from(component.end_ns - component.start_ns).ok()?,
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

/// Names of features, and items with their losses.
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
