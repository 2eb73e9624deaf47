//! Orders the vertices within layers so that few edges cross.

use super::Layers;

/// Maximum number of passes over all layers, alternately down and up; the best result is used.
const PASSES: usize = 16;
/// Number of passes without improvement after which the search ends.
const PASSES_IN_VAIN: usize = 4;

/// Returns layers with vertices in the order in which a depth-first search meets them.
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

/// Sorts the vertices of layers by the average positions of their neighbours (barycentres).
pub(super) fn untangle(part: &mut Layers) {
    let mut best = (part.layers.clone(), crossings(part));
    let mut in_vain = 0;
    for pass in 0..PASSES {
        if best.1 == 0 || in_vain == PASSES_IN_VAIN {
            break;
        }
        let (count, is_down) = (part.layers.len(), pass % 2 == 0);
        for step in 1..count {
            let number = if is_down { step } else { count - 1 - step };
            sort(part, number, is_down);
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

/// Sorts the vertices of a layer by their neighbours in the previous or the next layer.
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
            // A vertex without neighbours keeps its relative position.
            0 => (f64::from(place) + 0.5) / wide * far - 0.5,
            count => sum as f64 / count as f64,
        };
        (key, *vertex)
    });
    let mut keyed: Vec<(f64, usize)> = keyed.collect();
    // The sort is stable: equal keys keep their order.
    keyed.sort_by(|a, b| a.0.total_cmp(&b.0));
    part.layers[number] = keyed.into_iter().map(|(_, vertex)| vertex).collect();
}

/// Returns the position of each vertex of a layer; 0 for others.
fn places(layer: &[usize], vertices: usize) -> Vec<usize> {
    let mut places = vec![0; vertices];
    for (place, vertex) in layer.iter().enumerate() {
        places[*vertex] = place;
    }
    places
}

/// Counts the crossings of edges by sums in a tree (Barth, Jünger and Mutzel 2002).
pub(super) fn crossings(part: &Layers) -> usize {
    let mut crossings = 0;
    let mut places = vec![0; part.after.len()];
    for pair in part.layers.windows(2) {
        pair[1]
            .iter()
            .enumerate()
            .for_each(|(place, vertex)| places[*vertex] = place);
        // Ends of the edges so far, in a Fenwick tree over the later layer.
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
