//! Collects the request flows of a period: categories, and the time of their requests by edge.
//!
//! The number of a category's requests and the sums of their latencies and times by edge cover all
//! recorded requests. Tests use a sample: up to [`SAMPLE_MAX`] requests of each category, those
//! with the smallest digests of their ids. The sample is random, does not depend on the order of
//! requests, and can be merged. It holds whole requests, so that a request's times on several edges
//! can be related. To bound memory, a period has at most [`CATEGORIES_MAX`] categories, those whose
//! requests come first. Requests of further categories are counted together, by root operation.

use super::build::FlowSettings;
use super::category_id::CategoryId;
use super::digest::Digest;
use super::edge::{EdgeId, EdgeTable, FlowEdge};
use super::finder::FlowFinder;
use super::order::KnownOrders;
use super::shape::Shape;
use crate::by_root::OTHER_ROOTS;
use crate::distribution::Distribution;
use crate::pass::{Pass, TraceView};
use crate::record::TraceId;
use crate::sampling::WeightedCount;
use crate::statistics::DEVIATIONS_95;
use rustc_hash::FxHashMap;
use std::collections::BTreeMap;
use std::sync::Arc;

/// Maximum number of categories in a period.
pub const CATEGORIES_MAX: usize = 4096;
/// Maximum number of sampled requests per category.
pub const SAMPLE_MAX: usize = 2048;
/// Maximum number of named root operations. Requests of further ones are counted together.
pub const ROOTS_MAX: usize = 256;
/// Maximum number of arrivals kept. Further arrivals are only counted.
pub const ARRIVALS_MAX: usize = 1 << 22;

/// A sampled request.
#[derive(Clone, Debug, PartialEq)]
pub struct Request {
    /// Sort key for the sample: a digest of the id.
    order: u64,
    /// Trace id.
    pub id: TraceId,
    /// Id as the source wrote it; `None` if that is `id` in 32 lower-case hexadecimal digits.
    pub name: Option<Arc<str>>,
    /// Start of the request, in nanoseconds since the Unix epoch.
    pub start_ns: i64,
    /// Latency in nanoseconds.
    pub latency_ns: u64,
    /// Number of requests that the request represents, by its sampling weight.
    pub weight: f32,
    /// Nonzero times on the edges of the critical path in nanoseconds, in order of edge numbers.
    pub edges_ns: Vec<(EdgeId, f32)>,
}

/// Sums over the requests of one category or of an overflow, and a sample of them.
#[derive(Clone, Debug, Default)]
pub struct FlowCategory {
    /// Structure of the requests; `None` for requests beyond [`CATEGORIES_MAX`].
    pub shape: Option<Arc<Shape>>,
    /// Number of recorded requests.
    pub requests: u64,
    /// Numbers of recorded and of represented requests. The sums below are weighted.
    pub count: WeightedCount,
    /// Sum of the requests' latencies in nanoseconds.
    pub latency_ns: u128,
    /// Sum of the squares of the requests' latencies.
    pub squares_ns2: u128,
    /// Sum of the times on critical paths in nanoseconds, by edge.
    pub edges_ns: FxHashMap<EdgeId, u64>,
    /// Sampled requests. [`PeriodFlows::in_order`] sorts them, and keeps at most [`SAMPLE_MAX`].
    pub sample: Vec<Request>,
}

impl FlowCategory {
    /// Returns the mean latency of the requests, or 0 without any.
    pub fn mean_ns(&self) -> f64 {
        self.count.mean(self.latency_ns as f64)
    }

    /// Returns the variance of the requests' latencies.
    pub fn variance_ns2(&self) -> f64 {
        let mean_ns = self.mean_ns();
        (self.count.mean(self.squares_ns2 as f64) - mean_ns * mean_ns).max(0.0)
    }

    /// Returns the squared coefficient of variation of the latencies (Spectroscope, §5.4), or
    /// `None` if the mean is 0.
    pub fn squared_variation(&self) -> Option<f64> {
        let mean_ns = self.mean_ns();
        (mean_ns > 0.0).then(|| self.variance_ns2() / (mean_ns * mean_ns))
    }

