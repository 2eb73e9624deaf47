//! Redaction: drops or hashes attributes by their keys, and descriptions of tracked items by their
//! names, before they are written to the log or the store.
//!
//! `rules` contains the rules. `native` applies them to batches of our protocol, `protobuf` and
//! `json` to OTLP requests. Without rules, requests are not parsed for redaction. A rule matches an
//! attribute if it matches one form of its key: the key as it was sent, the path `KEY.INNER` inside
//! a map, or the key in the store (`resource.KEY`, `scope.KEY`).

mod json;
mod key;
mod native;
mod protobuf;
mod rules;

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

pub use key::KeyError;
use key::key;
pub use rules::{Action, BadRule, Rule};

use ring::hmac;
use stroboscope_proto::v1::Batch;
use stroboscope_store::decode::Refusal;
use stroboscope_store::limits::Limits;

/// Rules of redaction, with the key for hashing values.
pub struct Redaction {
    rules: Vec<Rule>,
    key: hmac::Key,
    /// Number of values dropped, and number hashed.
    pub(crate) counts: [AtomicU64; 2],
    /// Number of provenance logs dropped because they cannot be parsed, and because their hashes
    /// made them too long.
    pub(crate) logs_dropped: [AtomicU64; 2],
}

/// Settings of redaction.
#[derive(Clone, Debug, Default)]
pub struct RedactSettings {
    /// Rules; the first that matches applies, and attributes that match none are kept.
    pub rules: Vec<Rule>,
    /// File of the key for hashing values; with `None`, the key is in the data directory, and is
    /// created if missing.
    pub key: Option<PathBuf>,
}

impl RedactSettings {
    /// Reads or creates the key if a rule hashes. Returns `None` if there are no rules.
    pub(crate) fn open(self, data: &Path) -> Result<Option<Arc<Redaction>>, KeyError> {
        let is_hashing = self.rules.iter().any(|rule| rule.action == Action::Hash);
        let key = if is_hashing {
            key(self.key.as_deref(), data)?
        } else {
            Vec::new()
        };
        Ok(Redaction::new(self.rules, &key))
    }
}

/// Error: the request cannot be parsed for redaction. The collector rejects it, as it might contain
/// a value to redact.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("not a request of OTLP: it is damaged, or nested too deeply to be redacted")]
pub struct NotWalked;

impl std::fmt::Debug for Redaction {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} rules", self.rules.len())
    }
}

/// Position of an attribute.
#[derive(Clone, Copy, Debug)]
struct Place<'a> {
    /// Prefix of the attribute's key in the store.
    of: &'static str,
    /// Keys of the enclosing maps, each followed by a dot.
    inside: &'a str,
}

impl Place<'_> {
    /// Position of an attribute of a span or event.
    const PLAIN: Self = Self { of: "", inside: "" };
}

impl Redaction {
    /// Creates a redaction; `key` is for hashing. Returns `None` if there are no rules.
    #[must_use]
    pub fn new(rules: Vec<Rule>, key: &[u8]) -> Option<Arc<Self>> {
        (!rules.is_empty()).then(|| {
            Arc::new(Self {
                rules,
                key: hmac::Key::new(hmac::HMAC_SHA256, key),
                counts: Default::default(),
                logs_dropped: Default::default(),
            })
        })
    }

    /// Returns and counts the action for an attribute. The first rule applies that matches its key
    /// as it was sent, with the enclosing maps' keys, or with the prefix in the store.
    fn action(&self, place: Place<'_>, key: &str) -> Action {
        let action = self.look_up(place, key);
        self.count(action);
        action
    }

    fn count(&self, action: Action) {
        match action {
            Action::Keep => {}
            Action::Drop => drop(self.counts[0].fetch_add(1, Relaxed)),
            Action::Hash => drop(self.counts[1].fetch_add(1, Relaxed)),
        }
    }

    fn look_up(&self, place: Place<'_>, key: &str) -> Action {
        let Place { of, inside } = place;
        let path = format!("{inside}{key}");
        let stored = format!("{of}{path}");
        let fits = |rule: &&Rule| rule.fits(key) || rule.fits(&path) || rule.fits(&stored);
        let rule = self.rules.iter().find(fits);
        rule.map_or(Action::Keep, |rule| rule.action)
    }

