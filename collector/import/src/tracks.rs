//! Converts the intervals of threads, as whole-machine recorders write them, into spans with
//! parents.
//!
//! The intervals of a thread nest, so an interval's parent is the last begun interval of its
//! thread and trace that encloses it. Recorders write intervals in any order, and the names of
//! threads anywhere: up to [`Tracks::HELD_MAX`] intervals are held, then sorted and passed on.

use std::collections::{BTreeMap, HashMap};

use serde_json::Value;

use super::line::{LogEvent, check, check_count};
use super::take::Take;
use stroboscope_otlp::{Attributes, ForeignSpan, hashed};
use stroboscope_store::limits::Limits;

/// Loss by forgetting tracks, because there are too many of them.
pub(super) const WIDE: &str = "nesting and names of threads before the 500000th of them";
/// Maximum number of earlier intervals that are searched for a parent.
const NESTING_MAX: usize = 256;

/// An interval, or an instant, of a track.
#[derive(Clone, Debug, Default)]
pub(super) struct Slice {
    /// Line in the source.
    pub(super) line: u64,
    /// Number of the record that begins the slice.
    pub(super) number: u64,
    pub(super) track: usize,
    /// Trace in the source to which the slice belongs; empty for the source's own trace.
    pub(super) trace: String,
    pub(super) name: String,
    pub(super) start_ns: i64,
    /// End of the interval; `None` for an instant.
    pub(super) end_ns: Option<i64>,
    /// Bits of `SpanFlag`.
    pub(super) flags: u32,
    pub(super) attributes: Attributes,
}

/// Thread and its process, by the source's identifiers.
#[derive(Clone, Debug, Default)]
struct Track {
    process: String,
    thread: String,
}

/// Root span of one of the source's traces.
#[derive(Debug)]
pub(super) struct Root {
    /// Line of its first mention.
    pub(super) line: u64,
    /// Process of the span; empty if unknown.
    pub(super) process: String,
    /// Name of the span; empty if unknown.
    pub(super) name: String,
    start_ns: i64,
    end_ns: i64,
}

impl Root {
    pub(super) fn hold(&mut self, start_ns: i64, end_ns: i64) {
        self.start_ns = self.start_ns.min(start_ns);
        self.end_ns = self.end_ns.max(end_ns);
    }
}

/// Holds slices until they are passed on.
#[derive(Debug)]
pub(super) struct Tracks {
    /// Name of the source's own trace.
    trace: String,
    tracks: Vec<Track>,
    places: HashMap<(String, String), usize>,
    process_names: HashMap<String, String>,
    thread_names: HashMap<(String, String), String>,
    held: Vec<Slice>,
    held_bytes: usize,
    handed_on: u64,
    /// Roots by trace.
    roots: BTreeMap<String, Root>,
    /// Tracks by trace and process name, in the order in which their first events are passed on;
    /// `None` names tasks by their threads.
    tasks: Option<HashMap<(String, String), Vec<usize>>>,
    /// Number of records read, including those that are not stored.
    pub(super) told: u64,
}

impl Tracks {
    /// Number of held slices, of tracks or of roots at which held slices are passed on. Slices that
    /// are not held at the same time do not become parents of each other.
    pub(super) const HELD_MAX: usize = 500_000;
    /// Total of the sizes given to [`Tracks::push`], in bytes, at which held slices are passed on.
    const HELD_BYTES_MAX: usize = 256 << 20;

    /// Creates tracks for the source with this content hash, recorded by `recorder`.
    pub(super) fn new(recorder: &str, content: &str) -> Self {
        Self {
            trace: format!("{recorder}-{}", content.get(..8).unwrap_or(content)),
            tracks: Vec::new(),
            places: HashMap::new(),
            process_names: HashMap::new(),
            thread_names: HashMap::new(),
            held: Vec::new(),
            held_bytes: 0,
            handed_on: 0,
            roots: BTreeMap::new(),
            tasks: None,
            told: 0,
        }
    }

    /// Distinguishes the tasks of a process by their order in each trace instead of by threads,
    /// whose numbers differ between recordings.
    pub(super) fn with_tasks_by_order(mut self) -> Self {
        self.tasks = Some(HashMap::new());
        self
    }

