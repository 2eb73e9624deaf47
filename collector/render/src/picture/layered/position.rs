//! Positions of vertices across their layers: in order, with space between them, and close to their
//! neighbours.

use super::{BEND_PX, BOX_GAP_PX, Layers};

/// Number of passes over all layers, alternately down and up. A pass moves a layer's vertices
/// towards their neighbours in the layer that it visited before; the last [`PASSES_BY_BOTH`] passes
/// use both neighbouring layers.
const PASSES: usize = 12;
const PASSES_BY_BOTH: usize = 4;
/// Pull of an edge, by the number of its ends that have no other edge on the same side. Chains pull
/// most, so that long edges and sequences of single calls are straight.
const PULLS: [f64; 3] = [1.0, 2.0, 8.0];

/// Returns the middles of all vertices, in whole px from the left edge.
pub(super) fn across(part: &Layers, wide: f64) -> Vec<f64> {
    let room = |vertex: usize| match part.is_box(vertex) {
        true => wide + BOX_GAP_PX,
        false => BEND_PX,
    };
    let mut middles = vec![0.0; part.before.len()];
    // Minimum distances of a layer's vertices from its first one.
    let distances: Vec<Vec<f64>> = part
        .layers
        .iter()
        .map(|layer| {
            let mut sum = 0.0;
            let mut distances = vec![0.0];
            for pair in layer.windows(2) {
                sum += f64::midpoint(room(pair[0]), room(pair[1]));
                distances.push(sum);
            }
            distances
        })
        .collect();
    for (layer, distances) in part.layers.iter().zip(&distances) {
        let half = distances.last().copied().unwrap_or_default() / 2.0;
        layer
            .iter()
            .zip(distances)
            .for_each(|(vertex, distance)| middles[*vertex] = distance - half);
    }
    for pass in 0..PASSES {
        let (is_down, by_both) = (pass % 2 == 0, pass + PASSES_BY_BOTH >= PASSES);
        let count = part.layers.len();
        for step in 0..count {
            let number = if is_down { step } else { count - 1 - step };
            let sides = [is_down || by_both, !is_down || by_both];
            let layer = part.layers[number].iter();
            let wanted = layer.map(|vertex| wanted(part, &middles, *vertex, sides));
            let placed = spread(wanted, &distances[number]);
            part.layers[number]
                .iter()
                .zip(placed)
                .for_each(|(vertex, middle)| middles[*vertex] = middle);
        }
    }
    let lefts = part.layers.iter().filter_map(|layer| layer.first());
    let lefts = lefts.map(|&vertex| middles[vertex] - part.half(vertex, wide));
    let left = lefts.fold(f64::MAX, f64::min);
    middles
        .iter()
        .map(|middle| (middle - left).round())
        .collect()
}

/// Returns the position to which the neighbours in the selected layers pull a vertex, and their
/// weight.
fn wanted(
    part: &Layers,
    middles: &[f64],
    vertex: usize,
    [by_before, by_after]: [bool; 2],
) -> (f64, f64) {
    let (before, after) = (&part.before[vertex], &part.after[vertex]);
    let (mut sum, mut weight) = (0.0, 0.0);
    let sides = [(before, &part.after), (after, &part.before)];
    let sides = sides.into_iter().zip([by_before, by_after]);
    for ((side, back), _) in sides.filter(|(_, is_asked)| *is_asked) {
        for &other in side {
            let is_alone = [side.len() == 1, back[other].len() == 1];
            let pull = PULLS[is_alone.into_iter().filter(|is_alone| *is_alone).count()];
            sum += pull * middles[other];
            weight += pull;
        }
    }
    let place = match (&before[..], &after[..]) {
        // A vertex without neighbours in these layers gets a small weight, so that others can push
        // it aside.
        _ if weight == 0.0 => return (middles[vertex], 0.01),
        // A vertex stays where it is between its two neighbours, so that an edge bends rarely.
        (&[one], &[other]) if by_before && by_after => {
            let (one, other) = (middles[one], middles[other]);
            middles[vertex].clamp(f64::min(one, other), f64::max(one, other))
        }
        _ => sum / weight,
    };
    (place, weight)
}

/// Returns positions in the order of `wanted`, which has wanted positions with weights. Neighbours
/// are at least as far apart as in `distances`, which count from the first position. The result
/// minimises the weighted sum of squared deviations from the wanted positions (isotonic regression
/// by pooling adjacent violators).
pub(super) fn spread(wanted: impl Iterator<Item = (f64, f64)>, distances: &[f64]) -> Vec<f64> {
    // Runs of vertices at minimum distance: the position minus the distance, which all vertices of
    // a run share; the sum of their weights; and their number.
    let mut runs: Vec<(f64, f64, usize)> = Vec::new();
    for ((place, weight), distance) in wanted.zip(distances) {
        let mut run = (place - distance, weight, 1);
        while let Some(last) = runs.pop_if(|last| last.0 >= run.0) {
            let weight = last.1 + run.1;
            run = (
                (last.0 * last.1 + run.0 * run.1) / weight,
                weight,
                last.2 + run.2,
            );
        }
        runs.push(run);
    }
    let firsts = runs
        .into_iter()
        .flat_map(|(first, _, count)| std::iter::repeat_n(first, count));
    firsts
        .zip(distances)
        .map(|(first, distance)| first + distance)
        .collect()
}
