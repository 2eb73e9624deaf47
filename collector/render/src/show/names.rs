//! Readable names of segments: as much of a segment's path as makes it unique.

use std::borrow::Cow;
use std::collections::HashMap;
use std::sync::Arc;

use schemars::{JsonSchema, Schema, SchemaGenerator};
use serde::{Serialize, Serializer};
use stroboscope_analysis::label::{Labels, SegmentId, SegmentLabel};
use stroboscope_analysis::task_path::{JOINT, last_component};

/// A segment's number, full path and short name. In JSON it is `segment`, `task`, `start` and
/// `end`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SegmentName {
    id: SegmentId,
    label: Option<SegmentLabel>,
    /// Short name of the segment's task, unique among the tasks of the model; `segment N` if the
    /// model does not know the segment.
    task: Arc<str>,
    /// First and last event of the segment, in short form if that is unique in its task; empty if
    /// it is the only segment of its task, or unknown.
    part: Arc<str>,
}

impl SegmentName {
    pub fn id(&self) -> SegmentId {
        self.id
    }

    /// Returns `task [start … end]`, with the task's whole path; `segment N` if the model does not
    /// know the segment.
    pub fn full(&self) -> String {
        self.label
            .as_ref()
            .map_or_else(|| self.short(), ToString::to_string)
    }

    /// Returns a short form of the full name that is unique among the segments of the model.
    pub fn short(&self) -> String {
        match &*self.part {
            "" => self.task.to_string(),
            part => format!("{} [{part}]", self.task),
        }
    }

    /// Returns the task, and the first and last event of the segment. The text of the events is
    /// empty if the segment is unknown, or if a short name is requested and the task has no other
    /// segment.
    pub(super) fn task_and_part(&self, is_full: bool) -> (String, String) {
        match &self.label {
            Some(label) if is_full => (
                label.task.to_string(),
                format!("{} … {}", label.start, label.end),
            ),
            _ => (self.task.to_string(), self.part.to_string()),
        }
    }
}

/// A segment in JSON; its names are null if the model does not know it.
#[derive(Serialize, JsonSchema)]
struct NamedSegment<'a> {
    /// Number of the segment in the model.
    segment: u32,
    task: Option<&'a str>,
    start: Option<&'a str>,
    end: Option<&'a str>,
}

impl Serialize for SegmentName {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let label = self.label.as_ref();
        let named = NamedSegment {
            segment: self.id.0,
            task: label.map(|label| &*label.task),
            start: label.map(|label| &*label.start),
            end: label.map(|label| &*label.end),
        };
        named.serialize(serializer)
    }
}

impl JsonSchema for SegmentName {
    fn schema_name() -> Cow<'static, str> {
        NamedSegment::schema_name()
    }

    fn json_schema(generator: &mut SchemaGenerator) -> Schema {
        NamedSegment::json_schema(generator)
    }
}

/// Names of a model's segments.
#[derive(Clone, Debug, Default)]
pub struct Names {
    of: Vec<SegmentName>,
}

impl Names {
    /// Derives the names of all labels.
    pub fn of(labels: &Labels) -> Self {
        let tasks = short_tasks(labels);
        let mut segments: HashMap<&str, usize> = HashMap::new();
        let mut alike: HashMap<(&str, String), usize> = HashMap::new();
        for (_, label) in labels.iter() {
            *segments.entry(&*label.task).or_default() += 1;
            *alike.entry((&*label.task, short_part(label))).or_default() += 1;
        }
        let name = |(id, label): (SegmentId, &SegmentLabel)| {
            let part = short_part(label);
            let part = if segments[&*label.task] == 1 {
                // The only segment of a task is named like the task.
                String::new()
            } else if alike[&(&*label.task, part.clone())] == 1 {
                part
            } else {
                format!("{} … {}", label.start, label.end)
            };
            SegmentName {
                id,
                label: Some(label.clone()),
                task: (&*tasks[&*label.task]).into(),
                part: part.into(),
            }
        };
        Self {
            of: labels.iter().map(name).collect(),
        }
    }

    /// Returns the name of a segment; `segment N` if the model does not know it.
    pub fn get(&self, id: SegmentId) -> SegmentName {
        let unknown = || SegmentName {
            id,
            label: None,
            task: format!("segment {}", id.0).into(),
            part: "".into(),
        };
        self.of.get(id.index()).cloned().unwrap_or_else(unknown)
    }
}

/// Returns the first and last event of a segment. Omits the service of the segment's own task from
/// the names of children: in `db`, `→db:read … end` becomes `→read … end`.
fn short_part(label: &SegmentLabel) -> String {
    let operation = last_component(&label.task);
    let service = operation.split_once(':').map_or("", |(service, _)| service);
    let short = |event: &str| {
        let child = event.strip_prefix(['→', '←']);
        let own = child.and_then(|child| child.strip_prefix(service)?.strip_prefix(':'));
        match (own, event.chars().next()) {
            (Some(own), Some(arrow)) => format!("{arrow}{own}"),
            _ => event.to_owned(),
        }
    };
    format!("{} … {}", short(&label.start), short(&label.end))
}

