//! Drops the least important members of baggage that exceeds the limits of a header.

use super::{BYTES_MAX, Baggage, IMPORTANCE_MAX, MEMBERS_MAX, wire};

fn sizes(baggage: &Baggage) -> (usize, usize) {
    let members = baggage.foreign.len() + baggage.entries.len();
    let bytes = baggage.foreign.iter().map(String::len).sum::<usize>()
        + baggage
            .entries
            .iter()
            .map(wire::encoded_bytes)
            .sum::<usize>();
    // Includes the commas between members.
    (members, bytes + members.saturating_sub(1))
}

pub(super) fn fits(baggage: &Baggage) -> bool {
    let (members, bytes) = sizes(baggage);
    members <= MEMBERS_MAX && bytes <= BYTES_MAX
}

/// Position of a member in the baggage.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Member {
    Foreign(usize),
    Entry(usize),
}

/// Drops members until the rest fits. It drops the SDK's entries first, the least important before
/// the others and, at equal importance, later ones before earlier ones. Then it drops foreign
/// members, from the end.
pub(super) fn fit(baggage: &mut Baggage) {
    let (mut members, mut bytes) = sizes(baggage);
    if members <= MEMBERS_MAX && bytes <= BYTES_MAX {
        return;
    }
    let mut order: Vec<(u8, std::cmp::Reverse<usize>, Member, usize)> = Vec::with_capacity(members);
    for (i, member) in baggage.foreign.iter().enumerate() {
        order.push((
            IMPORTANCE_MAX + 1,
            std::cmp::Reverse(i),
            Member::Foreign(i),
            member.len(),
        ));
    }
    for (i, entry) in baggage.entries.iter().enumerate() {
        let bytes = wire::encoded_bytes(entry);
        order.push((
            entry.importance,
            std::cmp::Reverse(i),
            Member::Entry(i),
            bytes,
        ));
    }
    order.sort_by_key(|&(importance, position, ..)| (importance, position));
    let (mut keep_foreign, mut keep_entries) = (
        vec![true; baggage.foreign.len()],
        vec![true; baggage.entries.len()],
    );
    let before = members;
    for (_, _, member, length) in order {
        if members <= MEMBERS_MAX && bytes <= BYTES_MAX {
            break;
        }
        match member {
            Member::Foreign(i) => keep_foreign[i] = false,
            Member::Entry(i) => keep_entries[i] = false,
        }
        members -= 1;
        bytes -= length + usize::from(members > 0);
    }
    wire::count_dropped(before - members);
    keep(&mut baggage.foreign, &keep_foreign);
    keep(&mut baggage.entries, &keep_entries);
}

fn keep<T>(items: &mut Vec<T>, kept: &[bool]) {
    let mut kept = kept.iter();
    items.retain(|_| kept.next().copied().unwrap_or(true));
}
