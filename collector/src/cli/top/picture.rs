//! Renders the state of `top` as lines for a screen of a given size, without a terminal.

use std::fmt::Write as _;
use std::time::Duration;

use stroboscope_render::humanise::{counted, duration, percent};
use stroboscope_render::show::{scrubbed, shortened};

use super::snapshot::{LatestPath, Operation, Snapshot};
use super::state::{SortKey, TopState};

/// Style of a line on the screen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Look {
    Plain,
    Bold,
    Marked,
    Bad,
    Faint,
}

/// A line of the screen. Those that [`picture`] returns are at most as long as the screen is wide,
/// and free of control characters.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct ScreenLine {
    pub text: String,
    pub look: Look,
}

/// Size of the screen, in characters.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Size {
    pub columns: usize,
    pub rows: usize,
}

/// Width of a column of numbers with its separator, in characters.
const NUMBERS: usize = 8;
/// Number of table columns that hold numbers.
const NUMBER_COLUMNS: usize = 7;
/// Minimum number of table rows to render. A small screen cuts them off.
const ROWS_MIN: usize = 1;
/// Maximum number of lines for losses. Another line counts the causes that do not fit.
const LOSS_LINES_MAX: usize = 3;

const HELP: [&str; 11] = [
    "s       sort by the next column; or by SHARE P, WAIT W, P50 5, P99 9, SLACK L, FAILED F, COUNT C, OPERATION N",
    "r       the other way around",
    "/       only operations with this text in their name; Enter keeps it, Esc takes it back",
    "p Space pause: the picture stays as it is",
    "j k     down and up, as arrows, PgDn, PgUp; g G and Home End for the ends",
    "q Esc   quit, as Ctrl-C; Ctrl-Z suspends",
    "",
    "SHARE   the share of the time of all requests, on critical paths; WAIT: of that, before the operation began or went on",
    "P50 P99 of the operation's own work at a time: between two events of it, without what it waits for in others",
    "SLACK   how much longer that could take, at the median, and delay no request; COUNT: how often it was seen",
    "FAILED  the part of its spans that failed; of a collector also in incomplete requests",
];

/// Renders the screen, with at most as many lines as it has rows. Sets `page_rows` of the state to
/// the number of table rows that fit, 1 at least, or to 0 for the help.
pub(super) fn picture(state: &mut TopState, size: Size, now: Duration) -> Vec<ScreenLine> {
    let mut lines = head(state, size.columns, now);
    let foot = foot(state);
    if state.has_help {
        lines.truncate(1);
        lines.extend(HELP.map(|text| plain(text.to_owned())));
        state.page_rows = 0;
    } else {
        let room = size.rows.saturating_sub(lines.len() + foot.len() + 1);
        let room = room.max(ROWS_MIN);
        state.page_rows = room;
        lines.extend(table(state, room, size.columns));
    }
    let above_foot = size.rows.saturating_sub(foot.len());
    lines.truncate(above_foot.max(1));
    let line = |text: String, look| ScreenLine { text, look };
    lines.resize_with(above_foot.max(1), || line(String::new(), Look::Plain));
    lines.extend(foot);
    lines.truncate(size.rows);
    for line in &mut lines {
        line.text = fitted(&line.text, size.columns);
    }
    lines
}

/// Renders the head and all rows of the table as plain text, without the line about keys and
/// without the help. `None` for `columns` does not limit the length of lines.
pub(super) fn text(state: &TopState, columns: Option<usize>, now: Duration) -> String {
    let columns = columns.unwrap_or(usize::MAX);
    let mut lines = head(state, columns, now);
    lines.extend(table(state, usize::MAX, columns));
    let texts = lines.iter().map(|line| {
        // Plain text has no marked row.
        let text = line.text.strip_prefix("> ").map(|rest| format!("  {rest}"));
        fitted(text.as_deref().unwrap_or(&line.text), columns)
            .trim_end()
            .to_owned()
    });
    texts.collect::<Vec<_>>().join("\n")
}

fn plain(text: String) -> ScreenLine {
    ScreenLine {
        text,
        look: Look::Plain,
    }
}

/// Replaces control characters in a text, and truncates it to `columns` characters.
fn fitted(text: &str, columns: usize) -> String {
    let text = scrubbed(text);
    if text.chars().count() <= columns {
        return text;
    }
    text.chars().take(columns).collect()
}

fn seconds(of: Duration) -> String {
    match of.as_secs() {
        s if s < 120 => format!("{s} s"),
        s if s < 7_200 => format!("{} min", s / 60),
        s => format!("{} h", s / 3_600),
    }
}

