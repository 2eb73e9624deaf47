//! Layered layout of a directed graph, after Sugiyama, Tagawa and Toda (1981) and Gansner,
//! Koutsofios, North and Vo (1993).
//!
//! There are four steps. Each takes time about linear in the number of edges times the layers that
//! they pass. [`ranks`] assigns each box to a layer so that edges lead forward. An edge that passes
//! layers gets a bend in each. [`order`] sorts layers so that few edges cross. [`position`] moves
//! boxes and bends towards their neighbours. Finally, this module draws each edge as a curve
//! between two layers, and as a straight line through the space of its bend within a layer. No edge
//! therefore crosses a box. Equal graphs get equal layouts.
//!
//! Layers run down or to the right, depending on which picture is narrower by an estimate.
//! Connected parts are laid out one by one, and stand in rows.

mod order;
mod position;
mod ranks;
#[cfg(test)]
mod tests;

/// Position or size in a picture: x and y, or width and height.
pub(super) type Px = (f64, f64);

/// Space between two boxes, and around a bend.
const BOX_GAP_PX: f64 = 24.0;
const BEND_PX: f64 = 14.0;
/// Minimum and maximum space between two layers, unless labels need more. It grows if edges lead
/// far to the side, so that they do not run flat.
const LAYER_GAP_PX: (f64, f64) = (44.0, 150.0);
const LAYER_GAP_PER_PX: f64 = 0.15;
/// Maximum space between the ends of edges at a box.
const END_GAP_PX: f64 = 14.0;
/// Distance between the ends of a loop, and distance of its control points from its box.
const LOOP_PX: Px = (20.0, 24.0);
/// Space between connected parts, and the minimum of the width that a row of parts may fill.
const PART_GAP_PX: f64 = 40.0;
const PARTS_WIDE_PX: f64 = 1_400.0;

/// Positions of all boxes and edges.
#[derive(Debug, Default, PartialEq)]
pub(super) struct Layout {
    /// Upper left corners of the boxes.
    pub corners: Vec<Px>,
    /// Route of each edge, from box to box: a point, and for each cubic Bézier curve two control
    /// points and its end. Empty for an edge whose box does not exist.
    pub routes: Vec<Vec<Px>>,
    pub size: Px,
}

/// Lays out `boxes` boxes of one size with edges between them, and leaves space for labels of a
/// size between layers.
pub(super) fn lay_out(boxes: usize, edges: &[(usize, usize)], box_px: Px, label_px: Px) -> Layout {
    let mut parts: Vec<Layers> = parts(boxes, edges)
        .into_iter()
        .map(|part| Layers::of(part, edges))
        .collect();
    let is_down = is_down(&parts, box_px);
    // The first value is across the layers, the second along the edges.
    let (box_px, gap_px) = if is_down {
        (box_px, label_px.1)
    } else {
        ((box_px.1, box_px.0), label_px.0)
    };
    let mut layout = Layout {
        corners: vec![(0.0, 0.0); boxes],
        routes: vec![Vec::new(); edges.len()],
        size: (0.0, 0.0),
    };
    let turned = |(across, along): Px| {
        if is_down {
            (across, along)
        } else {
            (along, across)
        }
    };
    let placed: Vec<Placement> = parts
        .iter_mut()
        .map(|part| part.place(box_px, gap_px))
        .collect();
    let sizes: Vec<Px> = placed.iter().map(|placed| turned(placed.size)).collect();
    for ((part, placed), (left, top)) in parts.iter().zip(placed).zip(shelves(&sizes)) {
        let moved = |px: Px| {
            let (x, y) = turned(px);
            (x + left, y + top)
        };
        for (number, corner) in part.boxes.iter().zip(placed.corners) {
            layout.corners[*number] = moved(corner);
        }
        for (number, route) in part.edges.iter().zip(placed.routes) {
            layout.routes[*number] = route.into_iter().map(moved).collect();
        }
        let (right, bottom) = moved(placed.size);
        layout.size = (layout.size.0.max(right), layout.size.1.max(bottom));
    }
    layout
}

/// Reports whether the picture is no wider with layers that run down, by an estimate.
fn is_down(parts: &[Layers], (width, _): Px) -> bool {
    let most = |of: fn(&Layers) -> usize| parts.iter().map(of).max().unwrap_or_default() as f64;
    let down = most(Layers::boxes_in_a_layer) * (width + BOX_GAP_PX);
    let right = most(|part| part.layers.len()) * (width + LAYER_GAP_PX.0);
    down <= right
}

