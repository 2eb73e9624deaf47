//! Tests that explanations find planted reasons, and no others.

use super::*;

struct Dice(u64);

impl Dice {
    fn unit(&mut self) -> f64 {
        self.0 = self
            .0
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 11) as f64 / (1u64 << 53) as f64
    }

    fn below(&mut self, bound: u64) -> u64 {
        (self.unit() * bound as f64) as u64
    }
}

const START_NS: i64 = 1_790_000_000_000_000_000;

/// Returns requests that record ids, times, noise, and the values that `more` returns for their
/// class.
fn requests(
    seed: u64,
    counts: [usize; 2],
    more: impl Fn(&mut Dice, bool) -> Vec<(&'static str, &'static str, String)>,
) -> Vec<ExplainedRequest> {
    let mut dice = Dice(seed);
    let mut requests = Vec::new();
    for (is_mutation, count) in [false, true].into_iter().zip(counts) {
        for at in 0..count {
            let number = requests.len() as u64;
            let start_ns =
                START_NS + i64::from(is_mutation) * 60_000_000_000 + at as i64 * 1_000_000;
            let mut said = vec![
                (
                    "web:page",
                    "request.id",
                    format!("r{:016x}", dice.0 ^ 0x5bd1),
                ),
                ("web:page", "sequence", number.to_string()),
                (
                    "web:page",
                    "random.id",
                    (dice.unit() * 1.8e19).round().to_string(),
                ),
                ("web:page", "at", (start_ns / 1_000_000_000).to_string()),
                ("web:page", "at_ns", start_ns.to_string()),
                (
                    "web:page",
                    "thread.id",
                    (7 + u64::from(is_mutation)).to_string(),
                ),
                ("web:page", "user", dice.below(400).to_string()),
                ("store:read", "host", format!("store-{}", dice.below(4))),
                ("store:read", "load", format!("{:.3}", dice.unit())),
            ];
            said.extend(more(&mut dice, is_mutation));
            let parameter = |(operation, key, text): (&str, &str, String)| {
                let parameter = Parameter {
                    operation: operation.into(),
                    key: key.into(),
                };
                (parameter, Arc::from(text))
            };
            requests.push(ExplainedRequest {
                id: TraceId(u128::from(number) + 1),
                start_ns,
                is_mutation,
                weight: 1.0,
                latency_ns: if is_mutation { 9_000 } else { 1_000 },
                parameters: said.into_iter().map(parameter).collect(),
            });
        }
    }
    requests
}

fn explained(requests: &[ExplainedRequest]) -> Explanation {
    explain(requests, &ExplainSettings::default()).expect("enough requests")
}

fn sentences(explanation: &Explanation) -> Vec<String> {
    explanation
        .leaves
        .iter()
        .map(ExplainedLeaf::sentence)
        .collect()
}

/// Returns the size of a read: small for changed requests and large for others, except for 1 %.
fn small_reads(dice: &mut Dice, is_mutation: bool) -> Vec<(&'static str, &'static str, String)> {
    let is_small = is_mutation != (dice.unit() < 0.01);
    let count = if is_small {
        512 + dice.below(8) * 512
    } else {
        4_608 + dice.below(200) * 512
    };
    vec![("web:read", "count", count.to_string())]
}

#[test]
fn a_parameter_that_tells_is_named() {
    let explanation = explained(&requests(1, [3_000, 1_000], small_reads));
    assert_eq!(explanation.requests, [3_000, 1_000]);
    assert_eq!(explanation.learned_from, [200, 67]);
    assert_eq!(explanation.held_out, [100, 33]);
    let found = sentences(&explanation);
    assert_eq!(found.len(), 2, "{found:#?}");
    let said = "requests with count <= 4096 (web:read) have the change: precision ";
    assert!(found[0].starts_with(said), "{found:#?}");
    assert!(found[0].ends_with(" of 4000 requests"), "{found:#?}");
    let leaf = &explanation.leaves[0];
    assert!(leaf.precision() > 0.9 && leaf.recall() > 0.9, "{leaf:?}");
    let p50_ns = |of: Option<Typical>| of.map(|of| of.p50_ns);
    let both_ns = (p50_ns(leaf.matching), p50_ns(leaf.others));
    assert_eq!(both_ns, (Some(9_000), Some(1_000)), "{leaf:?}");
    let [matching, others] = leaf.changed_shares();
    assert!(matching > 0.9 && others < 0.1, "{leaf:?}");
    assert!(found[1].starts_with("requests with count > 4096 (web:read) do not have the change"));
}