/// Returns a short name of each task: its last component and, if other tasks share this, the
/// nearest ancestor that distinguishes it from them. If that ancestor has the same name, or there
/// is none, the name is the path or its shortest unique suffix, with repetitions collapsed.
fn short_tasks(labels: &Labels) -> HashMap<&str, String> {
    let mut alike: HashMap<&str, Vec<Vec<&str>>> = HashMap::new();
    let mut paths: HashMap<&str, Vec<&str>> = HashMap::new();
    for (_, label) in labels.iter() {
        paths
            .entry(&label.task)
            .or_insert_with(|| label.task.split(JOINT).collect());
    }
    for path in paths.values() {
        alike
            .entry(path.last().copied().unwrap_or_default())
            .or_default()
            .push(path.clone());
    }
    paths
        .iter()
        .map(|(task, path)| (*task, short_task(path, &alike)))
        .collect()
}

fn short_task(path: &[&str], alike: &HashMap<&str, Vec<Vec<&str>>>) -> String {
    let Some((last, ancestors)) = path.split_last() else {
        return String::new();
    };
    let others = || alike[last].iter().filter(|other| *other != path);
    if others().next().is_none() {
        return (*last).to_owned();
    }
    let is_own =
        |ancestor: &&str| !others().any(|other| other[..other.len() - 1].contains(ancestor));
    match ancestors.iter().rposition(is_own) {
        // Recursion is distinguished by its depth.
        Some(at) if ancestors[at] == *last => folded(path),
        Some(at) if at + 1 == ancestors.len() => format!("{}{JOINT}{last}", ancestors[at]),
        Some(at) => format!("{}{JOINT}…{JOINT}{last}", ancestors[at]),
        None => {
            let is_own = |from: &usize| !others().any(|other| other.ends_with(&path[*from..]));
            let from = (0..path.len()).rev().find(is_own).unwrap_or(0);
            folded(&path[from..])
        }
    }
}

/// Joins the components of a path, and collapses adjacent equal ones.
fn folded(path: &[&str]) -> String {
    let mut parts: Vec<(&str, usize)> = Vec::new();
    for component in path {
        match parts.last_mut() {
            Some((known, times)) if known == component => *times += 1,
            _ => parts.push((component, 1)),
        }
    }
    let written = |(component, times): (&str, usize)| {
        if times == 1 {
            component.to_owned()
        } else {
            format!("{component} ×{times}")
        }
    };
    let parts: Vec<String> = parts.into_iter().map(written).collect();
    parts.join(JOINT)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(segments: &[(&str, &str, &str)], expected: &[&str]) {
        let mut labels = Labels::default();
        for (task, start, end) in segments {
            labels
                .intern(&(*task).into(), &(*start).into(), &(*end).into())
                .unwrap();
        }
        let names = Names::of(&labels);
        let short: Vec<String> = labels.iter().map(|(id, _)| names.get(id).short()).collect();
        assert_eq!(short, expected);
        let different: std::collections::BTreeSet<&String> = short.iter().collect();
        assert_eq!(different.len(), short.len(), "each has a name of its own");
    }

    #[test]
    fn as_short_as_is_unique() {
        let whole = |task| (task, "start", "end");
        check(
            &[
                whole("web:page > ranker:score"),
                whole("web:page > store:read"),
            ],
            &["ranker:score", "store:read"],
        );
        check(
            &[
                whole("web:page > store:read"),
                whole("web:page > ranker:score > store:read"),
            ],
            &["web:page > store:read", "ranker:score > store:read"],
        );
        check(
            &[
                whole("a:x > b:y > c:z > d:read"),
                whole("e:x > b:y > c:z > d:read"),
            ],
            &["a:x > … > d:read", "e:x > … > d:read"],
        );
        check(
            &[
                whole("a:x > b:y > d:read"),
                whole("a:x > c:z > d:read"),
                whole("e:x > b:y > d:read"),
            ],
            &["a:x > b:y > d:read", "c:z > d:read", "e:x > … > d:read"],
        );
        check(
            &[
                whole("a:x > b:y > c:z > d:read"),
                whole("a:x > c:z > b:y > d:read"),
                whole("a:x > c:z > d:read"),
            ],
            &["b:y > c:z > d:read", "b:y > d:read", "a:x > c:z > d:read"],
        );
        check(
            &[whole("a:x"), whole("a:x > a:x > a:x")],
            &["a:x", "a:x ×3"],
        );
        check(
            &[
                ("a:x", "start", "→b:y"),
                ("a:x", "←b:y", "end"),
                ("a:x > b:y", "start", "end"),
            ],
            &["a:x [start … →b:y]", "a:x [←b:y … end]", "b:y"],
        );
        check(
            &[
                ("a:x", "start", "→a:y"),
                ("a:x", "start", "→b:y"),
                ("a:x", "start", "→y"),
                ("a:x", "←a:y#2", "end"),
            ],
            &[
                "a:x [start … →a:y]",
                "a:x [start … →b:y]",
                "a:x [start … →y]",
                "a:x [←y#2 … end]",
            ],
        );
        check(&[], &[]);
    }

    #[test]
    fn json_has_the_whole_path() {
        let mut labels = Labels::default();
        let id = labels
            .intern(&"a:x > b:y".into(), &"start".into(), &"end".into())
            .unwrap();
        let json = serde_json::to_value(Names::of(&labels).get(id)).unwrap();
        assert_eq!(
            json,
            serde_json::json!({"segment": 0, "task": "a:x > b:y", "start": "start", "end": "end"})
        );
        let unknown = Names::default().get(SegmentId(7));
        assert_eq!(
            (unknown.full(), unknown.short()),
            ("segment 7".to_owned(), "segment 7".to_owned())
        );
    }
}
