//! Merges short intervals of a thread on processors into one line.

use std::collections::{BTreeMap, BTreeSet};

use super::items::{Item, took};

/// Length in ns below which intervals on a processor are merged.
const SHORT_NS: u64 = 50_000;

#[derive(Debug, Default)]
struct Sum {
    count: u64,
    total_ns: u64,
    last_ns: i64,
    processors: BTreeSet<u16>,
}

/// Merges, for each thread, the short intervals on a processor up to its next long one into the
/// first of them. Keeps the order of items, and the other activities between the intervals.
pub(super) fn sum_up(items: Vec<&Item>) -> Vec<Item> {
    let mut shown: Vec<Item> = Vec::new();
    let mut open: BTreeMap<&str, usize> = BTreeMap::new();
    let mut sums: BTreeMap<usize, Sum> = BTreeMap::new();
    for item in items {
        let (Some(processor), Some(end_ns)) = (item.on_processor, item.end_ns) else {
            shown.push(item.clone());
            continue;
        };
        let takes_ns = end_ns.abs_diff(item.start_ns);
        if takes_ns >= SHORT_NS {
            open.remove(item.thread.as_str());
            shown.push(item.clone());
            continue;
        }
        let at = *open.entry(&item.thread).or_insert_with(|| {
            shown.push(item.clone());
            shown.len() - 1
        });
        let sum = sums.entry(at).or_default();
        sum.count += 1;
        sum.total_ns += takes_ns;
        sum.last_ns = sum.last_ns.max(end_ns);
        sum.processors.insert(processor);
    }
    for (at, sum) in sums.into_iter().filter(|(_, sum)| sum.count > 1) {
        let item = &mut shown[at];
        let processors: Vec<String> = sum.processors.iter().map(u16::to_string).collect();
        item.what = format!(
            "on CPU {}, {} times shorter than {} within {}",
            processors.join(" and "),
            sum.count,
            took(SHORT_NS),
            took(sum.last_ns.abs_diff(item.start_ns))
        );
        // Show the total time of the merged intervals.
        item.end_ns = Some(item.start_ns.saturating_add_unsigned(sum.total_ns));
    }
    shown
}

#[cfg(test)]
mod tests {
    use super::*;

    fn on(thread: &str, start_ns: i64, takes_ns: i64, processor: u16) -> Item {
        let what = format!("on CPU {processor}");
        let end_ns = Some(start_ns + takes_ns);
        Item {
            span: 1,
            start_ns,
            end_ns,
            thread: thread.into(),
            what,
            on_processor: Some(processor),
        }
    }

    fn call(thread: &str, start_ns: i64) -> Item {
        Item {
            what: "read() = 1".into(),
            on_processor: None,
            ..on(thread, start_ns, 10, 0)
        }
    }

    fn said(items: &[Item]) -> Vec<(String, i64, u64, String)> {
        let of = |item: Item| {
            let takes_ns = item.end_ns.unwrap().abs_diff(item.start_ns);
            (item.thread, item.start_ns, takes_ns, item.what)
        };
        sum_up(items.iter().collect()).into_iter().map(of).collect()
    }

    #[test]
    fn short_ones_are_one_line_until_a_long_one_and_all_else_stays() {
        let items = [
            on("a", 0, 10_000, 0),
            on("b", 5_000, 49_999, 1),
            call("a", 20_000),
            on("a", 30_000, 20_000, 1),
            on("a", 60_000, 50_000, 1),
            on("a", 120_000, 1_000, 1),
            on("a", 130_000, 2_000, 1),
        ];
        let line = |thread: &str, start_ns, takes_ns, what: &str| {
            (thread.to_owned(), start_ns, takes_ns, what.to_owned())
        };
        let expected = [
            line(
                "a",
                0,
                30_000,
                &format!(
                    "on CPU 0 and 1, 2 times shorter than {} within {}",
                    took(50_000),
                    took(50_000)
                ),
            ),
            line("b", 5_000, 49_999, "on CPU 1"),
            line("a", 20_000, 10, "read() = 1"),
            line("a", 60_000, 50_000, "on CPU 1"),
            line(
                "a",
                120_000,
                3_000,
                &format!(
                    "on CPU 1, 2 times shorter than {} within {}",
                    took(50_000),
                    took(12_000)
                ),
            ),
        ];
        assert_eq!(said(&items), expected);
    }

    #[test]
    fn time_on_processors_stays_the_same() {
        let items: Vec<Item> = (0..40_i64)
            .map(|i| on(["a", "b", "c"][i as usize % 3], i * 70_000, i * 3_000, 0))
            .collect();
        let together = |takes: &mut dyn Iterator<Item = u64>| takes.sum::<u64>();
        let before = together(
            &mut items
                .iter()
                .map(|item| item.end_ns.unwrap().abs_diff(item.start_ns)),
        );
        let after = said(&items);
        assert_eq!(together(&mut after.iter().map(|line| line.2)), before);
        // The 17 intervals below the threshold are of three threads, and become one for each; the
        // long ones come after them.
        assert_eq!(after.len(), 3 + 40 - 17);
    }
}
