//! Tradeoff points that give nothing up: what the newsfeed uses of them, without anything behind it.

/// Of the real SDK.
#[derive(Clone, Copy, Debug)]
pub enum Capacity {
    /// One more.
    Add,
    /// One less.
    Remove,
}

/// Of the real SDK.
#[derive(Clone, Copy, Debug)]
pub enum Feature<'a> {
    /// One of several.
    Is(&'a str),
    /// A number.
    Measures(f64),
}

/// Never calls back.
pub fn on_capacity(_: impl Fn(&str, Capacity, ()) + Send + Sync + 'static) {}

/// Decides nothing.
#[derive(Debug)]
pub struct Point(());

impl Point {
    /// A point.
    #[must_use]
    pub const fn omitting(_: &str, _: &[&str]) -> Self {
        Self(())
    }

    /// All stay.
    pub fn decide_items<'a, const N: usize>(
        &self,
        _: usize,
        _: impl Fn(usize) -> [Feature<'a>; N],
    ) -> Choice {
        Choice(())
    }

    /// Records nothing.
    pub fn meter<'a, const N: usize>(
        &self,
        _: impl ExactSizeIterator<Item = ([Feature<'a>; N], f64)>,
    ) {
    }
}

/// Everything.
#[derive(Debug)]
pub struct Choice(());

impl Choice {
    /// All stay.
    pub fn retain<T>(&self, _: &mut Vec<T>) {}

    /// Records nothing.
    pub fn reacted(&self, _: usize, _: &str) {}
}

/// Lets everybody in.
#[derive(Clone, Copy, Debug)]
pub struct SlackOrderLayer(());

impl SlackOrderLayer {
    /// The layer.
    #[must_use]
    pub const fn new(_: &str, _: usize) -> Self {
        Self(())
    }
}

impl<S> tower::Layer<S> for SlackOrderLayer {
    type Service = S;

    fn layer(&self, inner: S) -> S {
        inner
    }
}

/// As the real SDK's body, which none is ever made of.
pub type CopiedBody = String;

/// Copies nothing.
#[derive(Clone, Copy, Debug)]
pub struct DuplicateLayer<P>(P);

/// Copies nothing.
#[derive(Clone, Copy, Debug)]
pub struct DuplicateRate(());

impl<P> DuplicateLayer<P> {
    /// The layer.
    pub const fn new(pipeline: P) -> Self {
        Self(pipeline)
    }

    /// Explores nothing.
    #[must_use]
    pub fn explore(self, _: impl Fn(u64) -> Vec<(String, f64)> + Send + Sync + 'static) -> Self {
        self
    }

    /// Of nothing.
    #[must_use]
    pub const fn rate(&self) -> DuplicateRate {
        DuplicateRate(())
    }
}

impl DuplicateRate {
    /// To no end.
    pub const fn set(&self, _: f64) {}
}

impl<S, P> tower::Layer<S> for DuplicateLayer<P> {
    type Service = S;

    fn layer(&self, inner: S) -> S {
        inner
    }
}

/// No request carries anything.
pub mod baggage {
    /// A number is all that is needed.
    pub type Value = f64;

    /// Never.
    #[must_use]
    pub const fn is_duplicate() -> bool {
        false
    }
}
