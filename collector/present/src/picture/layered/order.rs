//! The order within layers, so that few edges cross.

use super::Layers;

/// Passes over all layers, down and up in turn; the best is taken.
const PASSES: usize = 16;
/// Passes without a better one after which no more follow.
const PASSES_IN_VAIN: usize = 4;

/// Layers in which vertices stand as a search from the first ones meets them.
pub(super) fn first(
    rank: &[usize],
    before: &[Vec<usize>],
    after: &[Vec<usize>],
) -> Vec<Vec<usize>> {
    let mut layers = vec![Vec::new(); rank.iter().max().map_or(0, |last| last + 1)];
    let mut is_seen = vec![false; rank.len()];
    for start in (0..rank.len()).filter(|vertex| before[*vertex].is_empty()) {
        let mut next = vec![start];
        while let Some(vertex) = next.pop() {
            if !std::mem::replace(&mut is_seen[vertex], true) {
                layers[rank[vertex]].push(vertex);
                next.extend(after[vertex].iter().rev());
            }
        }
    }
    layers
}

/// Sorts layers by where the neighbours of their vertices are on average (barycentres).
pub(super) fn untangle(part: &mut Layers) {
    let mut best = (part.layers.clone(), crossings(part));
    let mut in_vain = 0;
    for pass in 0..PASSES {
        if best.1 == 0 || in_vain == PASSES_IN_VAIN {
            break;
        }
        let count = part.layers.len();
        for step in 1..count {
            let number = if pass % 2 == 0 {
                step
            } else {
                count - 1 - step
            };
            sort(part, number, pass % 2 == 0);
        }
        let crossing = crossings(part);
        in_vain += 1;
        if crossing < best.1 {
            best = (part.layers.clone(), crossing);
            in_vain = 0;
        }
    }
    part.layers = best.0;
}

/// Sorts a layer by the one before or after it.
fn sort(part: &mut Layers, number: usize, is_down: bool) {
    let (other, neighbours) = if is_down {
        (number - 1, &part.before)
    } else {
        (number + 1, &part.after)
    };
    let places = places(&part.layers[other], neighbours.len());
    let (wide, far) = (
        part.layers[number].len() as f64,
        part.layers[other].len() as f64,
    );
    let keyed = part.layers[number].iter().zip(0..).map(|(vertex, place)| {
        let beside = &neighbours[*vertex];
        let sum: usize = beside.iter().map(|other| places[*other]).sum();
        let key = match beside.len() {
            // It stays where it is.
            0 => (f64::from(place) + 0.5) / wide * far - 0.5,
            count => sum as f64 / count as f64,
        };
        (key, *vertex)
    });
    let mut keyed: Vec<(f64, usize)> = keyed.collect();
    // Stable: equals stay as they are.
    keyed.sort_by(|a, b| a.0.total_cmp(&b.0));
    part.layers[number] = keyed.into_iter().map(|(_, vertex)| vertex).collect();
}

/// The place of each vertex of a layer; of others 0.
fn places(layer: &[usize], vertices: usize) -> Vec<usize> {
    let mut places = vec![0; vertices];
    for (place, vertex) in layer.iter().enumerate() {
        places[*vertex] = place;
    }
    places
}

/// Counts the edges that cross, by sums in a tree (Barth, Jünger and Mutzel 2002).
pub(super) fn crossings(part: &Layers) -> usize {
    let mut crossings = 0;
    let mut places = vec![0; part.after.len()];
    for pair in part.layers.windows(2) {
        pair[1]
            .iter()
            .enumerate()
            .for_each(|(place, vertex)| places[*vertex] = place);
        // Ends of edges so far, in a Fenwick tree over the later layer.
        let mut ends = vec![0; pair[1].len() + 1];
        let mut edges = 0;
        for vertex in &pair[0] {
            let mut after: Vec<usize> = part.after[*vertex].iter().map(|to| places[*to]).collect();
            after.sort_unstable();
            let entered = after.len();
            for place in &after {
                let mut up_to = place + 1;
                crossings += edges;
                while up_to > 0 {
                    crossings -= ends[up_to];
                    up_to &= up_to - 1;
                }
            }
            for place in after {
                let mut at = place + 1;
                while at < ends.len() {
                    ends[at] += 1;
                    at += at & at.wrapping_neg();
                }
            }
            edges += entered;
        }
    }
    crossings
}
