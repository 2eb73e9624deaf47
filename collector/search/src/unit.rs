//! Spans of a request or a burst, with the ranges in which they may have started and ended.

use std::sync::Arc;

use rustc_hash::FxHashMap;
use stroboscope_analysis::record::{RecordOwner, SpanFlags, SpanRecord, TraceRecords};

use super::clock::Clock;
pub(super) use super::clock::NEVER_NS;
use super::field::KIND;
use super::formula::Formula;
use super::kernel_event::KernelEvent;
use super::span_facts::is_cut_close;
use super::truth::Truth;

/// Records that are searched together: a request, or the requests of a burst.
#[derive(Debug)]
pub struct Unit<'a> {
    pub(super) spans: Vec<UnitSpan<'a>>,
    clocks: Vec<Clock>,
    pub(super) requests: Vec<RequestSeen<'a>>,
    /// Time range, in ns since the Unix epoch. Every span that starts in this range was recorded.
    /// `None` if no such range is known.
    pub(super) seen: Option<(i64, i64)>,
    /// True if the kernel events of the unit were also recorded completely.
    is_kernel_seen: bool,
    has_kernel: bool,
    /// True for the recording of a burst, false for one request.
    is_burst: bool,
}

/// Span, log event or kernel event, with the instants at which it may have started and ended.
#[derive(Debug)]
pub(super) struct UnitSpan<'a> {
    pub(super) record: UnitRecord<'a>,
    /// Index in the unit's requests.
    pub(super) request: u32,
    /// Index in the unit's clocks.
    pub(super) clock: u32,
    pub(super) start: Instant,
    pub(super) end: Instant,
    pub(super) is_cut_open: bool,
    pub(super) attributes: (u32, u32),
}

impl UnitSpan<'_> {
    /// Reports whether the start or the end was not recorded.
    pub(super) fn is_cut(&self) -> bool {
        self.is_cut_open || self.end.from_ns != self.end.to_ns
    }
}

/// Record of a span, a kernel event or a log event. A log event takes no time.
#[derive(Clone, Copy, Debug)]
pub(super) enum UnitRecord<'a> {
    Span(&'a SpanRecord),
    Kernel {
        event: &'a KernelEvent,
        /// Span that caused the kernel event; `None` if that span is unknown or was not recorded.
        of: Option<&'a SpanRecord>,
    },
    Event {
        seq: u32,
        name: &'a Arc<str>,
        task: &'a Arc<str>,
        host: &'a Arc<str>,
    },
}

/// Range of possible instants, in ns since the Unix epoch, by the clock of the record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Instant {
    pub(super) from_ns: i64,
    pub(super) to_ns: i64,
}

#[derive(Debug)]
pub(super) struct RequestSeen<'a> {
    pub(super) records: &'a TraceRecords,
    pub(super) root: Option<&'a SpanRecord>,
    /// Start of the root span, in ns since the Unix epoch; `-NEVER_NS` if there is no root or a
    /// span began before the recording.
    pub(super) from_ns: i64,
    /// Attributes of all spans and events of the request, in order of owner.
    pub(super) attributes: Vec<AttributeRef<'a>>,
    pub(super) kinds: bool,
}

/// Attribute: owner, key, value.
pub(super) type AttributeRef<'a> = (RecordOwner, &'a Arc<str>, &'a Arc<str>);

impl<'a> Unit<'a> {
    /// Returns a unit of one request. `has_losses` is true if records of the request may have been
    /// lost. Without losses, a trace with a root and without cut spans counts as completely
    /// recorded.
    #[must_use]
    pub fn of_request(records: &'a TraceRecords, has_losses: bool) -> Self {
        let seen = (!has_losses).then(|| Self::seen_of(records));
        Self {
            is_burst: false,
            ..Self::of(std::iter::once(records), seen)
        }
    }

    /// Reports whether a request was recorded completely, provided that no records were lost. If
    /// so, a span that is not among the records never existed.
    #[must_use]
    pub fn is_whole(records: &TraceRecords) -> bool {
        Self::seen_of(records) == (-NEVER_NS, NEVER_NS)
    }

