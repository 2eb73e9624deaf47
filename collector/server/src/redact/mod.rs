//! Redaction, before data are written to the log or the store. It drops or hashes attributes, by
//! their keys, and the names of tracked items. With rules by key, only a `keep` rule can preserve
//! the contents of these items. It masks matches of patterns in texts, whole numbers and bytes.
//!
//! `rules` contains the rules, and `pattern` the patterns of values. `native` applies them to
//! batches of our protocol, `protobuf` and `json` to OTLP requests. Without rules, requests are not
//! parsed for redaction. A rule by key matches an attribute if it matches one form of its key: the
//! key as it was sent, the path `KEY.INNER` inside a map, or the key in the store (`resource.KEY`,
//! `scope.KEY`). Masks apply to the remaining texts, and to the remaining whole numbers and
//! bytes of attributes, but neither to hashes nor to attributes that an earlier rule keeps.

mod json;
mod key;
mod native;
mod pattern;
mod protobuf;
mod rules;
#[cfg(test)]
mod twin;

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

pub use key::KeyError;
use key::key;
pub use pattern::BadPattern;
use pattern::ValuePattern;
pub use rules::{Action, BadRule, Rule};
use rules::{KeyRule, RuleKind};

use ring::hmac;
use stroboscope_otlp::{hex, standard_base64};
use stroboscope_proto::v1::Batch;
use stroboscope_store::decode::Refusal;
use stroboscope_store::limits::Limits;

/// Rules of redaction, with the key for hashing values.
pub struct Redaction {
    /// Rules by key, each with the number of masks before it.
    rules: Vec<(KeyRule, usize)>,
    masks: Vec<ValuePattern>,
    key: hmac::Key,
    /// Counts of dropped values, of hashed values, and of masked texts, numbers and bytes.
    pub(crate) counts: [AtomicU64; 3],
    /// Counts of provenance logs dropped because they cannot be parsed, and of those dropped
    /// because hashes or masks made them too long.
    pub(crate) logs_dropped: [AtomicU64; 2],
}

/// Settings of redaction.
#[derive(Clone, Debug, Default)]
pub struct RedactSettings {
    /// Rules. The first rule by key that matches an attribute applies; without one, it is kept.
    pub rules: Vec<Rule>,
    /// File of the key for hashing values; with `None`, the key is in the data directory, and is
    /// created if missing.
    pub key: Option<PathBuf>,
}

impl RedactSettings {
    /// Reads or creates the key if a rule hashes. Returns `None` if there are no rules.
    pub(crate) fn open(self, data: &Path) -> Result<Option<Arc<Redaction>>, KeyError> {
        let is_hashing = |rule: &Rule| match &rule.0 {
            RuleKind::Key(rule) => rule.action == Action::Hash,
            RuleKind::Mask(_) => false,
        };
        let key = if self.rules.iter().any(is_hashing) {
            key(self.key.as_deref(), data)?
        } else {
            Vec::new()
        };
        Ok(Redaction::new(self.rules, &key))
    }
}

/// Returns a whole number as decimal text; `None` for other numbers, and if the magnitude exceeds
/// 64 bits. Masks do not apply to fractions, whose digits could only be a card number by chance.
fn whole(double: f64) -> Option<String> {
    /// The first number above all 64-bit integers.
    const END: f64 = 18_446_744_073_709_551_616.0;
    (double.fract() == 0.0 && double.abs() < END).then(|| double.to_string())
}

/// Error: the request cannot be parsed for redaction. The collector rejects it, as it might contain
/// a value to redact.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("not a request of OTLP: it is damaged, or nested too deeply to be redacted")]
pub struct NotWalked;

impl std::fmt::Debug for Redaction {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} rules", self.rules.len() + self.masks.len())
    }
}

/// Position of an attribute.
#[derive(Clone, Copy, Debug)]
struct Place<'a> {
    /// Prefix of the attribute's key in the store.
    of: &'static str,
    /// Keys of the enclosing maps, each followed by a dot.
    inside: &'a str,
    /// Number of masks that apply unless a rule by key matches.
    masks: usize,
}

impl Place<'_> {
    /// Position of an attribute whose key has no prefix in the store.
    const PLAIN: Self = Self::of("");

    /// Position of an attribute that is inside no other.
    const fn of(of: &'static str) -> Self {
        Self {
            of,
            inside: "",
            masks: ALL_MASKS,
        }
    }
}

/// Number of masks that stands for all of them.
const ALL_MASKS: usize = usize::MAX;

/// Decision on an attribute, or on the name or content of a tracked item.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Verdict {
    action: Action,
    /// Number of masks that apply to its key, and to its value if that is kept. If a rule keeps it,
    /// these are the masks before this rule.
    masks: usize,
}

impl Redaction {
    /// Creates a redaction; `key` is for hashing. Returns `None` if there are no rules.
    #[must_use]
    pub fn new(rules: Vec<Rule>, key: &[u8]) -> Option<Arc<Self>> {
        let (mut by_key, mut masks) = (Vec::new(), Vec::new());
        for rule in rules {
            match rule.0 {
                RuleKind::Key(rule) => by_key.push((rule, masks.len())),
                RuleKind::Mask(mask) => masks.push(mask),
            }
        }
        (!by_key.is_empty() || !masks.is_empty()).then(|| {
            Arc::new(Self {
                rules: by_key,
                masks,
                key: hmac::Key::new(hmac::HMAC_SHA256, key),
                counts: Default::default(),
                logs_dropped: Default::default(),
            })
        })
    }

