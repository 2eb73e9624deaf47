//! Structures of requests in canonical form.
//!
//! A request-flow graph (Spectroscope, §2.1) is a tree of operations. The calls of an operation
//! form consecutive *stages*. The calls in one stage are parallel, or their order is not
//! meaningful. Two requests are of one category if their graphs are equal except for the order
//! within stages (§4.1) and, by [`Fold`], the counts of repetitions. The paper writes down every
//! string that a traversal can yield, one for each order of the parallel parts. This module sorts
//! the parts of a stage by their digests instead, so that equal graphs have equal forms. Apart from
//! the sort, that takes linear time.

use super::digest::Digest;
use std::sync::Arc;

/// Precision with which the repetitions of a part in one stage are counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Default)]
pub enum Fold {
    /// Exact counts.
    None,
    /// Ranges up to powers of two: 1, 2, 3 to 4, 5 to 8 and so on. A growing loop stays visible,
    /// but a loop whose length depends on the data does not yield a category for every length. In
    /// the paper, create requests (§6.2) and lock loops (§6.5) did.
    #[default]
    Buckets,
    /// No counts: any number of repetitions is equal.
    All,
}

/// Number of times that a part occurs in a stage.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Repeats {
    /// Lower bound of the number.
    pub from: u32,
    /// Upper bound of the number. [`u32::MAX`] means no bound.
    pub to: u32,
}

impl Repeats {
    fn word(self) -> u64 {
        u64::from(self.from) << 32 | u64::from(self.to)
    }
}

impl Fold {
    /// Maps a count to the range of counts that it belongs to.
    pub fn repeats(self, count: usize) -> Repeats {
        let count = u32::try_from(count).unwrap_or(u32::MAX - 1).max(1);
        match self {
            Fold::None => Repeats {
                from: count,
                to: count,
            },
            Fold::Buckets => {
                let to = count.checked_next_power_of_two().unwrap_or(u32::MAX);
                Repeats {
                    from: if to <= 2 { to } else { to / 2 + 1 },
                    to,
                }
            }
            Fold::All => Repeats {
                from: 1,
                to: u32::MAX,
            },
        }
    }
}

/// Name of an operation, within a structure or alone.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Operation {
    /// Service; the task for operations of an event log; empty for a root with a fixed name.
    pub service: Arc<str>,
    /// Name, normalised by the [rule for names](crate::name_rule).
    pub name: Arc<str>,
    /// Host of a span or task in a structure, if hosts are distinguished; otherwise `None`.
    pub host: Option<Arc<str>>,
}

impl Operation {
    /// Returns the operation without its host, as edges have it.
    pub(crate) fn of_any_host(&self) -> Self {
        Self {
            host: None,
            ..self.clone()
        }
    }
}

impl std::fmt::Display for Operation {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}:{}", self.service, self.name)?;
        match &self.host {
            Some(host) => write!(f, "@{host}"),
            None => Ok(()),
        }
    }
}

/// An operation and the calls inside it, in canonical form.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Shape {
    /// The operation.
    pub operation: Operation,
    /// True if the operation failed.
    pub is_error: bool,
    /// True for an event, which has no duration.
    pub is_event: bool,
    /// Calls and events inside the operation, by stage in order of time. The parts of one stage are
    /// in order of digest.
    pub stages: Vec<Vec<Part>>,
    /// Digest of all other fields.
    pub digest: u128,
}

/// Equal calls or events in one stage.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Part {
    /// Shape of the part.
    pub shape: Arc<Shape>,
    /// Number of times that the part occurs in the stage.
    pub repeats: Repeats,
}

/// Contents of a shape, before it is put into canonical form.
#[derive(Clone, Debug)]
pub struct ShapeOf {
    /// The operation.
    pub operation: Operation,
    /// True if the operation failed.
    pub is_error: bool,
    /// True for an event, which has no duration.
    pub is_event: bool,
    /// Calls and events inside the operation, by stage in order of time. The calls of one stage are
    /// in any order, and each is listed as often as it occurs.
    pub stages: Vec<Vec<Arc<Shape>>>,
}

impl ShapeOf {
    /// Puts the shape into canonical form. `fold` determines how repetitions are counted.
    pub fn canonical(self, fold: Fold) -> Shape {
        let stages = self.stages.into_iter().filter(|stage| !stage.is_empty());
        let stages: Vec<Vec<Part>> = stages.map(|stage| folded(stage, fold)).collect();
        let mut digest = FormDigest::new(self.operation.digest(), self.is_error, self.is_event);
        for stage in &stages {
            digest.stage();
            for part in stage {
                digest.part(part.shape.digest, part.repeats);
            }
        }
        Shape {
            operation: self.operation,
            is_error: self.is_error,
            is_event: self.is_event,
            stages,
            digest: digest.finish(),
        }
    }
}

