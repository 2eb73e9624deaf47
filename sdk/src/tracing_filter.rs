//! Which of `tracing`'s spans and events are recorded: those of the service, and not the insides of its transports.

#![allow(unsafe_code)]

use std::fmt;
use std::str::FromStr;
use std::sync::OnceLock;
use std::sync::atomic::{
    AtomicBool, AtomicPtr,
    Ordering::{Acquire, Relaxed, Release, SeqCst},
    fence,
};

use tracing_core::Metadata;
use tracing_core::metadata::{Level, LevelFilter};
use tracing_subscriber::filter::Targets;

use crate::adapter::conventions;

/// Crates that carry requests rather than work on them. What they say of every frame, poll and handshake is hundreds of
/// records for each one of the service, most of them outside of any request.
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
    "runtime::resource", // tokio's own, as tokio-console reads them
    "rustls",
    "tokio",
    "tokio_rustls",
    "tokio_util",
    "tonic",
    "tower",
    "want",
];

/// Targets of the spans and events that web frameworks make for whole requests.
const REQUESTS: [&str; 2] = [
    conventions::TOWER_HTTP_SPAN,
    conventions::TOWER_HTTP_RESPONSE,
];

/// Which spans and events of `tracing` are recorded.
///
/// Written like `RUST_LOG`: `info`, or `info,shop::cart=debug,h2=trace`. A directive is a level, for all that no other
/// directive names, or a target and its level; a target stands for all that begin with it, and the longest one counts.
/// A target without a level means `trace`. What no directive names is off.
///
/// The default is `info`. Crates that carry requests (h2, hyper, `hyper_util`, tonic, tower, rustls, tokio, reqwest, mio and
/// the like) are left out whatever the level, unless a directive names them: `debug,h2=debug`. With them, a gRPC service at
/// `trace` makes hundreds of records a request of which a few are its own.
///
/// tower-http's span of a request and the event with its status, which are at `debug`, are recorded whatever the level, unless
/// a directive names them or all others are `off`: without them a service that has `TraceLayer` shows no requests.
///
/// ```
/// let filter: stroboscope::TracingFilter = "info,shop::cart=debug".parse()?;
/// # let _ = stroboscope::builder().tracing(filter);
/// # Ok::<(), stroboscope::TracingFilterError>(())
/// ```
///
/// It holds for the whole process by [`Builder::tracing`](crate::Builder::tracing) or the environment's
/// `STROBOSCOPE_TRACING`, and for one layer or subscriber by [`TracingLayer::recording`](crate::TracingLayer::recording) and
/// [`TracingSubscriber::recording`](crate::TracingSubscriber::recording), which then count.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TracingFilter {
    /// Targets with their levels, the longest first.
    targets: Vec<(String, LevelFilter)>,
    /// Of all that no target names.
    others: LevelFilter,
    /// Are transports treated like all others?
    with_transports: bool,
    /// First two bytes of the targets and transports, a bit each: most targets begin with none of them.
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
            .chain(REQUESTS)
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
        let of_requests = REQUESTS.map(|target| filter.level_of_request(target));
        filter.max_level = named.chain(of_requests).fold(others, LevelFilter::max);
        filter
    }

    /// Everything of every crate, transports included.
    #[must_use]
    pub fn everything() -> Self {
        Self::new(Vec::new(), LevelFilter::TRACE, true)
    }

    /// The most verbose level that anything is recorded at.
    #[must_use]
    pub const fn max_level(&self) -> LevelFilter {
        self.max_level
    }

    /// Is what has this target and level recorded?
    #[must_use]
    #[inline]
    pub fn records(&self, target: &str, level: Level) -> bool {
        if !self.first_bytes.may_begin(target.as_bytes()) {
            return level <= self.others;
        }
        self.records_by_name(target, level)
    }

    /// The last thing its callers do, so that they save no registers.
    #[inline(never)]
    fn records_by_name(&self, target: &str, level: Level) -> bool {
        level <= self.max_level
            && (level <= self.level_of(target) || level <= self.level_of_request(target))
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

    /// Returns the level of [`REQUESTS`], which are recorded down to `debug` unless a directive names them.
    #[cold]
    #[inline(never)]
    fn level_of_request(&self, target: &str) -> LevelFilter {
        let is_named = || {
            self.targets
                .iter()
                .any(|(start, _)| target.starts_with(start.as_str()))
        };
        match REQUESTS.contains(&target) && self.others != LevelFilter::OFF && !is_named() {
            true => LevelFilter::DEBUG,
            false => LevelFilter::OFF,
        }
    }
}

/// A set of the first two bytes of names, some of which share a bit.
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
            // What begins so may go on with anything.
            &[first] => (0..=u8::MAX).for_each(|second| self.set(Self::bit(first, second))),
            // All begin so.
            [] => self.0 = [u64::MAX; 4],
        }
    }

    fn set(&mut self, bit: u8) {
        self.0[usize::from(bit / 64)] |= 1 << (bit % 64);
    }

    /// Does a name in here begin as this target does?
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

