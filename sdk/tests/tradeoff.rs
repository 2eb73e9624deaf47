//! Tests tradeoff points in a running service without a policy, with one from the collector, and
//! with invalid and expired ones: their decisions, records and notes in baggage.

#![cfg(feature = "tradeoff")]

mod collector;

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use collector::{Collector, wait_for};
use stroboscope::baggage::{self, Baggage, Scope, SlackPrediction};
use stroboscope::tradeoff::{
    self, Capacity, Curve, EVENT, EXPLORE_BY, Feature, Goal, ITEMS_EVENT, PerformanceModel,
    Piecewise, Point, PointPolicy, Policy, QualityDrop, QualityModel, SlackModel, Utility, Weight,
};
use stroboscope::{BurstConfig, LossCause, span};
use stroboscope_proto::v1;

/// The policy applies to the whole process, so the tests take turns.
static TURN: Mutex<()> = Mutex::new(());

fn turn() -> MutexGuard<'static, ()> {
    let turn = TURN.lock().unwrap_or_else(PoisonError::into_inner);
    tradeoff::uninstall();
    turn
}

const GENERATORS: [(&str, f64); 3] = [("friends", 0.5), ("pages", 0.2), ("ads", 0.01)];

fn now_ns() -> u64 {
    SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .unwrap()
        .as_nanos() as u64
}

fn policy(version: u64, point: &Point, goal: Goal) -> Policy {
    let weights = GENERATORS.map(|(generator, weight)| Weight {
        feature: 0,
        value: Some(generator.to_owned()),
        weight,
        low: weight,
        high: weight,
    });
    let full = Curve::new(0.0, [(0.0, 10e6), (100.0, 100e6)]);
    let half = Curve::new(0.5, [(0.0, 5e6), (200.0, 50e6)]);
    let drop = QualityDrop {
        tradeoff_rate: 0.5,
        requests: 0,
        share_with_drop: 0.0,
        mean_drop: 2.0,
        random_share_with_drop: 0.0,
        random_mean_drop: 0.0,
    };
    Policy {
        version,
        learned_ns: now_ns(),
        valid_for_ns: 0,
        points: vec![PointPolicy {
            point: point.name().to_owned(),
            performance: PerformanceModel::new(0.5, vec![full, half]),
            quality: QualityModel {
                schema: point
                    .features()
                    .iter()
                    .map(|name| (*name).to_owned())
                    .collect(),
                intercept: 0.0,
                weights: weights.into(),
                drops: vec![drop],
            },
            goal,
            rate_max: 0.5,
        }],
        slack: None,
    }
}

/// A goal with a tradeoff rate of one half for requests without a slack prediction, at any load.
fn half() -> Goal {
    Goal::Slack {
        component: "ranker".to_owned(),
        default_rate: 0.5,
    }
}

/// Makes 30 items, ten of each generator, in the order of increasing weight.
fn items() -> Vec<(&'static str, usize)> {
    let of = |(generator, _)| (0..10).map(move |number| (generator, number));
    GENERATORS.into_iter().rev().flat_map(of).collect()
}

fn decide(point: &'static Point, items: &[(&'static str, usize)]) -> tradeoff::Choice {
    point.decide_items(items.len(), |place| [Feature::Is(items[place].0)])
}

/// Decides about the items of [`items`] and returns those that are kept.
fn kept(point: &'static Point) -> Vec<(&'static str, usize)> {
    let mut items = items();
    decide(point, &items).retain(&mut items);
    items
}

#[test]
fn without_a_policy_everything_stays() {
    static POINT: Point = Point::omitting("test.without", &["generator"]);
    static CALL: Point = Point::defaulting("test.without_call");
    let _turn = turn();
    assert_eq!(kept(&POINT), items());
    assert!(CALL.decide().is_full());
    assert!(baggage::tradeoffs().is_empty());
}