    /// Returns a time range, in ns since the Unix epoch. Every span that starts in this range was
    /// recorded, provided that no records were lost.
    fn seen_of(records: &TraceRecords) -> (i64, i64) {
        let is_cut = |flag| records.spans.iter().any(|span| span.flags.contains(flag));
        let has_root = records.spans.iter().any(|span| span.parent_id == 0);
        let is_log = records.spans.is_empty();
        let starts = || records.spans.iter().map(|span| span.start_ns);
        let from_ns = if is_log || (has_root && !is_cut(SpanFlags::CUT_OPEN)) {
            -NEVER_NS
        } else {
            // Spans that began before the first one may not have been recorded.
            starts().min().unwrap_or(0)
        };
        let close = |span: &SpanRecord| is_cut_close(span).then_some(span.end_ns);
        let to_ns = records.spans.iter().filter_map(close).min();
        (from_ns, to_ns.unwrap_or(NEVER_NS))
    }

    /// Adds kernel events, each with the index of its request. `is_seen` is true if no kernel event
    /// of the unit is missing.
    #[must_use]
    pub fn with_kernel(
        mut self,
        events: impl IntoIterator<Item = (usize, &'a KernelEvent)>,
        is_seen: bool,
    ) -> Self {
        let mut events = events.into_iter().peekable();
        let mut by_id: foldhash::HashMap<(usize, u64), &SpanRecord> = foldhash::HashMap::default();
        let requests = self.requests.iter().enumerate();
        for (request, seen) in requests.filter(|_| events.peek().is_some()) {
            for span in &seen.records.spans {
                by_id.entry((request, span.span_id)).or_insert(span);
            }
        }
        for (request, event) in events {
            let Some(records) = self.requests.get(request).map(|of| of.records) else {
                continue;
            };
            let clock = Clock::of(&event.host, &records.clocks);
            let known = self.clocks.iter().position(|known| *known == clock);
            let clock = known.unwrap_or_else(|| {
                self.clocks.push(clock);
                self.clocks.len() - 1
            });
            let of = by_id.get(&(request, event.span_id)).copied();
            let end_ns = event.end_ns.max(event.start_ns);
            self.spans.push(UnitSpan {
                record: UnitRecord::Kernel {
                    event,
                    of: of.filter(|_| event.span_id != 0),
                },
                request: u32::try_from(request).unwrap_or(u32::MAX),
                clock: u32::try_from(clock).unwrap_or(u32::MAX),
                start: Instant {
                    from_ns: match event.is_cut_open {
                        true => -NEVER_NS,
                        false => event.start_ns,
                    },
                    to_ns: event.start_ns,
                },
                end: Instant {
                    from_ns: end_ns,
                    to_ns: if event.is_cut_close { NEVER_NS } else { end_ns },
                },
                is_cut_open: event.is_cut_open,
                attributes: (0, 0),
            });
            self.has_kernel = true;
        }
        self.is_kernel_seen = is_seen;
        self.sort();
        self
    }

    fn sort(&mut self) {
        self.spans
            .sort_by_key(|span| (span.start.to_ns, span.end.from_ns, span.request));
    }

    /// Reports whether a formula considers the record at `place`. It considers kernel events only
    /// if it names `kernel`.
    #[cfg(test)]
    pub(super) fn is_looked_at(&self, place: usize, names_kernel: bool) -> bool {
        names_kernel || !self.is_kernel(place)
    }

    pub(super) fn has_kernel_events(&self) -> bool {
        self.has_kernel
    }

    pub(super) fn is_kernel(&self, place: usize) -> bool {
        self.has_kernel && matches!(self.spans[place].record, UnitRecord::Kernel { .. })
    }

    /// Returns the index of the span at which a formula about the whole unit is evaluated: the
    /// first span or log event. Without these, it is the first kernel event if the formula names
    /// `kernel`. Returns `None` if there is no such record.
    pub(super) fn first(&self, formula: &Formula) -> Option<usize> {
        if !self.has_kernel {
            return (!self.is_empty()).then_some(0);
        }
        let names_kernel = formula.names_kernel();
        let span = (0..self.len()).find(|place| !self.is_kernel(*place));
        span.or((names_kernel && !self.is_empty()).then_some(0))
    }

    /// Reports whether every span that starts in this range was recorded. If the formula names
    /// `kernel`, every kernel event must have been recorded, too.
    pub(super) fn is_all_seen_of(&self, names_kernel: bool, from_ns: i64, to_ns: i64) -> bool {
        (!names_kernel || self.is_kernel_seen) && self.is_all_seen(from_ns, to_ns)
    }

    /// Reports whether the unit was recorded completely. For a burst, only the time range of the
    /// burst counts.
    pub(super) fn is_seen_anywhere(&self, names_kernel: bool) -> bool {
        match self.is_burst {
            true => self.seen.is_some() && (!names_kernel || self.is_kernel_seen),
            false => self.is_all_seen_of(names_kernel, -NEVER_NS, NEVER_NS),
        }
    }

    /// Returns a unit of several requests. Every span that starts in the time range `seen` (ns
    /// since the Unix epoch) was recorded; `None` if no such range is known.
    #[must_use]
    pub fn of(
        requests: impl IntoIterator<Item = &'a TraceRecords>,
        seen: Option<(i64, i64)>,
    ) -> Self {
        let mut unit = Self {
            spans: Vec::new(),
            clocks: Vec::new(),
            requests: Vec::new(),
            seen,
            is_kernel_seen: false,
            has_kernel: false,
            is_burst: true,
        };
        let mut places = FxHashMap::default();
        for records in requests {
            unit.add(records, &mut places);
        }
        unit.sort();
        unit
    }

    fn add(&mut self, records: &'a TraceRecords, places: &mut FxHashMap<Clock, u32>) {
        let request = u32::try_from(self.requests.len()).unwrap_or(u32::MAX);
        let mut attributes: Vec<_> = records
            .attributes
            .iter()
            .map(|attribute| (attribute.owner, &attribute.key, &attribute.value))
            .collect();
        attributes.sort();
        let mut clock_of = |host: &Arc<str>| {
            let clock = Clock::of(host, &records.clocks);
            *places.entry(clock.clone()).or_insert_with(|| {
                self.clocks.push(clock);
                u32::try_from(self.clocks.len() - 1).unwrap_or(u32::MAX)
            })
        };
        let range = |owner: RecordOwner| {
            let from = attributes.partition_point(|(of, ..)| *of < owner);
            let to = attributes.partition_point(|(of, ..)| *of <= owner);
            (from as u32, to as u32)
        };
        for span in &records.spans {
            let is_cut_open = span.flags.contains(SpanFlags::CUT_OPEN);
            let is_open = is_cut_close(span);
            let start = Instant {
                from_ns: if is_cut_open {
                    -NEVER_NS
                } else {
                    span.start_ns
                },
                to_ns: span.start_ns,
            };
            // With some clocks, recorded spans end before they start.
            let end_ns = span.end_ns.max(span.start_ns);
            let end = Instant {
                from_ns: end_ns,
                to_ns: if is_open { NEVER_NS } else { end_ns },
            };
            self.spans.push(UnitSpan {
                record: UnitRecord::Span(span),
                request,
                clock: clock_of(&span.host),
                start,
                end,
                is_cut_open,
                attributes: range(RecordOwner::Span(span.span_id)),
            });
        }
        for event in &records.events {
            let at = Instant {
                from_ns: event.ts_ns,
                to_ns: event.ts_ns,
            };
            self.spans.push(UnitSpan {
                record: UnitRecord::Event {
                    seq: event.seq,
                    name: &event.event,
                    task: &event.task,
                    host: &event.host,
                },
                request,
                clock: clock_of(&event.host),
                start: at,
                end: at,
                is_cut_open: false,
                attributes: range(RecordOwner::Event(event.seq)),
            });
        }
        let root = records.root();
        let is_cut_open = |span: &SpanRecord| span.flags.contains(SpanFlags::CUT_OPEN);
        self.requests.push(RequestSeen {
            records,
            root,
            from_ns: match root {
                Some(root) if !records.spans.iter().any(is_cut_open) => root.start_ns,
                _ => -NEVER_NS,
            },
            kinds: attributes.iter().any(|(_, key, _)| &***key == KIND),
            attributes,
        });
    }

    /// Returns the number of spans, log events and kernel events.
    #[must_use]
    pub fn len(&self) -> usize {
        self.spans.len()
    }

    /// Reports whether the unit is empty.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.spans.is_empty()
    }

