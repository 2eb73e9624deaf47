//! State of the screen, and the effect of keys on it, without a terminal or a clock.

use std::collections::VecDeque;
use std::time::Duration;

use crossterm::event::{KeyCode, KeyEvent, KeyModifiers};

use super::snapshot::{Operation, Snapshot};

/// Period over which rates are averaged: shorter at first, and longer if snapshots are rare.
const RATE_OVER: Duration = Duration::from_secs(10);
/// Maximum length of a filter, in characters.
const FILTER_MAX: usize = 200;

/// Column by which the table's rows are sorted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum SortKey {
    #[default]
    Share,
    Wait,
    P50,
    P99,
    Slack,
    Failed,
    Count,
    Name,
}

impl SortKey {
    pub(super) const ALL: [Self; 8] = [
        Self::Share,
        Self::Wait,
        Self::P50,
        Self::P99,
        Self::Slack,
        Self::Failed,
        Self::Count,
        Self::Name,
    ];

    /// Returns the head of the column.
    pub(super) fn head(self) -> &'static str {
        match self {
            Self::Share => "SHARE",
            Self::Wait => "WAIT",
            Self::P50 => "P50",
            Self::P99 => "P99",
            Self::Slack => "SLACK",
            Self::Failed => "FAILED",
            Self::Count => "COUNT",
            Self::Name => "OPERATION",
        }
    }

    fn next(self) -> Self {
        let at = Self::ALL.iter().position(|key| *key == self).unwrap_or(0);
        Self::ALL[(at + 1) % Self::ALL.len()]
    }
}

/// Action that a key requests from the caller, in addition to the change of the state.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum KeyAsks {
    Nothing,
    Quit,
    Suspend,
}

/// Counters at one moment, from which rates are computed.
#[derive(Clone, Copy, Debug)]
struct Sample {
    at: Duration,
    records: u64,
    requests: u64,
}

/// State of the screen: the snapshot to show, and the user's selection.
#[derive(Clone, Debug, Default)]
pub(super) struct TopState {
    /// Name of the collector or store, as shown to the user.
    pub name: String,
    /// Snapshot to show; `None` before the first.
    pub snapshot: Option<Snapshot>,
    /// Time of this snapshot, since `top` began.
    taken: Duration,
    /// Error of the latest attempt to take a snapshot; `None` if it succeeded.
    pub trouble: Option<String>,
    pub paused: bool,
    pub sort: SortKey,
    pub reversed: bool,
    pub filter: String,
    /// True while keys edit the filter.
    pub is_filtering: bool,
    pub has_help: bool,
    /// Index of the marked row among those of [`rows`](Self::rows).
    pub row: usize,
    samples: VecDeque<Sample>,
    /// Number of table rows that fitted into the last picture; 0 without one, or if it showed the
    /// help.
    pub page_rows: usize,
}

impl TopState {
    pub(super) fn of(name: String) -> Self {
        Self {
            name,
            ..Self::default()
        }
    }

    /// Takes a snapshot or an error. After an error, and while paused, the previous snapshot stays.
    pub(super) fn take(&mut self, seen: Result<Snapshot, String>, now: Duration) {
        match seen {
            Err(trouble) => self.trouble = Some(trouble),
            Ok(_) if self.paused => self.trouble = None,
            Ok(snapshot) => {
                self.trouble = None;
                self.count(&snapshot, now);
                self.snapshot = Some(snapshot);
                self.taken = now;
                self.row = self.row.min(self.rows().len().saturating_sub(1));
            }
        }
    }

    fn count(&mut self, snapshot: &Snapshot, now: Duration) {
        let sample = Sample {
            at: now,
            records: snapshot.totals.records,
            requests: snapshot.totals.requests,
        };
        // The counters of a restarted collector begin at zero.
        let is_less =
            |last: &Sample| last.records > sample.records || last.requests > sample.requests;
        if self.samples.back().is_some_and(is_less) {
            self.samples.clear();
        }
        self.samples.push_back(sample);
        // One older sample stays, so that there are two even if snapshots are rare.
        while self.samples.len() > 2 && now.saturating_sub(self.samples[1].at) >= RATE_OVER {
            self.samples.pop_front();
        }
    }

    /// Returns requests and records per second; `None` until two snapshots are taken after the
    /// start, or after a counter fell.
    pub(super) fn rates(&self) -> Option<(f64, f64)> {
        let (first, last) = (self.samples.front()?, self.samples.back()?);
        let seconds = last.at.saturating_sub(first.at).as_secs_f64();
        (seconds > 0.0).then(|| {
            let of = |from: u64, to: u64| to.saturating_sub(from) as f64 / seconds;
            (
                of(first.requests, last.requests),
                of(first.records, last.records),
            )
        })
    }

    /// Returns the age of the snapshot.
    pub(super) fn age(&self, now: Duration) -> Duration {
        now.saturating_sub(self.taken)
    }

