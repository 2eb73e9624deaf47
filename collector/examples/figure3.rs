//! Shows the convergence of the model of a growing system (The Mystery Machine, figure 3): the
//! number of relations over 1.3 million simulated requests, while new segments appear.
//!
//! `cargo run --release -p stroboscope-collector --example figure3 [REQUESTS [FILE.svg]]` prints a
//! table, and writes pictures of the relations and of their changes: FILE.svg and FILE-changes.svg.
//! The numbers depend only on REQUESTS.
//!
//! The system is a random graph of segments. Each waits for up to two earlier ones, and takes an
//! exponentially distributed time. Some segments are in every request, others in a fraction of the
//! requests, down to a thousandth. Half of the segments exist from the beginning; each other one is
//! added in the first two thirds of the run. The model must never consider a real order
//! contradicted; otherwise the program ends with an error.

use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;

use stroboscope_analysis::convergence::Convergence;
use stroboscope_analysis::label::SegmentId;
use stroboscope_analysis::model::{Model, Relations};
use stroboscope_analysis::record::TraceId;
use stroboscope_analysis::segment::{Segment, SegmentedTrace};
use stroboscope_render::findings::{changes, convergence};
use stroboscope_render::picture::draw;
use stroboscope_render::show::{Chart, Figure};

/// Number of requests in figure 3.
const REQUESTS: u64 = 1_300_000;
/// Number of segments at the end.
const SEGMENTS: usize = 120;
/// Number of requests between two points of the pictures. In long runs, `Convergence` doubles it.
const POINT_EVERY: u64 = 1_000;

/// SplitMix64 (Steele, Lea, Flood, 2014), which yields equal numbers on every machine.
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    /// Returns a uniform number in [0, 1).
    fn part(&mut self) -> f64 {
        (self.next() >> 11) as f64 / (1u64 << 53) as f64
    }

    fn below(&mut self, limit: usize) -> usize {
        (self.part() * limit as f64) as usize
    }
}

/// A segment of the simulated system.
struct Kind {
    name: Arc<str>,
    waits_for: Vec<usize>,
    mean_ns: f64,
    /// Probability that a request from `deployed` on has it.
    frequency: f64,
    /// Number of the first request that may have it; 0 if it exists from the beginning.
    deployed: u64,
}

fn system(random: &mut Random, requests: u64) -> Vec<Kind> {
    let mut kinds: Vec<Kind> = Vec::new();
    for number in 0..SEGMENTS {
        // Every other segment is new, so that new segments lie between old ones.
        let deployed = if number % 2 == 1 {
            (random.part() * requests as f64 * 2.0 / 3.0) as u64
        } else {
            0
        };
        let waits_for = match number {
            0 => Vec::new(),
            _ => (0..1 + random.below(2))
                .map(|_| number - 1 - random.below(number.min(12)))
                .collect(),
        };
        kinds.push(Kind {
            name: format!("segment {number:03}").into(),
            waits_for,
            mean_ns: 100_000.0 * 10f64.powf(random.part() * 2.0),
            frequency: if random.part() < 0.6 {
                1.0
            } else {
                10f64.powf(-3.0 * random.part())
            },
            deployed,
        });
    }
    kinds
}

/// Simulates one request. Its trace has the request's segments with their times.
fn request(
    number: u64,
    kinds: &[Kind],
    ids: &[Option<SegmentId>],
    random: &mut Random,
) -> SegmentedTrace {
    let mut segments = Vec::with_capacity(kinds.len());
    let mut ends_ns = vec![0; kinds.len()];
    for (at, kind) in kinds.iter().enumerate() {
        let ready_ns = kind
            .waits_for
            .iter()
            .map(|before| ends_ns[*before])
            .max()
            .unwrap_or(0);
        let here =
            number >= kind.deployed && (kind.frequency >= 1.0 || random.part() < kind.frequency);
        // A segment that the request lacks passes on the waits of its predecessors.
        ends_ns[at] = ready_ns;
        if let Some(id) = ids[at].filter(|_| here) {
            let duration_ns = (-(1.0 - random.part()).ln() * kind.mean_ns) as i64 + 1;
            ends_ns[at] = ready_ns + duration_ns;
            segments.push(Segment::new(id, ready_ns, ends_ns[at]));
        }
    }
    SegmentedTrace::new(TraceId(number.into()), None, 0, 0, segments)
}

