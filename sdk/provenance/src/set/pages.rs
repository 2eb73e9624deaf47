//! Sets of many ranges: bitmaps of 4,096 inputs, shared between sets until one changes. Under Miri,
//! pages are small.

use alloc::sync::Arc;
use alloc::vec::Vec;

const PAGE_BITS: u32 = if cfg!(miri) { 7 } else { 12 };
const WORDS: usize = 1 << (PAGE_BITS - u64::BITS.ilog2());
const LAST: u32 = (1 << PAGE_BITS) - 1;

/// Inputs by page, in ascending order.
#[derive(Clone, Debug, Default)]
pub(super) struct Pages(Vec<(u32, Page)>);

/// Inputs of one page: at least one input.
#[derive(Clone, Debug)]
enum Page {
    Full,
    Bits(Arc<[u64; WORDS]>),
}

impl Page {
    fn words(&self) -> &[u64; WORDS] {
        match self {
            Self::Full => &[u64::MAX; WORDS],
            Self::Bits(words) => words,
        }
    }

    /// Adds the inputs from `first` to `last` of the page.
    fn insert(&mut self, first: u32, last: u32) {
        let Self::Bits(bits) = self else { return };
        let (from, to) = ((first / 64) as usize, (last / 64) as usize);
        let mask = |at: usize| {
            let low = if at == from { first % 64 } else { 0 };
            let high = if at == to { last % 64 } else { 63 };
            (u64::MAX << low) & (u64::MAX >> (63 - high))
        };
        let is_new = bits[from..=to]
            .iter()
            .zip(from..)
            .any(|(word, at)| mask(at) & !word != 0);
        if !is_new {
            return;
        }
        let words = Arc::make_mut(bits);
        let mut is_full = true;
        for (word, at) in words[from..=to].iter_mut().zip(from..) {
            *word |= mask(at);
            is_full &= *word == u64::MAX;
        }
        if is_full && words.iter().all(|word| *word == u64::MAX) {
            *self = Self::Full;
        }
    }

    fn union_with(&mut self, other: &Self) {
        let (Self::Bits(own), Self::Bits(others)) = (&mut *self, other) else {
            if matches!(other, Self::Full) {
                *self = Self::Full;
            }
            return;
        };
        if Arc::ptr_eq(own, others) {
            return;
        }
        // A page that contains the other one is shared, not copied.
        let (mut own_misses, mut other_misses) = (0, 0);
        for (a, b) in own.iter().zip(others.iter()) {
            own_misses |= b & !a;
            other_misses |= a & !b;
        }
        if own_misses == 0 {
            return;
        }
        if other_misses == 0 {
            *own = Arc::clone(others);
            return;
        }
        let words = Arc::make_mut(own);
        let mut all = u64::MAX;
        for (word, other) in words.iter_mut().zip(others.iter()) {
            *word |= other;
            all &= *word;
        }
        if all == u64::MAX {
            *self = Self::Full;
        }
    }
}

impl Pages {
    pub(super) fn insert(&mut self, first: u32, last: u32) {
        let (from, to) = (first >> PAGE_BITS, last >> PAGE_BITS);
        let start = self.0.partition_point(|(page, _)| *page < from);
        let end = self.0.partition_point(|(page, _)| *page <= to);
        let part = |page| {
            let low = if page == from { first & LAST } else { 0 };
            (low, if page == to { last & LAST } else { LAST })
        };
        if end - start <= (to - from) as usize {
            // Adds all missing pages at once, because each insertion moves the pages that follow.
            let own: Vec<_> = self.0.drain(start..end).collect();
            let mut own = own.into_iter().peekable();
            let pages = (from..=to).map(|page| {
                own.next_if(|(found, _)| *found == page)
                    .unwrap_or_else(|| match part(page) {
                        (0, LAST) => (page, Page::Full),
                        _ => (page, Page::Bits(Arc::new([0; WORDS]))),
                    })
            });
            self.0.splice(start..start, pages);
        }
        for (page, words) in self.0[start..].iter_mut().take((to - from) as usize + 1) {
            match part(*page) {
                (0, LAST) => *words = Page::Full,
                (low, high) => words.insert(low, high),
            }
        }
    }

