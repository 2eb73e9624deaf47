//! Configuration of the SDK through a builder and the environment.

use std::path::PathBuf;
use std::time::Duration;

use crate::marker::Markers;
use crate::sampling::SampleMode;
#[cfg(feature = "tracing")]
use crate::tracing_filter::TracingFilter;
use crate::variables;
use stroboscope_burst::BurstConfig;

mod error;
pub(crate) mod names;

pub use error::InitError;
use names::{
    ENV_BURST_CONFIG, ENV_CA, ENV_CALLERS, ENV_COLLECTOR, ENV_FORCE, ENV_HOST, ENV_PROPAGATE,
    ENV_PROVENANCE, ENV_SAMPLE, ENV_SERVICE, ENV_TOKEN, KNOWN,
};
#[cfg(feature = "tracing")]
use names::{ENV_REQUESTS, ENV_TRACING};

/// Maximum size of a ring, in bytes.
const RING_BYTES_MAX: usize = 1 << 30;

/// Bearer token. Its `Debug` form does not show it.
#[derive(Clone)]
pub(crate) struct Token(pub(crate) String);

impl std::fmt::Debug for Token {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Token(…)")
    }
}

/// Unvalidated address of the collector.
#[derive(Clone, Debug)]
pub(crate) struct Address {
    pub(crate) text: String,
    pub(crate) token: Option<Token>,
    /// File of certificates in PEM form that replaces the system's own.
    pub(crate) ca: Option<PathBuf>,
}

/// Default limit, in bytes, of batches that wait for the collector.
pub(crate) const BUFFER_BYTES_MAX: usize = 32 << 20;
/// Maximum time to wait for the collector, a year. Adding more to an instant may overflow.
pub(crate) const DEADLINE_MAX: Duration = Duration::from_secs(365 * 24 * 3_600);

/// Configuration of recording, created by [`builder`](crate::builder).
#[derive(Clone, Debug)]
#[must_use = "nothing is recorded before `init`"]
pub struct Builder {
    pub(crate) service: String,
    pub(crate) host: Option<String>,
    pub(crate) collector: Address,
    pub(crate) burst_config: BurstConfig,
    pub(crate) rounded_from: Option<String>,
    pub(crate) sample: SampleMode,
    pub(crate) accept_force: bool,
    pub(crate) public_callers: bool,
    pub(crate) propagate_always: bool,
    #[cfg(feature = "provenance")]
    pub(crate) provenance: f64,
    pub(crate) ring_bytes: usize,
    pub(crate) rings_bytes_max: usize,
    pub(crate) buffer_bytes_max: usize,
    pub(crate) shutdown_deadline: Duration,
    pub(crate) markers: Markers,
    pub(crate) flush_on_sigterm: bool,
    /// Warnings about unknown variables and misspelled levels.
    pub(crate) unknown_variables: Vec<String>,
    #[cfg(feature = "tracing")]
    pub(crate) tracing: TracingFilter,
    #[cfg(feature = "tracing")]
    pub(crate) requests: Vec<String>,
}

impl Builder {
    pub(crate) fn new() -> Self {
        Self {
            service: program_name(),
            host: None,
            collector: Address {
                text: "http://127.0.0.1:4317".to_owned(),
                token: None,
                ca: None,
            },
            burst_config: BurstConfig::DEFAULT,
            rounded_from: None,
            sample: SampleMode::default(),
            accept_force: false,
            public_callers: false,
            propagate_always: false,
            #[cfg(feature = "provenance")]
            provenance: 1.0,
            ring_bytes: 1 << 20,
            rings_bytes_max: 64 << 20,
            buffer_bytes_max: BUFFER_BYTES_MAX,
            shutdown_deadline: Duration::from_secs(2),
            markers: Markers::default(),
            flush_on_sigterm: false,
            unknown_variables: Vec::new(),
            #[cfg(feature = "tracing")]
            tracing: TracingFilter::default(),
            #[cfg(feature = "tracing")]
            requests: Vec::new(),
        }
    }

    /// Sets the service's name. Default: the program's file name, or `unknown`.
    pub fn service(mut self, name: impl Into<String>) -> Self {
        self.service = name.into();
        self
    }

    /// Sets the host's name. Default: the system's host name, or `localhost`.
    pub fn host(mut self, name: impl Into<String>) -> Self {
        self.host = Some(name.into());
        self
    }

    /// Sets the collector's address: `http://host:port`, `unix:/path`, or, with the feature `tls`,
    /// `https://host:port`. Default `http://127.0.0.1:4317`.
    pub fn collector(mut self, address: impl Into<String>) -> Self {
        self.collector.text = address.into();
        self
    }

