//! The decision for one request.

use std::sync::atomic::Ordering::Relaxed;

use super::identity::PointIdentity;
use super::{in_force, record};
use crate::baggage::{Tradeoff, note};

/// What to do for one request at one point. While it lives, the request counts as under way there: keep it until the
/// point's work is done.
#[derive(Debug)]
#[must_use = "the request counts as under way at the point until this is dropped"]
pub struct Choice {
    point: &'static PointIdentity,
    /// True if the point counts the request as under way.
    is_counted: bool,
    items: usize,
    omitted: usize,
    /// A bit for each item, set where it is to be left out; empty where all stay.
    bits: Vec<u64>,
    is_full: bool,
}

impl Choice {
    pub(super) const fn full(
        point: &'static PointIdentity,
        items: usize,
        is_counted: bool,
    ) -> Self {
        Self {
            point,
            is_counted,
            items,
            omitted: 0,
            bits: Vec::new(),
            is_full: true,
        }
    }

    /// Of one call that is not to be made in full.
    pub(super) const fn reduced(point: &'static PointIdentity) -> Self {
        Self {
            point,
            is_counted: true,
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
            is_counted: true,
            items,
            omitted: places.len(),
            bits,
            is_full: places.is_empty(),
        }
    }

    /// Nothing is given up: all items, the true value.
    #[must_use]
    pub const fn is_full(&self) -> bool {
        self.is_full
    }

    /// Items that were decided about; 1 for a call.
    #[must_use]
    pub const fn items(&self) -> usize {
        self.items
    }

    /// Items that are left out; 1 for a call that is not to be made in full.
    #[must_use]
    pub const fn omitted(&self) -> usize {
        self.omitted
    }

    /// Whether the item at this place stays.
    #[must_use]
    pub fn keeps(&self, place: usize) -> bool {
        self.bits
            .get(place / 64)
            .is_none_or(|word| word >> (place % 64) & 1 == 0)
    }

    /// Takes the items out that are to be left out. They must be in the order in which they were decided about.
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

    /// What should have been done in full was not, after all: a timeout or an error had `items` items left out, or the
    /// default or the alternative taken (1). Recorded as a reactive tradeoff.
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
        if self.is_counted {
            self.point.under_way.fetch_sub(1, Relaxed);
        }
    }
}
