//! Recognises identities: values that name one incarnation of a process, or one thread, connection
//! or request. They separate any two deployments, whatever changed, and so explain nothing.
//!
//! [`is_named`] recognises names of OpenTelemetry and similar ones. [`Incarnations`] finds other
//! identities by their values: either each process records only one value, which no other process
//! records, or all values look generated. It rejects a parameter if at least half of the values
//! occur in both periods, as the parameter may name a slow machine, or if the parameter's name
//! contains a word for [releases](RELEASES).

use super::Parameter;
use rustc_hash::FxHashMap;
use std::collections::BTreeMap;
use std::sync::Arc;

/// Names of attributes that change with every deployment, restart, connection, thread or request. A
/// name must match as a whole, after an optional `resource.`.
const NAMES: [&str; 19] = [
    "client.port",
    "container.id",
    "faas.instance",
    "k8s.container.restart_count",
    "k8s.pod.ip",
    "k8s.pod.name",
    "k8s.pod.start_time",
    "k8s.pod.uid",
    "k8s.replicaset.name",
    "k8s.replicaset.uid",
    "links",
    "net.peer.port",
    "net.sock.peer.port",
    "network.peer.port",
    "service.instance.id",
    "span.id",
    "thread.id",
    "thread.name",
    "trace.id",
];

/// Prefixes of names of identities, except for names with a prefix in [`SHARED`].
const FAMILIES: [&str; 1] = ["process."];
/// Prefixes of names whose values processes of one release share.
const SHARED: [&str; 4] = [
    "process.args_count",
    "process.command",
    "process.executable.",
    "process.runtime.",
];

/// Last words of other names that identify processes, threads, containers or pods.
const LAST_WORDS: [&[&str]; 12] = [
    &["pid"],
    &["ppid"],
    &["tid"],
    &["incarnation"],
    &["instance"],
    &["instance", "id"],
    &["process", "id"],
    &["thread", "id"],
    &["container", "id"],
    &["pod", "id"],
    &["pod", "uid"],
    &["pod", "name"],
];

/// Words in names of releases. There may be as many releases as processes.
const RELEASES: [&str; 7] = [
    "version", "release", "build", "commit", "revision", "sha", "image",
];

/// Reports whether a name describes the library that records, such as `telemetry.sdk.version`.
pub(super) fn is_of_library(key: &str) -> bool {
    let key = key.strip_prefix("resource.").unwrap_or(key);
    key.starts_with("telemetry.")
}

/// Reports whether a name is that of an identity, such as of a process, a connection or a request.
pub(super) fn is_named(key: &str) -> bool {
    let key = key.strip_prefix("resource.").unwrap_or(key);
    let of_family = FAMILIES.iter().any(|family| key.starts_with(family));
    let is_shared = SHARED.iter().any(|family| key.starts_with(family));
    let words = words(key);
    NAMES.contains(&key)
        || (of_family && !is_shared)
        || LAST_WORDS.iter().any(|last| end_with(&words, last))
}

/// Reports whether a name's words end with these.
pub(super) fn end_with(words: &[String], last: &[&str]) -> bool {
    let from = words.len().checked_sub(last.len());
    from.is_some_and(|from| words[from..].iter().eq(last))
}

/// Reports whether a name is that of an identity, but not of a thread, a connection or a request.
pub(super) fn is_of_process(key: &str) -> bool {
    const OTHERS: [&str; 6] = ["thread", "tid", "port", "trace", "span", "links"];
    is_named(key) && !words(key).iter().any(|word| OTHERS.contains(&&**word))
}

/// Returns a name's words in lower case: `worker.processId` yields `worker`, `process` and `id`.
pub(super) fn words(key: &str) -> Vec<String> {
    let mut words = vec![String::new()];
    let mut was_lower = false;
    for letter in key.chars() {
        let is_new = !letter.is_alphanumeric() || (was_lower && letter.is_uppercase());
        if is_new && words.last().is_some_and(|word| !word.is_empty()) {
            words.push(String::new());
        }
        if let Some(word) = words.last_mut().filter(|_| letter.is_alphanumeric()) {
            word.extend(letter.to_lowercase());
        }
        was_lower = letter.is_lowercase() || letter.is_numeric();
    }
    words.retain(|word| !word.is_empty());
    words
}