fn head(state: &TopState, columns: usize, now: Duration) -> Vec<ScreenLine> {
    let mut title = format!("stroboscope top - {}", state.name);
    if state.paused {
        let _ = write!(title, " - PAUSED, of {} ago", seconds(state.age(now)));
    }
    let mut lines = vec![ScreenLine {
        text: title,
        look: Look::Bold,
    }];
    if let Some(trouble) = &state.trouble {
        let since = match state.snapshot {
            Some(_) => format!("STALE, of {} ago: {trouble}", seconds(state.age(now))),
            None => format!("waiting: {trouble}"),
        };
        lines.push(ScreenLine {
            text: format!("{since}; trying again"),
            look: Look::Bad,
        });
    }
    let Some(snapshot) = &state.snapshot else {
        return lines;
    };
    lines.push(plain(senders_text(snapshot)));
    lines.push(plain(rates_text(state, snapshot)));
    lines.extend(bursts_line(snapshot));
    lines.extend(losses_lines(snapshot, columns));
    lines.extend(snapshot.path.as_ref().and_then(failed_line));
    lines.push(plain(path_text(snapshot)));
    lines
}

fn senders_text(snapshot: &Snapshot) -> String {
    let senders = &snapshot.senders;
    let Some(last_ns) = senders.last_ns else {
        let has_records = snapshot.totals.records > 0 || snapshot.totals.requests > 0;
        return match senders.processes {
            0 if has_records => "processes: none with Stroboscope's SDK; OpenTelemetry's exporters name services, not processes".to_owned(),
            0 => "processes: nothing has arrived yet; point a service here with STROBOSCOPE_COLLECTOR".to_owned(),
            known => format!("processes: {known} recorded"),
        };
    };
    let ago =
        Duration::from_nanos(u64::try_from(snapshot.at_ns.saturating_sub(last_ns)).unwrap_or(0));
    format!(
        "processes: {} of {} sent in the last minute, on {}; the last records {} ago",
        senders.sending,
        senders.processes,
        counted(senders.hosts as u64, "host"),
        seconds(ago)
    )
}

fn rates_text(state: &TopState, snapshot: &Snapshot) -> String {
    let totals = &snapshot.totals;
    let rates = state.rates().map_or_else(
        || {
            format!(
                "{} and {}",
                counted(totals.requests, "request"),
                counted(totals.records, "record")
            )
        },
        |(requests, records)| {
            format!(
                "{requests:.1} requests/s, {records:.1} spans and events/s; {} and {} in all",
                counted(totals.requests, "request"),
                counted(totals.records, "record")
            )
        },
    );
    format!("seen:      {rates}")
}

/// Renders the line about failed requests; `None` if no request failed.
fn failed_line(path: &LatestPath) -> Option<ScreenLine> {
    let failed = path.failed_requests;
    (failed > 0).then(|| ScreenLine {
        text: format!(
            "failed:    {failed} of {} of the last {}, {}",
            counted(path.all_requests, "request"),
            seconds(Duration::from_secs(path.last_seconds)),
            percent(failed as f64 / path.all_requests.max(1) as f64)
        ),
        look: Look::Bad,
    })
}

/// Describes in one line which requests and operations the table covers.
fn path_text(snapshot: &Snapshot) -> String {
    let Some(path) = &snapshot.path else {
        return "no operations: the collector has no live model (--no-live-model, or an agent)"
            .to_owned();
    };
    let of = match path.operations_known {
        known if known > path.operations.len() => {
            format!(
                "the {} largest of {known} operations",
                path.operations.len()
            )
        }
        _ => "operations".to_owned(),
    };
    let lacking = match path.refused_segments {
        0 => String::new(),
        refused => format!(
            "; the model is full (--max-segments), and left out a segment {}",
            counted(refused, "time")
        ),
    };
    format!(
        "{of} by the critical path of {} of the last {}; {} of it is after the last of them{lacking}",
        counted(path.requests, "complete request"),
        seconds(Duration::from_secs(path.last_seconds)),
        percent(path.tail_share_of_time)
    )
}

/// Renders the line about the burst-config; `None` for a store.
fn bursts_line(snapshot: &Snapshot) -> Option<ScreenLine> {
    let adoption = snapshot.adoption.as_ref()?;
    Some(ScreenLine {
        text: format!("bursts:    {}", scrubbed(&adoption.to_string())),
        look: if adoption.configs.len() > 1 {
            Look::Bad
        } else {
            Look::Plain
        },
    })
}

/// Renders the causes of loss, largest count first, on up to [`LOSS_LINES_MAX`] lines, and the
/// number of further causes on another line.
fn losses_lines(snapshot: &Snapshot, columns: usize) -> Vec<ScreenLine> {
    let lost = &snapshot.totals.lost;
    if lost.is_empty() {
        return vec![plain("lost:      nothing".to_owned())];
    }
    let mut largest: Vec<(&String, &u64)> = lost.iter().collect();
    largest.sort_by(|a, b| b.1.cmp(a.1).then_with(|| a.0.cmp(b.0)));
    let mut texts = vec!["lost:     ".to_owned()];
    for (at, (cause, count)) in largest.iter().enumerate() {
        let comma = if at + 1 < largest.len() { "," } else { "" };
        let one = format!(" {} {count}{comma}", scrubbed(cause));
        let last = texts.len() - 1;
        let is_full = texts[last].chars().count() + one.chars().count() > columns;
        if is_full && texts.len() == LOSS_LINES_MAX {
            let more = largest.len() - at;
            texts.push(format!("           and {more} more; /metrics has all"));
            break;
        }
        if is_full {
            texts.push("          ".to_owned() + &one);
        } else {
            texts[last] += &one;
        }
    }
    let line = |text| ScreenLine {
        text,
        look: Look::Bad,
    };
    texts.into_iter().map(line).collect()
}

