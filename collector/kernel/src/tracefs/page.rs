//! Parses pages of the kernel's ring buffer, as `trace_pipe_raw` returns them.

/// Item of a page, which contains items in order of time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Item<'a> {
    /// Number of events lost before this page; 0 if the number is unknown.
    Missed(u64),
    /// Time of a record, in ns, and the record's bytes.
    Record(u64, &'a [u8]),
}

const MISSED: u64 = 1 << 31;
const MISSED_STORED: u64 = 1 << 30;

/// Calls `each` with the items of a page. Never reads beyond the page, whatever it contains.
pub(super) fn parse<'a>(page: &'a [u8], mut each: impl FnMut(Item<'a>)) {
    let word = |at: usize| Some(u32::from_ne_bytes(page.get(at..at + 4)?.try_into().ok()?));
    let long = |at: usize| Some(u64::from_ne_bytes(page.get(at..at + 8)?.try_into().ok()?));
    let (Some(mut time_ns), Some(commit)) = (long(0), long(8)) else {
        return;
    };
    let end = (16 + (commit & 0xf_ffff) as usize).min(page.len());
    if commit & MISSED != 0 {
        let stored = if commit & MISSED_STORED != 0 {
            long(end)
        } else {
            None
        };
        each(Item::Missed(stored.unwrap_or(0)));
    }
    let mut at = 16;
    while let Some(head) = word(at).filter(|_| at + 4 <= end) {
        let (kind, delta) = (head & 31, u64::from(head >> 5));
        at += 4;
        let extended = || Some(delta + (u64::from(word(at)?) << 27));
        match kind {
            // Padding: to the end of the page, or in place of a discarded record.
            29 if delta == 0 => return,
            29 => {
                let Some(length) = word(at) else { return };
                time_ns = time_ns.saturating_add(delta);
                at += (length as usize).max(4);
            }
            30 => {
                let Some(delta) = extended() else { return };
                time_ns = time_ns.saturating_add(delta);
                at += 4;
            }
            31 => {
                let Some(stamp) = extended() else { return };
                time_ns = (time_ns & (0xf8 << 56)) | stamp;
                at += 4;
            }
            _ => {
                time_ns = time_ns.saturating_add(delta);
                let (from, length) = if kind == 0 {
                    let Some(length) = word(at) else { return };
                    (at + 4, (length as usize).saturating_sub(4))
                } else {
                    (at, kind as usize * 4)
                };
                let Some(record) = page
                    .get(from..from + length)
                    .filter(|_| from + length <= end)
                else {
                    return;
                };
                each(Item::Record(time_ns, record));
                at = from + length;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn page(commit_flags: u64, words: &[u32]) -> Vec<u8> {
        let mut page = 1_000_u64.to_ne_bytes().to_vec();
        page.extend(((words.len() as u64 * 4) | commit_flags).to_ne_bytes());
        page.extend(words.iter().flat_map(|word| word.to_ne_bytes()));
        page
    }

    fn items(page: &[u8]) -> Vec<(u64, usize)> {
        let mut items = Vec::new();
        parse(page, |item| match item {
            Item::Missed(count) => items.push((0, count as usize)),
            Item::Record(time_ns, record) => items.push((time_ns, record.len())),
        });
        items
    }

    #[test]
    fn records_times_and_losses() {
        // Two words 5 ns later; a jump of 2^27 ns; an explicit length of 8, which is 4 + 4 bytes.
        let words = [2 | 5 << 5, 0, 0, 30, 1, 1 << 5, 8, 0];
        assert_eq!(
            items(&page(0, &words)),
            [(1_005, 8), (1_005 + (1 << 27) + 1, 4)]
        );
        assert_eq!(items(&page(MISSED, &[])), [(0, 0)]);
        let mut stored = page(MISSED | MISSED_STORED, &[]);
        stored.extend(17_u64.to_ne_bytes());
        assert_eq!(items(&stored), [(0, 17)]);
        assert!(items(&[0; 7]).is_empty());
        // Discarded data at the largest possible time.
        let mut last = page(0, &[29 | 1 << 5, 4, 1, 0]);
        last[..8].fill(0xff);
        assert_eq!(items(&last), [(u64::MAX, 4)]);
    }

    proptest! {
        #[test]
        fn any_bytes_are_survived(bytes in prop::collection::vec(any::<u8>(), 0..300), commit in 0u64..400) {
            let mut bytes = bytes;
            if bytes.len() >= 16 {
                bytes[8..16].copy_from_slice(&commit.to_ne_bytes());
            }
            items(&bytes);
        }
    }
}