    /// Returns the replacement of a value: `hmac:` and 32 hexadecimal digits. Equal values have
    /// equal replacements as long as the key does not change.
    fn hash(&self, value: &[u8]) -> String {
        /// Number of bytes kept of the hash's 32.
        const BYTES: usize = 16;
        let tag = hmac::sign(&self.key, value);
        let digits = tag.as_ref().iter().take(BYTES);
        let digits: String = digits.map(|byte| format!("{byte:02x}")).collect();
        format!("hmac:{digits}")
    }

    /// Redacts a batch that is not checked yet. Drops and counts provenance logs that cannot be
    /// redacted within the limits.
    ///
    /// # Errors
    /// Returns an error if the columns of the batch are inconsistent.
    pub fn batch(&self, batch: &mut Batch, limits: &Limits) -> Result<(), Refusal> {
        native::redact(self, batch, limits)
    }

    /// Redacts a request of traces in protobuf.
    ///
    /// # Errors
    /// Returns an error if the request cannot be parsed.
    pub fn traces(&self, request: &[u8]) -> Result<Vec<u8>, NotWalked> {
        protobuf::redacted(self, request, protobuf::TRACES)
    }

    /// Redacts a request of logs in protobuf.
    ///
    /// # Errors
    /// Returns an error if the request cannot be parsed.
    pub fn logs(&self, request: &[u8]) -> Result<Vec<u8>, NotWalked> {
        protobuf::redacted(self, request, protobuf::LOGS)
    }

    /// Redacts a request of traces or logs in JSON.
    ///
    /// # Errors
    /// Returns an error if the request cannot be parsed.
    pub fn json(&self, request: &[u8]) -> Result<Vec<u8>, NotWalked> {
        json::redacted(self, request)
    }
}

#[cfg(test)]
mod tests {
    use prost::Message as _;
    use stroboscope_fixtures::batches::provenance_log;
    use stroboscope_otlp::message::{AnyKind, AnyValue, KeyValue};
    use stroboscope_proto::v1::ProvenanceLog;
    use stroboscope_provenance::{LogFile, ReadLog as _};

    use super::*;

