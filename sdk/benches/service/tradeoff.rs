//! The part of the SDK's tradeoff, slack order and duplicate interfaces that the newsfeed uses. It
//! does nothing: no item is omitted and no request is copied.

/// The change of capacity that the SDK's callback gets. Never made here.
#[derive(Clone, Copy, Debug)]
pub enum Capacity {
    /// One instance more.
    Add,
    /// One instance less.
    Remove,
}

/// A feature of an item, as the SDK defines it. Ignored here.
#[derive(Clone, Copy, Debug)]
pub enum Feature<'a> {
    /// A category.
    Is(&'a str),
    /// A measured number.
    Measures(f64),
}

/// Ignores the callback and never calls it.
pub fn on_capacity(_: impl Fn(&str, Capacity, ()) + Send + Sync + 'static) {}

/// A tradeoff point that keeps all items.
#[derive(Debug)]
pub struct Point(());

impl Point {
    /// Makes a point and ignores its name and the names of its features.
    #[must_use]
    pub const fn omitting(_: &str, _: &[&str]) -> Self {
        Self(())
    }

    /// Keeps all items.
    pub fn decide_items<'a, const N: usize>(
        &self,
        _: usize,
        _: impl Fn(usize) -> [Feature<'a>; N],
    ) -> Choice {
        Choice(())
    }

    /// Does nothing.
    pub fn meter<'a, const N: usize>(
        &self,
        _: impl ExactSizeIterator<Item = ([Feature<'a>; N], f64)>,
    ) {
    }
}

/// A decision that keeps all items.
#[derive(Debug)]
pub struct Choice(());

impl Choice {
    /// Removes no item.
    pub fn retain<T>(&self, _: &mut Vec<T>) {}

    /// Does nothing.
    pub fn reacted(&self, _: usize, _: &str) {}
}

/// A layer that returns the service unchanged, so that no request waits.
#[derive(Clone, Copy, Debug)]
pub struct SlackOrderLayer(());

impl SlackOrderLayer {
    /// Makes the layer and ignores the arguments.
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

/// Stands for the SDK's type of a copied request's body. None is made here.
pub type CopiedBody = String;

/// A layer that returns the service unchanged and copies no request.
#[derive(Clone, Copy, Debug)]
pub struct DuplicateLayer<P>(P);

/// A rate that has no effect.
#[derive(Clone, Copy, Debug)]
pub struct DuplicateRate(());

impl<P> DuplicateLayer<P> {
    /// Makes the layer. It never calls the pipeline.
    pub const fn new(pipeline: P) -> Self {
        Self(pipeline)
    }

    /// Ignores the callback and never calls it.
    #[must_use]
    pub fn explore(self, _: impl Fn(u64) -> Vec<(String, f64)> + Send + Sync + 'static) -> Self {
        self
    }

    /// Returns a rate that has no effect.
    #[must_use]
    pub const fn rate(&self) -> DuplicateRate {
        DuplicateRate(())
    }
}

impl DuplicateRate {
    /// Ignores the rate.
    pub const fn set(&self, _: f64) {}
}

impl<S, P> tower::Layer<S> for DuplicateLayer<P> {
    type Service = S;

    fn layer(&self, inner: S) -> S {
        inner
    }
}

/// Baggage that is always empty.
pub mod baggage {
    /// The type of a baggage value: the newsfeed uses only numbers.
    pub type Value = f64;

    /// Provenance of an item, which holds nothing.
    #[derive(Clone, Debug, Default)]
    pub struct Provenance(pub(crate) ());

    impl Provenance {
        /// Returns an empty text.
        #[must_use]
        pub const fn to_text(&self) -> String {
            String::new()
        }

        /// Ignores the text.
        #[must_use]
        pub const fn from_text(_: &str) -> Self {
            Self(())
        }
    }

    /// Returns false.
    #[must_use]
    pub const fn is_duplicate() -> bool {
        false
    }
}
