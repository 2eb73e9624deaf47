//! Operations as they are recognised in spans.

use super::shape::Operation;
use crate::name_rule::normalise;
use crate::record::SpanRecord;
use rustc_hash::FxHashMap;
use std::sync::Arc;

/// An operation's number, which follows from its names.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub(super) struct OperationId(u64);

/// An operation with its number.
#[derive(Clone, Debug)]
pub(super) struct Known {
    pub(super) id: OperationId,
    /// Of its names.
    pub(super) digest: u128,
    pub(super) operation: Operation,
}

/// How many names, as recorded, are remembered at a time.
const NAMES_MAX: usize = 1 << 16;

/// Service, name and host as recorded, and what they are.
type Entry = (Arc<str>, Arc<str>, Arc<str>, Arc<Known>);

/// Names as recorded, by where they lie: equal texts share one allocation mostly, which the entry keeps alive.
#[derive(Clone, Debug, Default)]
pub(super) struct OperationCache {
    known: FxHashMap<[usize; 3], Entry>,
}

impl OperationCache {
    /// Forgets all, if that is much.
    pub(super) fn bound(&mut self) {
        if self.known.len() > NAMES_MAX {
            self.known.clear();
        }
    }

    /// The operation of a span.
    pub(super) fn of_span(&mut self, span: &SpanRecord, with_host: bool) -> Arc<Known> {
        self.of(&span.service, &span.name, with_host.then_some(&span.host))
    }

    /// The operation of these names.
    pub(super) fn of(
        &mut self,
        service: &Arc<str>,
        name: &Arc<str>,
        host: Option<&Arc<str>>,
    ) -> Arc<Known> {
        let at = |text: &Arc<str>| text.as_ptr().addr();
        // A text of no length lies nowhere, and an address says nothing of the length.
        let key = [at(service), at(name), host.map_or(0, at)];
        if let Some((known_service, known_name, known_host, known)) = self.known.get(&key)
            && known_service.len() == service.len()
            && known_name.len() == name.len()
            && host.is_none_or(|host| host.len() == known_host.len())
        {
            return known.clone();
        }
        let operation = Operation {
            service: service.clone(),
            name: normalise(name).into(),
            host: host.cloned(),
        };
        let digest = operation.digest();
        let known = Arc::new(Known {
            id: OperationId(digest as u64),
            digest,
            operation,
        });
        let host = host.cloned().unwrap_or_else(|| Arc::from(""));
        self.known
            .insert(key, (service.clone(), name.clone(), host, known.clone()));
        known
    }
}
