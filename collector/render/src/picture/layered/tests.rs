use std::collections::BTreeSet;

use proptest::prelude::*;

use super::*;

const BOX_PX: Px = (262.0, 60.0);

/// Returns the first point of a route, and `pieces` points of each curve.
fn sampled(route: &[Px], pieces: u32) -> Vec<Px> {
    let mut points = vec![route[0]];
    for curve in route.windows(4).step_by(3) {
        for piece in 1..=pieces {
            let t = f64::from(piece) / f64::from(pieces);
            let u = 1.0 - t;
            let weights = [u * u * u, 3.0 * u * u * t, 3.0 * u * t * t, t * t * t];
            let sum = |of: fn(&Px) -> f64| -> f64 {
                curve
                    .iter()
                    .zip(weights)
                    .map(|(point, weight)| of(point) * weight)
                    .sum()
            };
            points.push((sum(|point| point.0), sum(|point| point.1)));
        }
    }
    points
}

/// Reports whether a point is in a box or on its border.
fn is_at(corner: Px, (x, y): Px) -> bool {
    (corner.0..=corner.0 + BOX_PX.0).contains(&x) && (corner.1..=corner.1 + BOX_PX.1).contains(&y)
}

fn is_inside(corner: Px, (x, y): Px) -> bool {
    // Sums of weights are not exact.
    let (x, y) = (x - corner.0, y - corner.1);
    0.001 < x && x < BOX_PX.0 - 0.001 && 0.001 < y && y < BOX_PX.1 - 0.001
}

/// Checks the properties of every layout.
fn check(boxes: usize, edges: &[(usize, usize)]) {
    let layout = lay_out(boxes, edges, BOX_PX, (0.0, 0.0));
    assert_eq!(layout, lay_out(boxes, edges, BOX_PX, (0.0, 0.0)));
    let corners = &layout.corners;
    assert_eq!((corners.len(), layout.routes.len()), (boxes, edges.len()));
    let is_drawn = |(x, y): Px| x >= 0.0 && y >= 0.0 && x <= layout.size.0 && y <= layout.size.1;
    for (number, corner) in corners.iter().enumerate() {
        let last = (corner.0 + BOX_PX.0, corner.1 + BOX_PX.1);
        assert!(
            is_drawn(*corner) && is_drawn(last),
            "{corner:?} in {:?}",
            layout.size
        );
        for other in &corners[..number] {
            let (x, y) = ((corner.0 - other.0).abs(), (corner.1 - other.1).abs());
            let is_apart = x >= BOX_PX.0 + BOX_GAP_PX || y >= BOX_PX.1 + BOX_GAP_PX;
            assert!(is_apart, "{corner:?} and {other:?}");
        }
    }
    for ((from, to), route) in edges.iter().zip(&layout.routes) {
        if from.max(to) >= &boxes {
            assert!(route.is_empty());
            continue;
        }
        assert!(is_at(corners[*from], route[0]), "{from} → {to}: {route:?}");
        assert!(
            is_at(corners[*to], route[route.len() - 1]),
            "{from} → {to}: {route:?}"
        );
        for point in sampled(route, 8) {
            assert!(
                is_drawn(point),
                "{from} → {to}: {point:?} in {:?}",
                layout.size
            );
            let crossed = corners.iter().find(|corner| is_inside(**corner, point));
            assert_eq!(crossed, None, "{from} → {to} crosses a box at {point:?}");
        }
    }
}

#[test]
fn few_boxes() {
    check(0, &[]);
    check(1, &[]);
    check(1, &[(0, 0), (0, 0), (0, 1), (7, 0)]);
    check(2, &[(0, 1), (1, 0), (0, 1)]);
    check(3, &[(0, 1), (1, 2), (2, 0), (0, 2)]);
    check(60, &[]);
}

#[test]
fn a_chain_is_straight_and_a_tree_has_no_crossing() {
    let chain: Vec<(usize, usize)> = (1..9).map(|to| (to - 1, to)).collect();
    let layout = lay_out(9, &chain, BOX_PX, (0.0, 0.0));
    assert!(
        layout
            .corners
            .iter()
            .all(|corner| corner.0 == layout.corners[0].0)
    );
    assert!(layout.size.0 <= BOX_PX.0 && layout.size.1 > layout.size.0);
    // Children of a box are far from each other in the list.
    let tree: Vec<(usize, usize)> = (1..40).map(|to| (to % 7 % to, to)).collect();
    let mut part = Layers::of((0..40).collect(), &tree);
    assert_eq!(crossings_one_by_one(&part), 0);
    part.layers[1].reverse();
    assert_ne!(crossings_one_by_one(&part), 0);
}

