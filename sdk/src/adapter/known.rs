//! SDK callsites for the callsites of `tracing`, found by the address of `tracing`'s metadata.

use std::collections::HashMap;
use std::sync::{LazyLock, OnceLock, PoisonError, RwLock, RwLockWriteGuard};

use tracing_core::Metadata;

use super::conventions;
use crate::callsite::Callsite;

/// Registered callsite of `tracing`, with the SDK's callsite for it.
#[derive(Debug)]
pub(crate) struct AdaptedCallsite {
    pub(crate) metadata: &'static Metadata<'static>,
    pub(crate) callsite: Callsite,
    /// Index for which [`at`] returns this callsite.
    pub(crate) index: u32,
    /// True if its spans are requests, even inside other spans. [`find`] never returns such a
    /// callsite.
    pub(crate) is_request: bool,
}

/// Names of spans that are requests.
static REQUESTS: RwLock<Vec<String>> = RwLock::new(Vec::new());

/// Sets the names of spans that are requests. Applies to callsites that are registered later.
pub(crate) fn set_requests(names: Vec<String>) {
    *REQUESTS.write().unwrap_or_else(PoisonError::into_inner) = names;
}

fn is_request(metadata: &'static Metadata<'static>) -> bool {
    let names = REQUESTS.read().unwrap_or_else(PoisonError::into_inner);
    if names.is_empty() || !metadata.is_span() {
        return false;
    }
    let own = event_or_span_name(metadata);
    names.iter().any(|name| name == own)
}

/// Number of buckets. The table uses open addressing over slots that are written once. Callsites
/// are statics, so entries are never removed, an address is an identity, and the program's source
/// bounds the number of entries.
const BUCKETS: usize = 1 << BUCKET_BITS;
const BUCKET_BITS: u32 = if cfg!(miri) { 6 } else { 12 };
/// Maximum number of buckets probed for one address before the fallback map is searched.
const PROBES: usize = 16;
/// Maximum number of buckets that [`find`] probes: its code is inlined, and must stay short.
const PROBES_NEAR: usize = 2;

#[repr(align(32))]
struct Bucket(OnceLock<(usize, &'static AdaptedCallsite)>);

/// Hash table of callsites.
static TABLE: [Bucket; BUCKETS] = [const { Bucket(OnceLock::new()) }; BUCKETS];

/// Fallback map for callsites of requests, and for those that find no free bucket among [`PROBES`].
/// Its lock also guards the filling of buckets, and a fork takes it. Otherwise a bucket could be
/// half filled in a forked child, and a registration there would wait forever.
static REST: LazyLock<RwLock<Rest>> = LazyLock::new(RwLock::default);

#[derive(Default)]
pub(super) struct Rest {
    by_address: HashMap<usize, usize>,
    all: Vec<&'static AdaptedCallsite>,
}

#[inline]
fn address_of(metadata: &'static Metadata<'static>) -> usize {
    std::ptr::from_ref(metadata) as usize
}

#[inline]
fn probes(address: usize) -> impl Iterator<Item = usize> {
    let hash = (address as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> (64 - BUCKET_BITS);
    (0..PROBES).map(move |step| (hash as usize + step) % BUCKETS)
}

/// Returns the SDK callsite of a `tracing` callsite that is registered in one of the first
/// [`PROBES_NEAR`] buckets for its address, as nearly all are. Returns `None` for other callsites.
#[inline(always)]
pub(crate) fn find(metadata: &'static Metadata<'static>) -> Option<&'static AdaptedCallsite> {
    find_within(PROBES_NEAR, metadata)
}

#[inline(always)]
fn find_within(
    most: usize,
    metadata: &'static Metadata<'static>,
) -> Option<&'static AdaptedCallsite> {
    let address = address_of(metadata);
    for index in probes(address).take(most) {
        let &(there, known) = TABLE[index].0.get()?;
        if there == address {
            return Some(known);
        }
    }
    None
}

/// Returns the SDK callsite of a `tracing` callsite, and registers it if needed.
#[inline]
pub(crate) fn of(metadata: &'static Metadata<'static>) -> &'static AdaptedCallsite {
    find_within(PROBES, metadata).unwrap_or_else(|| meet(metadata))
}

/// Prevents the registration of callsites until the result is dropped.
pub(super) fn lock() -> RwLockWriteGuard<'static, Rest> {
    // A poisoned map is still valid: no operation leaves it half-done.
    REST.write().unwrap_or_else(PoisonError::into_inner)
}

#[cold]
fn meet(metadata: &'static Metadata<'static>) -> &'static AdaptedCallsite {
    let address = address_of(metadata);
    let known = |rest: &Rest| Some(rest.all[*rest.by_address.get(&address)?]);
    if let Some(known) = known(&REST.read().unwrap_or_else(PoisonError::into_inner)) {
        return known;
    }
    let mut rest = lock();
    let is_request = is_request(metadata);
    let buckets = if is_request { 0 } else { PROBES };
    for index in probes(address).take(buckets) {
        // If the bucket already holds another callsite, the loop tries the next one.
        let &(there, known) = TABLE[index]
            .0
            .get_or_init(|| (address, make(metadata, index, false)));
        if there == address {
            return known;
        }
    }
    if let Some(known) = known(&rest) {
        return known;
    }
    let at = rest.all.len();
    let known = make(metadata, BUCKETS + at, is_request);
    rest.by_address.insert(address, at);
    rest.all.push(known);
    known
}

