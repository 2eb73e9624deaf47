//! Groups columns of time into blocks, which the search for changes compares. Requests of one burst
//! resemble each other, so they should be in one block.

use std::ops::Range;

/// Maximum number of blocks.
const BLOCKS_MAX: usize = 96;
/// Minimum length of a pause between bursts, in multiples of the median pause.
const PAUSE_MIN: i64 = 8;
/// Minimum number of bursts at which bursts are no longer cut.
const BURSTS_MIN: usize = 16;
/// Share of all requests, as a divisor, above which a block is cut even inside a burst. If one
/// client loads one page after the other, slow pages cause the longest pauses, and all requests
/// before the pages became slow look like one burst.
const SHARE_MAX: u64 = 8;

/// Groups columns into blocks. A column is given by its number and its number of requests.
/// Repeatedly cuts the block with the most requests at its longest pause, or, of several such, at
/// the one that divides its requests most evenly. No cut leaves a side with few requests. Blocks
/// consist of whole bursts if there are enough, and no burst has too large a share of the requests.
/// Requests at an even rate are divided evenly.
pub(super) fn blocks(columns: &[(i64, u64)]) -> Vec<Range<usize>> {
    let mut until = vec![0];
    for (_, requests) in columns {
        until.push(until[until.len() - 1] + requests);
    }
    let requests = |of: &Range<usize>| until[of.end] - until[of.start];
    let all = until[columns.len()];
    let least = all.div_ceil(2 * BLOCKS_MAX as u64);
    let pause = |place: usize| columns[place].0 - columns[place - 1].0;
    let pause_min = pause_min((1..columns.len()).map(pause).collect());
    let longest_pause = |of: &Range<usize>| {
        let places = (of.start + 1)..of.end;
        let sides = |place: usize| [of.start..place, place..of.end].map(|side| requests(&side));
        let is_too_large = requests(of) > all.div_ceil(SHARE_MAX);
        let is_cut = |place: &usize| {
            let may_cut = is_too_large || pause(*place) >= pause_min;
            may_cut && sides(*place).iter().all(|requests| *requests >= least)
        };
        places.filter(is_cut).max_by_key(|place| {
            let [before, after] = sides(*place);
            (pause(*place), std::cmp::Reverse(before.abs_diff(after)))
        })
    };
    let mut whole = Vec::new();
    let mut open: Vec<_> = std::iter::once(0..columns.len()).collect();
    while open.len() + whole.len() < BLOCKS_MAX
        && let Some(largest) = (0..open.len()).max_by_key(|at| requests(&open[*at]))
    {
        let block = open.swap_remove(largest);
        match longest_pause(&block) {
            Some(place) => open.extend([block.start..place, place..block.end]),
            None => whole.push(block),
        }
    }
    whole.extend(open);
    whole.sort_unstable_by_key(|block| block.start);
    whole
}

/// Returns the shortest pause at which a block may be cut, in columns. If there are enough bursts,
/// only pauses between bursts are long enough. Otherwise, any pause is.
fn pause_min(mut pauses: Vec<i64>) -> i64 {
    pauses.sort_unstable();
    let usual = pauses.get(pauses.len() / 2).copied().unwrap_or_default();
    let long = usual.saturating_mul(PAUSE_MIN);
    let bursts = pauses.iter().filter(|pause| **pause >= long).count() + 1;
    if bursts < BURSTS_MIN { 0 } else { long }
}
