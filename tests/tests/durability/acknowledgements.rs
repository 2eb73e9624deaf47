//! Compares the acknowledgements that senders received with the store.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::Value;

use crate::senders::{Role, SPANS_PER_BATCH};
use crate::stored::{SpanKey, Stored};

/// Messages of the senders by their keys, each with true if it was acknowledged and false if it was
/// only sent.
#[derive(Default)]
pub(crate) struct Acknowledgements {
    /// Batches by incarnation and sequence number.
    pub(crate) batches: BTreeMap<(u128, u64), bool>,
    /// Numbered records by service and number.
    pub(crate) numbered: BTreeMap<(String, u64), bool>,
    pub(crate) otlp: Vec<SpanKey>,
}

impl Acknowledgements {
    pub(crate) fn hear(&mut self, role: Role, said: &str) {
        for line in said.lines() {
            if let (Role::Otlp(_), true) = (role, line.starts_with('{')) {
                // The last line may be cut. Lines about log records have no `start_ns`.
                if let Ok(told) = serde_json::from_str::<Value>(line)
                    && told.get("start_ns").is_some()
                {
                    self.otlp.push(otlp_key(&told));
                }
                continue;
            }
            let words: Vec<&str> = line.split(' ').collect();
            let [word @ ("sent" | "acknowledged"), sender, number] = words[..] else {
                continue;
            };
            let (Ok(sender), Ok(number)) = (sender.parse::<u64>(), number.parse::<u64>()) else {
                continue;
            };
            let is_acknowledged = word == "acknowledged";
            match role {
                Role::Protocol => {
                    let key = (u128::from(sender), number);
                    *self.batches.entry(key).or_default() |= is_acknowledged;
                }
                // Acknowledges all records up to this one.
                Role::Sdk if is_acknowledged => {
                    let service = format!("sdk-{sender}");
                    let all = (service.clone(), 0)..=(service, number);
                    self.numbered
                        .range_mut(all)
                        .for_each(|(_, known)| *known = true);
                }
                _ => drop(
                    self.numbered
                        .insert((format!("sdk-{sender}"), number), false),
                ),
            }
        }
    }
}

fn otlp_key(span: &Value) -> SpanKey {
    let trace = span["trace_id"].as_str().expect("an id");
    let number = |key: &str| span[key].as_u64().expect("a number");
    (
        u128::from_str_radix(trace, 16).expect("hex"),
        number("span_id"),
        number("start_ns") as i64,
        number("end_ns") as i64,
    )
}

pub(crate) fn check(told: &Acknowledgements, stored: &Stored, otlp_least: usize) {
    let twice: Vec<_> = stored
        .batches
        .iter()
        .filter(|(_, copies)| **copies != 1)
        .collect();
    assert!(twice.is_empty(), "batches stored more than once: {twice:?}");
    check_once("batches of the protocol", &told.batches, &stored.batches);
    check_once("spans of the SDK", &told.numbered, &stored.numbered);
    let incarnations: BTreeSet<u128> = told.batches.keys().map(|key| key.0).collect();
    for &incarnation in &incarnations {
        let of_one = (incarnation, 0)..=(incarnation, u64::MAX);
        let batches = stored.batches.range(of_one).count();
        let spans = stored.by_process.get(&incarnation).copied().unwrap_or(0);
        assert_eq!(
            spans,
            batches as u64 * SPANS_PER_BATCH,
            "spans of sender {incarnation}"
        );
    }
    let copies = |key: &SpanKey| stored.spans.get(key).copied().unwrap_or(0);
    let lost: Vec<&SpanKey> = told.otlp.iter().filter(|key| copies(key) == 0).collect();
    assert!(
        lost.is_empty(),
        "spans of OTLP that were acknowledged and are not stored: {lost:?}"
    );
    assert!(
        told.otlp.len() >= otlp_least,
        "{} spans of OTLP",
        told.otlp.len()
    );
    let again = told.otlp.iter().filter(|key| copies(key) > 1).count();
    println!(
        "OTLP: {} spans acknowledged, all stored, {again} of them more than once, as their exporter sent them again",
        told.otlp.len()
    );
    // Only retries of OTLP store spans twice.
    let ours = stored
        .spans
        .iter()
        .filter(|(key, copies)| **copies > 1 && incarnations.contains(&(key.0 >> 64)));
    assert_eq!(ours.count(), 0, "spans of the protocol stored twice");
}

/// Checks that each acknowledged message is stored, and none twice.
fn check_once<K: Ord + std::fmt::Debug>(
    what: &str,
    told: &BTreeMap<K, bool>,
    stored: &BTreeMap<K, usize>,
) {
    let copies = |key: &K| stored.get(key).copied().unwrap_or(0);
    let wrong = told
        .iter()
        .filter(|(key, is_acknowledged)| copies(key) > 1 || **is_acknowledged && copies(key) == 0);
    let wrong: Vec<_> = wrong.take(20).collect();
    assert!(wrong.is_empty(), "{what}: lost or doubled: {wrong:?}");
    let acknowledged = told.values().filter(|known| **known).count();
    let open = told.iter().filter(|(_, known)| !**known);
    let (kept, lost): (Vec<_>, Vec<_>) = open.partition(|(key, _)| copies(key) > 0);
    assert!(acknowledged > 20, "{what}: {acknowledged} acknowledged");
    println!(
        "{what}: {} sent, {acknowledged} acknowledged, all stored once; of those that were not, {} stored once, {} not",
        told.len(),
        kept.len(),
        lost.len()
    );
}