    /// Sets a bearer token that every call to the collector carries as `authorization`. It is sent
    /// unencrypted unless you use `https`, so use `https` over anything but a Unix socket or the
    /// loopback interface.
    pub fn token(mut self, token: impl Into<String>) -> Self {
        self.collector.token = Some(Token(token.into()));
        self
    }

    /// Sets a file of certificates in PEM form, which verify the certificate of an `https`
    /// collector. The SDK reads it again for each connection. Default: the system's certificates,
    /// read at the start.
    pub fn certificate_authority(mut self, file: impl Into<PathBuf>) -> Self {
        self.collector.ca = Some(file.into());
        self
    }

    /// Sets when to record. Default [`BurstConfig::DEFAULT`], 4 ms every 32 ms.
    pub fn burst_config(mut self, config: BurstConfig) -> Self {
        self.burst_config = config;
        self.rounded_from = None;
        self
    }

    /// Selects the requests to record outside of windows. Default [`SampleMode::Follow`].
    pub fn sample(mut self, mode: SampleMode) -> Self {
        self.sample = mode;
        self
    }

    /// Lets callers have their requests recorded: a request with the header `stroboscope-force: 1`
    /// is recorded to its end, like a sampled one.
    ///
    /// Off by default, because any client of the service could then make it record everything. Turn
    /// it on where callers are trusted, or where a proxy removes the header from others.
    pub fn accept_force(mut self, accept: bool) -> Self {
        self.accept_force = accept;
        self
    }

    /// Declares that the service's callers are outside of the system, for example browsers. The
    /// service then begins a new trace for each request, and drops the members of its baggage that
    /// begin with `sb.`. Other vendors' members stay. The SDK counts the dropped members as
    /// [`BaggageDropped`](crate::LossCause::BaggageDropped).
    ///
    /// Off by default, because inner services need their callers' context. Turn it on at the edge
    /// of the system. Otherwise any client can have its requests recorded, add them to another
    /// trace, and obtain responses of lower quality ([`EXPLORE`](crate::baggage::EXPLORE)) or
    /// without effect ([`DUPLICATE`](crate::baggage::DUPLICATE)).
    pub fn public_callers(mut self, public: bool) -> Self {
        self.public_callers = public;
        self
    }

    /// Adds a `traceparent` to every call, even if its request arrived without one and is not
    /// recorded. Off by default: such a call then carries no `traceparent` unless a window may open
    /// before its response, or this process samples by a ratio. This saves most of the cost of a
    /// closed gate.
    ///
    /// The added headers have the flag "not sampled". A downstream tracer that follows its parent's
    /// decision then records none of these requests; without the headers, it makes its own
    /// decision.
    pub fn propagate_always(mut self, always: bool) -> Self {
        self.propagate_always = always;
        self
    }

    /// Sets the share of recorded requests whose bytes are [tracked](crate::tracked), from 0 to 1.
    /// Lower numbers and NaN count as 0, higher numbers as 1. Default 1. The trace id decides, so
    /// all services with the same share track the same requests.
    #[cfg(feature = "provenance")]
    pub fn provenance(mut self, share: f64) -> Self {
        self.provenance = if share > 0.0 { share.min(1.0) } else { 0.0 };
        self
    }

    /// Sets the size of a recording thread's largest ring, in bytes (rounded up to a power of two,
    /// at least 16 KiB, at most 1 GiB). Default 1 MiB, which 5 million events per second with one
    /// integer each fill in 6.5 ms. A thread starts with 16 KiB. If memory allows, it continues in
    /// a larger ring when it fills half of its ring before the drain reads it, and the SDK keeps a
    /// ring of each size in reserve.
    pub fn ring_bytes(mut self, bytes: usize) -> Self {
        self.ring_bytes = bytes.min(RING_BYTES_MAX);
        self
    }

    /// Sets the maximum memory of all rings, in bytes. When it is nearly used up, further threads
    /// share rings; when these are full, records are lost and counted. Default 64 MiB, which
    /// suffices for about 3,000 threads that record little.
    pub fn rings_bytes_max(mut self, bytes: usize) -> Self {
        self.rings_bytes_max = bytes;
        self
    }

    /// Sets the maximum encoded size, in bytes, of batches that the collector has not acknowledged.
    /// Batches beyond it are discarded and counted. Default 32 MiB, which bridges 5 s without a
    /// collector at 100,000 recorded spans per second.
    pub fn buffer_bytes_max(mut self, bytes: usize) -> Self {
        self.buffer_bytes_max = bytes;
        self
    }