#[test]
fn the_least_worth_goes_first_and_is_noted() {
    static POINT: Point = Point::omitting("test.least", &["generator"]);
    let _turn = turn();
    tradeoff::install(policy(3, &POINT, half())).unwrap();
    let _request = baggage::enter_request(Baggage::default());
    let kept = kept(&POINT);
    assert_eq!(kept.len(), 15);
    assert!(
        !kept.iter().any(|(generator, _)| *generator == "ads"),
        "{kept:?}"
    );
    assert_eq!(
        kept.iter()
            .filter(|(generator, _)| *generator == "pages")
            .count(),
        5
    );
    let noted = baggage::tradeoffs();
    assert_eq!(noted.len(), 1);
    assert_eq!(
        (noted[0].component.as_str(), noted[0].what.as_str()),
        ("test", "least")
    );
    assert!(noted[0].proactive);
    assert_eq!(tradeoff::stats().policy, Some(3));
    // An item of a generator that is missing in the model is omitted last.
    let items = [("new", 0), ("pages", 1)];
    assert!(decide(&POINT, &items).keeps(0));
    tradeoff::uninstall();
    assert_eq!(self::kept(&POINT), self::items());
}

#[test]
fn slack_buys_quality() {
    static POINT: Point = Point::omitting("test.slack", &["generator"]);
    let _turn = turn();
    tradeoff::install(policy(1, &POINT, half())).unwrap();
    let kept_with = |slack: Option<u64>| {
        let _request = baggage::enter_request(Baggage::default());
        if let Some(slack_ns) = slack {
            baggage::predict_slack(&SlackPrediction::default().with("ranker", slack_ns));
        }
        kept(&POINT).len()
    };
    assert_eq!(kept_with(None), 15);
    assert_eq!(kept_with(Some(0)), 15);
    let (some, much) = (kept_with(Some(2_000_000)), kept_with(Some(1_000_000_000)));
    assert!(some > 15 && some < 30, "{some}");
    assert_eq!(much, 30);
}

#[test]
fn slack_is_foretold_by_the_last_request_of_the_key() {
    let _turn = turn();
    let model = SlackModel {
        key: "user".to_owned(),
        components: vec!["web".to_owned(), "ranker".to_owned()],
        edges: vec![(0, 1)],
        keys: [(SlackModel::hash("17"), vec![0, 1_500])].into(),
    };
    tradeoff::uninstall();
    assert_eq!(tradeoff::foretold_slack("17"), None);
    let policy = Policy {
        version: 1,
        learned_ns: 1,
        slack: Some(model),
        ..Policy::default()
    };
    tradeoff::install(policy.clone()).unwrap();
    let before = tradeoff::stats();
    let expected = SlackPrediction::default()
        .with("web", 0)
        .with("ranker", 1_500_000)
        .with_edge("web", "ranker");
    assert_eq!(tradeoff::foretold_slack("17"), Some(expected.clone()));
    assert_eq!(tradeoff::foretold_slack("18"), None);
    let stats = tradeoff::stats();
    let counted = (stats.foretold, stats.unforetold);
    assert_eq!(counted, (before.foretold + 1, before.unforetold + 1));
    {
        let _request = baggage::enter_request(Baggage::default());
        assert!(baggage::predict_slack(&expected));
        let carried = baggage::snapshot().to_header().expect("a header");
        assert_eq!(Baggage::parse(&carried).slack(), Some(expected));
    }
    let old = Policy {
        valid_for_ns: 1,
        ..policy.clone()
    };
    tradeoff::install(old).unwrap();
    assert_eq!(tradeoff::foretold_slack("17"), None);
    assert_eq!(tradeoff::stats().stale, stats.stale + 1);
    let mut bad = policy;
    bad.slack.as_mut().map(|slack| slack.components.pop());
    let refused = tradeoff::install(bad).unwrap_err().to_string();
    assert!(refused.contains("model of slack"), "{refused}");
    tradeoff::uninstall();
}

/// Checks that a goal that no rate meets gets the highest rate and is counted as unmet.
#[test]
fn a_goal_that_cannot_be_met_is_counted() {
    static POINT: Point = Point::omitting("test.unmet", &["generator"]);
    let _turn = turn();
    let impossible = Goal::Latency { limit_ns: 1.0 };
    tradeoff::install(policy(1, &POINT, impossible)).unwrap();
    let before = tradeoff::stats().unmet;
    assert_eq!(kept(&POINT).len(), 15, "as much as rate_max allows");
    assert_eq!(tradeoff::stats().unmet, before + 1);
    tradeoff::uninstall();
}

