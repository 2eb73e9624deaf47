//! Writes requests as request-flow graphs, in the DOT that the authors' tool reads.
//!
//! A node is the begin or the end of a span. An edge is the time from one node to the next.
//! Siblings that overlap are parallel: a fork precedes them, and a join follows. The tool considers
//! requests equal if their edges are written alike. The order of the edges therefore does not
//! depend on times: it is depth-first, with parallel parts sorted by name and content.

use std::collections::HashMap;
use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::io::Write;

use stroboscope_analysis::record::{SpanRecord, TraceRecords};

use crate::Failure;

/// Returns the name of a node: the begin or the end of a service's operation.
pub(crate) fn node_name(service: &str, operation: &str, is_end: bool) -> String {
    let word = |text: &str| -> String {
        let of = |c: char| if c.is_ascii_alphanumeric() { c } else { '_' };
        text.chars().map(of).collect()
    };
    let boundary = if is_end { "END" } else { "START" };
    format!("{}__{}__{boundary}", word(service), word(operation))
}

/// Spans of one request, and the graph made from them.
struct Graph<'a> {
    spans: Vec<&'a SpanRecord>,
    /// For each span, its children in stages. Children in one stage overlap.
    stages: Vec<Vec<Vec<usize>>>,
    /// For each span, a hash of its subtree.
    digests: Vec<u64>,
    /// For each node, the targets of its edges.
    edges: Vec<Vec<usize>>,
}

impl<'a> Graph<'a> {
    /// Builds the graph. Returns `None` if the request has no root or several, or two spans with
    /// one id.
    fn of(records: &'a TraceRecords) -> Option<(Self, usize)> {
        let mut spans: Vec<&SpanRecord> = records.spans.iter().collect();
        // Of spans that begin at the same time, the longer, usually the parent, comes first.
        spans.sort_by_key(|span| (span.start_ns, std::cmp::Reverse(span.end_ns), span.span_id));
        let mut numbers = HashMap::new();
        for (number, span) in spans.iter().enumerate() {
            if numbers.insert(span.span_id, number).is_some() {
                return None;
            }
        }
        let mut children = vec![Vec::new(); spans.len()];
        let mut roots = Vec::new();
        for (number, span) in spans.iter().enumerate() {
            match numbers.get(&span.parent_id) {
                Some(parent) if span.parent_id != 0 => children[*parent].push(number),
                _ => roots.push(number),
            }
        }
        let [root] = roots[..] else {
            return None;
        };
        let stages = children
            .into_iter()
            .map(|children| stages(&spans, children))
            .collect();
        let mut graph = Self {
            digests: vec![0; spans.len()],
            edges: vec![Vec::new(); 2 * spans.len()],
            spans,
            stages,
        };
        graph.join(root);
        Some((graph, root))
    }

    /// Adds the edges of a span and of its subtree.
    fn join(&mut self, span: usize) {
        let mut hasher = DefaultHasher::new();
        (&self.spans[span].service, &self.spans[span].name).hash(&mut hasher);
        let mut before = vec![2 * span];
        for stage in std::mem::take(&mut self.stages[span]) {
            let mut of_stage = Vec::with_capacity(stage.len());
            for &child in &stage {
                self.join(child);
                of_stage.push(self.digests[child]);
                for &node in &before {
                    self.edges[node].push(2 * child);
                }
            }
            of_stage.sort_unstable();
            of_stage.hash(&mut hasher);
            before = stage.into_iter().map(|child| 2 * child + 1).collect();
        }
        for node in before {
            self.edges[node].push(2 * span + 1);
        }
        self.digests[span] = hasher.finish();
    }

    fn time_ns(&self, node: usize) -> i64 {
        let span = self.spans[node / 2];
        if node.is_multiple_of(2) {
            span.start_ns
        } else {
            span.end_ns
        }
    }

    fn name(&self, node: usize) -> String {
        let span = self.spans[node / 2];
        node_name(&span.service, &span.name, node % 2 == 1)
    }

    /// Returns all edges in depth-first order, each once.
    fn in_depth(mut self, root: usize) -> (Vec<(usize, usize)>, Self) {
        let names: Vec<String> = (0..self.edges.len()).map(|node| self.name(node)).collect();
        let digests = &self.digests;
        for edges in &mut self.edges {
            edges.sort_by(|a, b| {
                (&names[*a], digests[a / 2], a).cmp(&(&names[*b], digests[b / 2], b))
            });
        }
        let mut found = Vec::new();
        let mut is_known = vec![false; self.edges.len()];
        let mut path = vec![(2 * root, 0)];
        while let Some((node, next)) = path.last_mut() {
            let (from, edge) = (*node, *next);
            *next += 1;
            match self.edges[from].get(edge) {
                None => {
                    path.pop();
                }
                Some(&to) => {
                    found.push((from, to));
                    if !std::mem::replace(&mut is_known[to], true) {
                        path.push((to, 0));
                    }
                }
            }
        }
        (found, self)
    }
}

/// Divides children into stages, in order of their starts. A stage begins when all earlier children
/// have ended.
fn stages(spans: &[&SpanRecord], children: Vec<usize>) -> Vec<Vec<usize>> {
    let mut stages: Vec<Vec<usize>> = Vec::new();
    let mut ends_ns = i64::MIN;
    for child in children {
        let span = spans[child];
        match stages.last_mut() {
            Some(stage) if span.start_ns < ends_ns => stage.push(child),
            _ => stages.push(vec![child]),
        }
        ends_ns = ends_ns.max(span.end_ns);
    }
    stages
}

/// Writes a request with its number. Returns false, and writes nothing, if the request has no root
/// or several, or two spans with one id.
pub(crate) fn write(
    to: &mut impl Write,
    number: u64,
    records: &TraceRecords,
) -> Result<bool, Failure> {
    let Some((graph, root)) = Graph::of(records) else {
        return Ok(false);
    };
    let (edges, graph) = graph.in_depth(root);
    let us = |from: usize, to: usize| (graph.time_ns(to) - graph.time_ns(from)).max(0) as f64 / 1e3;
    let response_us = us(2 * root, 2 * root + 1);
    writeln!(
        to,
        "# {number}  R: {response_us:.3} usecs RT: 0.000000 usecs"
    )?;
    writeln!(to, "Digraph G {{")?;
    for node in 0..graph.edges.len() {
        writeln!(
            to,
            "{node}.{node} [label=\"{}\\nDEFAULT\"]",
            graph.name(node)
        )?;
    }
    for (a, b) in edges {
        writeln!(to, "{a}.{a} -> {b}.{b} [label=\"R: {:.3} us\"]", us(a, b))?;
    }
    // The tool finds a request by the end of the preceding line, which must not belong to a
    // request.
    writeln!(to, "}}\n")?;
    Ok(true)
}