/// Returns the callsite with this [`AdaptedCallsite::index`]; `None` if no callsite has it.
pub(crate) fn at(index: u32) -> Option<&'static AdaptedCallsite> {
    let index = index as usize;
    match TABLE.get(index) {
        Some(bucket) => bucket.0.get().map(|&(_, known)| known),
        None => {
            let rest = REST.read().unwrap_or_else(PoisonError::into_inner);
            rest.all.get(index - BUCKETS).copied()
        }
    }
}

fn make(
    metadata: &'static Metadata<'static>,
    index: usize,
    is_request: bool,
) -> &'static AdaptedCallsite {
    let fields: Vec<&'static str> = metadata.fields().iter().map(|field| field.name()).collect();
    let mut callsite = Callsite::new(
        event_or_span_name(metadata),
        Box::leak(fields.into_boxed_slice()),
        metadata.file().unwrap_or(""),
        metadata.line().unwrap_or(0),
    )
    .with_role(conventions::role_of(metadata));
    if is_unnamed_event(metadata) {
        callsite = callsite.named_by_message();
    }
    Box::leak(Box::new(AdaptedCallsite {
        metadata,
        callsite,
        index: u32::try_from(index).unwrap_or(u32::MAX),
        is_request,
    }))
}

/// Reports whether an event's name begins like `tracing`'s default ("event src/main.rs:7").
fn is_unnamed_event(metadata: &Metadata<'_>) -> bool {
    metadata.is_event() && metadata.name().starts_with("event ")
}

/// Returns `tracing`'s name, or one that is clearer to people and stable across versions. An event
/// without a name gets its target, which the drain may replace by the message. A span named like a
/// function (`apply`), but not like a web framework's request span, gets the last part of its
/// module path as a prefix (`get::apply`), if that path has several parts: another function of the
/// service may have the same name. The prefix is added even if no other function has the name yet:
/// one may be registered later, and names must not change then.
fn event_or_span_name(metadata: &'static Metadata<'static>) -> &'static str {
    let name = metadata.name();
    if is_unnamed_event(metadata) {
        return metadata.target();
    }
    if metadata.is_event() {
        return name;
    }
    let is_function = !conventions::is_request(name)
        && !name.is_empty()
        && name
            .bytes()
            .all(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'_');
    let module = metadata
        .module_path()
        .and_then(|path| path.rsplit_once("::"));
    match module {
        Some((_, module)) if is_function => format!("{module}::{name}").leak(),
        _ => name,
    }
}

/// True once a test fills the table; callsites that other tests register may then lie in the
/// fallback map.
#[cfg(test)]
pub(crate) static IS_CROWDED: std::sync::atomic::AtomicBool =
    std::sync::atomic::AtomicBool::new(false);

#[cfg(test)]
pub(super) mod tests {
    use std::sync::atomic::Ordering::Relaxed;

    use super::*;
    use tracing_core::{Kind, Level, callsite::Identifier, field::FieldSet, subscriber::Interest};

    struct Nowhere;

    impl tracing_core::Callsite for Nowhere {
        fn set_interest(&self, _: Interest) {}
        fn metadata(&self) -> &Metadata<'_> {
            unreachable!("never registered")
        }
    }

    static NOWHERE: Nowhere = Nowhere;

    pub(in super::super) fn metadata(line: u32) -> &'static Metadata<'static> {
        let fields = FieldSet::new(&["a", "b"], Identifier(&NOWHERE));
        let place = Some("here.rs");
        Box::leak(Box::new(Metadata::new(
            "work",
            "a::b",
            Level::INFO,
            place,
            Some(line),
            None,
            fields,
            Kind::SPAN,
        )))
    }

    #[test]
    fn functions_are_named_with_their_module() {
        let name = |name, module, kind| {
            let fields = FieldSet::new(&[], Identifier(&NOWHERE));
            let metadata = Metadata::new(name, "t", Level::INFO, None, None, module, fields, kind);
            event_or_span_name(Box::leak(Box::new(metadata)))
        };
        assert_eq!(
            name("apply", Some("redis::cmd::get"), Kind::SPAN),
            "get::apply"
        );
        assert_eq!(name("run", Some("redis"), Kind::SPAN), "run");
        assert_eq!(name("run", None, Kind::SPAN), "run");
        for other in ["GET /item", "FramedRead::poll", "Check Out", "request", ""] {
            assert_eq!(name(other, Some("a::b"), Kind::SPAN), other);
        }
        assert_eq!(name("event src/a.rs:7", Some("a::b"), Kind::EVENT), "t");
        assert_eq!(name("ready", Some("a::b"), Kind::EVENT), "ready");
    }

    #[test]
    fn every_callsite_is_found_again_from_all_threads_also_beyond_the_table() {
        IS_CROWDED.store(true, Relaxed);
        let all: Vec<_> = (0..2 * BUCKETS as u32).map(metadata).collect();
        std::thread::scope(|scope| {
            for _ in 0..3 {
                scope.spawn(|| all.iter().for_each(|metadata| _ = of(metadata)));
            }
        });
        for (line, metadata) in all.iter().enumerate() {
            let known = of(metadata);
            assert!(std::ptr::eq(known.metadata, *metadata));
            assert!(std::ptr::eq(known, at(known.index).unwrap()));
            assert_eq!(
                (known.callsite.name, known.callsite.fields),
                ("work", ["a", "b"].as_slice())
            );
            assert_eq!(known.callsite.position, ("here.rs", line as u32));
        }
        assert!(!REST.read().unwrap().all.is_empty());
    }
}
