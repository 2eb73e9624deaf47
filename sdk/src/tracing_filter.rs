//! Filter for `tracing`'s spans and events: records the service's own, without the internals of its
//! transports.

#![allow(unsafe_code)]

use std::fmt;
use std::str::FromStr;
use std::sync::atomic::{
    AtomicBool, AtomicPtr,
    Ordering::{Acquire, Relaxed, Release, SeqCst},
    fence,
};
use std::sync::{LazyLock, OnceLock};

use tracing_core::Metadata;
use tracing_core::metadata::{Level, LevelFilter};
use tracing_subscriber::filter::Targets;

use crate::adapter::conventions;

/// Crates that transport requests instead of working on them, and a target of tokio. Their spans
/// and events for frames, polls and handshakes would far outnumber the service's own.
const TRANSPORTS: [&str; 22] = [
    "async_io",
    "h2",
    "h3",
    "hickory_proto",
    "hickory_resolver",
    "hyper",
    "hyper_rustls",
    "hyper_util",
    "mio",
    "polling",
    "quinn",
    "quinn_proto",
    "quinn_udp",
    "reqwest",
    "runtime::resource", // target of tokio's events for tokio-console
    "rustls",
    "tokio",
    "tokio_rustls",
    "tokio_util",
    "tonic",
    "tower",
    "want",
];

/// Targets of tower-http's spans and events for whole requests, and of sqlx's events. By default,
/// they are recorded at `debug`.
const DESCRIBED: [&str; 4] = [
    conventions::TOWER_HTTP_SPAN,
    conventions::TOWER_HTTP_RESPONSE,
    conventions::SQLX[0],
    conventions::SQLX[1],
];

/// Filter for spans and events of `tracing`.
///
/// The syntax is that of `RUST_LOG`: `info`, or `info,shop::cart=debug,h2=trace`. A directive is
/// either a level, for all targets that no other directive names, or a target with its level. A
/// target matches all targets that begin with it; the longest match applies. A target without a
/// level means `trace`. Targets that match no directive are off.
///
/// The default is `info`. Crates that transport requests (h2, hyper, `hyper_util`, tonic, tower,
/// rustls, tokio, reqwest, mio and others) are left out at any level, unless a directive names
/// them: `debug,h2=debug`. With them, a gRPC service at `trace` would make hundreds of records per
/// request, and only a few would be its own.
///
/// tower-http's request span and the event with its status have the level `debug`, and so have
/// sqlx's statements (`sqlx::query`). They are recorded at any level, unless a directive names them
/// or unnamed targets are `off`. Without them, a service with `TraceLayer` would show no requests,
/// and one with sqlx no statements. The same applies to sqlx's waits for connections
/// (`sqlx::pool::acquire`). `info,sqlx=info` leaves out all of sqlx's statements and waits except
/// slow ones.
///
/// ```
/// let filter: stroboscope::TracingFilter = "info,shop::cart=debug".parse()?;
/// # let _ = stroboscope::builder().tracing(filter);
/// # Ok::<(), stroboscope::TracingFilterError>(())
/// ```
///
/// [`Builder::tracing`](crate::Builder::tracing) or the environment variable `STROBOSCOPE_TRACING`
/// sets the filter for the whole process.
/// [`TracingLayer::recording`](crate::TracingLayer::recording) and
/// [`TracingSubscriber::recording`](crate::TracingSubscriber::recording) set it for one layer or
/// subscriber, and take precedence.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TracingFilter {
    /// Targets with their levels, longest first.
    targets: Vec<(String, LevelFilter)>,
    /// Level of targets that no directive names.
    others: LevelFilter,
    /// True if transports are treated like other targets.
    with_transports: bool,
    /// First two bytes of the names that the filter compares with targets. Most targets begin with
    /// none of these.
    first_bytes: FirstBytes,
    max_level: LevelFilter,
}