    pub(super) fn union_with(&mut self, other: &Self) {
        let mut missing = 0;
        let mut at = 0;
        for (page, theirs) in &other.0 {
            at = seek(&self.0, at, *page);
            match self.0.get_mut(at) {
                Some((own, words)) if own == page => words.union_with(theirs),
                _ => missing += 1,
            }
        }
        if missing > 0 {
            // The stable sort of two ascending runs is a merge.
            let own = self.0.len();
            self.0.reserve(missing);
            let mut at = 0;
            for (page, theirs) in &other.0 {
                at = seek(&self.0[..own], at, *page);
                if at == own || self.0[at].0 != *page {
                    self.0.push((*page, theirs.clone()));
                }
            }
            self.0.sort_by_key(|(page, _)| *page);
        }
    }

    /// Returns the number of pages.
    pub(super) fn count(&self) -> usize {
        self.0.len()
    }

    /// Returns the number of inputs.
    pub(super) fn len(&self) -> u64 {
        let of = |page: &Page| match page {
            Page::Full => u64::from(LAST) + 1,
            Page::Bits(words) => words.iter().map(|word| u64::from(word.count_ones())).sum(),
        };
        self.0.iter().map(|(_, page)| of(page)).sum()
    }

    pub(super) fn bytes(&self) -> usize {
        let of = |page: &Page| match page {
            Page::Full => 0,
            Page::Bits(words) => size_of::<[u64; WORDS]>() / Arc::strong_count(words),
        };
        let pages = self.0.iter().map(|(_, page)| of(page)).sum::<usize>();
        pages + self.0.capacity() * size_of::<(u32, Page)>()
    }

    pub(super) fn contains(&self, input: u32) -> bool {
        let page = self
            .0
            .binary_search_by_key(&(input >> PAGE_BITS), |(page, _)| *page);
        page.ok()
            .and_then(|at| self.0.get(at))
            .is_some_and(|(_, page)| {
                page.words()[(input & LAST) as usize / 64] >> (input % 64) & 1 == 1
            })
    }

    /// Returns the range that contains `from`, cut to begin at `from`, or else the next range.
    pub(super) fn range_from(&self, from: u32) -> Option<(u32, u32)> {
        let first = self.next(from, false)?;
        // A set ends before the last number, which is no input.
        let after = self.next(first, true).unwrap_or(u32::MAX);
        Some((first, after - 1))
    }

    /// Returns the next number from `from` on that the set contains, or that it lacks if `is_gap`.
    fn next(&self, from: u32, is_gap: bool) -> Option<u32> {
        let mut number = from;
        let mut at = self
            .0
            .partition_point(|(page, _)| *page < from >> PAGE_BITS);
        loop {
            let page_of = number >> PAGE_BITS;
            let Some((page, words)) = self.0.get(at) else {
                return is_gap.then_some(number);
            };
            if *page != page_of {
                if is_gap {
                    return Some(number);
                }
                number = page << PAGE_BITS;
            }
            if !(is_gap && matches!(words, Page::Full)) {
                let start = (number & LAST) as usize;
                let flip = if is_gap { u64::MAX } else { 0 };
                let mut mask = u64::MAX << (start % 64);
                for (word, place) in words.words().iter().zip(0_u32..).skip(start / 64) {
                    let bits = (word ^ flip) & mask;
                    if bits != 0 {
                        return Some((page << PAGE_BITS) + place * 64 + bits.trailing_zeros());
                    }
                    mask = u64::MAX;
                }
            }
            number = page.checked_add(1)?.checked_mul(1 << PAGE_BITS)?;
            at += 1;
        }
    }
}

/// Returns the index of the first entry, from `at` on, whose page is `page` or a later one. Uses
/// galloping search: if both sets are dense, the entry is near.
fn seek(entries: &[(u32, Page)], at: usize, page: u32) -> usize {
    let rest = &entries[at..];
    let is_before = |entry: &(u32, Page)| entry.0 < page;
    let mut end = 1;
    while rest.get(end - 1).is_some_and(is_before) {
        end *= 2;
    }
    let start = end / 2;
    at + start + rest[start..rest.len().min(end)].partition_point(is_before)
}
