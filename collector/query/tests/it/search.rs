//! Searches that skip data, or that hold little data at a time, find the same as a search that does
//! neither.

use stroboscope_fixtures::random::Random;
use stroboscope_query::{
    LargeBurst, SearchMatch, SearchReport, SearchSettings, Selection, alignment, search_bursts,
    search_requests,
};
use stroboscope_search::{Formula, parse};

use crate::random_store::{FILES, RandomStore};

fn one_of<'a>(random: &mut Random, of: &[&'a str]) -> &'a str {
    of[random.below(of.len())]
}

fn condition(random: &mut Random) -> String {
    let (file, number) = (random.below(FILES as usize), random.below(10));
    match random.below(16) {
        0..3 => format!("name = \"only-{file}\""),
        3 | 4 => format!(".rare = \"r{file}\""),
        5 => ".rare != nil".to_owned(),
        6 => format!(
            "name = \"{}\"",
            one_of(random, &["read", "write", "lock", "page"])
        ),
        7 => format!(
            "service {} \"{}\"",
            one_of(random, &["=", "!="]),
            one_of(random, &["web", "store"])
        ),
        8 => format!("duration > {}us", random.below(5_000)),
        9 => format!(".bytes {} {number}", one_of(random, &["=", ">", "<", "!="])),
        10 => format!(".key =~ \"k[{}-9]\"", random.below(4)),
        11 => format!("name =~ \"only-.*|{}\"", one_of(random, &["x", "lock"])),
        12 => format!("host = \"h{}\"", random.below(4)),
        13 => format!("kind = {}", one_of(random, &["server", "client"])),
        14 => ".error = true".to_owned(),
        _ => one_of(
            random,
            &[
                "rootName = \"page\"",
                "traceDuration > 3ms",
                ".nothing = 1",
                "duration > 4ms",
            ],
        )
        .to_owned(),
    }
}

fn braces(random: &mut Random) -> String {
    let first = condition(random);
    let more = match random.below(4) {
        0 => format!(" && {}", condition(random)),
        1 => format!(" || {}", condition(random)),
        _ => String::new(),
    };
    match random.below(8) {
        0 => format!("{{ !({first}){more} }}"),
        _ => format!("{{ {first}{more} }}"),
    }
}

fn span(random: &mut Random) -> String {
    match random.below(6) {
        0 => {
            let structure = one_of(random, &[">>", ">", "~"]);
            format!("{} {structure} {}", braces(random), braces(random))
        }
        1 => {
            let compare = one_of(random, &[">", "<=", "=", "<"]);
            format!("{} | count() {compare} {}", braces(random), random.below(3))
        }
        _ => braces(random),
    }
}

fn formula(random: &mut Random, depth: usize) -> String {
    if depth == 0 || random.below(5) < 2 {
        return span(random);
    }
    let mut part = || format!("({})", formula(random, depth - 1));
    let (a, b) = (part(), part());
    let within = match random.below(2) {
        0 => String::new(),
        _ => format!(" within {}us", 1 + random.below(9_000)),
    };
    match random.below(12) {
        0 => format!("{a} and {b}"),
        1 => format!("{a} or {b}"),
        2 => format!("not {a}"),
        3 => format!("{a} implies {b}"),
        4 => format!("{a} {} {b}{within}", one_of(random, &["then", "before"])),
        5 => {
            let (how, same) = (
                one_of(random, &["during", "overlaps"]),
                one_of(
                    random,
                    &[
                        "at the same host",
                        "at the same service",
                        "with the same .key",
                        "in the same request",
                        "in another request",
                    ],
                ),
            );
            format!("{a} {how} {b} {same}")
        }
        6 => format!("never {a}"),
        7 => {
            let word = one_of(random, &["eventually", "once", "always", "historically"]);
            format!("{word}{within} {a}")
        }
        8 => format!("{a} {} {b}{within}", one_of(random, &["until", "since"])),
        9 => format!("at least {} of {a}{within}", 1 + random.below(3)),
        10 => format!("at most {} of {a}{within}", random.below(3)),
        _ => format!("{a} then {b} with the same .key"),
    }
}

