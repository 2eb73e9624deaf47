//! Assigns boxes to layers: edges lead to a later layer, and boxes move to shorten them.

/// Number of rounds in which boxes move towards the majority of their neighbours.
const MOVES: usize = 3;

/// Reverses edges that close a cycle, except loops. Searches from boxes that no edge enters, then
/// from the other boxes. Returns which edges are reversed.
pub(super) fn turn_cycles(boxes: usize, edges: &mut [(usize, usize)]) -> Vec<bool> {
    let mut leaving = vec![Vec::new(); boxes];
    let mut is_entered = vec![false; boxes];
    for (number, &(from, to)) in edges
        .iter()
        .enumerate()
        .filter(|(_, (from, to))| from != to)
    {
        leaving[from].push(number);
        is_entered[to] = true;
    }
    #[derive(Clone, Copy, PartialEq)]
    enum Visit {
        Not,
        Open,
        Done,
    }
    let mut visits = vec![Visit::Not; boxes];
    let mut is_turned = vec![false; edges.len()];
    let mut firsts: Vec<usize> = (0..boxes).collect();
    firsts.sort_by_key(|number| is_entered[*number]);
    for first in firsts {
        if visits[first] != Visit::Not {
            continue;
        }
        visits[first] = Visit::Open;
        // Path from the start: boxes, each with the index of its next edge.
        let mut way = vec![(first, 0)];
        while let Some((at, next)) = way.last_mut() {
            let Some(&number) = leaving[*at].get(*next) else {
                visits[*at] = Visit::Done;
                way.pop();
                continue;
            };
            *next += 1;
            let to = edges[number].1;
            match visits[to] {
                Visit::Not => {
                    visits[to] = Visit::Open;
                    way.push((to, 0));
                }
                Visit::Open => is_turned[number] = true,
                Visit::Done => {}
            }
        }
    }
    for (edge, _) in edges
        .iter_mut()
        .zip(&is_turned)
        .filter(|(_, is_turned)| **is_turned)
    {
        *edge = (edge.1, edge.0);
    }
    is_turned
}

/// Returns the layer of each box. The edges must have no cycles other than loops. Each box starts
/// in its earliest possible layer, and then moves towards the majority of its neighbours.
pub(super) fn of(boxes: usize, edges: &[(usize, usize)]) -> Vec<usize> {
    let (mut before, mut after) = (vec![Vec::new(); boxes], vec![Vec::new(); boxes]);
    for &(from, to) in edges.iter().filter(|(from, to)| from != to) {
        after[from].push(to);
        before[to].push(from);
    }
    let mut rank = vec![0; boxes];
    let mut waits_for: Vec<usize> = before.iter().map(Vec::len).collect();
    let mut order: Vec<usize> = (0..boxes)
        .filter(|number| waits_for[*number] == 0)
        .collect();
    let mut place = 0;
    while let Some(&number) = order.get(place) {
        place += 1;
        for &to in &after[number] {
            rank[to] = rank[to].max(rank[number] + 1);
            waits_for[to] -= 1;
            if waits_for[to] == 0 {
                order.push(to);
            }
        }
    }
    // Go through the order backwards and then forwards, so that a box moves after the neighbours
    // that it follows.
    for _ in 0..MOVES {
        for &number in order.iter().rev() {
            let next = after[number].iter().map(|to| rank[*to]).min();
            if let Some(next) = next.filter(|_| after[number].len() > before[number].len()) {
                rank[number] = next - 1;
            }
        }
        for &number in &order {
            let last = before[number].iter().map(|from| rank[*from]).max();
            if let Some(last) = last.filter(|_| before[number].len() > after[number].len()) {
                rank[number] = last + 1;
            }
        }
    }
    let first = rank.iter().copied().min().unwrap_or_default();
    rank.iter_mut().for_each(|rank| *rank -= first);
    rank
}