impl TracingFilter {
    fn new(
        targets: Vec<(String, LevelFilter)>,
        others: LevelFilter,
        with_transports: bool,
    ) -> Self {
        let mut targets = targets;
        targets.sort_by(|(a, _), (b, _)| b.len().cmp(&a.len()).then_with(|| a.cmp(b)));
        let mut first_bytes = FirstBytes([0; 4]);
        let transports = TRANSPORTS.iter().filter(|_| !with_transports).copied();
        for name in targets
            .iter()
            .map(|(target, _)| target.as_str())
            .chain(transports)
            .chain(DESCRIBED)
        {
            first_bytes.add(name.as_bytes());
        }
        let mut filter = Self {
            targets,
            others,
            with_transports,
            first_bytes,
            max_level: others,
        };
        let named = filter.targets.iter().map(|(_, level)| *level);
        let described = DESCRIBED.map(|target| filter.level_of_described(target));
        filter.max_level = named.chain(described).fold(others, LevelFilter::max);
        filter
    }

    /// Returns a filter that records everything of every crate, including transports.
    #[must_use]
    pub fn everything() -> Self {
        Self::new(Vec::new(), LevelFilter::TRACE, true)
    }

    /// Returns the most verbose level at which anything is recorded.
    #[must_use]
    pub const fn max_level(&self) -> LevelFilter {
        self.max_level
    }

    /// Reports whether spans and events with this target and level are recorded.
    #[must_use]
    #[inline]
    pub fn records(&self, target: &str, level: Level) -> bool {
        if !self.first_bytes.may_begin(target.as_bytes()) {
            return level <= self.others;
        }
        self.records_by_name(target, level)
    }

    /// Compares the target with all names. It is the last call of its callers, so that they save no
    /// registers.
    #[inline(never)]
    fn records_by_name(&self, target: &str, level: Level) -> bool {
        level <= self.max_level
            && (level <= self.level_of(target) || level <= self.level_of_described(target))
    }

    fn level_of(&self, target: &str) -> LevelFilter {
        match self
            .targets
            .iter()
            .find(|(start, _)| target.starts_with(start.as_str()))
        {
            Some((_, level)) => *level,
            None if !self.with_transports && is_transport(target) => LevelFilter::OFF,
            None => self.others,
        }
    }

    /// Returns `debug` for [`DESCRIBED`], and `off` for other targets. Also returns `off` if a
    /// directive names the target, or if all targets that no directive names are off.
    #[cold]
    #[inline(never)]
    fn level_of_described(&self, target: &str) -> LevelFilter {
        let is_named = || {
            self.targets
                .iter()
                .any(|(start, _)| target.starts_with(start.as_str()))
        };
        match DESCRIBED.contains(&target) && self.others != LevelFilter::OFF && !is_named() {
            true => LevelFilter::DEBUG,
            false => LevelFilter::OFF,
        }
    }
}

/// Set of the first two bytes of names. Different bytes may share a bit.
#[derive(Clone, Debug, PartialEq, Eq)]
struct FirstBytes([u64; 4]);

impl FirstBytes {
    #[inline(always)]
    const fn bit(first: u8, second: u8) -> u8 {
        first ^ second.rotate_left(3)
    }

    fn add(&mut self, name: &[u8]) {
        match name {
            &[first, second, ..] => self.set(Self::bit(first, second)),
            // Any byte may follow.
            &[first] => (0..=u8::MAX).for_each(|second| self.set(Self::bit(first, second))),
            // Every target begins with the empty name.
            [] => self.0 = [u64::MAX; 4],
        }
    }

    fn set(&mut self, bit: u8) {
        self.0[usize::from(bit / 64)] |= 1 << (bit % 64);
    }

    /// Reports whether this target may begin with a name in the set.
    #[inline(always)]
    fn may_begin(&self, target: &[u8]) -> bool {
        let bit = match target {
            &[first, second, ..] => Self::bit(first, second),
            &[first] => Self::bit(first, 0),
            [] => 0,
        };
        self.0[usize::from(bit / 64)] >> (bit % 64) & 1 != 0
    }
}

/// Returns the first four bytes of a target, padded with zeros.
const fn start_of(target: &[u8]) -> u32 {
    match target {
        [a, b, c, d, ..] => u32::from_le_bytes([*a, *b, *c, *d]),
        [a, b, c] => u32::from_le_bytes([*a, *b, *c, 0]),
        [a, b] => u32::from_le_bytes([*a, *b, 0, 0]),
        [a] => u32::from_le_bytes([*a, 0, 0, 0]),
        [] => 0,
    }
}

