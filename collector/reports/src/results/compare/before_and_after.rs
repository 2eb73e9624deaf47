//! Picture of a cause's requests before and after, side by side, with changes marked.

use std::collections::BTreeSet;

use stroboscope_analysis::compare::{Comparison, Mutation, MutationKind};
use stroboscope_analysis::flow::{CategoryId, Operation, PeriodFlows};

use super::super::flow_graph::DrawnFlow;
use stroboscope_render::show::{Figure, Graph};

/// Draws the first mutation of the first cause; `None` if there is none, or if its structure or its
/// precursor is unknown.
pub(super) fn figure(of: &Comparison, periods: [&PeriodFlows; 2]) -> Option<Figure> {
    let cause = of.causes.first()?;
    let mutation = of.mutations.get(*cause.mutations.first()?)?;
    let sides = sides(mutation, periods)?;
    let changed = changed(mutation, of, &sides);
    let mut graph = Graph {
        nodes: Vec::new(),
        edges: Vec::new(),
    };
    for (side, name) in sides.iter().zip(["before", "after"]) {
        side.draw(name, &changed, &mut graph);
    }
    let alternative = format!(
        "Requests of {} before and after. Each box is an operation and its mean time on the critical path; what changed is \
         marked.",
        mutation.root
    );
    Some(Figure::new("Requests before and after", alternative, graph).on_pages_only())
}

fn sides(mutation: &Mutation, [before, after]: [&PeriodFlows; 2]) -> Option<[DrawnFlow; 2]> {
    let old = match mutation.kind {
        MutationKind::ResponseTime => mutation.category,
        MutationKind::Structural => mutation.precursors.first()?.category,
    };
    let drawn = |flows: &PeriodFlows, id: CategoryId| {
        let category = flows.roots.get(&mutation.root)?.categories.get(&id)?;
        DrawnFlow::of(&flows.edges, category)
    };
    // A structure may occur in only one of the periods.
    let of = |flows, other, id| drawn(flows, id).or_else(|| drawn(other, id));
    Some([
        of(before, after, old)?,
        of(after, before, mutation.category)?,
    ])
}

/// Returns the changed operations of a mutation: those of responsible edges and, for a structural
/// mutation, the callees of calls that differ.
fn changed(
    mutation: &Mutation,
    of: &Comparison,
    [old, new]: &[DrawnFlow; 2],
) -> BTreeSet<Operation> {
    let responsible = mutation.edges.iter().filter(|edge| edge.is_responsible);
    let mut changed: BTreeSet<Operation> = responsible
        .map(|edge| of.edges.get(edge.edge).operation())
        .collect();
    if mutation.kind == MutationKind::Structural {
        let (old, new) = (old.named_calls(), new.named_calls());
        let differ = old.symmetric_difference(&new);
        changed.extend(differ.map(|(_, callee, _)| (*callee).clone()));
    }
    changed
}