/// Checks that precision and recall are exact over all requests, not only over the sample.
#[test]
fn precision_and_recall_are_those_of_all_requests() {
    let half = |dice: &mut Dice, is_mutation: bool| {
        let is_b = dice.unit() < if is_mutation { 0.8 } else { 0.1 };
        vec![("", "shard", if is_b { "b" } else { "a" }.to_owned())]
    };
    let requests = requests(2, [40_000, 10_000], half);
    let explanation = explained(&requests);
    let leaf = &explanation.leaves[0];
    assert_eq!(leaf.conditions[0].to_string(), "shard = \"b\"");
    let is_b = |request: &&ExplainedRequest| request.parameters.iter().any(|said| &*said.1 == "b");
    let b: Vec<_> = requests.iter().filter(is_b).collect();
    let right = b.iter().filter(|request| request.is_mutation).count() as f64;
    let (precision, recall) = (right / b.len() as f64, right / 10_000.0);
    assert_eq!((leaf.precision(), leaf.recall()), (precision, recall));
}

/// One request in a hundred is changed, against one in four of the sample. The sample lacks the
/// values next to the threshold.
#[test]
fn thresholds_and_figures_of_uneven_categories_are_those_of_all_requests() {
    let threshold = |dice: &mut Dice, is_mutation: bool| {
        // An eighth of the others is on the same side.
        let is_below = is_mutation || dice.unit() < 0.125;
        let count = if is_below {
            7_331.25 - dice.unit() * dice.unit() * 7_000.0
        } else {
            7_331.5 + dice.unit() * dice.unit() * 90_000.0
        };
        vec![("web:read", "count", format!("{count:.4}"))]
    };
    let requests = requests(12, [30_000, 300], threshold);
    let count = |request: &ExplainedRequest| -> f64 {
        let mut of = request.parameters.iter();
        let said = of.find(|(parameter, _)| &*parameter.key == "count");
        said.expect("all say it").1.parse().expect("a number")
    };
    let changed = || requests.iter().filter(|request| request.is_mutation);
    let best = changed().map(count).fold(0.0, f64::max);
    let below = || requests.iter().filter(|request| count(request) <= best);
    let explanation = explained(&requests);
    assert!(explanation.learned_from[0] < 700, "{explanation:?}");
    let leaf = &explanation.leaves[0];
    let found: Vec<String> = leaf.conditions.iter().map(ToString::to_string).collect();
    assert_eq!(found, [format!("count <= {best} (web:read)")]);
    assert_eq!(leaf.precision(), 300.0 / below().count() as f64);
    assert!(leaf.precision() < 0.1, "{leaf:?}");
    assert_eq!(leaf.recall(), 1.0);
}

#[test]
fn requests_that_represent_several_are_counted_once() {
    let mut requests = requests(1, [2_997, 1_000], small_reads);
    requests[0].weight = 2.0;
    let explanation = explained(&requests);
    assert_eq!(explanation.requests, [2_998, 1_000]);
    assert_eq!(explanation.counted, [2_997, 1_000]);
}

#[test]
fn ids_and_times_are_never_used() {
    for seed in 0..20 {
        let explanation = explained(&requests(100 + seed, [400, 400], |_, _| Vec::new()));
        let why = |key: &str| {
            let left_out = explanation.left_out.iter();
            let mut of = left_out.filter(|left_out| &*left_out.parameter.key == key);
            of.next().map(|left_out| left_out.why)
        };
        assert_eq!(why("request.id"), Some(Why::DiffersAlways));
        assert_eq!(why("random.id"), Some(Why::DiffersAlways));
        assert_eq!(why("sequence"), Some(Why::FollowsTime));
        assert_eq!(why("at"), Some(Why::FollowsTime));
        assert_eq!(why("at_ns"), Some(Why::FollowsTime));
        assert_eq!(why("thread.id"), Some(Why::NamesProcess));
        for measure in ["user", "host", "load"] {
            assert_eq!(why(measure), None, "{measure}");
        }
    }
}