/// First four bytes of transports' targets: those that equal a transport's name, and those that
/// continue after it.
const STARTS: [[u32; TRANSPORTS.len()]; 2] = {
    let mut starts = [[0; TRANSPORTS.len()]; 2];
    let mut at = 0;
    while at < TRANSPORTS.len() {
        let name = start_of(TRANSPORTS[at].as_bytes());
        let colons = match TRANSPORTS[at].len() {
            2 => u32::from_le_bytes([0, 0, b':', b':']),
            3 => u32::from_le_bytes([0, 0, 0, b':']),
            _ => 0,
        };
        starts[0][at] = name;
        starts[1][at] = name | colons;
        at += 1;
    }
    starts
};

/// Reports whether a target belongs to a crate that transports requests. Only whole names match:
/// `h2o` and `tower_http` do not.
fn is_transport(target: &str) -> bool {
    let start = start_of(target.as_bytes());
    // Compares with all starts without a branch, which takes a few vector comparisons. Many
    // services share a first letter with a transport, but hardly any share four.
    STARTS
        .iter()
        .flatten()
        .fold(false, |any, &one| any | (one == start))
        && has_name_of_transport(target)
}

#[cold]
fn has_name_of_transport(target: &str) -> bool {
    TRANSPORTS.iter().any(|name| {
        target
            .strip_prefix(name)
            .is_some_and(|rest| rest.is_empty() || rest.starts_with("::"))
    })
}

/// Creates the filter `info`.
impl Default for TracingFilter {
    fn default() -> Self {
        LevelFilter::INFO.into()
    }
}

/// Creates the filter that consists of this level alone.
impl From<LevelFilter> for TracingFilter {
    fn from(level: LevelFilter) -> Self {
        Self::new(Vec::new(), level, false)
    }
}

/// Converts targets with their levels. Transports that no target names are left out.
impl From<Targets> for TracingFilter {
    fn from(targets: Targets) -> Self {
        let others = targets.default_level().unwrap_or(LevelFilter::OFF);
        let named = targets.into_iter().collect::<Vec<_>>();
        Self::new(named, others, false)
    }
}

impl FromStr for TracingFilter {
    type Err = TracingFilterError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let (mut targets, mut others) = (Vec::new(), LevelFilter::OFF);
        let mut is_empty = true;
        for directive in text
            .split(',')
            .map(str::trim)
            .filter(|directive| !directive.is_empty())
        {
            is_empty = false;
            let wrong = |problem| TracingFilterError {
                directive: directive.to_owned(),
                problem,
            };
            if directive.contains(['[', '{', '/']) {
                return Err(wrong("spans, fields and patterns are not supported"));
            }
            match directive
                .split_once('=')
                .map(|(target, level)| (target.trim(), level.trim()))
            {
                Some((_, "")) => return Err(wrong("there is no level after \"=\"")),
                None => match directive.parse() {
                    Ok(level) => others = level,
                    Err(_) => targets.push((directive.to_owned(), LevelFilter::TRACE)),
                },
                Some(("", _)) => return Err(wrong("there is no target before \"=\"")),
                Some((target, level)) => match level.parse() {
                    Ok(level) => targets.push((target.to_owned(), level)),
                    Err(_) => return Err(wrong("the text after \"=\" is not a level")),
                },
            }
        }
        if is_empty {
            return Err(TracingFilterError {
                directive: String::new(),
                problem: "it is empty",
            });
        }
        Ok(Self::new(targets, others, false))
    }
}

/// Writes the form that [`FromStr`] parses. It omits that [`everything`](TracingFilter::everything)
/// includes transports.
impl fmt::Display for TracingFilter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.others)?;
        for (target, level) in &self.targets {
            write!(f, ",{target}={level}")?;
        }
        Ok(())
    }
}