    /// Sets how long dropping the [`Guard`](crate::Guard) may wait for the collector. Default 2 s.
    pub fn shutdown_deadline(mut self, deadline: Duration) -> Self {
        self.shutdown_deadline = deadline.min(DEADLINE_MAX);
        self
    }

    /// Sets when to write markers for a kernel recorder. Default [`Markers::WhileListened`].
    pub fn markers(mut self, markers: Markers) -> Self {
        self.markers = markers;
        self
    }

    /// Ships pending records on SIGTERM, within the shutdown deadline, and then lets the signal end
    /// the process as usual. Use it in services without a handler of their own: otherwise SIGTERM
    /// ends the process before the [`Guard`](crate::Guard) is dropped, and records are lost.
    ///
    /// A service that handles SIGTERM itself must not use this. It should drop the guard or call
    /// [`flush`](crate::flush()) before it ends. Off by default; no effect on systems without
    /// SIGTERM.
    pub fn flush_on_sigterm(mut self) -> Self {
        self.flush_on_sigterm = true;
        self
    }

    /// Sets the default [`TracingFilter`], or a level, for layers and subscribers of `tracing`
    /// without a filter of their own. Default `info`, without the internals of transports.
    #[cfg(feature = "tracing")]
    pub fn tracing(mut self, filter: impl Into<TracingFilter>) -> Self {
        self.tracing = filter.into();
        self
    }

    /// Sets names of `tracing` spans that are requests wherever they begin, as shown in reports:
    /// `get::apply` for a function `apply` in a module `get`. Use it for spans inside a
    /// longer-lived span, such as a connection's. Each such span is then sampled separately
    /// ([`sample`](Self::sample)) instead of following its connection. Default: none.
    #[cfg(feature = "tracing")]
    pub fn requests(mut self, names: impl IntoIterator<Item = impl Into<String>>) -> Self {
        self.requests = names.into_iter().map(Into::into).collect();
        self
    }

    /// Applies the `STROBOSCOPE_…` environment variables; unset and empty variables change nothing.
    /// When recording starts, a message reports each unknown variable, with the nearest known name
    /// or with all known names.
    ///
    /// # Errors
    /// Returns an error that names the variable if a value is invalid. [`init`](Self::init) checks
    /// the collector's address, the token and the certificate file.
    pub fn env(mut self) -> Result<Self, InitError> {
        self.unknown_variables =
            variables::unknown(&KNOWN, std::env::vars_os().map(|(name, _)| name));
        self.env_from(|name| match std::env::var(name) {
            Ok(value) => Some(Ok(value)),
            Err(std::env::VarError::NotPresent) => None,
            Err(std::env::VarError::NotUnicode(_)) => Some(Err(())),
        })
    }

    pub(crate) fn env_from(
        mut self,
        read: impl Fn(&'static str) -> Option<Result<String, ()>>,
    ) -> Result<Self, InitError> {
        let text = |name: &'static str| {
            read(name)
                .transpose()
                .map_err(|()| InitError::NotText(name))
                .map(|value| {
                    // In many deployments, an empty variable means "not set".
                    value.filter(|value| !value.trim().is_empty())
                })
        };
        if let Some(config) = text(ENV_BURST_CONFIG)? {
            let parsed = BurstConfig::parse(&config).map_err(InitError::BurstConfig)?;
            self.burst_config = parsed.config;
            self.rounded_from = parsed.rounded_from;
        }
        if let Some(mode) = text(ENV_SAMPLE)? {
            self.sample = mode.parse().map_err(InitError::Sample)?;
        }
        if let Some(callers) = text(ENV_CALLERS)? {
            self.public_callers = match callers.trim() {
                "public" => true,
                "trusted" => false,
                _ => return Err(InitError::Callers(callers)),
            };
        }
        if let Some(force) = text(ENV_FORCE)? {
            self.accept_force = match force.trim() {
                "accept" => true,
                "refuse" => false,
                _ => return Err(InitError::Force(force)),
            };
        }
        if let Some(propagate) = text(ENV_PROPAGATE)? {
            self.propagate_always = match propagate.trim() {
                "always" => true,
                "recorded" => false,
                _ => return Err(InitError::Propagate(propagate)),
            };
        }
        #[cfg(feature = "provenance")]
        if let Some(share) = text(ENV_PROVENANCE)? {
            self.provenance = match share.trim() {
                "on" => 1.0,
                "off" => 0.0,
                number => match number.parse() {
                    Ok(share) if (0.0..=1.0).contains(&share) => share,
                    _ => return Err(InitError::Provenance(share)),
                },
            };
        }
        #[cfg(feature = "tracing")]
        if let Some(filter) = text(ENV_TRACING)? {
            self.tracing = filter.parse().map_err(InitError::Tracing)?;
            self.unknown_variables
                .extend(variables::misspelt_level(ENV_TRACING, &filter));
        }
        #[cfg(feature = "tracing")]
        if let Some(names) = text(ENV_REQUESTS)? {
            self = self.requests(names.split(',').map(str::trim));
        }
        if let Some(address) = text(ENV_COLLECTOR)? {
            self.collector.text = address;
        }
        if let Some(token) = text(ENV_TOKEN)? {
            self.collector.token = Some(Token(token));
        }
        if let Some(file) = text(ENV_CA)? {
            self.collector.ca = Some(file.into());
        }
        if let Some(service) = text(ENV_SERVICE)? {
            self.service = service;
        }
        if let Some(host) = text(ENV_HOST)? {
            self.host = Some(host);
        }
        Ok(self)
    }
}