fn parsed(text: &str) -> Formula {
    parse(text).unwrap_or_else(|error| panic!("{text}: {error}"))
}

fn settings(formula: &Formula, kept_max: usize) -> SearchSettings {
    SearchSettings {
        formula: formula.clone(),
        kept_max,
        held_bytes_max: u64::MAX,
        reads_all: false,
    }
}

/// Results of a search, without the way in which it found them.
type Answer = (u64, u64, u64, Vec<SearchMatch>, Vec<String>);

fn answer(found: &SearchReport) -> Answer {
    (
        found.searched,
        found.matched,
        found.unknown,
        found.matches.clone(),
        found.absent.clone(),
    )
}

#[test]
fn what_is_skipped_changes_no_answer_of_random_stores() {
    const STORES: u64 = 14;
    const FORMULAS: usize = 22;
    let selection = Selection::default();
    let (mut pairs, mut skewed) = (0_u64, 0);
    let (mut skipped, mut by_groups, mut by_rows) = (0_u64, 0, 0);
    let (mut matched, mut unknown, mut unseen) = (0, 0, 0);
    for seed in 0..STORES {
        let store = RandomStore::new(seed);
        let source = store.source();
        skewed += u64::from(alignment(&source, selection).expect("read").is_some());
        let mut random = Random(seed ^ 0xf0);
        for _ in 0..FORMULAS {
            let text = formula(&mut random, 3);
            let formula = parsed(&text);
            let kept_max = [3, 1_000][random.below(2)];
            let skipping = settings(&formula, kept_max);
            let all = SearchSettings {
                reads_all: true,
                ..skipping.clone()
            };
            let found = search_requests(&source, selection, &skipping).expect("searched");
            let expected = search_requests(&source, selection, &all).expect("searched");
            assert_eq!(answer(&found), answer(&expected), "store {seed}: {text}");
            assert_eq!(found.notes.damage, []);
            pairs += 1;
            matched += u64::from(found.matched > 0);
            unknown += u64::from(found.unknown > 0);
            let plan = &found.plan;
            if plan.all_because.is_some() {
                continue;
            }
            assert!(plan.read < plan.of, "{plan:?}");
            skipped += 1;
            unseen += u64::from(plan.unseen > 0);
            let groups: u64 = plan.files.iter().map(|file| file.skipped_row_groups).sum();
            let rows: u64 = plan.files.iter().map(|file| file.skipped_rows).sum();
            let all_rows: u64 = plan.files.iter().map(|file| file.rows).sum();
            by_groups += u64::from(groups > 0 && rows < all_rows);
            // No row group was excluded, but not all requests were read.
            by_rows += u64::from(groups == 0);
        }
    }
    println!(
        "{pairs} pairs, {skipped} of them with something skipped: {by_groups} by some row groups, {by_rows} by rows alone, \
         {unseen} beside requests not seen whole; {matched} with matches, {unknown} with unknowns; {skewed} of {STORES} \
         stores with clocks that differ"
    );
    assert!(pairs >= 300);
    let each = [skipped, by_groups, by_rows, unseen, matched, unknown];
    assert!(each.iter().all(|count| *count >= 10), "{each:?}");
    assert!((2..STORES).contains(&skewed), "{skewed}");
}

/// Returns the matches that are not among the large bursts.
fn others(matches: &[SearchMatch], large: &[LargeBurst]) -> Vec<SearchMatch> {
    let is_large = |open_ns: i64| large.iter().any(|one| one.open_ns == open_ns);
    let kept = matches.iter().filter(|one| !is_large(one.start_ns));
    kept.cloned().collect()
}