    /// Returns the mean time of the requests on an edge, in nanoseconds.
    pub fn edge_ns(&self, edge: EdgeId) -> f64 {
        let sum_ns = self.edges_ns.get(&edge).copied().unwrap_or_default();
        self.count.mean(sum_ns as f64)
    }

    /// Returns a factor for the weights of some sampled requests. With it, these requests represent
    /// all requests of the category.
    pub fn sample_weight<'a>(&self, sample: impl Iterator<Item = &'a Request>) -> f64 {
        let weights: f64 = sample.map(|request| f64::from(request.weight)).sum();
        self.count.estimate() / weights.max(1.0)
    }

    fn add_edge(&mut self, edge: EdgeId, time_ns: u64) {
        let sum_ns = self.edges_ns.entry(edge).or_default();
        *sum_ns = sum_ns.saturating_add(time_ns);
    }

    fn bound_sample(&mut self) {
        if self.sample.len() >= 2 * SAMPLE_MAX {
            self.trim();
        }
    }

    /// Keeps the requests with the smallest digests.
    fn trim(&mut self) {
        if self.sample.len() > SAMPLE_MAX {
            self.sample
                .select_nth_unstable_by_key(SAMPLE_MAX, |request| (request.order, request.id));
            self.sample.truncate(SAMPLE_MAX);
        }
    }

    fn merge(&mut self, other: FlowCategory, renumbered: &[EdgeId]) {
        self.requests += other.requests;
        self.count += other.count;
        self.latency_ns += other.latency_ns;
        self.squares_ns2 = self.squares_ns2.saturating_add(other.squares_ns2);
        for (edge, time_ns) in other.edges_ns {
            self.add_edge(renumbered[edge.0 as usize], time_ns);
        }
        for mut request in other.sample {
            for (edge, _) in &mut request.edges_ns {
                *edge = renumbered[edge.0 as usize];
            }
            request.edges_ns.sort_unstable_by_key(|(edge, _)| *edge);
            self.sample.push(request);
        }
        self.bound_sample();
    }
}

/// Flows of one root operation, or of all beyond [`ROOTS_MAX`] together. Precursors of a mutation
/// are in the same `RootFlows`.
#[derive(Clone, Debug, Default)]
pub struct RootFlows {
    /// Categories by structure.
    pub categories: BTreeMap<CategoryId, FlowCategory>,
    /// Requests whose structures are beyond [`CATEGORIES_MAX`].
    pub overflow: Option<FlowCategory>,
}

impl RootFlows {
    /// Iterates over the categories and the overflow.
    pub fn all(&self) -> impl Iterator<Item = &FlowCategory> {
        self.categories.values().chain(&self.overflow)
    }

    /// Returns the number of recorded requests.
    pub fn requests(&self) -> u64 {
        self.all().map(|category| category.requests).sum()
    }

    /// Returns the number of recorded requests, and the number of requests that they represent.
    pub fn count(&self) -> WeightedCount {
        self.all().map(|category| category.count).sum()
    }

    /// Returns the structure of a category; `None` if the category or its structure is unknown.
    pub(crate) fn shape(&self, id: CategoryId) -> Option<&Arc<Shape>> {
        self.categories.get(&id)?.shape.as_ref()
    }

