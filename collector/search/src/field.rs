//! Fields of spans: intrinsics and attributes, by TraceQL's scopes.

use std::fmt;
use std::sync::Arc;

/// A property of a span, of its resource, or of one of its events or links.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Field {
    /// The operation's name.
    Name,
    /// The service that recorded it.
    Service,
    /// The host that recorded it.
    Host,
    /// `resource.host.name`: the resource's own, or the host where the resource says nothing of it.
    ResourceHost,
    /// How long it took, ns.
    Duration,
    /// `server`, `client`, `producer`, `consumer`, `internal` or `unspecified`.
    Kind,
    /// `error`, `ok` or `unset`.
    Status,
    /// The name of the event in the kernel's recording: `syscall`, `off_cpu` or `lock_wait`. Spans have none.
    Kernel,
    /// The name of its request's root.
    RootName,
    /// The service of its request's root.
    RootService,
    /// How long its request took, ns.
    RootDuration,
    /// `.KEY`: the span's attribute, or else its resource's.
    AnyScope(Arc<str>),
    /// The attribute that is stored under this name: `KEY` of the span, `resource.KEY`, `scope.KEY`.
    Attribute(Arc<str>),
    /// Of an event inside the span.
    Event(EventField),
    /// Of a link of the span.
    Link(LinkField),
}

/// A property of an event inside a span.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum EventField {
    /// `event:name`
    Name,
    /// `event:timeSinceStart`: since the span's start, ns.
    SinceStart,
    /// `event.KEY`
    Attribute(Arc<str>),
}

/// A property of a link.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LinkField {
    /// `link:traceID`: 32 hexadecimal digits.
    TraceId,
    /// `link:spanID`: 16 hexadecimal digits.
    SpanId,
    /// `link.KEY`
    Attribute(Arc<str>),
}

/// All fields, for messages.
pub(super) const FIELDS: &str = "a field: `name`, `status`, `statusMessage`, `kind`, `duration`, `rootName`, `rootServiceName`, \
     `traceDuration`, `event:name`, `event:timeSinceStart`, `link:traceID`, `link:spanID`, `instrumentation:name`, \
     `instrumentation:version`, or an attribute: `.bytes`, `span.bytes`, `resource.zone`, `event.KEY`, `link.KEY`, \
     `instrumentation.KEY`";
/// What of these is of this language and not of TraceQL.
pub(super) const OWN_FIELDS: [&str; 5] = ["service", "host", "kernel", "service.name", "host.name"];

/// Names under which importers of OTLP keep what has no column.
pub(super) const KIND: &str = "span.kind";
pub(super) const ERROR: &str = "error";
pub(super) const STATUS_CODE: &str = "otel.status_code";
pub(super) const OWN_NAMES: &str = "otel.own_names";
pub(super) const LINKS: &str = "links";
/// The parts of a resource that a host's name is taken from.
pub(super) const HOST_NAMES: [&str; 3] = [
    "resource.host.name",
    "resource.host.id",
    "resource.k8s.pod.name",
];

/// Where the attribute of a resource is kept.
pub(super) fn of_resource(key: &str) -> String {
    format!("resource.{key}")
}

impl Field {
    /// The field that is written so; none: there is no such field.
    #[must_use]
    pub fn of_word(word: &str) -> Option<Self> {
        Some(match word {
            "name" | "span:name" => Self::Name,
            "service" | "service.name" | "resource.service.name" | ".service.name" => Self::Service,
            "host" | "host.name" => Self::Host,
            "resource.host.name" | ".host.name" => Self::ResourceHost,
            "duration" | "span:duration" => Self::Duration,
            "kind" | "span:kind" => Self::Kind,
            "status" | "span:status" => Self::Status,
            "statusMessage" | "span:statusMessage" => {
                Self::Attribute("otel.status_description".into())
            }
            "kernel" => Self::Kernel,
            "rootName" | "trace:rootName" => Self::RootName,
            "rootServiceName" | "trace:rootService" => Self::RootService,
            "traceDuration" | "trace:duration" => Self::RootDuration,
            "event:name" => Self::Event(EventField::Name),
            "event:timeSinceStart" => Self::Event(EventField::SinceStart),
            "link:traceID" => Self::Link(LinkField::TraceId),
            "link:spanID" => Self::Link(LinkField::SpanId),
            "instrumentation:name" => Self::Attribute("otel.scope.name".into()),
            "instrumentation:version" => Self::Attribute("otel.scope.version".into()),
            _ => return Self::of_scope(word),
        })
    }