    #[test]
    fn a_double_has_one_hash_in_json_and_protobuf() {
        let redaction = Redaction::new(vec!["hash:*".parse().unwrap()], b"key").unwrap();
        let hash_in = |bytes: &[u8]| {
            let text = String::from_utf8_lossy(bytes);
            let at = text.find("hmac:").unwrap();
            text[at..at + 37].to_owned()
        };
        for (json, double) in [
            ("5.0", 5.0),
            ("5", 5.0),
            ("1e300", 1e300),
            ("0.38120423768821243", 0.381_204_237_688_212_43),
            ("\"2.5\"", 2.5),
            ("\"-Infinity\"", f64::NEG_INFINITY),
            ("\"NaN\"", f64::NAN),
        ] {
            let json =
                format!(r#"{{"attributes":[{{"key":"k","value":{{"doubleValue":{json}}}}}]}}"#);
            let pair = KeyValue {
                key: "k".to_owned(),
                value: Some(AnyValue {
                    kind: Some(AnyKind::Double(double)),
                }),
            };
            let mut message = vec![0x0a, pair.encoded_len() as u8];
            message.extend(pair.encode_to_vec());
            let fields = [(1, protobuf::Inside::Attribute(""))];
            let of_protobuf = protobuf::redacted(&redaction, &message, &fields).unwrap();
            let of_json = redaction.json(json.as_bytes()).unwrap();
            assert_eq!(hash_in(&of_json), hash_in(&of_protobuf), "{json}");
        }
    }

    #[test]
    fn items_are_redacted_by_name_and_part() {
        /// Items of a log, with names and contents as they are expected afterwards.
        type Items = [(&'static str, &'static [u8]); 3];
        let sent: Items = [("user alice", b"a@b.c"), ("Invoice", b"36EUR"), ("", b"x")];
        let check = |rules: &[&str], expected: Items, counts: [u64; 2]| {
            let rules = rules.iter().map(|rule| rule.parse().unwrap()).collect();
            let redaction = Redaction::new(rules, b"key").unwrap();
            let mut batch = Batch {
                provenance: vec![ProvenanceLog {
                    log: provenance_log(&sent),
                    ..ProvenanceLog::default()
                }],
                ..Batch::default()
            };
            redaction.batch(&mut batch, &Limits::default()).unwrap();
            let file = LogFile::parse(&batch.provenance[0].log).unwrap();
            let hash = redaction.hash(b"user alice");
            let expected = expected.map(|(name, content)| match name {
                "#" => (hash.as_str(), content),
                _ => (name, content),
            });
            let items = file.items().iter();
            let items: Vec<_> = items.map(|item| (&*item.name, &*item.content)).collect();
            assert_eq!(items, expected);
            assert_eq!(file.outputs().len(), 3);
            let counted = redaction.counts.each_ref().map(|count| count.load(Relaxed));
            assert_eq!(counted, counts);
        };
        let names = ["user alice", "Invoice", ""];
        let [alice, invoice, none] = names;
        // Contents are dropped unless a rule keeps them, names are kept unless a rule fits.
        let dropped = [(alice, &b""[..]), (invoice, b""), (none, b"")];
        check(&["drop:user.email"], dropped, [3, 0]);
        check(
            &["hash:user*"],
            [("#", b""), dropped[1], dropped[2]],
            [3, 1],
        );
        let kept = ["keep:provenance.content", "drop:user*"];
        check(&kept, [("", sent[0].1), sent[1], sent[2]], [1, 0]);
        let mixed = ["keep:invoice", "hash:provenance.*"];
        check(&mixed, [("#", b""), sent[1], dropped[2]], [2, 1]);
        check(&["drop:provenance.name"], [("", b""); 3], [5, 0]);
        check(&["keep:*"], sent, [0, 0]);
    }

    #[test]
    fn logs_that_cannot_be_redacted_are_dropped_alone() {
        let rule = "hash:provenance.*".parse().unwrap();
        let redaction = Redaction::new(vec![rule], b"key").unwrap();
        let log = provenance_log(&[("a", b"b")]);
        let mut damaged = log.clone();
        damaged[40] ^= 1;
        // Its hash is longer than its name, so it exceeds the limit.
        let longest = provenance_log(&[("another", b"")]);
        let limits = Limits {
            provenance_bytes_max: longest.len().max(log.len()),
            ..Limits::default()
        };
        let unnamed = provenance_log(&[("", b"")]);
        let cut = &log[..log.len() - 1];
        let sent = [cut, &damaged, b"alice@example.com", b"", &longest, &unnamed];
        let logs = sent.map(|log| ProvenanceLog {
            log: log.to_vec(),
            ..ProvenanceLog::default()
        });
        let mut batch = Batch {
            provenance: logs.into(),
            ..stroboscope_fixtures::batches::batch(7, 0, 3)
        };
        let spans = batch.spans.clone();
        redaction.batch(&mut batch, &limits).unwrap();
        let kept: Vec<_> = batch.provenance.iter().map(|log| &log.log).collect();
        assert_eq!(kept, [&unnamed]);
        assert_eq!(batch.spans, spans);
        let counted = redaction.logs_dropped.each_ref();
        assert_eq!(counted.map(|count| count.load(Relaxed)), [4, 1]);
    }

    #[test]
    fn the_first_rule_that_fits_is_taken() {
        let rules = ["keep:user.tier", "hash:user.*", "drop:resource.host.*"];
        let rules = rules.map(|rule| rule.parse().unwrap()).to_vec();
        let redaction = Redaction::new(rules, b"key").unwrap();
        let check = |of: &'static str, path: &str, expected| {
            let (inside, key) = path.split_at(path.find(' ').map_or(0, |at| at + 1));
            let inside = inside.replace(' ', ".");
            let place = Place {
                of,
                inside: &inside,
            };
            assert_eq!(redaction.action(place, key), expected, "{place:?} {key}");
        };
        check("", "user.tier", Action::Keep);
        check("", "user.id", Action::Hash);
        check("", "user id", Action::Hash);
        check("", "plain user.id", Action::Hash);
        check("resource.", "user.tier inner", Action::Hash);
        check("resource.", "host.name", Action::Drop);
        check("", "host.name", Action::Keep);
        check("resource.", "user.id", Action::Hash);
        let hashed = redaction.hash(b"alice");
        assert_eq!((hashed.len(), &hashed[..5]), (37, "hmac:"));
        assert_eq!(hashed, redaction.hash(b"alice"));
        let other = Redaction::new(vec!["hash:*".parse().unwrap()], b"other").unwrap();
        assert_ne!(hashed, other.hash(b"alice"));
        assert!(Redaction::new(Vec::new(), b"key").is_none());
    }
}