/// Reports whether a text looks like a generated identity: a UUID, a long hexadecimal number, or
/// the name of a pod of a replica set.
fn is_made(text: &str) -> bool {
    let is_hex = |part: &str| part.bytes().all(|byte| byte.is_ascii_hexdigit());
    let has_both = |part: &str| {
        part.bytes().any(|byte| byte.is_ascii_digit())
            && part.bytes().any(|byte| byte.is_ascii_alphabetic())
    };
    let parts: Vec<&str> = text.split('-').collect();
    let lengths: Vec<usize> = parts.iter().map(|part| part.len()).collect();
    let is_uuid = lengths == [8, 4, 4, 4, 12] && parts.iter().all(|part| is_hex(part));
    let is_long = text.len() >= 12 && is_hex(text) && has_both(text);
    let is_lower = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit();
    let is_of_pod = match parts[..] {
        [.., _, set, pod] => {
            (8..=10).contains(&set.len())
                && pod.len() == 5
                && set.bytes().chain(pod.bytes()).all(is_lower)
                && has_both(set)
        }
        _ => false,
    };
    is_uuid || is_long || is_of_pod
}

/// Value of one parameter in one request, and the process that recorded it.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct SaidText {
    /// The parameter.
    pub parameter: Parameter,
    /// The recorded value.
    pub text: Arc<str>,
    /// Process: its incarnation, or a hash of attributes that identify it. It is 0 if unknown, and
    /// for the fact that an operation ran.
    pub process: u128,
}

/// Processes and their values, by parameter.
#[derive(Clone, Debug, Default)]
pub struct Incarnations {
    of: BTreeMap<Parameter, Values>,
}

/// Values of one parameter.
#[derive(Clone, Debug, Default)]
struct Values {
    /// Process that recorded each value first. The flags state whether earlier and whether later
    /// requests contain the value.
    texts: FxHashMap<Arc<str>, (u128, [bool; 2])>,
    /// Value of each process; unused if `is_shared` or `is_full`.
    processes: foldhash::HashMap<u128, Arc<str>>,
    /// True if a process recorded two values, two recorded the same, or one is unknown.
    is_shared: bool,
    /// True if there were more than [`VALUES_MAX`] values.
    is_full: bool,
}

/// Maximum number of distinct values of a parameter that [`Incarnations`] takes for an identity.
const VALUES_MAX: usize = 4_096;
/// Minimum number of processes for a conclusion from values that do not look generated. With fewer,
/// a release or a setting may differ in each of them as well.
const PROCESSES_MIN: usize = 3;

impl Values {
    fn add(&mut self, text: &Arc<str>, process: u128, periods: [bool; 2]) {
        if self.is_full {
            return;
        }
        let entry = self.texts.entry(text.clone());
        let known = entry.or_insert((process, [false; 2]));
        for (known, period) in known.1.iter_mut().zip(periods) {
            *known |= period;
        }
        self.is_shared |= known.0 != process || process == 0;
        if !self.is_shared {
            let entry = self.processes.entry(process);
            let own = entry.or_insert_with(|| text.clone());
            self.is_shared |= own != text;
        }
        if self.is_shared {
            self.processes.clear();
        }
        if self.texts.len() > VALUES_MAX {
            (self.is_full, self.texts) = (true, FxHashMap::default());
            self.processes.clear();
        }
    }

    fn are_identities(&self, key: &str) -> bool {
        let texts = self.texts.values();
        let lasting = texts.filter(|(_, seen)| *seen == [true; 2]).count();
        let is_born_and_dies = self.texts.len() >= 2 && 2 * lasting < self.texts.len();
        if self.is_full || !is_born_and_dies {
            return false;
        }
        let is_release = words(key).iter().any(|word| RELEASES.contains(&&**word));
        let is_one_to_one = !self.is_shared && self.processes.len() >= PROCESSES_MIN;
        !is_release && (is_one_to_one || self.texts.keys().all(|text| is_made(text)))
    }
}