/// Returns the boxes of each connected part, in order of the parts' first boxes; parts of a single
/// box come last.
fn parts(boxes: usize, edges: &[(usize, usize)]) -> Vec<Vec<usize>> {
    let mut neighbours = vec![Vec::new(); boxes];
    for &(from, to) in edges.iter().filter(|(from, to)| from.max(to) < &boxes) {
        neighbours[from].push(to);
        neighbours[to].push(from);
    }
    let mut is_seen = vec![false; boxes];
    let mut parts = Vec::new();
    for first in 0..boxes {
        let mut part = Vec::new();
        let mut next = vec![first];
        while let Some(number) = next.pop() {
            if !std::mem::replace(&mut is_seen[number], true) {
                part.push(number);
                next.extend(&neighbours[number]);
            }
        }
        part.sort_unstable();
        parts.push(part);
    }
    parts.retain(|part| !part.is_empty());
    parts.sort_by_key(|part| part.len() == 1);
    parts
}

/// Returns the upper left corners of parts of these sizes, arranged in rows.
fn shelves(sizes: &[Px]) -> Vec<Px> {
    let area: f64 = sizes.iter().map(|(width, height)| width * height).sum();
    let widest = sizes.iter().map(|(width, _)| *width);
    let limit = widest.fold(PARTS_WIDE_PX.max(area.sqrt()), f64::max);
    let (mut left, mut top, mut bottom) = (0.0, 0.0, 0.0_f64);
    let corner = |(width, height): &Px| {
        if left > 0.0 && left + width > limit {
            (left, top) = (0.0, bottom + PART_GAP_PX);
        }
        let corner = (left, top);
        left += width + PART_GAP_PX;
        bottom = bottom.max(top + height);
        corner
    };
    sizes.iter().map(corner).collect()
}

/// A connected part in layers. Its vertices are its boxes, followed by the bends of edges.
#[derive(Debug)]
struct Layers {
    /// Indices of the part's boxes and edges in the whole graph.
    boxes: Vec<usize>,
    edges: Vec<usize>,
    /// Vertices of each edge, one per layer; a loop has one.
    chains: Vec<Vec<usize>>,
    /// True for an edge that leads from its last vertex to its first.
    is_back: Vec<bool>,
    layers: Vec<Vec<usize>>,
    /// Neighbours of each vertex in the previous and in the next layer; a neighbour is listed once
    /// for each edge to it.
    before: Vec<Vec<usize>>,
    after: Vec<Vec<usize>>,
}

/// Positions in a connected part, across its layers and along its edges.
struct Placement {
    corners: Vec<Px>,
    routes: Vec<Vec<Px>>,
    size: Px,
}

impl Layers {
    fn of(boxes: Vec<usize>, edges: &[(usize, usize)]) -> Self {
        let within = |(number, (from, to)): (usize, &(usize, usize))| {
            let place = |of| boxes.binary_search(of).ok();
            Some((number, (place(from)?, place(to)?)))
        };
        let (numbers, mut ends): (Vec<usize>, Vec<(usize, usize)>) =
            edges.iter().enumerate().filter_map(within).unzip();
        let is_back = ranks::turn_cycles(boxes.len(), &mut ends);
        let mut rank = ranks::of(boxes.len(), &ends);
        let mut chains = Vec::new();
        for (first, last) in ends {
            let mut chain = vec![first];
            for passed in rank[first] + 1..rank[last] {
                chain.push(rank.len());
                rank.push(passed);
            }
            chain.extend((first != last).then_some(last));
            chains.push(chain);
        }
        let (mut before, mut after) = (vec![Vec::new(); rank.len()], vec![Vec::new(); rank.len()]);
        for pair in chains.iter().flat_map(|chain| chain.windows(2)) {
            after[pair[0]].push(pair[1]);
            before[pair[1]].push(pair[0]);
        }
        let mut part = Self {
            boxes,
            edges: numbers,
            chains,
            is_back,
            layers: order::first(&rank, &before, &after),
            before,
            after,
        };
        order::untangle(&mut part);
        part
    }

    fn is_box(&self, vertex: usize) -> bool {
        vertex < self.boxes.len()
    }

    /// Returns half the width of a vertex, given the width of boxes.
    fn half(&self, vertex: usize, wide: f64) -> f64 {
        if self.is_box(vertex) {
            wide / 2.0
        } else {
            BEND_PX / 2.0
        }
    }

    fn boxes_in_a_layer(&self) -> usize {
        let boxes =
            |layer: &Vec<usize>| layer.iter().filter(|vertex| self.is_box(**vertex)).count();
        self.layers.iter().map(boxes).max().unwrap_or_default()
    }