    /// Returns the operations that pass the filter, in the selected order.
    pub(super) fn rows(&self) -> Vec<&Operation> {
        let path = self.snapshot.as_ref().and_then(|of| of.path.as_ref());
        let wanted = self.filter.to_lowercase();
        let mut rows: Vec<&Operation> = path
            .iter()
            .flat_map(|path| &path.operations)
            .filter(|of| of.operation.to_lowercase().contains(&wanted))
            .collect();
        let slack = |of: &Operation| of.slack.map(|slack| slack.p50_ns);
        rows.sort_by(|a, b| {
            let largest_first = match self.sort {
                SortKey::Share => b.share_of_time.total_cmp(&a.share_of_time),
                SortKey::Wait => b.wait_share_of_time.total_cmp(&a.wait_share_of_time),
                SortKey::P50 => b.duration.p50_ns.cmp(&a.duration.p50_ns),
                SortKey::P99 => b.duration.p99_ns.cmp(&a.duration.p99_ns),
                SortKey::Slack => slack(b).cmp(&slack(a)),
                SortKey::Failed => b.failed_share().total_cmp(&a.failed_share()),
                SortKey::Count => b.occurrences.cmp(&a.occurrences),
                SortKey::Name => a.operation.cmp(&b.operation),
            };
            let order = if self.reversed {
                largest_first.reverse()
            } else {
                largest_first
            };
            order.then_with(|| a.operation.cmp(&b.operation))
        });
        rows
    }

    /// Changes the state as a key demands, and returns the action for the caller.
    pub(super) fn press(&mut self, key: KeyEvent) -> KeyAsks {
        let with_control = key.modifiers.contains(KeyModifiers::CONTROL);
        match key.code {
            KeyCode::Char('c') if with_control => return KeyAsks::Quit,
            KeyCode::Char('z') if with_control => return KeyAsks::Suspend,
            _ if self.is_filtering => self.edit_filter(key.code),
            _ if self.has_help => self.has_help = false,
            KeyCode::Char('q') => return KeyAsks::Quit,
            // The first press of Esc clears the filter.
            KeyCode::Esc if self.filter.is_empty() => return KeyAsks::Quit,
            KeyCode::Esc => self.filter.clear(),
            code => self.press_plain(code),
        }
        self.row = self.row.min(self.rows().len().saturating_sub(1));
        KeyAsks::Nothing
    }

    fn press_plain(&mut self, code: KeyCode) {
        let page = self.page_rows.max(1);
        match code {
            KeyCode::Char('?' | 'h') => self.has_help = true,
            KeyCode::Char('p' | ' ') => self.paused = !self.paused,
            KeyCode::Char('/') => self.is_filtering = true,
            KeyCode::Char('r') => self.reversed = !self.reversed,
            KeyCode::Char('s') => self.sort = self.sort.next(),
            KeyCode::Char(letter) if sort_of(letter).is_some() => {
                self.sort = sort_of(letter).unwrap_or_default();
            }
            KeyCode::Down | KeyCode::Char('j') => self.row += 1,
            KeyCode::Up | KeyCode::Char('k') => self.row = self.row.saturating_sub(1),
            KeyCode::PageDown => self.row += page,
            KeyCode::PageUp => self.row = self.row.saturating_sub(page),
            KeyCode::Home | KeyCode::Char('g') => self.row = 0,
            KeyCode::End | KeyCode::Char('G') => self.row = usize::MAX,
            _ => {}
        }
    }

    fn edit_filter(&mut self, code: KeyCode) {
        match code {
            KeyCode::Enter => self.is_filtering = false,
            KeyCode::Esc => {
                self.is_filtering = false;
                self.filter.clear();
            }
            KeyCode::Backspace => drop(self.filter.pop()),
            KeyCode::Char(c) if self.filter.chars().count() < FILTER_MAX => self.filter.push(c),
            _ => {}
        }
    }
}