#[test]
fn policies_that_make_no_sense_or_are_old_or_of_another_schema_leave_all_as_it_is() {
    static POINT: Point = Point::omitting("test.bad", &["generator"]);
    static OTHER: Point = Point::omitting("test.bad", &["generator", "score"]);
    let _turn = turn();
    tradeoff::install(policy(1, &POINT, half())).unwrap();
    let refused = tradeoff::stats().refused;
    let mut bad = policy(2, &POINT, half());
    bad.points[0].quality.weights[0].weight = f64::NAN;
    let error = tradeoff::install(bad).unwrap_err().to_string();
    assert!(
        error.contains("test.bad") && error.contains("not a number"),
        "{error}"
    );
    assert_eq!(
        (tradeoff::stats().refused, tradeoff::stats().policy),
        (refused + 1, Some(1))
    );
    assert!(tradeoff::stats().problem.contains("not a number"));
    assert_eq!(kept(&POINT).len(), 15, "the old one is in force");

    let items = items();
    let decision = OTHER.decide_items(items.len(), |place| {
        [Feature::Is(items[place].0), Feature::Measures(1.0)]
    });
    assert!(decision.is_full());
    assert!(
        tradeoff::stats().problem.contains("learn a new policy"),
        "{:?}",
        tradeoff::stats()
    );

    let old = Policy {
        learned_ns: 1,
        valid_for_ns: 1,
        ..policy(4, &POINT, half())
    };
    tradeoff::install(old).unwrap();
    assert_eq!(kept(&POINT).len(), 30);
    let stats = tradeoff::stats();
    assert!(
        stats.stale > 0 && stats.problem.contains("policy 4"),
        "{stats:?}"
    );
}

/// Checks that the point omits items while the arrival rate is too high for the latency limit, and
/// none after that.
#[test]
fn a_spike_is_answered_and_its_end() {
    static POINT: Point = Point::omitting("test.spike", &["generator"]);
    let _turn = turn();
    tradeoff::install(policy(1, &POINT, Goal::Latency { limit_ns: 50e6 })).unwrap();
    let items = items();
    let run = |per_second: u32, millis: u64| {
        let start = Instant::now();
        let mut last = 0;
        for number in 0_u32.. {
            let due = Duration::from_secs_f64(f64::from(number) / f64::from(per_second));
            if due > Duration::from_millis(millis) {
                break;
            }
            std::thread::sleep(due.saturating_sub(start.elapsed()));
            last = decide(&POINT, &items).omitted();
        }
        last
    };
    assert_eq!(run(20, 1_200), 0);
    let spike = run(120, 1_500);
    assert!(
        (5..=15).contains(&spike),
        "{spike} at {}/s",
        POINT.requests_per_second()
    );
    assert_eq!(run(20, 2_500), 0, "{}/s", POINT.requests_per_second());
}

/// Checks that requests in progress count as load as well: at ten arrivals per second, items are
/// omitted once enough decisions are held, and none after they have ended.
#[test]
fn a_backlog_is_load() {
    static POINT: Point = Point::omitting("test.backlog", &["generator"]);
    let _turn = turn();
    tradeoff::install(policy(1, &POINT, Goal::Latency { limit_ns: 20e6 })).unwrap();
    let items = items();
    let mut under_way = Vec::new();
    let end = Instant::now() + Duration::from_millis(1_500);
    let mut most = 0;
    while Instant::now() < end {
        under_way.push(decide(&POINT, &items));
        most = most.max(under_way.last().map_or(0, tradeoff::Choice::omitted));
        std::thread::sleep(Duration::from_millis(100));
    }
    assert!(most > 0, "{}/s", POINT.requests_per_second());
    under_way.clear();
    let end = Instant::now() + Duration::from_millis(1_500);
    let mut last = usize::MAX;
    while Instant::now() < end {
        last = decide(&POINT, &items).omitted();
        std::thread::sleep(Duration::from_millis(150));
    }
    assert_eq!(last, 0);
}

#[test]
fn calls_are_spread_evenly_at_their_rate() {
    static CALL: Point = Point::alternating("test.calls");
    let _turn = turn();
    let quarter = Goal::Slack {
        component: String::new(),
        default_rate: 0.25,
    };
    let mut policy = policy(1, &CALL, quarter);
    policy.points[0].quality.weights.clear();
    tradeoff::install(policy).unwrap();
    let reduced = (0..400).filter(|_| !CALL.decide().is_full()).count();
    assert!((97..=103).contains(&reduced), "{reduced}");
}

