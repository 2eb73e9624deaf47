//! Constant properties of an annotation, stored once per place in the source or per name.

use std::collections::HashMap;
use std::sync::{LazyLock, PoisonError, RwLock, RwLockWriteGuard};

/// Source of spans, events or fields. The macros and the SDK create it as a `static`; for callsites
/// of `tracing`, and for names that are only known at run time, the SDK leaks it.
#[derive(Debug)]
pub struct Callsite {
    pub(crate) name: &'static str,
    pub(crate) fields: &'static [&'static str],
    #[allow(
        dead_code,
        reason = "shown by Debug; shipped once the wire carries source positions"
    )]
    pub(crate) position: (&'static str, u32),
    #[cfg(feature = "tracing")]
    pub(crate) role: Role,
    /// True for events of `tracing` without a name. The drain may name them by their message.
    #[cfg(feature = "tracing")]
    pub(crate) is_named_by_message: bool,
}

/// Meaning of a callsite's fields to the drain.
#[cfg(feature = "tracing")]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Role {
    /// The fields have no special meaning, except that one may name an event.
    Plain,
    /// A span's fields may determine its name, kind or status.
    Described,
    /// An event marks its span as failed.
    Failure,
    /// An event has the status of its span's response.
    Response,
    /// An event describes work that has ended, which becomes a span.
    Elapsed,
}

impl Callsite {
    /// Creates a callsite; used by the macros.
    #[doc(hidden)]
    #[must_use]
    pub const fn new(
        name: &'static str,
        fields: &'static [&'static str],
        file: &'static str,
        line: u32,
    ) -> Self {
        Self {
            name,
            fields,
            position: (file, line),
            #[cfg(feature = "tracing")]
            role: Role::Plain,
            #[cfg(feature = "tracing")]
            is_named_by_message: false,
        }
    }

    #[cfg(feature = "tracing")]
    pub(crate) fn with_role(mut self, role: Role) -> Self {
        self.role = role;
        self
    }

    #[cfg(feature = "tracing")]
    pub(crate) const fn named_by_message(mut self) -> Self {
        self.is_named_by_message = true;
        self
    }
}

/// Maximum number of names that are only known at run time (such as `GET /item/{id}`). Their
/// callsites are never freed; names beyond this limit share one callsite.
const NAMES_MAX: usize = 1_024;
pub(crate) const NAME_BYTES_MAX: usize = 256;

static OVERFLOW: Callsite = Callsite::new("(too many names)", &[], file!(), line!());
static NAMED: LazyLock<RwLock<HashMap<Box<str>, &'static Callsite>>> =
    LazyLock::new(RwLock::default);

/// Prevents the addition of names until the result is dropped.
pub(crate) fn lock() -> RwLockWriteGuard<'static, HashMap<Box<str>, &'static Callsite>> {
    NAMED.write().unwrap_or_else(PoisonError::into_inner)
}

/// Returns the callsite named after a request's path without its first slash. OpenTelemetry names
/// gRPC's `/package.Service/Method` like this. The path `/` keeps its slash.
pub(crate) fn named_after_path(path: &str) -> &'static Callsite {
    named(
        path.strip_prefix('/')
            .filter(|name| !name.is_empty())
            .unwrap_or(path),
    )
}

/// Returns the callsite that [`named`] has created for a name, or `None` if there is none.
pub(crate) fn known(name: &str) -> Option<&'static Callsite> {
    NAMED.read().ok()?.get(name).copied()
}

/// Returns the callsite for a name that is only known at run time, and creates it at first use.
/// Names beyond [`NAMES_MAX`] or [`NAME_BYTES_MAX`] share one callsite.
pub(crate) fn named(name: &str) -> &'static Callsite {
    if let Some(callsite) = known(name) {
        return callsite;
    }
    let Ok(mut known) = NAMED.write() else {
        return &OVERFLOW;
    };
    if let Some(callsite) = known.get(name) {
        return callsite;
    }
    if known.len() >= NAMES_MAX || name.len() > NAME_BYTES_MAX {
        return &OVERFLOW;
    }
    let text: &'static str = Box::leak(name.to_owned().into_boxed_str());
    let callsite: &'static Callsite =
        Box::leak(Box::new(Callsite::new(text, &[], file!(), line!())));
    known.insert(name.into(), callsite);
    callsite
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_has_one_callsite_and_names_are_bounded() {
        let first = named("/newsfeed.Web/Page");
        assert!(std::ptr::eq(first, named("/newsfeed.Web/Page")));
        assert_eq!(first.name, "/newsfeed.Web/Page");
        for i in 0..2 * NAMES_MAX {
            named(&format!("name {i}"));
        }
        assert!(NAMED.read().unwrap().len() <= NAMES_MAX);
        assert!(std::ptr::eq(named("one more"), &raw const OVERFLOW));
    }
}