/// Returns the sort order that a letter selects; `None` for other letters.
fn sort_of(letter: char) -> Option<SortKey> {
    Some(match letter {
        'P' => SortKey::Share,
        'W' => SortKey::Wait,
        '5' => SortKey::P50,
        '9' => SortKey::P99,
        'L' => SortKey::Slack,
        'F' => SortKey::Failed,
        'C' => SortKey::Count,
        'N' => SortKey::Name,
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::super::snapshot::{LatestPath, Spread, Totals};
    use super::*;

    fn operation(name: &str, share: f64, p99_ns: u64, count: u64) -> Operation {
        Operation {
            operation: name.to_owned(),
            occurrences: count,
            share_of_time: share,
            duration: Spread { p50_ns: 1, p99_ns },
            ..Operation::default()
        }
    }

    fn seen(requests: u64, records: u64) -> Snapshot {
        let operations = vec![
            operation("web:page", 0.2, 9, 30),
            operation("store:get", 0.5, 3, 20),
            Operation {
                spans: 20,
                failed: 1,
                ..operation("store:put", 0.1, 7, 10)
            },
        ];
        Snapshot {
            path: Some(LatestPath {
                operations,
                ..LatestPath::default()
            }),
            totals: Totals {
                requests,
                records,
                ..Totals::default()
            },
            ..Snapshot::default()
        }
    }

    fn state() -> TopState {
        let mut state = TopState::of("x".to_owned());
        state.take(Ok(seen(10, 100)), Duration::from_secs(1));
        state
    }

    fn press(state: &mut TopState, keys: &str) -> KeyAsks {
        let mut asked = KeyAsks::Nothing;
        for c in keys.chars() {
            let code = match c {
                '\n' => KeyCode::Enter,
                '\u{1b}' => KeyCode::Esc,
                '\u{8}' => KeyCode::Backspace,
                c => KeyCode::Char(c),
            };
            asked = state.press(KeyEvent::new(code, KeyModifiers::NONE));
        }
        asked
    }

    fn names(state: &TopState) -> Vec<&str> {
        state.rows().iter().map(|of| &*of.operation).collect()
    }

    #[test]
    fn keys_sort() {
        let check = |keys: &str, expected: [&str; 3]| {
            let mut state = state();
            press(&mut state, keys);
            assert_eq!(names(&state), expected, "{keys}");
        };
        check("", ["store:get", "web:page", "store:put"]);
        check("r", ["store:put", "web:page", "store:get"]);
        check("9", ["web:page", "store:put", "store:get"]);
        check("sss", ["web:page", "store:put", "store:get"]);
        check("F", ["store:put", "store:get", "web:page"]);
        check("C", ["web:page", "store:get", "store:put"]);
        check("N", ["store:get", "store:put", "web:page"]);
        check("ssssssss", ["store:get", "web:page", "store:put"]);
    }

    #[test]
    fn a_filter_is_typed_kept_and_taken_back() {
        let mut state = state();
        assert_eq!(press(&mut state, "/stoq\u{8}R\n"), KeyAsks::Nothing);
        assert_eq!(names(&state), ["store:get", "store:put"]);
        assert!(!state.is_filtering);
        assert_eq!(press(&mut state, "\u{1b}"), KeyAsks::Nothing);
        assert_eq!(names(&state).len(), 3);
        assert_eq!(press(&mut state, "\u{1b}"), KeyAsks::Quit);
    }

    #[test]
    fn the_marked_row_stays_within_the_table() {
        let mut state = state();
        press(&mut state, "jjjjjj");
        assert_eq!(state.row, 2);
        press(&mut state, "/put\n");
        assert_eq!(state.row, 0);
        press(&mut state, "kk\u{1b}G");
        assert_eq!(state.row, 2);
        press(&mut state, "g");
        assert_eq!(state.row, 0);
    }

    #[test]
    fn q_escape_and_control_c_end() {
        assert_eq!(press(&mut state(), "q"), KeyAsks::Quit);
        assert_eq!(press(&mut state(), "\u{1b}"), KeyAsks::Quit);
        let control = KeyEvent::new(KeyCode::Char('c'), KeyModifiers::CONTROL);
        assert_eq!(state().press(control), KeyAsks::Quit);
        // Any key closes the help; a filter accepts letters.
        assert_eq!(press(&mut state(), "?q"), KeyAsks::Nothing);
        assert_eq!(press(&mut state(), "/q"), KeyAsks::Nothing);
    }

    #[test]
    fn rates_are_of_the_last_seconds_and_begin_anew_with_the_collector() {
        let mut state = state();
        assert_eq!(state.rates(), None);
        let mut at = |requests, records, second| {
            state.take(Ok(seen(requests, records)), Duration::from_secs(second));
            state.rates()
        };
        assert_eq!(at(12, 140, 3), Some((1.0, 20.0)));
        assert_eq!(at(32, 240, 13), Some((2.0, 10.0)));
        // The collector was restarted.
        assert_eq!(at(0, 0, 14), None);
        assert_eq!(at(3, 6, 15), Some((3.0, 6.0)));
    }

    #[test]
    fn trouble_keeps_the_last_picture_and_a_pause_too() {
        let mut state = state();
        state.take(Err("gone".to_owned()), Duration::from_secs(5));
        assert_eq!(state.trouble.as_deref(), Some("gone"));
        assert_eq!(names(&state).len(), 3);
        assert_eq!(state.age(Duration::from_secs(6)), Duration::from_secs(5));
        press(&mut state, "p");
        state.take(Ok(Snapshot::default()), Duration::from_secs(7));
        assert_eq!((state.trouble.as_deref(), names(&state).len()), (None, 3));
    }
}
