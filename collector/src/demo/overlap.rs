//! Do the processes of one host record the same windows?

use std::collections::BTreeMap;

/// An interval `[open, close)`, ns since the Unix epoch.
pub type Interval = (i64, i64);

/// How well the recorded windows of several processes agree.
#[derive(Clone, Debug, PartialEq)]
pub struct Overlap {
    /// Bursts that any of the processes recorded while all of them were alive.
    pub bursts: usize,
    /// Time that *all* processes recorded, by time that *any* of them recorded, while all were alive: 1 is perfect.
    pub share: f64,
}

/// The windows of one process, and the time it was able to record.
#[derive(Clone, Debug, Default)]
pub struct Recorded {
    /// As reported; pieces of one window may be adjacent.
    pub windows: Vec<Interval>,
    /// From its first batch's beginning to its last batch's end.
    pub alive: Option<Interval>,
}

/// Compares processes over the time in which all of them were alive. `None` when there is no such time.
#[must_use]
pub fn overlap(processes: &[Recorded]) -> Option<Overlap> {
    let alive: Vec<Interval> = processes.iter().filter_map(|process| process.alive).collect();
    let from_ns = alive.iter().map(|&(from_ns, _)| from_ns).max()?;
    let to_ns = alive.iter().map(|&(_, to_ns)| to_ns).min()?;
    // How many processes record at an instant changes by these amounts.
    let mut changes: BTreeMap<i64, i64> = BTreeMap::new();
    for process in processes {
        for (open_ns, close_ns) in joined(&process.windows) {
            // A window that lies half outside was not everybody's to record.
            if from_ns <= open_ns && close_ns <= to_ns {
                *changes.entry(open_ns).or_default() += 1;
                *changes.entry(close_ns).or_default() -= 1;
            }
        }
    }
    let everybody = processes.len() as i64;
    let (mut recording, mut since_ns) = (0i64, from_ns);
    let (mut any_ns, mut all_ns, mut bursts) = (0i64, 0i64, 0);
    for (at_ns, change) in changes {
        if recording > 0 {
            any_ns += at_ns - since_ns;
        }
        if recording == everybody {
            all_ns += at_ns - since_ns;
        }
        bursts += usize::from(recording == 0 && change > 0);
        recording += change;
        since_ns = at_ns;
    }
    (any_ns > 0).then(|| Overlap { bursts, share: all_ns as f64 / any_ns as f64 })
}

/// Windows in order, with adjacent and overlapping pieces made one.
fn joined(windows: &[Interval]) -> Vec<Interval> {
    let mut sorted = windows.to_vec();
    sorted.sort_unstable();
    let mut joined: Vec<Interval> = Vec::new();
    for (open_ns, close_ns) in sorted {
        match joined.last_mut() {
            Some(last) if open_ns <= last.1 => last.1 = last.1.max(close_ns),
            _ => joined.push((open_ns, close_ns)),
        }
    }
    joined
}

#[cfg(test)]
mod tests {
    use super::*;

    fn recorded(alive: Interval, windows: &[Interval]) -> Recorded {
        Recorded { windows: windows.to_vec(), alive: Some(alive) }
    }

    fn check(processes: &[Recorded], expected: Option<(usize, f64)>) {
        assert_eq!(overlap(processes), expected.map(|(bursts, share)| Overlap { bursts, share }));
    }

    #[test]
    fn overlaps() {
        check(&[], None);
        check(&[recorded((0, 100), &[])], None);
        check(&[recorded((0, 100), &[(10, 20), (30, 40)])], Some((2, 1.0)));
        check(&[recorded((0, 100), &[(10, 20)]), recorded((0, 100), &[(10, 20)])], Some((1, 1.0)));
        check(&[recorded((0, 100), &[(10, 20)]), recorded((0, 100), &[(12, 20)])], Some((1, 0.8)));
        check(&[recorded((0, 100), &[(10, 20)]), recorded((0, 100), &[(20, 30)])], Some((1, 0.0)));
        check(&[recorded((0, 100), &[(10, 15), (15, 20)]), recorded((0, 100), &[(10, 20)])], Some((1, 1.0)));
    }

    #[test]
    fn only_the_time_all_were_alive_counts() {
        let late = recorded((25, 100), &[(30, 40)]);
        check(&[recorded((0, 100), &[(10, 20), (30, 40)]), late], Some((1, 1.0)));
    }
}
