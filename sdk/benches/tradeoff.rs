//! Measures the cost of a decision at a tradeoff point:
//! `cargo bench -p stroboscope --bench tradeoff`.
//!
//! One thread of one process measures everything. Each figure is the median of the rounds that had
//! the core alone (see `alone`).

#![allow(missing_docs)]

mod alone;
mod processor;

use std::hint::black_box;

use alone::{Figure, Round};
use stroboscope::baggage::{self, Baggage};
use stroboscope::tradeoff::{
    self, Curve, Feature, Goal, PerformanceModel, Point, PointPolicy, Policy, QualityModel, Weight,
};

static POINT: Point = Point::omitting("bench.items", &["generator", "score"]);
static QUIET: Point = Point::omitting("bench.quiet", &["generator", "score"]);

const GENERATORS: [&str; 8] = [
    "friends", "pages", "ads", "trending", "groups", "events", "videos", "places",
];

fn policy() -> Policy {
    let weights = GENERATORS
        .iter()
        .enumerate()
        .map(|(place, generator)| Weight {
            feature: 0,
            value: Some((*generator).to_owned()),
            weight: place as f64,
            low: 0.0,
            high: 9.0,
        });
    let score = Weight {
        feature: 1,
        value: None,
        weight: 3.0,
        low: 0.0,
        high: 9.0,
    };
    let point = |name: &Point, goal: Goal| PointPolicy {
        point: name.name().to_owned(),
        performance: PerformanceModel::new(
            0.5,
            vec![
                Curve::new(0.0, [(0.0, 1e6), (1e9, 2e6)]),
                Curve::new(0.5, [(0.0, 5e5), (1e9, 1e6)]),
            ],
        ),
        quality: QualityModel {
            schema: vec!["generator".to_owned(), "score".to_owned()],
            intercept: 0.0,
            weights: weights.clone().chain([score.clone()]).collect(),
            drops: Vec::new(),
        },
        goal,
        rate_max: 0.5,
    };
    let half = Goal::Slack {
        component: "bench".to_owned(),
        default_rate: 0.5,
    };
    Policy {
        version: 1,
        learned_ns: 0,
        valid_for_ns: 0,
        points: vec![
            point(&POINT, half),
            point(&QUIET, Goal::Latency { limit_ns: 1e12 }),
        ],
        slack: None,
    }
}

fn items(count: usize) -> Vec<(&'static str, f64)> {
    let every = count.div_ceil(GENERATORS.len());
    (0..count)
        .map(|place| (GENERATORS[place / every], (place % 7) as f64))
        .collect()
}

/// Measures a call, `calls` times per round.
fn measured(calls: u64, mut call: impl FnMut()) -> Figure {
    const ROUNDS: usize = 61;
    let rounds: Vec<Round> = (0..ROUNDS)
        .map(|_| {
            alone::round(calls, || {
                for _ in 0..calls {
                    call();
                }
            })
        })
        .collect();
    Figure::new(&rounds, alone::least_additions_ns(&rounds))
}

fn main() {
    println!("{}", processor::describe());
    let say = |what: &str, figure: Figure, goal: Option<f64>| {
        let ns = figure.median();
        let goal = goal.map_or(String::new(), |goal| {
            let verdict = if ns <= goal { "met" } else { "MISSED" };
            format!("   goal {goal} ns: {verdict}")
        });
        println!("{what:<58} {ns:>9.1} ns   {figure}{goal}");
    };
    let few = items(300);
    let decide = |point: &'static Point, items: &[(&'static str, f64)]| {
        let decision = point.decide_items(black_box(items.len()), |place| {
            let (generator, score) = items[place];
            [Feature::Is(generator), Feature::Measures(score)]
        });
        black_box(&decision);
    };
    say(
        "no policy",
        measured(20_000, || decide(&QUIET, &few)),
        Some(50.0),
    );
    if let Err(error) = tradeoff::install(policy()) {
        println!("{error}");
        return;
    }
    say(
        "a policy, nothing to be done",
        measured(20_000, || decide(&QUIET, &few)),
        Some(50.0),
    );
    for count in [30, 300, 3_000] {
        let items = items(count);
        let goal = (count == 300).then_some(5_000.0);
        say(
            &format!("half of {count} items left out"),
            measured(400, || decide(&POINT, &items)),
            goal,
        );
        let mut mixed = items.clone();
        // Mixes the sources, so that each one must be looked up.
        for place in 0..mixed.len() {
            mixed.swap(place, place * 7_919 % count);
        }
        say(
            &format!("half of {count} items left out, sources mixed"),
            measured(400, || decide(&POINT, &mixed)),
            goal,
        );
    }
    say(
        "half of 300 items left out, noted in a request's baggage",
        measured(200, || {
            let _request = baggage::enter_request(Baggage::default());
            decide(&POINT, &few);
        }),
        None,
    );
}