    /// Returns the root of a trace, and creates it if it does not exist.
    pub(super) fn root(&mut self, trace: &str, line: u64) -> &mut Root {
        self.roots.entry(trace.to_owned()).or_insert_with(|| Root {
            line,
            process: String::new(),
            name: String::new(),
            start_ns: i64::MAX,
            end_ns: i64::MIN,
        })
    }

    /// Returns the track of a thread, or of another entity that `thread` names in a process.
    pub(super) fn track(&mut self, process: &str, thread: &str) -> usize {
        let key = (process.to_owned(), thread.to_owned());
        if let Some(&place) = self.places.get(&key) {
            return place;
        }
        self.tracks.push(Track {
            process: key.0.clone(),
            thread: key.1.clone(),
        });
        self.places.insert(key, self.tracks.len() - 1);
        self.tracks.len() - 1
    }

    /// Sets the name of a process, which replaces an earlier name.
    pub(super) fn name_process(&mut self, process: &str, name: String) {
        self.process_names.insert(process.to_owned(), name);
    }

    /// Sets the name of a process, unless it has one.
    pub(super) fn name_process_for_now(&mut self, process: &str, name: &str) {
        if !self.process_names.contains_key(process) {
            self.name_process(process, name.to_owned());
        }
    }

    /// Sets the name of a thread, which replaces an earlier name.
    pub(super) fn name_thread(&mut self, process: &str, thread: &str, name: String) {
        let thread = (process.to_owned(), thread.to_owned());
        self.thread_names.insert(thread, name);
    }

    /// Adds a slice whose record has `bytes` bytes, and returns its index among the held slices.
    /// Extends the root of its trace, if there is one, to include the slice.
    pub(super) fn push(&mut self, slice: Slice, bytes: usize) -> usize {
        self.held_bytes += bytes;
        if let Some(root) = self.roots.get_mut(&slice.trace) {
            root.hold(slice.start_ns, slice.end_ns.unwrap_or(slice.start_ns));
        }
        self.held.push(slice);
        self.held.len() - 1
    }

    /// Returns the held slice of this index; `None` if there is none.
    pub(super) fn held(&mut self, place: usize) -> Option<&mut Slice> {
        self.held.get_mut(place)
    }

    /// Reports whether the number or the size of the held slices has reached its maximum. The
    /// caller then calls [`Tracks::hand_on`].
    pub(super) fn is_full(&self) -> bool {
        self.held.len() >= Self::HELD_MAX || self.held_bytes >= Self::HELD_BYTES_MAX
    }

    /// Reports whether the number of tracks or roots has reached its maximum. The caller then
    /// passes on everything and calls [`Tracks::forget`].
    pub(super) fn is_wide(&self) -> bool {
        self.tracks.len().max(self.roots.len()) >= Self::HELD_MAX
    }

    /// Forgets all tracks, names and tasks. The caller has passed on all slices before.
    pub(super) fn forget(&mut self) {
        self.tracks.clear();
        self.places.clear();
        self.process_names.clear();
        self.thread_names.clear();
        self.tasks.iter_mut().for_each(HashMap::clear);
    }

    /// Passes on the roots whose times are known, and forgets all roots.
    pub(super) fn hand_on_roots(&mut self, take: &mut dyn Take) {
        for (trace, root) in std::mem::take(&mut self.roots) {
            if root.start_ns > root.end_ns {
                continue;
            }
            let name = |name: &str, unknown: &str| match name {
                "" => unknown.to_owned(),
                name => name.to_owned(),
            };
            let process = self.process_names.get(&root.process);
            let span = ForeignSpan {
                trace: self.trace_of(&trace),
                span_id: self.root_id(&trace),
                service: name(process.unwrap_or(&root.process), "machine"),
                name: name(&root.name, "rpc"),
                start_ns: root.start_ns,
                end_ns: root.end_ns,
                ..ForeignSpan::default()
            };
            take.span(root.line, Ok(span));
        }
    }

    fn root_id(&self, trace: &str) -> u64 {
        hashed(format!("{} root {trace}", self.trace).as_bytes())
    }

