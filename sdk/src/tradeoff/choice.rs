//! Decision of a tradeoff point for one request.

use super::identity::PointIdentity;
use super::{in_force, record};
use crate::baggage::{Tradeoff, note};
use crate::generation;

/// Decision for one request at one point. If the point measures its load, the request counts as
/// under way until this is dropped, so keep it until the point's work is done.
#[derive(Debug)]
#[must_use = "the request counts as under way at the point until this is dropped"]
pub struct Choice {
    point: &'static PointIdentity,
    /// Generation in which the point counts the request as under way; `None` if it does not.
    counted: Option<u32>,
    items: usize,
    omitted: usize,
    /// One bit per item, set if the item is to be left out; missing bits count as 0.
    bits: Vec<u64>,
    is_full: bool,
}

impl Choice {
    pub(super) fn full(point: &'static PointIdentity, items: usize, is_counted: bool) -> Self {
        Self {
            point,
            counted: is_counted.then(generation::current),
            items,
            omitted: 0,
            bits: Vec::new(),
            is_full: true,
        }
    }

    /// Creates the decision to replace one call.
    pub(super) fn reduced(point: &'static PointIdentity) -> Self {
        Self {
            point,
            counted: Some(generation::current()),
            items: 1,
            omitted: 1,
            bits: Vec::new(),
            is_full: false,
        }
    }

    pub(super) fn omitting(point: &'static PointIdentity, items: usize, places: &[u32]) -> Self {
        let mut bits = vec![0; items.div_ceil(64)];
        for place in places {
            if let Some(word) = bits.get_mut(*place as usize / 64) {
                *word |= 1 << (place % 64);
            }
        }
        Self {
            point,
            counted: Some(generation::current()),
            items,
            omitted: places.len(),
            bits,
            is_full: places.is_empty(),
        }
    }

    /// Reports whether nothing is given up: all items stay, or the call is made.
    #[must_use]
    pub const fn is_full(&self) -> bool {
        self.is_full
    }

    /// Returns the number of items that the decision covers; 1 for a call.
    #[must_use]
    pub const fn items(&self) -> usize {
        self.items
    }

    /// Returns the number of items to leave out; 1 for a call that is to be replaced.
    #[must_use]
    pub const fn omitted(&self) -> usize {
        self.omitted
    }

    /// Reports whether the item at this position stays. Only for decisions about items.
    #[must_use]
    pub fn keeps(&self, place: usize) -> bool {
        self.bits
            .get(place / 64)
            .is_none_or(|word| word >> (place % 64) & 1 == 0)
    }

    /// Removes the items to leave out. The items must be in the order in which they were passed to
    /// the decision.
    pub fn retain<T>(&self, items: &mut Vec<T>) {
        if self.is_full {
            return;
        }
        let mut place = 0;
        items.retain(|_| {
            place += 1;
            self.keeps(place - 1)
        });
    }

    /// Records a reactive tradeoff: a timeout or an error prevented work that should have been done
    /// in full. `items` is the number of items left out, or 1 if a call was replaced by the default
    /// or the alternative; 0 records nothing.
    pub fn reacted(&self, items: usize, cause: &str) {
        if items == 0 {
            return;
        }
        in_force::count_reacted();
        let (component, what) = self.point.parts();
        note(&Tradeoff::new(component, what, self.point.kind));
        record::reacted(self.point, self.items, items, cause);
    }
}

impl Drop for Choice {
    fn drop(&mut self) {
        if let Some(began) = self.counted {
            self.point.end(began, generation::current());
        }
    }
}