/// Renders the column heads, and up to `room` rows that include the marked one.
fn table(state: &TopState, room: usize, columns: usize) -> Vec<ScreenLine> {
    let rows = state.rows();
    let heads: String = SortKey::ALL
        .iter()
        .filter(|key| **key != SortKey::Name)
        .map(|key| format!("{:>NUMBERS$}", marked_head(state, *key)))
        .collect();
    let mut lines = vec![ScreenLine {
        text: format!("  {heads}  {}", marked_head(state, SortKey::Name)),
        look: Look::Bold,
    }];
    let first = (state.row + 1).saturating_sub(room);
    let shown = rows.iter().enumerate().skip(first).take(room);
    let shown: Vec<_> = shown.collect();
    let names = shown.iter().map(|(_, of)| scrubbed(&of.operation));
    let room = columns.saturating_sub(NUMBERS * NUMBER_COLUMNS + 4).max(8);
    let names = short_names(&names.collect::<Vec<_>>(), room);
    lines.extend(shown.into_iter().zip(names).map(|((at, of), name)| {
        let is_marked = at == state.row;
        let mark = if is_marked { '>' } else { ' ' };
        ScreenLine {
            text: format!("{mark} {}  {name}", numbers(of)),
            look: if is_marked { Look::Marked } else { Look::Plain },
        }
    }));
    if rows.is_empty() && state.snapshot.is_some() {
        let why = if state.filter.is_empty() {
            "  No complete request yet. A request counts as complete when nothing of it has arrived for a while."
        } else {
            "  No operation has this in its name."
        };
        lines.push(plain(why.to_owned()));
    }
    lines
}

fn marked_head(state: &TopState, key: SortKey) -> String {
    let mark = match (state.sort == key, (key == SortKey::Name) != state.reversed) {
        (false, _) => "",
        (true, true) => "^",
        (true, false) => "v",
    };
    format!("{}{mark}", key.head())
}

/// Shortens names to at most `room` characters. Different names that would be shortened to equal
/// texts lose their beginning instead, and their end if necessary, to show a difference.
fn short_names(names: &[String], room: usize) -> Vec<String> {
    let short: Vec<String> = names.iter().map(|name| shortened(name, room)).collect();
    let of_each = names.iter().zip(&short).map(|(name, text)| {
        let others = names.iter().zip(&short);
        let alike = others.filter(|(other, of_other)| *of_other == text && *other != name);
        let shared = alike.map(|(other, _)| {
            let pairs = name.chars().zip(other.chars());
            pairs.take_while(|(a, b)| a == b).count()
        });
        let shared: Vec<usize> = shared.collect();
        let (Some(least), Some(most)) = (shared.iter().min(), shared.iter().max()) else {
            return text.clone();
        };
        // Reserve the two ellipses.
        let kept = room - 2;
        let from = (*least).max((most + 1).saturating_sub(kept));
        let from: String = name.chars().skip(from).collect();
        match from.chars().count() > kept {
            true => format!("…{}…", from.chars().take(kept).collect::<String>()),
            false => format!("…{from}"),
        }
    });
    of_each.collect()
}

fn numbers(of: &Operation) -> String {
    let slack = of.slack.map(|slack| duration(slack.p50_ns as f64));
    let failed = (of.failed > 0).then(|| percent(of.failed_share()));
    let numbers = [
        percent(of.share_of_time),
        percent(of.wait_share_of_time),
        duration(of.duration.p50_ns as f64),
        duration(of.duration.p99_ns as f64),
        slack.unwrap_or_else(|| "-".to_owned()),
        failed.unwrap_or_else(|| "-".to_owned()),
        of.occurrences.to_string(),
    ];
    let columns: [String; NUMBER_COLUMNS] = numbers.map(|text| format!("{text:>NUMBERS$}"));
    columns.concat()
}

fn foot(state: &TopState) -> Vec<ScreenLine> {
    let keys = if state.is_filtering {
        format!("/{}_   Enter keeps it, Esc takes it back", state.filter)
    } else if state.has_help {
        "any key goes back".to_owned()
    } else {
        let rows = state.rows();
        let marked = rows.get(state.row).map_or("", |of| &*of.operation);
        let filter = match &*state.filter {
            "" => String::new(),
            filter => format!("only {filter:?} (Esc: all)  "),
        };
        let place = (state.row + 1).min(rows.len());
        format!(
            "q quit  s sort  / filter  p pause  h help  {filter}{place}/{} {marked}",
            rows.len()
        )
    };
    vec![ScreenLine {
        text: keys,
        look: Look::Faint,
    }]
}

#[cfg(test)]
mod tests;