    /// Returns the number of recorded requests of these categories.
    pub(crate) fn requests_of<'a>(&self, ids: impl IntoIterator<Item = &'a CategoryId>) -> u64 {
        self.of(ids).map(|category| category.requests).sum()
    }

    /// Returns the number of requests of these categories, recorded and represented.
    pub(crate) fn count_of<'a>(
        &self,
        ids: impl IntoIterator<Item = &'a CategoryId>,
    ) -> WeightedCount {
        self.of(ids).map(|category| category.count).sum()
    }

    /// Iterates over the known ones of these categories.
    pub(crate) fn of<'a>(
        &self,
        ids: impl IntoIterator<Item = &'a CategoryId>,
    ) -> impl Iterator<Item = &FlowCategory> {
        let ids = ids.into_iter();
        ids.filter_map(move |id| self.categories.get(id))
    }

    /// Returns the mean latency of the requests in nanoseconds, or 0 without any.
    pub fn mean_ns(&self) -> f64 {
        let sum_ns: u128 = self.all().map(|category| category.latency_ns).sum();
        self.count().mean(sum_ns as f64)
    }

    /// Returns the 95 % confidence interval of the change of the mean latency from these requests
    /// to `later` ones, in nanoseconds. Assumes that requests are independent and means normal. The
    /// interval is unbounded if a side has an effective number of requests below 2.
    pub fn change_interval_ns(&self, later: &RootFlows) -> [f64; 2] {
        let change_ns = later.mean_ns() - self.mean_ns();
        let error_ns = (self.mean_variance_ns2() + later.mean_variance_ns2()).sqrt();
        [-DEVIATIONS_95, DEVIATIONS_95].map(|deviations| change_ns + deviations * error_ns)
    }

    /// Returns the square of the standard error of the mean latency.
    fn mean_variance_ns2(&self) -> f64 {
        let (count, mean_ns) = (self.count(), self.mean_ns());
        let squares_ns2: f64 = self.all().map(|one| one.squares_ns2 as f64).sum();
        let variance_ns2 = (count.mean(squares_ns2) - mean_ns * mean_ns).max(0.0);
        match count.effective() {
            requests if requests < 2.0 => f64::INFINITY,
            requests => variance_ns2 / (requests - 1.0),
        }
    }
}

/// Flows of a period.
#[derive(Clone, Debug, Default)]
pub struct PeriodFlows {
    /// Edges by number.
    pub edges: EdgeTable,
    /// Flows by root operation.
    pub roots: BTreeMap<String, RootFlows>,
    /// Number of categories, over all root operations.
    categories: usize,
    /// Starts of requests, in nanoseconds since the Unix epoch. Sorted by
    /// [`in_order`](Self::in_order).
    pub arrivals_ns: Vec<i64>,
    /// Number of arrivals beyond [`ARRIVALS_MAX`].
    pub arrivals_left_out: u64,
    /// Latencies of all requests.
    pub latency: Distribution,
}

impl PeriodFlows {
    /// Returns the number of recorded requests.
    pub fn requests(&self) -> u64 {
        self.roots.values().map(RootFlows::requests).sum()
    }

    /// Returns the number of recorded requests, and the number of requests that they represent.
    pub fn count(&self) -> WeightedCount {
        self.roots.values().map(RootFlows::count).sum()
    }

    /// Returns the number of recorded requests without a category, beyond the maximum.
    pub fn uncategorised(&self) -> u64 {
        self.uncategorised_count().recorded()
    }

    /// Returns the number of requests without a category, recorded and represented.
    pub fn uncategorised_count(&self) -> WeightedCount {
        let overflow = self.roots.values().flat_map(|root| &root.overflow);
        overflow.map(|category| category.count).sum()
    }

    fn category(&mut self, root: &str, shape: Option<&Arc<Shape>>) -> &mut FlowCategory {
        let (roots, categories) = (&mut self.roots, &mut self.categories);
        let is_full = roots.len() >= ROOTS_MAX && !roots.contains_key(root);
        let root = if is_full { OTHER_ROOTS } else { root };
        let of_root = roots.entry(root.to_owned()).or_default();
        let known = shape.map(|shape| (shape, CategoryId(shape.digest)));
        let fits = |id: &CategoryId| of_root.categories.contains_key(id);
        match known.filter(|(_, id)| *categories < CATEGORIES_MAX || fits(id)) {
            Some((shape, id)) => of_root.categories.entry(id).or_insert_with(|| {
                *categories += 1;
                FlowCategory {
                    shape: Some(shape.clone()),
                    ..FlowCategory::default()
                }
            }),
            None => of_root.overflow.get_or_insert_default(),
        }
    }

    /// Returns a copy that numbers edges in the order of `edges`, which must contain all.
    pub(crate) fn renumbered(&self, edges: &[FlowEdge]) -> PeriodFlows {
        let mut renumbered = PeriodFlows::default();
        for edge in edges {
            renumbered.edges.intern(edge.clone());
        }
        renumbered.merge(self.clone());
        renumbered.in_order()
    }