fn program_name() -> String {
    std::env::args_os()
        .next()
        .and_then(|path| {
            Some(
                std::path::Path::new(&path)
                    .file_name()?
                    .to_string_lossy()
                    .into_owned(),
            )
        })
        .filter(|name| !name.is_empty())
        .unwrap_or_else(|| "unknown".to_owned())
}

pub(crate) fn host_name() -> String {
    crate::sys::host_name().unwrap_or_else(|| "localhost".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(variables: &[(&str, &str)], expected: Result<&str, &str>) {
        let read = |name: &'static str| {
            variables
                .iter()
                .find(|(known, _)| *known == name)
                .map(|(_, value)| Ok((*value).to_owned()))
        };
        match (Builder::new().service("web").env_from(read), expected) {
            (Ok(built), Ok(text)) => assert_eq!(
                format!(
                    "{} {} {} {}",
                    built.service, built.burst_config, built.sample, built.collector.text
                ),
                text
            ),
            (Err(error), Err(part)) => assert!(error.to_string().contains(part), "{error}"),
            (got, _) => panic!("{got:?}, expected {expected:?}"),
        }
    }

    #[test]
    fn environment() {
        let default = "web 0b11100 (4ms/32ms) follow http://127.0.0.1:4317";
        check(&[], Ok(default));
        check(&[(ENV_BURST_CONFIG, ""), (ENV_SAMPLE, " ")], Ok(default));
        check(
            &[
                (ENV_BURST_CONFIG, "off"),
                (ENV_SAMPLE, "0.5"),
                (ENV_SERVICE, "shop"),
                (ENV_COLLECTOR, "http://c:1"),
            ],
            Ok("shop off 0.5 http://c:1"),
        );
        check(
            &[(ENV_BURST_CONFIG, "often")],
            Err("STROBOSCOPE_BURST_CONFIG: burst-config \"often\": it is not"),
        );
        check(&[(ENV_BURST_CONFIG, "often")], Err("4ms/32ms"));
        check(
            &[(ENV_BURST_CONFIG, "11100")],
            Err("STROBOSCOPE_BURST_CONFIG: burst-config \"11100\": it can be read"),
        );
        check(
            &[(ENV_FORCE, "1")],
            Err("STROBOSCOPE_FORCE: \"1\": write \"accept\""),
        );
        check(&[(ENV_FORCE, "accept")], Ok(default));
        check(
            &[(ENV_CALLERS, "yes")],
            Err("STROBOSCOPE_CALLERS: \"yes\": write \"public\""),
        );
        check(&[(ENV_CALLERS, "public")], Ok(default));
        check(&[(ENV_PROPAGATE, " always ")], Ok(default));
        check(
            &[(ENV_PROPAGATE, "sometimes")],
            Err("STROBOSCOPE_PROPAGATE: \"sometimes\": write \"always\""),
        );
        #[cfg(feature = "tracing")]
        check(
            &[(ENV_TRACING, "shop=loud")],
            Err("STROBOSCOPE_TRACING: directive \"shop=loud\": the text after"),
        );
        check(
            &[(ENV_SAMPLE, "2")],
            Err("STROBOSCOPE_SAMPLE: sample mode \"2\": write"),
        );
    }

    #[test]
    fn a_ring_has_a_largest_size() {
        use crate::ring::Ring;

        for bytes in [RING_BYTES_MAX + 1, usize::MAX / 2, usize::MAX] {
            let built = Builder::new().ring_bytes(bytes);
            let expected = Ring::bytes_for(RING_BYTES_MAX);
            assert_eq!(Ring::bytes_for(built.ring_bytes), expected, "{bytes}");
        }
        assert_eq!(Builder::new().ring_bytes(5).ring_bytes, 5);
    }
}