/// Computes the digest of a shape. The parts of each stage must be added in order of digest.
pub(super) struct FormDigest(Digest);

/// Word that marks the beginning of a stage.
const STAGE: u64 = u64::MAX;

impl FormDigest {
    /// Starts the digest of a shape with the digest of its operation.
    pub(super) fn new(operation: u128, is_error: bool, is_event: bool) -> FormDigest {
        let mut digest = Digest::new(u64::from(is_error) | u64::from(is_event) << 1);
        digest.add_digest(operation);
        FormDigest(digest)
    }

    pub(super) fn stage(&mut self) {
        self.0.add(STAGE);
    }

    /// Adds the next part of the stage.
    pub(super) fn part(&mut self, digest: u128, repeats: Repeats) {
        self.0.add_digest(digest);
        self.0.add(repeats.word());
    }

    pub(super) fn finish(self) -> u128 {
        self.0.finish()
    }
}

impl Operation {
    /// Returns the digest of the operation's names.
    pub(super) fn digest(&self) -> u128 {
        let mut digest = Digest::new(u64::from(self.host.is_some()));
        digest.add_text(&self.service);
        digest.add_text(&self.name);
        digest.add_text(self.host.as_deref().unwrap_or_default());
        digest.finish()
    }
}

fn folded(mut stage: Vec<Arc<Shape>>, fold: Fold) -> Vec<Part> {
    if stage.len() > 1 {
        stage.sort_unstable_by_key(|shape| shape.digest);
    }
    let part = |alike: &[Arc<Shape>]| Part {
        shape: alike[0].clone(),
        repeats: fold.repeats(alike.len()),
    };
    let alike = stage.chunk_by(|a, b| a.digest == b.digest);
    alike.map(part).collect()
}

impl Shape {
    /// Iterates over the parts, in order of stages.
    pub fn parts(&self) -> impl Iterator<Item = &Part> {
        self.stages.iter().flatten()
    }

    /// Returns the number of operations and events in the shape, where a repeated part counts once.
    pub fn len(&self) -> usize {
        1 + self.parts().map(|part| part.shape.len()).sum::<usize>()
    }

    /// Returns false, as the operation itself counts.
    pub fn is_empty(&self) -> bool {
        false
    }

    /// Reports whether the operation or any operation inside it failed.
    pub fn has_error(&self) -> bool {
        self.is_error || self.parts().any(|part| part.shape.has_error())
    }

    /// Returns the string of the graph (Spectroscope, §4.1). It is a depth-first traversal with one
    /// symbol for the start of each operation and one for its end. An event has one symbol. Equal
    /// graphs have equal strings. A symbol identifies an operation or event, whether it failed, and
    /// its [`Repeats`].
    pub fn string(&self) -> Vec<Symbol> {
        let mut symbols = Vec::with_capacity(2 * self.len());
        self.write_to(&mut symbols, Repeats { from: 1, to: 1 });
        symbols
    }

    fn write_to(&self, symbols: &mut Vec<Symbol>, repeats: Repeats) {
        let mut digest = Digest::new(u64::from(self.is_error) | u64::from(self.is_event) << 1);
        digest.add_text(&self.operation.service);
        digest.add_text(&self.operation.name);
        if let Some(host) = &self.operation.host {
            digest.add_text(host);
        }
        digest.add(repeats.word());
        let begins = digest.finish();
        symbols.push(Symbol(begins));
        for stage in &self.stages {
            let mut parts: Vec<&Part> = stage.iter().collect();
            // Sorting by name gives similar graphs similar strings.
            parts.sort_by(|a, b| {
                (&a.shape.operation, a.shape.digest).cmp(&(&b.shape.operation, b.shape.digest))
            });
            for part in parts {
                part.shape.write_to(symbols, part.repeats);
            }
        }
        if !self.is_event {
            symbols.push(Symbol(!begins));
        }
    }
}