    fn merge(&mut self, other: PeriodFlows) {
        let renumbered = self.edges.adopt(&other.edges);
        self.latency.merge(&other.latency);
        self.arrivals_left_out += other.arrivals_left_out;
        let room = ARRIVALS_MAX - self.arrivals_ns.len().min(ARRIVALS_MAX);
        self.arrivals_left_out += other.arrivals_ns.len().saturating_sub(room) as u64;
        let arrivals_ns = other.arrivals_ns.into_iter();
        self.arrivals_ns.extend(arrivals_ns.take(room));
        for (root, flows) in other.roots {
            for category in flows.categories.into_values() {
                let shape = category.shape.clone();
                let own = self.category(&root, shape.as_ref());
                own.merge(category, &renumbered);
            }
            if let Some(overflow) = flows.overflow {
                self.category(&root, None).merge(overflow, &renumbered);
            }
        }
    }

    /// Sorts samples and arrivals by start, so that their order does not depend on the order in
    /// which requests were observed. Reduces samples to [`SAMPLE_MAX`] requests.
    #[must_use]
    pub fn in_order(mut self) -> PeriodFlows {
        for root in self.roots.values_mut() {
            for category in root.categories.values_mut().chain(&mut root.overflow) {
                category.trim();
                let sample = &mut category.sample;
                sample.sort_unstable_by_key(|request| (request.start_ns, request.id));
            }
        }
        self.arrivals_ns.sort_unstable();
        self
    }
}

/// Finds the flows of a period. Counts each request with its [`Weight`](crate::sampling::Weight) in
/// sums and in the distribution of latencies.
#[derive(Debug)]
pub struct FlowPass<'a> {
    finder: FlowFinder<'a>,
    flows: PeriodFlows,
}

impl<'a> FlowPass<'a> {
    /// Creates a pass with these settings. `orders` must cover all periods that are compared.
    pub fn new(settings: FlowSettings, orders: &'a KnownOrders) -> FlowPass<'a> {
        FlowPass {
            finder: FlowFinder::new(settings, orders),
            flows: PeriodFlows::default(),
        }
    }

    /// Returns the flows found, [in order](PeriodFlows::in_order).
    pub fn into_flows(self) -> PeriodFlows {
        self.flows.in_order()
    }
}

impl Pass<TraceView<'_>> for FlowPass<'_> {
    fn observe(&mut self, seen: &TraceView<'_>) {
        let (path, flows) = (seen.path, &mut self.flows);
        let (root, shape, edges_ns) = self.finder.find(seen, &mut flows.edges);
        let weight = seen.weight();
        flows.latency.record_weighted(path.latency_ns, weight);
        if flows.arrivals_ns.len() < ARRIVALS_MAX {
            flows.arrivals_ns.push(seen.trace.start_ns);
        } else {
            flows.arrivals_left_out += 1;
        }
        let category = flows.category(&root, Some(&shape));
        category.requests += 1;
        category.count.count(weight);
        category.latency_ns += weight.times(path.latency_ns);
        let square_ns2 = weight.times_square(path.latency_ns);
        category.squares_ns2 = category.squares_ns2.saturating_add(square_ns2);
        for (edge, time_ns) in edges_ns {
            let weighted_ns = u64::try_from(weight.times(*time_ns)).unwrap_or(u64::MAX);
            category.add_edge(*edge, weighted_ns);
        }
        let mut order = Digest::new(1);
        order.add_digest(seen.trace.id.0);
        category.sample.push(Request {
            order: order.finish() as u64,
            id: seen.trace.id,
            name: seen.trace.name.clone(),
            start_ns: seen.trace.start_ns,
            latency_ns: path.latency_ns,
            weight: weight.value() as f32,
            edges_ns: edges_ns.iter().map(|(id, ns)| (*id, *ns as f32)).collect(),
        });
        category.bound_sample();
    }

    fn merge(&mut self, other: Self) {
        self.flows.merge(other.flows);
    }
}