    /// Returns the minimum distance, in ns, of two timestamps of these clocks whose order is
    /// certain.
    pub(super) fn slack_ns(&self, a: u32, b: u32) -> i64 {
        self.clocks[a as usize].slack_ns(&self.clocks[b as usize])
    }

    pub(super) fn clocks(&self) -> u32 {
        self.clocks.len() as u32
    }

    /// Returns the bounds of the time from `a` to `b`, in ns.
    pub(super) fn gap_ns(&self, a: (u32, Instant), b: (u32, Instant)) -> (i64, i64) {
        let slack_ns = self.slack_ns(a.0, b.0);
        (
            b.1.from_ns
                .saturating_sub(a.1.to_ns)
                .saturating_sub(slack_ns),
            b.1.to_ns
                .saturating_sub(a.1.from_ns)
                .saturating_add(slack_ns),
        )
    }

    /// Reports whether this is a span, not a log event or a kernel event.
    #[must_use]
    pub fn is_span(&self, place: usize) -> bool {
        matches!(self.spans[place].record, UnitRecord::Span(_))
    }

    /// Returns the trace and an id: the id of a span, the id of the span that caused a kernel
    /// event, or the sequence number of a log event.
    #[must_use]
    pub fn names(&self, place: usize) -> (&'a TraceRecords, u64) {
        let span = &self.spans[place];
        let id = match span.record {
            UnitRecord::Span(record) => record.span_id,
            UnitRecord::Kernel { event, .. } => event.span_id,
            UnitRecord::Event { seq, .. } => u64::from(seq),
        };
        (self.requests[span.request as usize].records, id)
    }