/// The first four bytes of a target; zeros after its end.
const fn start_of(target: &[u8]) -> u32 {
    match target {
        [a, b, c, d, ..] => u32::from_le_bytes([*a, *b, *c, *d]),
        [a, b, c] => u32::from_le_bytes([*a, *b, *c, 0]),
        [a, b] => u32::from_le_bytes([*a, *b, 0, 0]),
        [a] => u32::from_le_bytes([*a, 0, 0, 0]),
        [] => 0,
    }
}

/// How targets of transports begin: those that are a transport's name, and those that go on after it.
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

/// Is this a target of a crate that carries requests? Whole names only: `h2o` and `tower_http` are none.
fn is_transport(target: &str) -> bool {
    let start = start_of(target.as_bytes());
    // All of them, without a branch: that is a few comparisons of several at once. Many services share a first letter
    // with a transport, and hardly any four.
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

/// `info`, without transports.
impl Default for TracingFilter {
    fn default() -> Self {
        LevelFilter::INFO.into()
    }
}

/// All up to this level, without transports.
impl From<LevelFilter> for TracingFilter {
    fn from(level: LevelFilter) -> Self {
        Self::new(Vec::new(), level, false)
    }
}

/// The same levels for the same targets; transports that are not named are left out.
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
                return Err(wrong("spans, fields and patterns are not told apart"));
            }
            match directive
                .split_once('=')
                .map(|(target, level)| (target.trim(), level.trim()))
            {
                Some((_, "")) => return Err(wrong("no level stands after \"=\"")),
                None => match directive.parse() {
                    Ok(level) => others = level,
                    Err(_) => targets.push((directive.to_owned(), LevelFilter::TRACE)),
                },
                Some(("", _)) => return Err(wrong("no target stands before \"=\"")),
                Some((target, level)) => match level.parse() {
                    Ok(level) => targets.push((target.to_owned(), level)),
                    Err(_) => return Err(wrong("what stands after \"=\" is no level")),
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

/// As it is parsed.
impl fmt::Display for TracingFilter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.others)?;
        for (target, level) in &self.targets {
            write!(f, ",{target}={level}")?;
        }
        Ok(())
    }
}

/// A text that is no [`TracingFilter`].
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "directive {directive:?}: {problem}; write levels (off, error, warn, info, debug, trace) and targets as in \
     RUST_LOG: \"info\", or \"info,shop::cart=debug,h2=trace\""
)]
pub struct TracingFilterError {
    directive: String,
    problem: &'static str,
}

/// The filters that `init` was given in this process, each once. Read by threads of the service at their annotations, so
/// they stay where they are.
static GIVEN: [OnceLock<TracingFilter>; 16] = [const { OnceLock::new() }; 16];
/// Which of them is in force; null: the default.
static IN_FORCE: AtomicPtr<TracingFilter> = AtomicPtr::new(std::ptr::null_mut());

/// What holds for all layers and subscribers without a filter of their own; `None`: the default.
#[inline(always)]
fn in_force() -> Option<&'static TracingFilter> {
    // SAFETY: null, or one of `GIVEN`, whose filters are there for ever once they are; stored after the filter was.
    unsafe { IN_FORCE.load(Acquire).as_ref() }
}

fn default() -> &'static TracingFilter {
    static DEFAULT: OnceLock<TracingFilter> = OnceLock::new();
    DEFAULT.get_or_init(TracingFilter::default)
}

/// Only before recording was started; the last thing its callers do.
#[cold]
#[inline(never)]
fn default_records(metadata: &Metadata<'_>) -> bool {
    default().records(metadata.target(), *metadata.level())
}

/// Was any layer or subscriber of ours asked yet, by a `tracing` that keeps the answers?
static IS_ASKED: AtomicBool = AtomicBool::new(false);

/// Puts a filter into force. Callsites go by the one before until [`ask_anew`] was called.
pub(crate) fn set(filter: &TracingFilter) {
    match GIVEN
        .iter()
        .map(|given| given.get_or_init(|| filter.clone()))
        .find(|&given| given == filter)
    {
        Some(given) => IN_FORCE.store(std::ptr::from_ref(given).cast_mut(), Release),
        None => crate::sys::say(format_args!(
            "{} different filters of `tracing` were given in this process; {filter} is one too many, and does not hold",
            GIVEN.len()
        )),
    }
}

/// Has every callsite ask again whether it is wanted, if one was told by us. Calls into the service's subscribers.
///
/// Otherwise it would be worse than in vain: in a process without a subscriber, `tracing` takes it for one that may want
/// everything, and from then on looks at each callsite of each library, where it looked at one level for all of them.
pub(crate) fn ask_anew() {
    // Either this sees that we were asked, or who asks sees the filter that was just put into force.
    fence(SeqCst);
    if IS_ASKED.load(Relaxed) {
        tracing_core::callsite::rebuild_interest_cache();
    }
}

fn is_asked() {
    IS_ASKED.store(true, Relaxed);
    fence(SeqCst);
}

/// A filter of one layer or subscriber, or that of the process.
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

    /// [`records`](Self::records), of a callsite that keeps the answer.
    pub(crate) fn wants(&self, metadata: &Metadata<'_>) -> bool {
        is_asked();
        self.records(metadata)
    }

    pub(crate) fn max_level(&self) -> LevelFilter {
        is_asked();
        match self.filter() {
            Some(filter) => filter.max_level,
            None => default().max_level,
        }
    }
}

#[cfg(test)]
mod tests;
