//! Finds the spans that a selector matches.

use foldhash::HashMap;
use stroboscope_analysis::record::SpanRecord;

use super::among::Counts;
use super::formula::Selector;
use super::truth::Truth;
use super::unit::{NEVER_NS, Unit, UnitRecord};

/// Parent of a span or kernel event, as an index into the unit's spans.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Parent {
    /// There is no parent, as for a root span or a log event.
    None,
    /// The parent was not recorded, or the span of a kernel event is unknown.
    Unseen,
    At(usize),
}

impl Unit<'_> {
    pub(super) fn select(&self, selector: &Selector) -> Vec<Truth> {
        match selector {
            Selector::Where(condition) => {
                let names_kernel = condition.names_kernel();
                (0..self.len())
                    .map(|place| match self.is_kernel(place) == names_kernel {
                        true => self.is(place, condition),
                        false => Truth::False,
                    })
                    .collect()
            }
            Selector::Child(a, b) => {
                let (above, own) = (self.select(a), self.select(b));
                let parents = self.parents().into_iter();
                let of_parent = parents.map(|parent| match parent {
                    Parent::None => Truth::False,
                    Parent::Unseen => Truth::Unknown,
                    Parent::At(parent) => above[parent],
                });
                own.into_iter()
                    .zip(of_parent)
                    .map(|(a, b)| a.and(b))
                    .collect()
            }
            Selector::Descendant(a, b) => {
                let (above, own) = (self.select(a), self.select(b));
                let below = below(&self.parents(), &above);
                own.into_iter().zip(below).map(|(a, b)| a.and(b)).collect()
            }
            Selector::Sibling(a, b) => {
                let (beside, own) = (self.select(a), self.select(b));
                self.siblings(&beside)
                    .into_iter()
                    .zip(own)
                    .map(|(a, b)| a.and(b))
                    .collect()
            }
        }
    }

    fn spans_only(&self) -> impl Iterator<Item = (usize, u32, &SpanRecord)> {
        let spans = self.spans.iter().enumerate();
        spans.filter_map(|(place, span)| match span.record {
            UnitRecord::Span(record) => Some((place, span.request, record)),
            UnitRecord::Event { .. } | UnitRecord::Kernel { .. } => None,
        })
    }

    fn parents(&self) -> Vec<Parent> {
        let places: HashMap<(u32, u64), usize> = self
            .spans_only()
            .map(|(place, request, span)| ((request, span.span_id), place))
            .collect();
        let mut parents = vec![Parent::None; self.len()];
        for (place, request, span) in self.spans_only() {
            if span.parent_id != 0 {
                let found = places.get(&(request, span.parent_id));
                parents[place] = found.map_or(Parent::Unseen, |at| Parent::At(*at));
            }
        }
        if self.has_kernel_events() {
            for (place, span) in self.spans.iter().enumerate() {
                if let UnitRecord::Kernel { event, .. } = span.record {
                    let found = places.get(&(span.request, event.span_id));
                    parents[place] = found.map_or(Parent::Unseen, |at| Parent::At(*at));
                }
            }
        }
        parents
    }

    fn siblings(&self, holds: &[Truth]) -> Vec<Truth> {
        let mut counts: HashMap<(u32, u64), Counts> = HashMap::default();
        let one = |place: usize| Counts {
            sure: u64::from(holds[place].is_sure()),
            possible: u64::from(holds[place].is_possible()),
        };
        for (place, request, span) in self.spans_only() {
            counts
                .entry((request, span.parent_id))
                .or_default()
                .add(one(place));
        }
        let mut siblings = vec![Truth::False; self.len()];
        for (place, request, span) in self.spans_only() {
            if span.parent_id == 0 {
                continue;
            }
            let of_parent = counts[&(request, span.parent_id)];
            let unseen = Truth::from_bounds(false, !self.is_all_seen(-NEVER_NS, NEVER_NS));
            siblings[place] = of_parent.minus(one(place)).is_any().or(unseen);
        }
        siblings
    }

    /// Reports whether every span that starts in this range was recorded. Times are in ns since the
    /// Unix epoch.
    pub(super) fn is_all_seen(&self, from_ns: i64, to_ns: i64) -> bool {
        self.seen
            .is_some_and(|(seen_from, seen_to)| seen_from <= from_ns && to_ns <= seen_to)
    }
}

/// Evaluates, for each span, whether `holds` is true for at least one of its ancestors.
fn below(parents: &[Parent], holds: &[Truth]) -> Vec<Truth> {
    let mut found: Vec<Option<Truth>> = vec![None; parents.len()];
    for start in 0..parents.len() {
        let (mut way, mut at) = (Vec::<usize>::new(), start);
        let mut value = loop {
            if let Some(known) = found[at] {
                // In a cycle, each span is an ancestor of all. Above the cycle, all is unknown.
                let cycle = way.iter().skip_while(|place| **place != at);
                break cycle.map(|place| holds[*place]).fold(known, Truth::or);
            }
            found[at] = Some(Truth::Unknown);
            way.push(at);
            match parents[at] {
                Parent::None => break Truth::False,
                Parent::Unseen => break Truth::Unknown,
                Parent::At(parent) => at = parent,
            }
        };
        while let Some(place) = way.pop() {
            if let Parent::At(parent) = parents[place] {
                value = value.or(holds[parent]);
            }
            found[place] = Some(value);
        }
    }
    found
        .into_iter()
        .map(|value| value.unwrap_or(Truth::False))
        .collect()
}