/// Start or end of an operation, or an event, in the [string](Shape::string) of a graph.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Symbol(pub u128);

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeSet;

    /// A graph as recorded: names, failures, and stages whose parts stand in some order.
    #[derive(Clone, Debug)]
    struct ObservedShape {
        name: u8,
        is_error: bool,
        stages: Vec<Vec<ObservedShape>>,
    }

    impl ObservedShape {
        fn shape(&self, fold: Fold) -> Arc<Shape> {
            let of = ShapeOf {
                operation: Operation {
                    service: "s".into(),
                    name: self.name.to_string().into(),
                    host: None,
                },
                is_error: self.is_error,
                is_event: false,
                stages: self
                    .stages
                    .iter()
                    .map(|stage| stage.iter().map(|part| part.shape(fold)).collect())
                    .collect(),
            };
            Arc::new(of.canonical(fold))
        }

        /// Returns every string that a depth-first traversal can yield, as in the paper: one for
        /// each order of the parallel parts.
        fn strings(&self) -> BTreeSet<String> {
            let mut strings = BTreeSet::from([String::new()]);
            for stage in self.stages.iter().filter(|stage| !stage.is_empty()) {
                let of_parts: Vec<BTreeSet<String>> =
                    stage.iter().map(ObservedShape::strings).collect();
                let mut of_stage = BTreeSet::new();
                for order in orders(stage.len()) {
                    let mut of_order = BTreeSet::from([String::new()]);
                    for part in order {
                        of_order = product(&of_order, &of_parts[part]);
                    }
                    of_stage.extend(of_order);
                }
                let framed = of_stage
                    .into_iter()
                    .map(|string| format!("[{string}]"))
                    .collect();
                strings = product(&strings, &framed);
            }
            let frame = |inner: String| {
                format!(
                    "({}{}{inner})",
                    self.name,
                    if self.is_error { "!" } else { "" }
                )
            };
            strings.into_iter().map(frame).collect()
        }

        /// Shuffles the parts of every stage.
        fn shuffled(&self, seed: &mut u64) -> ObservedShape {
            let mut stages: Vec<Vec<ObservedShape>> = self
                .stages
                .iter()
                .map(|stage| stage.iter().map(|part| part.shuffled(seed)).collect())
                .collect();
            for stage in &mut stages {
                for at in (1..stage.len()).rev() {
                    *seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
                    stage.swap(at, (*seed >> 33) as usize % (at + 1));
                }
            }
            ObservedShape {
                stages,
                ..self.clone()
            }
        }
    }

    fn orders(count: usize) -> Vec<Vec<usize>> {
        if count == 0 {
            return vec![Vec::new()];
        }
        let mut all = Vec::new();
        for shorter in orders(count - 1) {
            for at in 0..=shorter.len() {
                let mut longer = shorter.clone();
                longer.insert(at, count - 1);
                all.push(longer);
            }
        }
        all
    }

    fn product(heads: &BTreeSet<String>, tails: &BTreeSet<String>) -> BTreeSet<String> {
        heads
            .iter()
            .flat_map(|head| tails.iter().map(move |tail| format!("{head}{tail}")))
            .collect()
    }

    fn graphs() -> impl Strategy<Value = ObservedShape> {
        let leaf = (0u8..2, any::<bool>()).prop_map(|(name, is_error)| ObservedShape {
            name,
            is_error,
            stages: Vec::new(),
        });
        leaf.prop_recursive(3, 8, 3, |inner| {
            let stages = prop::collection::vec(prop::collection::vec(inner, 0..4), 0..3);
            (0u8..2, stages).prop_map(|(name, stages)| ObservedShape {
                name,
                is_error: false,
                stages,
            })
        })
    }

    proptest! {
        #[test]
        fn canonical_forms_are_equal_where_some_order_is(one in graphs(), other in graphs()) {
            let is_equal = !one.strings().is_disjoint(&other.strings());
            prop_assert_eq!(one.shape(Fold::None).digest == other.shape(Fold::None).digest, is_equal);
            if is_equal {
                prop_assert_eq!(one.shape(Fold::None).string(), other.shape(Fold::None).string());
            }
        }

        #[test]
        fn the_order_of_parallel_parts_changes_nothing(seen in graphs(), mut seed in any::<u64>()) {
            for fold in [Fold::None, Fold::Buckets, Fold::All] {
                let (shape, other) = (seen.shape(fold), seen.shuffled(&mut seed).shape(fold));
                prop_assert_eq!(shape.digest, other.digest);
                prop_assert_eq!(&shape.stages, &other.stages);
            }
        }
    }

    #[test]
    fn counts_fall_into_buckets() {
        let check = |count, from, to| {
            assert_eq!(
                Fold::Buckets.repeats(count),
                Repeats { from, to },
                "{count}"
            );
        };
        check(1, 1, 1);
        check(2, 2, 2);
        check(3, 3, 4);
        check(4, 3, 4);
        check(5, 5, 8);
        check(1000, 513, 1024);
        assert_eq!(Fold::None.repeats(3), Repeats { from: 3, to: 3 });
        assert_eq!(Fold::All.repeats(7), Fold::All.repeats(1));
        assert!(Fold::Buckets.repeats(usize::MAX).from > 1 << 30);
    }
}