impl Incarnations {
    /// Adds the values of a request of the later or of the earlier period.
    pub fn observe(&mut self, is_later: bool, said: &[SaidText]) {
        for said in said.iter().filter(|said| !said.parameter.key.is_empty()) {
            let values = match self.of.get_mut(&said.parameter) {
                Some(values) => values,
                None => self.of.entry(said.parameter.clone()).or_default(),
            };
            values.add(&said.text, said.process, [!is_later, is_later]);
        }
    }

    /// Adds the observations of another instance.
    pub fn merge(&mut self, other: Incarnations) {
        for (parameter, values) in other.of {
            let own = self.of.entry(parameter).or_default();
            own.is_full |= values.is_full;
            for (text, (process, periods)) in values.texts {
                own.add(&text, process, periods);
            }
            own.is_shared |= values.is_shared;
        }
    }

    /// Returns the parameters that are identities, judged by their values.
    #[must_use]
    pub fn identities(&self) -> Vec<Parameter> {
        let all = self.of.iter();
        all.filter(|(parameter, values)| values.are_identities(&parameter.key))
            .map(|(parameter, _)| parameter.clone())
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_processes_are_told_from_others() {
        for name in [
            "service.instance.id",
            "resource.process.pid",
            "process.parent_pid",
            "k8s.pod.name",
            "worker_pid",
            "worker.processId",
            "app.instance",
        ] {
            assert!(is_named(name), "{name}");
        }
        for name in ["telemetry.sdk.version", "resource.telemetry.sdk.name"] {
            assert!(is_of_library(name) && !is_named(name), "{name}");
        }
        for name in [
            "service.version",
            "process.runtime.version",
            "process.command_args",
            "instance.type",
            "rapid",
            "user.id",
            "host.name",
        ] {
            assert!(!is_named(name), "{name}");
        }
    }

    #[test]
    fn made_texts_are_told_from_written_ones() {
        for text in [
            "0b8a7c1e-54a1-4d3e-9d43-6b0f1a2c3d4e",
            "4f1c2b3a9d8e",
            "web-5d8f7c9b4-x2x9z",
        ] {
            assert!(is_made(text), "{text}");
        }
        for text in [
            "web-0",
            "eu-west-1",
            "deadbeef",
            "123456789012",
            "new-checkout-flow",
        ] {
            assert!(!is_made(text), "{text}");
        }
    }

    /// Counts the identities when three processes of each period record one request each; `value`
    /// gives the value by process and period.
    fn identities(value: impl Fn(u128, bool) -> String, lasting: bool) -> usize {
        let mut halves = [Incarnations::default(), Incarnations::default()];
        for is_later in [false, true] {
            for process in 1..=3 {
                let incarnation = process + if is_later && !lasting { 3 } else { 0 };
                let said = SaidText {
                    parameter: Parameter {
                        operation: "a:b".into(),
                        key: "it".into(),
                    },
                    text: value(incarnation, is_later).into(),
                    process: incarnation,
                };
                halves[process as usize % 2].observe(is_later, &[said]);
            }
        }
        let [mut one, other] = halves;
        one.merge(other);
        one.identities().len()
    }

    #[test]
    fn an_identity_is_of_one_process_and_dies_with_it() {
        assert_eq!(identities(|process, _| format!("w{process}"), false), 1);
        // Not identities: a value per release, a value of all processes, processes that live on.
        assert_eq!(identities(|_, is_later| is_later.to_string(), false), 0);
        assert_eq!(identities(|_, _| "eu".to_owned(), false), 0);
        assert_eq!(identities(|process, _| format!("w{process}"), true), 0);
        // Processes of one period that record the same value.
        assert_eq!(
            identities(
                |process, later| format!("{}", process / 2 + u128::from(later)),
                false
            ),
            0
        );
    }
}