#[test]
fn capacity_is_told_when_it_pays_and_a_panicking_callback_harms_nobody() {
    static POINT: Point = Point::omitting("test.capacity", &["generator"]);
    let _turn = turn();
    let utility = |instance_per_second: f64| {
        Goal::Utility(Utility {
            of_latency: Piecewise(vec![(5e6, 1.0), (60e6, 0.0)]),
            of_drop: Piecewise(vec![(0.0, 1.0), (2.0, 0.0)]),
            instance_per_second,
            instances: 1,
            instances_max: 2,
        })
    };
    let told = Arc::new(AtomicU64::new(0));
    let run = |goal: Goal| {
        tradeoff::install(policy(1, &POINT, goal)).unwrap();
        let items = items();
        for _ in 0..100 {
            drop(decide(&POINT, &items));
            std::thread::sleep(Duration::from_millis(40));
        }
    };
    let callback = Arc::clone(&told);
    tradeoff::on_capacity(move |point, change, decided| {
        assert_eq!((point, change), ("test.capacity", Capacity::Add));
        assert!(decided.with_one_more > Some(decided.per_second));
        callback.fetch_add(1, Relaxed);
        panic!("a user's mistake");
    });
    run(utility(1e6));
    assert_eq!(told.load(Relaxed), 0, "far too dear");
    run(utility(0.1));
    wait_for("the callback", || tradeoff::stats().panicked == 1);
    assert_eq!(told.load(Relaxed), 1, "once");
}

#[test]
fn requests_explore_what_their_baggage_says() {
    static POINT: Point = Point::omitting("test.explored", &["generator"]);
    let _turn = turn();
    let kept_with = |baggage: &str| {
        let _request = baggage::enter_request(Baggage::parse(baggage));
        kept(&POINT)
    };
    assert_eq!(kept_with("sb.explore.test.explored=0.5;t=d").len(), 15);
    assert_eq!(kept_with("sb.explore.test.explored=1;t=i").len(), 0);
    assert_eq!(kept_with("sb.explore.test.explored=0;t=i").len(), 30);
    assert_eq!(kept_with("sb.explore.test.other=0.5;t=d").len(), 30);
    for nonsense in ["NaN;t=d", "7;t=d", "-1;t=i", "half"] {
        assert_eq!(
            kept_with(&format!("sb.explore.test.explored={nonsense}")).len(),
            30
        );
    }
    // Without a policy, random items are omitted. With the model, those of the lowest weight are.
    let random: Vec<_> = (0..8)
        .map(|_| kept_with("sb.explore.test.explored=0.5;t=d"))
        .collect();
    assert!(random.iter().any(|kept| *kept != random[0]));
    tradeoff::install(policy(1, &POINT, Goal::Full)).unwrap();
    let by_model = kept_with(&format!(
        "sb.explore.test.explored=0.5;t=d,sb.{EXPLORE_BY}=model"
    ));
    assert!(!by_model.iter().any(|(generator, _)| *generator == "ads"));
}

#[test]
fn requests_explore_what_their_service_sets() {
    static POINT: Point = Point::defaulting("test.own");
    let _turn = turn();
    let _request = baggage::enter_request(Baggage::default());
    assert!(POINT.decide().is_full());
    assert!(baggage::set(Scope::Request, "explore.test.own", 1.0));
    assert!(!POINT.decide().is_full());
}

