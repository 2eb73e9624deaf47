//! Fields of spans: intrinsics and attributes, by TraceQL's scopes.

use std::fmt;
use std::sync::Arc;

/// Property of a span, log event or kernel event, of its resource, scope or request, or of an event
/// or link inside a span.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Field {
    /// Name of the operation, log event or kernel event.
    Name,
    /// Service of the span, or of a kernel event's span; task of a log event.
    Service,
    /// Host that recorded the span or event.
    Host,
    /// `resource.host.name`: this attribute of the resource or, if the resource has neither
    /// `host.name` nor `host.id` nor `k8s.pod.name`, the recording host.
    ResourceHost,
    /// Duration of the span or event, in ns.
    Duration,
    /// Kind of the span: `server`, `client`, `producer`, `consumer`, `internal`, `unspecified` or
    /// another recorded kind.
    Kind,
    /// Status of the span: `error`, `ok` or `unset`.
    Status,
    /// Kind of a kernel event: `syscall`, `off_cpu` or `lock_wait`. Spans do not have this field.
    Kernel,
    /// Name of the root span of the request.
    RootName,
    /// Service of the root span of the request.
    RootService,
    /// Duration of the root span of the request, in ns.
    RootDuration,
    /// `.KEY`: attribute of the span or, if the span lacks it, of its resource.
    AnyScope(Arc<str>),
    /// Attribute by its stored name: `KEY` for the span's, `resource.KEY` for the resource's, and
    /// `scope.KEY` for the instrumentation scope's.
    Attribute(Arc<str>),
    /// Property of an event or a log line inside the span, or of a log event.
    Event(EventField),
    /// Property of a link of the span.
    Link(LinkField),
}

/// Property of an event or a log line inside a span, or of a log event.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum EventField {
    /// `event:name`: name of the event.
    Name,
    /// `event:timeSinceStart`: time since the span's start, in ns.
    SinceStart,
    /// `event.KEY`: attribute of the event.
    Attribute(Arc<str>),
}

/// Property of a link.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LinkField {
    /// `link:traceID`: 32 hexadecimal digits.
    TraceId,
    /// `link:spanID`: 16 hexadecimal digits.
    SpanId,
    /// `link.KEY`: attribute of the link.
    Attribute(Arc<str>),
}

/// Fields that both formulas and TraceQL accept, for error messages. Aliases are left out.
pub(super) const FIELDS: &str = "a field: `name`, `status`, `statusMessage`, `kind`, `duration`, `rootName`, `rootServiceName`, \
     `traceDuration`, `event:name`, `event:timeSinceStart`, `link:traceID`, `link:spanID`, `instrumentation:name`, \
     `instrumentation:version`, or an attribute: `.bytes`, `span.bytes`, `resource.zone`, `event.KEY`, `link.KEY`, \
     `instrumentation.KEY`";
/// Fields that formulas accept, but TraceQL does not have.
pub(super) const OWN_FIELDS: [&str; 5] = ["service", "host", "kernel", "service.name", "host.name"];

/// Attribute with the recorded kind of an imported span, unless the kind is client or server. The
/// next four constants name further attributes that hold values without a column of their own.
pub(super) const KIND: &str = "span.kind";
pub(super) const ERROR: &str = "error";
pub(super) const STATUS_CODE: &str = "otel.status_code";
pub(super) const OWN_NAMES: &str = "otel.own_names";
pub(super) const LINKS: &str = "links";
/// Resource attributes that may supply a host's name.
pub(super) const HOST_NAMES: [&str; 3] = [
    "resource.host.name",
    "resource.host.id",
    "resource.k8s.pod.name",
];

/// Returns the stored name of a resource attribute.
pub(super) fn of_resource(key: &str) -> String {
    format!("resource.{key}")
}

impl Field {
    /// Parses the name of a field. Returns `None` if there is no such field.
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

    /// Reports whether the field's values are durations in ns.
    pub(super) fn is_time(&self) -> bool {
        matches!(
            self,
            Self::Duration | Self::RootDuration | Self::Event(EventField::SinceStart)
        )
    }

    /// Returns the names of the stored attributes that the field is read from.
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

    /// Returns the stored names of the attribute behind [`Field::AnyScope`], [`Field::Attribute`]
    /// or [`EventField::Attribute`]. The list is empty for other fields.
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
