//! Determines the operations of spans.

use super::shape::Operation;
use crate::name_rule::normalise;
use crate::record::SpanRecord;
use rustc_hash::FxHashMap;
use std::sync::Arc;

/// Number of an operation: a digest of its names.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub(super) struct OperationId(u64);

/// An operation with its number.
#[derive(Clone, Debug)]
pub(super) struct NumberedOperation {
    pub(super) id: OperationId,
    /// Digest of the operation's names.
    pub(super) digest: u128,
    pub(super) operation: Operation,
}

/// Number of cached operations above which the cache is cleared before the next request.
const NAMES_MAX: usize = 1 << 16;

/// Service, name and host as recorded, and the operation with these names.
type Entry = (Arc<str>, Arc<str>, Arc<str>, Arc<NumberedOperation>);

/// Cache of operations by the addresses of recorded names. Equal texts usually share one
/// allocation, which the entry keeps alive.
#[derive(Clone, Debug, Default)]
pub(super) struct OperationCache {
    known: FxHashMap<[usize; 3], Entry>,
}

impl OperationCache {
    /// Clears the cache if it exceeds its maximum.
    pub(super) fn bound(&mut self) {
        if self.known.len() > NAMES_MAX {
            self.known.clear();
        }
    }

    /// Returns the operation of a span.
    pub(super) fn of_span(&mut self, span: &SpanRecord, with_host: bool) -> Arc<NumberedOperation> {
        self.of(&span.service, &span.name, with_host.then_some(&span.host))
    }

    /// Returns the operation with these recorded names.
    pub(super) fn of(
        &mut self,
        service: &Arc<str>,
        name: &Arc<str>,
        host: Option<&Arc<str>>,
    ) -> Arc<NumberedOperation> {
        let at = |text: &Arc<str>| text.as_ptr().addr();
        // An address does not determine the length: an empty text has no bytes of its own.
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
        let known = Arc::new(NumberedOperation {
            id: OperationId(digest as u64),
            digest,
            operation,
        });
        let host = host.cloned().unwrap_or_else(|| Arc::from(""));
        let entry = (service.clone(), name.clone(), host, known.clone());
        self.known.insert(key, entry);
        known
    }
}