/// Explains fifty pairs of categories that differ only in times and ids.
#[test]
fn chance_explains_nothing() {
    let mut alarms = Vec::new();
    for seed in 0..50 {
        let requests = requests(1_000 + seed, [300, 300], |dice, _| {
            let any = dice.below(100).to_string();
            vec![
                ("a:b", "any", any),
                ("a:b", "flag", dice.below(2).to_string()),
            ]
        });
        let found = sentences(&explained(&requests));
        if !found.is_empty() {
            alarms.push(found);
        }
    }
    assert!(alarms.len() <= 2, "{} of 50: {alarms:#?}", alarms.len());
}

#[test]
fn shuffled_requests_are_explained_alike_and_another_seed_takes_others() {
    let mut requests = requests(3, [3_000, 2_000], small_reads);
    let expected = explained(&requests);
    let mut dice = Dice(9);
    for last in (1..requests.len()).rev() {
        requests.swap(last, dice.below(last as u64 + 1) as usize);
    }
    assert_eq!(explained(&requests), expected);
    let settings = ExplainSettings {
        seed: 1,
        ..ExplainSettings::default()
    };
    let other = explain(&requests, &settings).expect("enough requests");
    assert_ne!(other.leaves, expected.leaves);
    assert_eq!(
        other.leaves[0].conditions[0].parameter,
        expected.leaves[0].conditions[0].parameter
    );
}

#[test]
fn the_next_best_is_found_without_the_best() {
    let both = |dice: &mut Dice, is_mutation: bool| {
        let mut said = small_reads(dice, is_mutation);
        let is_gold = dice.unit() < if is_mutation { 0.9 } else { 0.2 };
        said.push((
            "web:page",
            "plan",
            if is_gold { "gold" } else { "free" }.to_owned(),
        ));
        said
    };
    let requests = requests(4, [2_000, 2_000], both);
    for name in ["count", "count (web:read)"] {
        let settings = ExplainSettings {
            without: [name.to_owned()].into(),
            ..ExplainSettings::default()
        };
        let found = explain(&requests, &settings).expect("enough requests");
        let first = sentences(&found);
        assert!(
            first[0].contains("plan = \"gold\" (web:page)"),
            "{first:#?}"
        );
        assert!(
            found
                .left_out
                .iter()
                .any(|left_out| left_out.why == Why::Asked)
        );
    }
}

#[test]
fn what_is_not_said_tells_too() {
    let retried = |dice: &mut Dice, is_mutation: bool| {
        let retries = dice.below(5).to_string();
        if is_mutation == (dice.unit() < 0.98) {
            vec![("store:read", "retries", retries)]
        } else {
            Vec::new()
        }
    };
    let found = sentences(&explained(&requests(5, [500, 500], retried)));
    assert!(
        found[0].starts_with("requests with retries recorded (store:read) have the change"),
        "{found:#?}"
    );
    assert!(found[1].starts_with("requests with retries not recorded (store:read) do not have"));
}

/// The tree can ask about the largest of several numbers.
#[test]
fn the_largest_of_several_tells() {
    let reads = |dice: &mut Dice, is_mutation: bool| {
        let mut said: Vec<_> = (0..3)
            .map(|_| ("store:read", "bytes", dice.below(500).to_string()))
            .collect();
        if is_mutation {
            said.push(("store:read", "bytes", (9_000 + dice.below(500)).to_string()));
        }
        said
    };
    let requests = requests(9, [500, 500], reads);
    let found = sentences(&explained(&requests));
    assert!(
        found[0].starts_with("requests with largest bytes > "),
        "{found:#?}"
    );
    assert!(
        found[0].contains("(store:read) have the change"),
        "{found:#?}"
    );
    // `without` also matches the recorded name.
    let without = ExplainSettings {
        without: ["bytes".to_owned()].into(),
        ..ExplainSettings::default()
    };
    let explanation = explain(&requests, &without).expect("enough requests");
    assert_eq!(sentences(&explanation), [""; 0]);
}

#[test]
fn what_is_too_much_is_counted() {
    let mut requests = requests(6, [400, 400], |dice, is_mutation| {
        let mut said = small_reads(dice, is_mutation);
        said.push(("web:read", "city", format!("city {}", dice.below(90))));
        // A loop records two values, which differ in half of the requests.
        said.push(("loop:call", "step", "step 1".to_owned()));
        said.push(("loop:call", "step", format!("step {}", 1 + dice.below(2))));
        said
    });
    for request in &mut requests {
        let parameter = |at: u64| Parameter {
            operation: "a:b".into(),
            key: format!("key {at}").into(),
        };
        let more = (0..300).map(|at| (parameter(at), Arc::from("x")));
        // By name they come before `web:read`, whose `count` is as frequent.
        request.parameters.extend(more);
    }
    let explanation = explained(&requests);
    // Every request records 300 keys, 9 of the fixture, `count`, `city` and `step`.
    let unseen = Unseen {
        parameters: 312 - PARAMETERS_MAX,
        texts: explanation.unseen.texts,
        several_values: explanation.unseen.several_values,
    };
    assert_eq!(explanation.unseen, unseen);
    assert!((60..140).contains(&unseen.several_values), "{unseen:?}");
}