    fn of_scope(word: &str) -> Option<Self> {
        let (scope, key) = word.split_once('.')?;
        if key.is_empty() {
            return None;
        }
        Some(match scope {
            "" => Self::AnyScope(key.into()),
            "span" => Self::Attribute(key.into()),
            "resource" => Self::Attribute(word.into()),
            "instrumentation" => Self::Attribute(format!("scope.{key}").into()),
            "event" => Self::Event(EventField::Attribute(key.into())),
            "link" => Self::Link(LinkField::Attribute(key.into())),
            _ => return None,
        })
    }

    /// Whether its values are times, ns.
    pub(super) fn is_time(&self) -> bool {
        matches!(
            self,
            Self::Duration | Self::RootDuration | Self::Event(EventField::SinceStart)
        )
    }

    /// The names of the attributes that it is read from.
    #[must_use]
    pub fn keys(&self) -> Vec<String> {
        let names = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect();
        match self {
            Self::AnyScope(key) => vec![key.to_string(), of_resource(key)],
            Self::Attribute(key) | Self::Event(EventField::Attribute(key)) => vec![key.to_string()],
            Self::Kind => names(&[KIND, OWN_NAMES]),
            Self::Status => names(&[ERROR, STATUS_CODE, OWN_NAMES]),
            Self::ResourceHost => names(&HOST_NAMES),
            Self::Link(_) => names(&[LINKS]),
            _ => Vec::new(),
        }
    }

    /// The names of the attribute that a user asks for by it; none: it is something else.
    #[must_use]
    pub fn asked_keys(&self) -> Vec<String> {
        match self {
            Self::AnyScope(_) | Self::Attribute(_) | Self::Event(EventField::Attribute(_)) => {
                self.keys()
            }
            _ => Vec::new(),
        }
    }
}

impl fmt::Display for Field {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let scoped = |f: &mut fmt::Formatter<'_>, scope: &str, key: &str| {
            let is_plain =
                |c: char| c.is_alphanumeric() || matches!(c, '_' | '.' | '-' | ':' | '/');
            match key.chars().all(is_plain) {
                true => write!(f, "{scope}.{key}"),
                false => write!(f, "{scope}.{key:?}"),
            }
        };
        match self {
            Self::Name => f.write_str("name"),
            Self::Service => f.write_str("service"),
            Self::Host => f.write_str("host"),
            Self::ResourceHost => f.write_str("resource.host.name"),
            Self::Duration => f.write_str("duration"),
            Self::Kind => f.write_str("kind"),
            Self::Status => f.write_str("status"),
            Self::Kernel => f.write_str("kernel"),
            Self::RootName => f.write_str("rootName"),
            Self::RootService => f.write_str("rootServiceName"),
            Self::RootDuration => f.write_str("traceDuration"),
            Self::AnyScope(key) => scoped(f, "", key),
            Self::Attribute(key) => match &**key {
                "otel.scope.name" => f.write_str("instrumentation:name"),
                "otel.scope.version" => f.write_str("instrumentation:version"),
                "otel.status_description" => f.write_str("statusMessage"),
                key => match (key.strip_prefix("resource."), key.strip_prefix("scope.")) {
                    (Some(key), _) => scoped(f, "resource", key),
                    (_, Some(key)) => scoped(f, "instrumentation", key),
                    _ => scoped(f, "span", key),
                },
            },
            Self::Event(EventField::Name) => f.write_str("event:name"),
            Self::Event(EventField::SinceStart) => f.write_str("event:timeSinceStart"),
            Self::Event(EventField::Attribute(key)) => scoped(f, "event", key),
            Self::Link(LinkField::TraceId) => f.write_str("link:traceID"),
            Self::Link(LinkField::SpanId) => f.write_str("link:spanID"),
            Self::Link(LinkField::Attribute(key)) => scoped(f, "link", key),
        }
    }
}