    fn place(&self, (wide, thick): Px, gap_px: f64) -> Placement {
        let middles = position::across(self, wide);
        let ends = self.ends(&middles, wide);
        let mut rank = vec![0; middles.len()];
        for (number, layer) in self.layers.iter().enumerate() {
            layer.iter().for_each(|vertex| rank[*vertex] = number);
        }
        // Longest sideways distance of an edge after each layer.
        let mut far = vec![0.0_f64; self.layers.len()];
        for (chain, ends) in self.chains.iter().zip(&ends) {
            for (vertex, pair) in chain.iter().zip(ends.windows(2)) {
                let far = &mut far[rank[*vertex]];
                *far = far.max((pair[1].0 - pair[0].1).abs());
            }
        }
        let mut along = vec![0.0];
        for far in &far {
            let gap = (far * LAYER_GAP_PER_PX).clamp(LAYER_GAP_PX.0, LAYER_GAP_PX.1);
            let gap = gap.max(gap_px);
            along.push((along[along.len() - 1] + thick + gap).round());
        }
        let corner = |vertex| (middles[vertex] - wide / 2.0, along[rank[vertex]]);
        let route = |(number, chain): (usize, &Vec<usize>)| {
            let start = along[rank[chain[0]]];
            let mut route = match chain.len() {
                1 => self_loop((middles[chain[0]] + wide / 2.0, start + thick / 2.0)),
                _ => curves(&ends[number], &along[rank[chain[0]]..], thick),
            };
            if self.is_back[number] {
                route.reverse();
            }
            route
        };
        let rights = self.layers.iter().filter_map(|layer| layer.last());
        let rights = rights.map(|&vertex| middles[vertex] + self.half(vertex, wide));
        let loops = self.chains.iter().filter(|chain| chain.len() == 1);
        let loops = loops.map(|chain| middles[chain[0]] + wide / 2.0 + LOOP_PX.1);
        let size = (
            rights.chain(loops).fold(0.0, f64::max),
            along[self.layers.len() - 1] + thick,
        );
        Placement {
            corners: (0..self.boxes.len()).map(corner).collect(),
            routes: self.chains.iter().enumerate().map(route).collect(),
            size,
        }
    }

    /// Returns the positions at which each edge enters and leaves each of its vertices. At a box,
    /// edges are in the order of their next vertices.
    fn ends(&self, middles: &[f64], wide: f64) -> Vec<Vec<Px>> {
        let at = |chain: &Vec<usize>| {
            chain
                .iter()
                .map(|vertex| (middles[*vertex], middles[*vertex]))
                .collect()
        };
        let mut ends: Vec<Vec<Px>> = self.chains.iter().map(at).collect();
        // Edges that enter and leave each box, with the positions of their next vertices.
        let mut sides = vec![[Vec::new(), Vec::new()]; self.boxes.len()];
        for (number, chain) in self.chains.iter().enumerate() {
            if let [first, second, ..] = chain[..] {
                let last = chain.len() - 1;
                sides[first][1].push((middles[second], number));
                sides[chain[last]][0].push((middles[chain[last - 1]], number));
            }
        }
        for (vertex, sides) in sides.iter_mut().enumerate() {
            for (side, leaves) in sides.iter_mut().zip([false, true]) {
                side.sort_by(|a, b| a.0.total_cmp(&b.0).then(a.1.cmp(&b.1)));
                let spaces = side.len().saturating_sub(1).max(1) as f64;
                let space = END_GAP_PX.min((wide - BOX_GAP_PX) / spaces);
                let first = middles[vertex] - space * (side.len() - 1.min(side.len())) as f64 / 2.0;
                for ((_, number), place) in side.iter().zip(0..) {
                    let end = first + space * f64::from(place);
                    let last = ends[*number].len() - 1;
                    if leaves {
                        ends[*number][0].1 = end;
                    } else {
                        ends[*number][last].0 = end;
                    }
                }
            }
        }
        ends
    }
}

/// Returns the route of an edge: curves from the end of a layer to the beginning of the next one,
/// and straight lines through the layers that it passes.
fn curves(ends: &[Px], along: &[f64], thick: f64) -> Vec<Px> {
    let mut route = vec![(ends[0].1, along[0] + thick)];
    for (number, pair) in ends.windows(2).enumerate() {
        let (from, to) = (pair[0].1, pair[1].0);
        let (start, end) = (along[number] + thick, along[number + 1]);
        let middle = f64::midpoint(start, end).round();
        extend(&mut route, [(from, middle), (to, middle), (to, end)]);
        if number + 2 < ends.len() {
            extend(
                &mut route,
                [(to, end), (to, end + thick), (to, end + thick)],
            );
        }
    }
    route
}

/// Adds a curve to a route. Merges it with the previous one if both are straight and collinear.
fn extend(route: &mut Vec<Px>, curve: [Px; 3]) {
    let across = curve[2].0;
    if let [.., start, _, _, end] = route[..]
        && [start.0, end.0, curve[0].0]
            .iter()
            .all(|other| *other == across)
    {
        route.truncate(route.len() - 3);
        route.extend([start, curve[2], curve[2]]);
    } else {
        route.extend(curve);
    }
}

fn self_loop((right, middle): Px) -> Vec<Px> {
    let (half, out) = (LOOP_PX.0 / 2.0, right + LOOP_PX.1);
    let (start, end) = (middle - half, middle + half);
    vec![(right, start), (out, start), (out, end), (right, end)]
}