    /// Determines the parents of the held intervals, and passes on all held slices.
    pub(super) fn hand_on(&mut self, take: &mut dyn Take) {
        let mut held = std::mem::take(&mut self.held);
        self.held_bytes = 0;
        // An enclosing slice is sorted before the other: it begins earlier, ends later, or is the
        // first of both in the source.
        held.sort_by_key(|slice| {
            let latest_first = std::cmp::Reverse(slice.end_ns.unwrap_or(slice.start_ns));
            (slice.track, slice.start_ns, latest_first, slice.number)
        });
        // Stack of the ids, ends and traces of earlier intervals of the track. Only ended intervals
        // at its top are removed.
        let mut around: Vec<(u64, i64, String)> = Vec::new();
        let mut track = usize::MAX;
        for slice in held {
            if std::mem::replace(&mut track, slice.track) != slice.track {
                around.clear();
            }
            while around
                .pop_if(|(_, end_ns, _)| *end_ns <= slice.start_ns)
                .is_some()
            {}
            let Some(end_ns) = slice.end_ns else {
                self.instant(&slice, take);
                continue;
            };
            self.handed_on += 1;
            let span_id = hashed(format!("{} {}", self.trace, self.handed_on).as_bytes());
            let mut near = around.iter().rev().take(NESTING_MAX);
            let parent =
                near.find(|(_, until_ns, trace)| *until_ns >= end_ns && *trace == slice.trace);
            let root_id = || match self.roots.contains_key(&slice.trace) {
                true => self.root_id(&slice.trace),
                false => 0,
            };
            let parent_id = parent.map_or_else(root_id, |(id, ..)| *id);
            around.push((span_id, end_ns, slice.trace.clone()));
            let line = slice.line;
            take.span(line, Ok(self.span(slice, end_ns, span_id, parent_id)));
        }
    }

    fn span(&self, slice: Slice, end_ns: i64, span_id: u64, parent_id: u64) -> ForeignSpan {
        let (process, thread) = self.names(slice.track);
        let mut attributes = slice.attributes;
        attributes.insert("thread".to_owned(), Value::String(thread));
        ForeignSpan {
            trace: self.trace_of(&slice.trace),
            span_id,
            parent_id,
            service: process,
            name: slice.name,
            start_ns: slice.start_ns,
            end_ns,
            flags: slice.flags,
            attributes,
            ..ForeignSpan::default()
        }
    }

    fn instant(&mut self, slice: &Slice, take: &mut dyn Take) {
        let (process, thread) = self.names(slice.track);
        let task = match &mut self.tasks {
            None => format!("{process}/{thread}"),
            Some(tasks) => {
                let tasks = tasks.entry((slice.trace.clone(), process.clone()));
                let tasks = tasks.or_default();
                let known = tasks.iter().position(|track| *track == slice.track);
                let place = known.unwrap_or_else(|| {
                    tasks.push(slice.track);
                    tasks.len() - 1
                });
                match place {
                    0 => process,
                    place => format!("{process}/{}", place + 1),
                }
            }
        };
        let limits = Limits::default();
        let name = match &*slice.name {
            "" => "event",
            name => name,
        };
        let checked = check("an event's name", name, &limits)
            .and_then(|()| check("task", &task, &limits))
            .and_then(|()| check_count(slice.attributes.len(), &limits));
        if let Err(reason) = checked {
            return take.bad(slice.line, &reason);
        }
        let json = || Value::from(slice.attributes.clone()).to_string();
        let attributes = (!slice.attributes.is_empty()).then(json);
        take.event(&LogEvent {
            trace: &self.trace_of(&slice.trace),
            host: "",
            time_ns: slice.start_ns,
            event: name,
            task: &task,
            attributes: attributes.as_deref(),
        });
    }

    fn trace_of(&self, trace: &str) -> String {
        match trace {
            "" => self.trace.clone(),
            trace => format!("{} {trace}", self.trace),
        }
    }

    /// Returns the names of the process and of the thread. A named thread's number follows its
    /// name, because several threads may have one name.
    fn names(&self, track: usize) -> (String, String) {
        let Some(Track { process, thread }) = self.tracks.get(track) else {
            return Default::default();
        };
        let named = self.thread_names.get(&(process.clone(), thread.clone()));
        let thread = named.map_or_else(|| thread.clone(), |name| format!("{name} {thread}"));
        let process = self.process_names.get(process).unwrap_or(process);
        (process.clone(), thread)
    }
}