#[test]
fn tradeoffs_are_in_the_trace_and_the_collector_says_by_which_policy() {
    static POINT: Point = Point::omitting("test.traced", &["generator"]);
    let _turn = turn();
    let collector = Collector::default();
    collector.direct_kind(v1::directive::Kind::SetTradeoffs(
        (&policy(9, &POINT, half())).into(),
    ));
    let guard = stroboscope::builder()
        .service("ranker")
        .collector(collector.clone().start())
        .burst_config(BurstConfig::ALWAYS_ON)
        .init()
        .unwrap();
    wait_for("the policy", || tradeoff::stats().policy == Some(9));
    wait_for("the gate", || stroboscope::stats().windows > 0);
    let items = items();
    {
        let _request = baggage::enter_request(Baggage::default());
        let _span = span!("rank").entered();
        let decision = decide(&POINT, &items);
        assert_eq!(decision.omitted(), 15);
        decision.reacted(2, "timeout");
        // The request does not explore, so nothing is metered.
        POINT.meter(items.iter().map(|item| ([Feature::Is(item.0)], 1.0)));
    }
    {
        let _request = baggage::enter_request(Baggage::parse("sb.explore.test.traced=0;t=i"));
        baggage::set(Scope::Request, "user", 7u64);
        let _span = span!("rank").entered();
        let _decision = decide(&POINT, &items);
        let losses = items
            .iter()
            .enumerate()
            .map(|(place, item)| ([Feature::Is(item.0)], place as f64));
        POINT.meter(losses);
    }
    {
        let _request = baggage::enter_request(Baggage::parse("sb.explore.test.traced=0.5;t=d"));
        let _span = span!("rank").entered();
        assert_eq!(decide(&POINT, &items).omitted(), 15);
        // Nothing is metered, because an item's loss in a reduced answer differs from that in the
        // full one.
        POINT.meter(items.iter().map(|item| ([Feature::Is(item.0)], 1.0)));
    }
    drop(guard);
    let made = collector.events_named(EVENT);
    assert_eq!(made.len(), 4, "{made:#?}");
    let is = |event: usize, key: &str, value: &str| {
        assert_eq!(made[event][key], value, "{key} of {:?}", made[event]);
    };
    for (key, value) in [
        ("tradeoff.point", "test.traced"),
        ("tradeoff.kind", "omit"),
        ("tradeoff.proactive", "true"),
        ("tradeoff.items", "30"),
        ("tradeoff.omitted", "15"),
        ("tradeoff.omitted_by", "ads=10 pages=5"),
        ("tradeoff.policy", "9"),
        ("tradeoff.explored", "false"),
    ] {
        is(0, key, value);
    }
    is(1, "tradeoff.proactive", "false");
    is(1, "tradeoff.omitted", "2");
    is(1, "tradeoff.cause", "timeout");
    is(2, "tradeoff.explored", "true");
    is(2, "tradeoff.omitted", "0");
    let rows = collector.events_named(ITEMS_EVENT);
    let lines: Vec<&str> = rows
        .iter()
        .flat_map(|event| event["tradeoff_items.rows"].lines())
        .collect();
    assert_eq!(lines.len(), 30);
    assert_eq!(
        (
            rows[0]["tradeoff_items.schema"].as_str(),
            lines[0],
            lines[29]
        ),
        ("generator", "ads\t0", "friends\t29")
    );
    // The policy stays in force after recording has ended.
    assert_eq!(decide(&POINT, &items).omitted(), 15);
}

/// Checks that items with too long a feature are left out and counted, and that others are kept.
#[test]
fn items_that_are_too_long_are_counted() {
    static POINT: Point = Point::omitting("test.long", &["generator"]);
    let _turn = turn();
    let collector = Collector::default();
    let guard = stroboscope::builder()
        .service("ranker")
        .collector(collector.clone().start())
        .burst_config(BurstConfig::ALWAYS_ON)
        .init()
        .unwrap();
    wait_for("the gate", || stroboscope::stats().windows > 0);
    let lost = || -> u64 {
        let losses = stroboscope::stats().losses;
        let oversize = losses
            .iter()
            .filter(|(cause, _)| *cause == LossCause::Oversize);
        oversize.map(|(_, records)| records).sum()
    };
    let before = lost();
    let long = "x".repeat(2_000);
    {
        let _request = baggage::enter_request(Baggage::parse("sb.explore.test.long=0;t=i"));
        let _span = span!("rank").entered();
        let items = ["friends", long.as_str(), "pages", long.as_str()];
        POINT.meter(items.into_iter().map(|item| ([Feature::Is(item)], 1.0)));
    }
    assert_eq!(lost() - before, 2);
    drop(guard);
    let rows = collector.events_named(ITEMS_EVENT);
    let lines: Vec<&str> = rows
        .iter()
        .flat_map(|event| event["tradeoff_items.rows"].lines())
        .collect();
    assert_eq!(lines, ["friends\t1", "pages\t1"]);
}