/// Error for a text that is not a valid [`TracingFilter`].
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "directive {directive:?}: {problem}; write levels (off, error, warn, info, debug, trace) and targets as in \
     RUST_LOG: \"info\", or \"info,shop::cart=debug,h2=trace\""
)]
pub struct TracingFilterError {
    directive: String,
    problem: &'static str,
}

/// Distinct filters that were given to `init` in this process. Threads of the service read them at
/// their annotations, so they never move.
static GIVEN: [OnceLock<TracingFilter>; 16] = [const { OnceLock::new() }; 16];
/// Filter in force; null means the default.
static IN_FORCE: AtomicPtr<TracingFilter> = AtomicPtr::new(std::ptr::null_mut());

/// Returns the filter for all layers and subscribers without one of their own; `None` means the
/// default.
#[inline(always)]
fn in_force() -> Option<&'static TracingFilter> {
    // SAFETY: null, or one of `GIVEN`, whose filters live forever once initialized; it was stored
    // after the filter.
    unsafe { IN_FORCE.load(Acquire).as_ref() }
}

static DEFAULT: LazyLock<TracingFilter> = LazyLock::new(TracingFilter::default);

/// Initializes the lazy static, so that no other thread is initializing it during a fork.
pub(crate) fn make_default() {
    LazyLock::force(&DEFAULT);
}

/// Applies the default filter, which is in force until recording starts. It is the last call of its
/// callers, so that they save no registers.
#[cold]
#[inline(never)]
fn default_records(metadata: &Metadata<'_>) -> bool {
    DEFAULT.records(metadata.target(), *metadata.level())
}

/// True if `tracing`, which caches the answers, has asked any layer or subscriber of the SDK about
/// a callsite or the maximum level.
static IS_ASKED: AtomicBool = AtomicBool::new(false);

/// Puts a filter in force. The previous filter's answers that `tracing` has cached apply until
/// [`ask_anew`] is called. Prints a message, without effect, if there are already 16 other filters.
pub(crate) fn set(filter: &TracingFilter) {
    match GIVEN
        .iter()
        .map(|given| given.get_or_init(|| filter.clone()))
        .find(|&given| given == filter)
    {
        Some(given) => IN_FORCE.store(std::ptr::from_ref(given).cast_mut(), Release),
        None => crate::sys::say(format_args!(
            "{} different filters of `tracing` were given in this process; {filter} exceeds the limit and has no \
             effect",
            GIVEN.len()
        )),
    }
}

/// Makes every callsite ask again whether it is wanted, if `tracing` has asked the SDK before.
/// Calls into the service's subscribers.
///
/// The condition matters in a process without a subscriber. There, `tracing` would assume a
/// subscriber that may want everything. From then on it would check each callsite of each library
/// instead of one level for all of them.
pub(crate) fn ask_anew() {
    // Either this sees that the SDK was asked, or the thread that asks sees the new filter.
    fence(SeqCst);
    if IS_ASKED.load(Relaxed) {
        tracing_core::callsite::rebuild_interest_cache();
    }
}

fn is_asked() {
    IS_ASKED.store(true, Relaxed);
    fence(SeqCst);
}

/// Filter of one layer or subscriber, or else the process's filter.
#[derive(Clone, Debug, Default)]
pub(crate) struct OwnOrInForce(pub(crate) Option<TracingFilter>);

impl OwnOrInForce {
    #[inline(always)]
    fn filter(&self) -> Option<&TracingFilter> {
        match &self.0 {
            None => in_force(),
            own => own.as_ref(),
        }
    }

    #[inline(always)]
    pub(crate) fn records(&self, metadata: &Metadata<'_>) -> bool {
        match self.filter() {
            Some(filter) => filter.records(metadata.target(), *metadata.level()),
            None => default_records(metadata),
        }
    }

    /// Evaluates [`records`](Self::records) for a callsite that caches the answer.
    pub(crate) fn wants(&self, metadata: &Metadata<'_>) -> bool {
        is_asked();
        self.records(metadata)
    }

    pub(crate) fn max_level(&self) -> LevelFilter {
        is_asked();
        match self.filter() {
            Some(filter) => filter.max_level,
            None => DEFAULT.max_level,
        }
    }
}

#[cfg(test)]
mod tests;