/// Returns the pairs of an earlier and a later segment that waits for it, directly or transitively.
fn real_orders(kinds: &[Kind]) -> Vec<(usize, usize)> {
    let mut before: Vec<Vec<bool>> = vec![vec![false; kinds.len()]; kinds.len()];
    for (at, kind) in kinds.iter().enumerate() {
        for earlier in &kind.waits_for {
            let of_earlier = before[*earlier].clone();
            before[at]
                .iter_mut()
                .zip(of_earlier)
                .for_each(|(own, theirs)| *own |= theirs);
            before[at][*earlier] = true;
        }
    }
    let pairs = |(b, row): (usize, &Vec<bool>)| {
        row.iter()
            .enumerate()
            .filter(|(_, is_before)| **is_before)
            .map(move |(a, _)| (a, b))
            .collect::<Vec<_>>()
    };
    before.iter().enumerate().flat_map(pairs).collect()
}

/// Reports whether a row is printed after this request.
fn is_row(number: u64, requests: u64) -> bool {
    const EARLY: [u64; 7] = [100, 1_000, 2_000, 5_000, 10_000, 20_000, 50_000];
    EARLY.contains(&number) || number.is_multiple_of(100_000) || number == requests
}

fn row(number: u64, last: u64, model: &Model, now: &Relations, before: Option<&Relations>) {
    let (added, removed) = match before {
        Some(before) => {
            let changes = now.changes_since(before);
            (
                changes.happens_before_added + changes.mutual_exclusion_added,
                changes.happens_before_removed + changes.mutual_exclusion_removed,
            )
        }
        None => (
            now.all_happens_before().len() + now.all_mutual_exclusion().len(),
            0,
        ),
    };
    let per_thousand = |count: usize| count as f64 * 1e3 / (number - last).max(1) as f64;
    println!(
        "{number:>9}  {:>8}  {:>14}  {:>16}  {:>12.2}  {:>16.2}",
        model.labels().len(),
        now.all_happens_before().len(),
        now.all_mutual_exclusion().len(),
        per_thousand(added),
        per_thousand(removed),
    );
}

fn main() -> ExitCode {
    let mut arguments = std::env::args().skip(1);
    let requests = arguments.next().map_or(Ok(REQUESTS), |text| text.parse());
    let Ok(requests) = requests else {
        eprintln!("usage: figure3 [REQUESTS [FILE.svg]]");
        return ExitCode::from(2);
    };
    let picture = PathBuf::from(arguments.next().unwrap_or_else(|| "figure3.svg".to_owned()));
    let mut random = Random(3);
    let kinds = system(&mut random, requests);
    let mut ids: Vec<Option<SegmentId>> = vec![None; kinds.len()];
    let mut model = Model::new();
    let mut series = Convergence::every(POINT_EVERY, 0.0);
    let (mut before, mut last) = (None, 0);
    println!(
        " requests  segments  happens before  mutual exclusion  new per 1000  removed per 1000"
    );
    for number in 1..=requests {
        for (kind, id) in kinds
            .iter()
            .zip(&mut ids)
            .filter(|(kind, _)| kind.deployed <= number)
        {
            *id = id.or_else(|| {
                model
                    .labels_mut()
                    .intern(&kind.name, &"start".into(), &"end".into())
            });
        }
        model.observe(&request(number, &kinds, &ids, &mut random));
        series.observe(&model);
        if is_row(number, requests) {
            let now = model.relations(0.0);
            row(number, last, &model, &now, before.as_ref());
            (before, last) = (Some(now), number);
        }
    }
    series.finish(&model);
    let relations = model.relations(0.0);
    let of = |at: usize| ids[at].map(|id| (id, model.segment_counts(id).traces));
    let (mut real, mut wrong) = (0, 0);
    for (a, b) in real_orders(&kinds) {
        if let (Some((a, _)), Some((b, _))) = (of(a), of(b))
            && model.happens_before_support(a, b).cooccurrences > 0
        {
            real += 1;
            wrong += usize::from(!relations.happens_before(a, b));
        }
    }
    let all = relations.all_happens_before().len();
    println!(
        "{real} orders are really there, {wrong} of them missed; {} more are not yet contradicted",
        all - (real - wrong)
    );
    let figure = |title, chart: Chart| Figure::new(title, "", chart);
    for (figure, path) in [
        (
            figure("the convergence", convergence(series.points())),
            picture.clone(),
        ),
        (
            figure("the changes", changes(series.points())),
            picture.with_file_name(changes_name(&picture)),
        ),
    ] {
        let written = draw(&figure)
            .map_err(|error| error.to_string())
            .and_then(|picture| {
                std::fs::write(&path, picture.svg())
                    .map_err(|error| format!("{}: {error}", path.display()))
            });
        if let Err(error) = written {
            eprintln!("figure3: {error}");
            return ExitCode::from(2);
        }
        println!("{}", path.display());
    }
    if wrong == 0 {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    }
}

fn changes_name(picture: &std::path::Path) -> String {
    let stem = picture.file_stem().unwrap_or_default().to_string_lossy();
    format!("{stem}-changes.svg")
}