    /// Returns the decision on an attribute, and counts a drop or hash. The first rule applies that
    /// matches the key as sent, its path through the enclosing maps, or this path with the prefix
    /// in the store.
    fn verdict(&self, place: Place<'_>, key: &str) -> Verdict {
        let verdict = self.look_up(place, key);
        self.count(verdict.action);
        verdict
    }

    fn count(&self, action: Action) {
        match action {
            Action::Keep => {}
            Action::Drop => drop(self.counts[0].fetch_add(1, Relaxed)),
            Action::Hash => drop(self.counts[1].fetch_add(1, Relaxed)),
        }
    }

    fn count_masked(&self) {
        self.counts[2].fetch_add(1, Relaxed);
    }

    fn look_up(&self, place: Place<'_>, key: &str) -> Verdict {
        let Place { of, inside, masks } = place;
        let none = Verdict {
            action: Action::Keep,
            masks,
        };
        if self.rules.is_empty() {
            return none;
        }
        let path = format!("{inside}{key}");
        let stored = format!("{of}{path}");
        let fits = |rule: &KeyRule| rule.fits(key) || rule.fits(&path) || rule.fits(&stored);
        self.first_rule(fits).unwrap_or(none)
    }

    fn first_rule(&self, fits: impl Fn(&KeyRule) -> bool) -> Option<Verdict> {
        let (rule, masks) = self.rules.iter().find(|(rule, _)| fits(rule))?;
        let action = rule.action;
        let masks = match action {
            Action::Keep => *masks,
            // At most the key remains to be masked.
            Action::Drop | Action::Hash => ALL_MASKS,
        };
        Some(Verdict { action, masks })
    }

    /// Returns the first `count` masks.
    fn masks(&self, count: usize) -> &[ValuePattern] {
        &self.masks[..count.min(self.masks.len())]
    }

    /// Returns and counts the replacement of a text in which one of the masks matches.
    fn masked(&self, text: &str, masks: usize) -> Option<String> {
        let masked = pattern::masked(self.masks(masks), text)?;
        self.count_masked();
        Some(masked)
    }

    /// Returns the text that replaces bytes in which a mask matches. Masks apply to the bytes as
    /// text, and to the two forms in which the store has them.
    fn masked_bytes(&self, bytes: &[u8], masks: usize) -> Option<String> {
        if self.masks(masks).is_empty() {
            return None;
        }
        let masked = self.masked(&String::from_utf8_lossy(bytes), masks);
        let masked = masked.or_else(|| self.masked(&hex(bytes), masks));
        masked.or_else(|| self.masked(&standard_base64(bytes), masks))
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
    /// Returns an error if the attributes of the batch are malformed.
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
        /// Names and contents of the items of a log.
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
            assert_eq!(counted[..2], counts);
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
    fn masks_apply_to_all_but_kept_attributes() {
        let rules = [
            "mask:{card}",
            "keep:order.*",
            "mask:[a-z]+@x",
            "hash:user.*",
        ];
        let rules = rules.map(|rule| rule.parse().unwrap()).to_vec();
        let redaction = Redaction::new(rules, b"key").unwrap();
        let text = "a@x 4111111111111111";
        let check = |key: &str, expected_key: &str, expected: &str| {
            let inner = format!(r#"[{{"key":"in","value":{{"stringValue":"{text}"}}}}]"#);
            for (value, expected) in [
                (
                    format!(r#"{{"stringValue":"{text}"}}"#),
                    format!(r#"{{"stringValue":"{expected}"}}"#),
                ),
                (
                    format!(r#"{{"kvlistValue":{{"values":{inner}}}}}"#),
                    format!(
                        r#"{{"kvlistValue":{{"values":{}}}}}"#,
                        inner.replace(text, expected)
                    ),
                ),
            ] {
                let json = |key: &str, value: &str| {
                    format!(r#"{{"attributes":[{{"key":"{key}","value":{value}}}]}}"#)
                };
                let redacted = redaction.json(json(key, &value).as_bytes()).unwrap();
                assert_eq!(
                    String::from_utf8(redacted).unwrap(),
                    json(expected_key, &expected)
                );
            }
        };
        check("k", "k", "**** ****");
        check("a@x", "****", "**** ****");
        check("order.a@x", "order.a@x", "a@x ****");
        let counted = redaction.counts.each_ref().map(|count| count.load(Relaxed));
        assert_eq!(counted, [0, 0, 8]);
        let hashed = redaction.json(br#"{"attributes":[{"key":"user.a@x","value":{}}]}"#);
        let hashed = String::from_utf8(hashed.unwrap()).unwrap();
        assert!(
            hashed.contains(r#"{"key":"user.****","value":{"stringValue":"hmac:"#),
            "{hashed}"
        );
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
                inside: &inside,
                ..Place::of(of)
            };
            let action = redaction.verdict(place, key).action;
            assert_eq!(action, expected, "{place:?} {key}");
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