    /// Returns the service and the operation, with the recorded start and end in ns since the Unix
    /// epoch. For a kernel event, the names are its kind and name; for a log event, its task and
    /// name.
    #[must_use]
    pub fn describe(&self, place: usize) -> (&'a str, &'a str, i64, i64) {
        let span = &self.spans[place];
        match span.record {
            UnitRecord::Span(record) => (
                &record.service,
                &record.name,
                record.start_ns,
                record.end_ns,
            ),
            UnitRecord::Kernel { event, .. } => {
                let kind = event.kind.name();
                (kind, &event.name, event.start_ns, event.end_ns)
            }
            UnitRecord::Event { name, task, .. } => (task, name, span.start.to_ns, span.end.to_ns),
        }
    }

    /// Returns the service, or the task of a log event; `None` for a kernel event whose span is
    /// unknown or was not recorded.
    pub(super) fn service(&self, place: usize) -> Option<&'a str> {
        match self.spans[place].record {
            UnitRecord::Span(span) => Some(&span.service),
            UnitRecord::Kernel { of, .. } => of.map(|span| &*span.service),
            UnitRecord::Event { task, .. } => Some(task),
        }
    }

    /// Reports whether a record may have begun before the recording, or is a kernel event without a
    /// recorded span. Values may then be missing.
    pub(super) fn may_have_more(&self, place: usize) -> bool {
        let span = &self.spans[place];
        span.is_cut_open || matches!(span.record, UnitRecord::Kernel { of: None, .. })
    }

    pub(super) fn host(&self, place: usize) -> &'a str {
        match self.spans[place].record {
            UnitRecord::Span(span) => &span.host,
            UnitRecord::Kernel { event, .. } => &event.host,
            UnitRecord::Event { host, .. } => host,
        }
    }

    pub(super) fn process(&self, place: usize) -> Option<u128> {
        let span = match self.spans[place].record {
            UnitRecord::Span(span) => Some(span),
            UnitRecord::Kernel { of, .. } => of,
            UnitRecord::Event { .. } => None,
        };
        span.map(|span| span.process)
            .filter(|process| *process != 0)
    }

    /// Evaluates whether a gap, given by its bounds, lies in a range. Both ends belong to the
    /// range.
    pub(super) fn is_in((low, high): (i64, i64), (least, most): (i64, i64)) -> Truth {
        Truth::from_bounds(low >= least && high <= most, high >= least && low <= most)
    }
}