#[test]
fn many_services_are_laid_out() {
    // Every twentieth edge leads from a later box to an earlier one. Few boxes have many edges.
    let edge = |number: usize| {
        let (a, b) = (number * number * 31 % 199, number * 7919 % 200);
        let (first, last) = (a.min(b), a.max(b));
        if number.is_multiple_of(20) {
            (last, first)
        } else {
            (first, last)
        }
    };
    let edges: BTreeSet<(usize, usize)> = (0..1_400).map(edge).filter(|(a, b)| a != b).collect();
    let edges: Vec<(usize, usize)> = edges.into_iter().take(1_000).collect();
    assert_eq!(edges.len(), 1_000);
    check(200, &edges);
}

fn crossings_one_by_one(part: &Layers) -> usize {
    let mut crossings = 0;
    for pair in part.layers.windows(2) {
        let place = |vertex: &usize| pair[1].iter().position(|other| other == vertex);
        let leaving = pair[0].iter().enumerate();
        let edges: Vec<_> = leaving
            .flat_map(|(from, vertex)| part.after[*vertex].iter().map(move |to| (from, place(to))))
            .collect();
        for (number, one) in edges.iter().enumerate() {
            let crossed = |other: &&(usize, Option<usize>)| {
                (one.0 < other.0 && one.1 > other.1) || (one.0 > other.0 && one.1 < other.1)
            };
            crossings += edges[..number].iter().filter(crossed).count();
        }
    }
    crossings
}

fn graphs() -> impl Strategy<Value = (usize, Vec<(usize, usize)>)> {
    (1usize..40).prop_flat_map(|boxes| {
        let edges = prop::collection::vec((0..boxes, 0..boxes), 0..100);
        (Just(boxes), edges)
    })
}

proptest! {
    #[test]
    fn boxes_are_apart_and_edges_connect_them((boxes, edges) in graphs()) {
        check(boxes, &edges);
    }

    #[test]
    fn edges_lead_to_a_later_layer((boxes, mut edges) in graphs()) {
        let before = edges.clone();
        let is_turned = ranks::turn_cycles(boxes, &mut edges);
        let rank = ranks::of(boxes, &edges);
        for (number, (from, to)) in edges.iter().enumerate() {
            prop_assert!(rank[*from] < rank[*to] || from == to);
            prop_assert_eq!(before[number], if is_turned[number] { (*to, *from) } else { (*from, *to) });
        }
    }

    #[test]
    fn crossings_are_those_of_pairs((boxes, edges) in graphs()) {
        for part in parts(boxes, &edges) {
            let part = Layers::of(part, &edges);
            prop_assert_eq!(order::crossings(&part), crossings_one_by_one(&part));
        }
    }

    #[test]
    fn no_other_places_are_closer_to_those_wanted(
        wanted in prop::collection::vec((-50f64..50.0, 0.1f64..9.0), 1..8),
        others in prop::collection::vec((-50f64..50.0, 1f64..9.0), 8),
    ) {
        let mut distances = vec![0.0];
        distances.extend(others.iter().scan(0.0, |sum, (_, gap)| { *sum += gap; Some(*sum) }));
        let far = |places: &[f64]| -> f64 {
            let each = places.iter().zip(&wanted);
            each.map(|(place, (wanted, weight))| weight * (place - wanted).powi(2)).sum()
        };
        let best = position::spread(wanted.iter().copied(), &distances);
        for (pair, gap) in best.windows(2).zip(distances.windows(2)) {
            prop_assert!(pair[1] - pair[0] >= gap[1] - gap[0] - 1e-9);
        }
        // Compares with other positions that are far enough apart, and with positions between those
        // and the best.
        let mut firsts: Vec<f64> = others.iter().map(|(place, _)| *place).collect();
        firsts.sort_by(f64::total_cmp);
        for part in [1.0, 0.1, 0.01] {
            let other: Vec<f64> = best.iter().zip(firsts.iter().zip(&distances))
                .map(|(best, (first, distance))| best + part * (first + distance - best))
                .collect();
            prop_assert!(far(&best) <= far(&other) + 1e-6);
        }
    }
}
