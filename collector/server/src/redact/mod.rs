//! Redaction: attributes that are dropped or hashed by their key before anything of them is written, into the log or the store.
//!
//! `rules` says which; `native` applies it to batches of our protocol, `protobuf` and `json` to requests of OTLP. Without rules
//! none of it runs. Of a key, all forms count: as it was sent, of what is inside of a map also as `KEY.INNER`, and as it is
//! stored (`resource.KEY`, `scope.KEY`).

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

/// What to redact, and by which key values are hashed.
pub struct Redaction {
    rules: Vec<Rule>,
    key: hmac::Key,
    /// Values dropped, and hashed.
    pub(crate) counts: [AtomicU64; 2],
}

/// What to redact.
#[derive(Clone, Debug, Default)]
pub struct RedactSettings {
    /// The first that fits is taken; what none fits is kept.
    pub rules: Vec<Rule>,
    /// The file of the key by which values are hashed; none: one in the data folder, which is made.
    pub key: Option<PathBuf>,
}

impl RedactSettings {
    /// None without rules.
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

/// A request that cannot be walked over: as it might hold what is to be redacted, it is not taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("not a request of OTLP: it is damaged, or nested too deeply to be redacted")]
pub struct NotWalked;

impl std::fmt::Debug for Redaction {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} rules", self.rules.len())
    }
}

/// Where an attribute is.
#[derive(Clone, Copy, Debug)]
struct Place<'a> {
    /// What is put before its key where it is stored.
    of: &'static str,
    /// The keys of the maps around it, each with a dot behind it.
    inside: &'a str,
}

impl Place<'_> {
    /// A span's, or an event's.
    const PLAIN: Self = Self { of: "", inside: "" };
}

impl Redaction {
    /// None without rules. The key is for hashing.
    #[must_use]
    pub fn new(rules: Vec<Rule>, key: &[u8]) -> Option<Arc<Self>> {
        (!rules.is_empty()).then(|| {
            Arc::new(Self {
                rules,
                key: hmac::Key::new(hmac::HMAC_SHA256, key),
                counts: Default::default(),
            })
        })
    }

    /// What to do with an attribute: by the first rule that fits its key, as it was sent or with what is put before it.
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

    /// What stands for a value: the same for the same value, as long as the key is the same.
    fn hash(&self, value: &[u8]) -> String {
        /// Of SHA-256's 32.
        const BYTES: usize = 16;
        let tag = hmac::sign(&self.key, value);
        let digits = tag.as_ref().iter().take(BYTES);
        let digits: String = digits.map(|byte| format!("{byte:02x}")).collect();
        format!("hmac:{digits}")
    }

    /// Redacts a batch that was not checked yet.
    ///
    /// # Errors
    /// When it cannot be walked over.
    pub fn batch(&self, batch: &mut Batch) -> Result<(), Refusal> {
        native::redact(self, batch)
    }

    /// A request of OTLP in protobuf, redacted: one of traces.
    ///
    /// # Errors
    /// When it cannot be walked over.
    pub fn traces(&self, request: &[u8]) -> Result<Vec<u8>, NotWalked> {
        protobuf::redacted(self, request, protobuf::TRACES)
    }

    /// One of logs.
    ///
    /// # Errors
    /// When it cannot be walked over.
    pub fn logs(&self, request: &[u8]) -> Result<Vec<u8>, NotWalked> {
        protobuf::redacted(self, request, protobuf::LOGS)
    }

    /// Either of them in JSON.
    ///
    /// # Errors
    /// When it cannot be walked over.
    pub fn json(&self, request: &[u8]) -> Result<Vec<u8>, NotWalked> {
        json::redacted(self, request)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

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