/// Checks that the facts that operations ran leave the recorded parameters their room.
#[test]
fn many_operations_hide_no_parameter() {
    let few = requests(6, [400, 400], |dice, is_mutation| {
        small_reads(dice, is_mutation)
    });
    let mut many = few.clone();
    for request in &mut many {
        let ran = |at: usize| Parameter {
            operation: format!("a:operation {at}").into(),
            key: "".into(),
        };
        let facts = (0..=PARAMETERS_MAX).map(|at| (ran(at), Arc::from("")));
        request.parameters.extend(facts);
    }
    let expected = explained(&few);
    assert!(!sentences(&expected).is_empty());
    assert_eq!(sentences(&explained(&many)), sentences(&expected));
    assert_eq!(explained(&many).unseen, expected.unseen);
}

#[test]
fn texts_beyond_the_bound_are_counted() {
    let requests = requests(8, [400, 400], |dice, is_mutation| {
        let mut said = small_reads(dice, is_mutation);
        said.push(("web:read", "city", format!("city {}", dice.below(70))));
        said
    });
    let explanation = explained(&requests);
    assert!(
        (1..=6).contains(&explanation.unseen.texts),
        "{:?}",
        explanation.unseen
    );
    assert!(sentences(&explanation)[0].contains("count <= 4096"));
}

#[test]
fn too_few_requests_are_no_table() {
    let error = explain(
        &requests(7, [300, 5], small_reads),
        &ExplainSettings::default(),
    );
    assert_eq!(
        error.expect_err("too few").to_string(),
        "5 requests with the change and 300 without are too few to tell them apart: at least 12 of each are needed"
    );
}

/// Returns requests, each for one of eight items. Those for item 3 change in the later of two
/// periods.
fn requests_of_items(seed: u64, counts: [usize; 2]) -> Vec<ExplainedRequest> {
    let mut dice = Dice(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15));
    let mut requests = Vec::new();
    for (is_later, count) in [false, true].into_iter().zip(counts) {
        for _ in 0..count {
            let number = requests.len() as u64;
            let item = dice.below(8);
            let parameter = Parameter {
                operation: "shop:page".into(),
                key: "item".into(),
            };
            requests.push(ExplainedRequest {
                id: TraceId(u128::from(place_of(TraceId(u128::from(number)), seed))),
                start_ns: START_NS + number as i64 * 10_000_000,
                is_mutation: is_later && item == 3,
                weight: 1.0,
                latency_ns: 1_000,
                parameters: vec![(parameter, item.to_string().into())],
            });
        }
    }
    requests
}

/// Checks that the item that changed is named, and that no explanation only excludes others. A
/// refined threshold once emptied the leaf of the item, which left `item > 3`.
#[test]
fn one_of_eight_items_is_named() {
    let check = |counts: [usize; 2], named_min: usize| {
        let mut named = 0;
        for seed in 1..=40 {
            let requests = requests_of_items(seed, counts);
            let Ok(found) = explain(&requests, &ExplainSettings::default()) else {
                continue;
            };
            if let Some(first) = found.leaves.first() {
                let conditions: Vec<String> =
                    first.conditions.iter().map(ToString::to_string).collect();
                assert_eq!(
                    conditions,
                    ["item = 3 (shop:page)"],
                    "{counts:?}, seed {seed}"
                );
                assert!(first.is_mutation, "{counts:?}, seed {seed}");
                named += 1;
            }
        }
        assert!(named >= named_min, "{named} of 40 with {counts:?}");
    };
    for counts in [
        [100, 200],
        [400, 400],
        [400, 200],
        [2_000, 300],
        [1_600, 1_600],
    ] {
        check(counts, 40);
    }
    // With few changed requests, chance may hide the item.
    check([100, 100], 18);
    check([600, 150], 30);
}
