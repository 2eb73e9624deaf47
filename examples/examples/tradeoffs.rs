//! A service that can do less work under load, and lets Stroboscope decide which work to omit:
//! `cargo run -p stroboscope-examples --example tradeoffs`.

use stroboscope::baggage::{self, Baggage};
use stroboscope::tradeoff::{self, Feature, Point};

static CANDIDATES: Point = Point::omitting("ranker.candidates", &["generator", "confidence"]);

#[derive(Debug)]
struct Candidate {
    generator: &'static str,
    confidence: f64,
}

/// Represents the scoring of candidates with a timeout. Returns the number of candidates with low
/// confidence, which represent those that miss the timeout.
fn score(candidates: &[Candidate]) -> usize {
    candidates.iter().filter(|one| one.confidence < 0.1).count()
}

fn rank(mut candidates: Vec<Candidate>) -> Vec<Candidate> {
    let decision = CANDIDATES.decide_items(candidates.len(), |i| {
        [
            Feature::Is(candidates[i].generator),
            Feature::Measures(candidates[i].confidence),
        ]
    });
    decision.retain(&mut candidates);
    let late = score(&candidates);
    if late > 0 {
        decision.reacted(late, "timeout"); // what a timeout took in the end is recorded, too
    }
    candidates
}

/// Adds the predicted slack of a request to its baggage, where the request enters.
fn foretell(user: &str) {
    if let Some(slack) = tradeoff::foretold_slack(user) {
        baggage::predict_slack(&slack);
    }
}

fn main() -> Result<(), stroboscope::InitError> {
    let _tracing = stroboscope::init("ranker")?;
    let candidates = || {
        let of = |generator| {
            (0..4).map(move |n| Candidate {
                generator,
                confidence: 0.2 * f64::from(n),
            })
        };
        of("friends").chain(of("ads")).collect::<Vec<_>>()
    };
    println!("without a policy {} stay", rank(candidates()).len());
    foretell("17");
    // Copy of a request that explores the omission of half of the candidates.
    let _copy = baggage::enter_request(Baggage::parse("sb.explore.ranker.candidates=0.5;t=d"));
    println!("of a copy that explores {} stay", rank(candidates()).len());
    println!("what was given up: {:?}", baggage::tradeoffs());
    Ok(())
}