#[test]
fn bursts_in_slices_are_what_they_are_at_once() {
    const STORES: u64 = 6;
    const FORMULAS: usize = 5;
    let selection = Selection::default();
    let (mut most_slices, mut matched, mut left_out, mut without_witness) = (0, 0, 0, 0);
    for seed in 100..100 + STORES {
        let store = RandomStore::new(seed);
        let source = store.source();
        let mut random = Random(seed ^ 0xb0);
        for _ in 0..FORMULAS {
            let text = formula(&mut random, 3);
            let formula = parsed(&text);
            let search = |held_bytes_max: u64| {
                let bounded = SearchSettings {
                    held_bytes_max,
                    ..settings(&formula, 1_000)
                };
                let found = search_bursts(&source, selection, &bounded).expect("searched");
                assert!(found.held_bytes <= held_bytes_max, "{text}: {found:?}");
                found
            };
            let whole = search(u64::MAX);
            assert_eq!((whole.slices, whole.large.len()), (1, 0), "{text}");
            // Bursts may match because of what they lack, without a witness.
            let all = whole.matches.iter();
            without_witness += all.clone().filter(|one| one.witness.is_empty()).count();
            assert!(all.clone().all(|one| one.example.is_some()), "{text}");
            // With a limit of 0, only bursts that take no memory are searched. The report states
            // the size of each other burst.
            let weights = search(0).large;
            let sum: u64 = weights.iter().map(|burst| burst.bytes).sum();
            assert_eq!(sum, whole.held_bytes, "{text}");
            let largest = weights
                .iter()
                .map(|burst| burst.bytes)
                .max()
                .expect("bursts");

            let sliced = search(largest);
            assert_eq!(answer(&sliced), answer(&whole), "store {seed}: {text}");
            assert_eq!(sliced.large, [], "{text}");
            most_slices = sliced.slices.max(most_slices);
            matched += sliced.matched;

            let less = search(largest - 1);
            let too_large: Vec<LargeBurst> = weights
                .into_iter()
                .filter(|burst| burst.bytes == largest)
                .collect();
            assert_eq!(less.large, too_large, "{text}");
            let kept = others(&whole.matches, &too_large);
            assert_eq!(less.matches, kept, "store {seed}: {text}");
            assert_eq!(less.searched + too_large.len() as u64, whole.searched);
            let sure = kept.iter().filter(|one| one.is_sure).count() as u64;
            assert_eq!(
                (less.matched, less.unknown),
                (sure, kept.len() as u64 - sure)
            );
            left_out += whole.matched - less.matched;
        }
    }
    println!(
        "at most {most_slices} slices, {matched} matches, {left_out} of them in bursts that were too large"
    );
    assert!(most_slices >= 5 && matched > 50 && left_out > 5 && without_witness > 0);
}

/// A host's clock is ahead by more than the length of a burst. The burst contains the host's
/// records all the same, whichever clock sets the common time.
#[test]
fn bursts_hold_what_was_recorded_whatever_the_clocks_say() {
    let selection = Selection::default();
    let mut proven = 0;
    for seed in 0..10 {
        let (mut bursts, mut is_proven) = ([0, 0], false);
        for (at, ahead_ns) in [0, 40_000_000].into_iter().enumerate() {
            let store = RandomStore::with_skew(seed, [0, ahead_ns, 0]);
            let source = store.source();
            is_proven = alignment(&source, selection).expect("read").is_some();
            // With a limit of 0, the report names each burst with records.
            let bounded = SearchSettings {
                held_bytes_max: 0,
                ..settings(&parsed("{ }"), 1_000)
            };
            let found = search_bursts(&source, selection, &bounded).expect("searched");
            bursts[at] = found.large.len();
        }
        assert!(bursts[0] > 5, "{bursts:?}");
        // If the records do not prove the offset of 40 ms, timestamps are used as recorded.
        assert!(
            !is_proven || bursts[1] >= bursts[0],
            "store {seed}: {bursts:?} hold anything"
        );
        proven += u64::from(is_proven);
    }
    assert!(
        proven >= 2,
        "{proven} stores with clocks that are proven to differ"
    );
}
