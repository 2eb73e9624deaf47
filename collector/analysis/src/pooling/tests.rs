//! Tests of predictions and refusals on simulated processes.

use super::*;

/// Random-number generator SplitMix64.
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// Returns a uniform number above 0, at most 1.
    fn part(&mut self) -> f64 {
        ((self.next() >> 11) + 1) as f64 / (1u64 << 53) as f64
    }

    fn normal(&mut self) -> f64 {
        (-2.0 * self.part().ln()).sqrt() * (std::f64::consts::TAU * self.part()).cos()
    }
}

const SECOND_NS: i64 = 1_000_000_000;

/// Simulated use of a process. It is normal, resembles the use of the second before, and is rarely
/// far higher.
struct Process {
    now: f64,
    /// Correlation of the uses of consecutive seconds.
    alike: f64,
    tail: f64,
}

impl Process {
    fn new(random: &mut Random, alike: f64, tail: f64) -> Process {
        let now = random.normal();
        Process { now, alike, tail }
    }

    fn next(&mut self, random: &mut Random) -> f64 {
        let used = 100.0 + 15.0 * self.now;
        self.now = self.alike * self.now + (1.0 - self.alike.powi(2)).sqrt() * random.normal();
        let more = match random.part() < self.tail {
            true => 80.0 + 20.0 * random.normal(),
            false => 0.0,
        };
        used + more
    }
}

fn named(place: usize, values: impl IntoIterator<Item = f64>) -> ProcessUse {
    // Each process is measured at a moment of its own.
    let at = |step: usize| step as i64 * SECOND_NS + place as i64 * 37_000_000;
    ProcessUse {
        process: format!("p{place}"),
        samples: values
            .into_iter()
            .enumerate()
            .map(|(step, value)| (at(step), value))
            .collect(),
    }
}

/// Makes processes that are independent of each other.
fn independent(random: &mut Random, processes: usize, steps: usize, tail: f64) -> Vec<ProcessUse> {
    (0..processes)
        .map(|place| {
            let mut process = Process::new(random, 0.5, tail);
            named(place, (0..steps).map(|_| process.next(random)))
        })
        .collect()
}

/// Returns the results of `STROBOSCOPE_TRIALS` trials (default: 100), rounded down to a multiple of
/// four, run by four threads.
fn trials<T: Send>(seed: u64, one: impl Fn(&mut Random) -> T + Sync) -> Vec<T> {
    let trials = std::env::var("STROBOSCOPE_TRIALS").ok();
    let trials = trials.map_or(100, |trials| trials.parse().expect("a number"));
    let threads = 4;
    let one = &one;
    std::thread::scope(|scope| {
        let started: Vec<_> = (0..threads)
            .map(|thread| {
                scope.spawn(move || {
                    (0..trials / threads)
                        .map(|trial| one(&mut Random(seed + trial * threads + thread)))
                        .collect::<Vec<T>>()
                })
            })
            .collect();
        let found = started.into_iter();
        found.flat_map(|thread| thread.join().unwrap()).collect()
    })
}

fn part_of<T>(found: &[T], is_so: impl Fn(&T) -> bool) -> f64 {
    found.iter().filter(|one| is_so(one)).count() as f64 / found.len() as f64
}

fn twice(uses: &[ProcessUse]) -> PooledDemand {
    let all: Vec<usize> = (0..uses.len()).collect();
    pool(uses, &[all.clone(), all]).unwrap()
}

#[test]
fn independent_processes_are_predicted_and_the_tail_is_foretold() {
    for tail in [0.0, 0.012] {
        // Use of a process that serves twice the users.
        let mut random = Random(99);
        let (mut one, mut other) = (
            Process::new(&mut random, 0.0, tail),
            Process::new(&mut random, 0.0, tail),
        );
        let mut truth: Vec<f64> = (0..1_000_000)
            .map(|_| one.next(&mut random) + other.next(&mut random))
            .collect();
        truth.sort_unstable_by(f64::total_cmp);
        let truth = PARTS.map(|part| percentile_of(&truth, part));
        let found = trials(1, |random| twice(&independent(random, 4, 2_500, tail)));
        let off =
            |one: &PooledDemand, place: usize| truth[place] / one.percentiles[place].normal - 1.0;
        let near = |one: &PooledDemand| (0..2).all(|place| off(one, place).abs() <= 0.02);
        let foretold = |one: &PooledDemand| one.percentiles[2].foretold_error() - off(one, 2);
        let refused = part_of(&found, |one| !one.refused.is_empty());
        let mean = |of: &dyn Fn(&PooledDemand) -> f64| {
            found.iter().map(of).sum::<f64>() / found.len() as f64
        };
        println!(
            "tail {tail}: refused {refused:.3}; p50 and p95 within 2 % {:.3}; p99 {:+.3} above the normal one, {:+.3} foretold; \
             within 2 points {:.3}",
            part_of(&found, near),
            mean(&|one| off(one, 2)),
            mean(&|one| one.percentiles[2].foretold_error()),
            part_of(&found, |one| foretold(one).abs() <= 0.02),
        );
        // By chance, about one in a hundred is refused.
        assert!(refused <= 0.05, "{refused}");
        assert!(part_of(&found, near) >= 0.99);
        assert!(part_of(&found, |one| foretold(one).abs() <= 0.03) >= 0.95);
    }
}

#[test]
fn processes_that_depend_on_each_other_are_refused() {
    // The lower process serves the upper one, some seconds later. The upper one waits meanwhile, or
    // they take turns within a second.
    let found = trials(5, |random| {
        let shift = (random.next() % 6) as usize;
        let mut asked = Process::new(random, 0.5, 0.01);
        let work: Vec<f64> = (0..400 + shift).map(|_| asked.next(random)).collect();
        let mut own = Process::new(random, 0.0, 0.0);
        let mut noise = |scale: f64| (own.next(random) - 100.0) * scale;
        let upper: Vec<f64> = work[shift..].iter().map(|used| used + noise(0.5)).collect();
        let lower: Vec<f64> = work
            .iter()
            .take(400)
            .map(|used| match shift {
                0 => 200.0 - used + noise(0.5),
                _ => used + noise(0.5),
            })
            .collect();
        let pooled = pool(&[named(0, upper), named(1, lower)], &[vec![0], vec![1]]).unwrap();
        (shift as i64, pooled)
    });
    let refused = part_of(&found, |(_, one)| {
        matches!(&one.refused[..], [.., PoolRefusal::Dependent(_)])
    });
    let shift = part_of(&found, |(shift, one)| {
        one.strongest
            .as_ref()
            .is_some_and(|found| (found.shift_ns / SECOND_NS - shift).abs() <= 1)
    });
    println!("refused {refused:.3}, the shift right to one second {shift:.3}");
    assert_eq!(refused, 1.0);
    assert!(shift >= 0.99);
    // The observed sums are those of such a pair of processes.
    let (_, turns) = found.iter().find(|(shift, _)| *shift == 0).unwrap();
    let [p50, p95, _] = &turns.percentiles[..] else {
        panic!("{turns:?}")
    };
    assert!(p95.together.unwrap() < p95.normal * 0.95, "{p95:?}");
    assert!((p50.together.unwrap() / 200.0 - 1.0).abs() < 0.05);
}

#[test]
fn a_load_that_all_follow_is_refused() {
    let found = trials(9, |random| {
        let load: Vec<f64> = (0..300)
            .map(|step| 25.0 * (step as f64 / 20.0).sin())
            .collect();
        let uses: Vec<ProcessUse> = independent(random, 4, 300, 0.0)
            .into_iter()
            .map(|mut one| {
                one.samples
                    .iter_mut()
                    .zip(&load)
                    .for_each(|((_, used), load)| *used += load);
                one
            })
            .collect();
        twice(&uses).refused
    });
    let refused = part_of(&found, |refused| !refused.is_empty());
    println!("refused {refused:.3}");
    assert_eq!(refused, 1.0);
}

#[test]
fn what_is_not_normal_is_refused() {
    let found = trials(13, |random| {
        let uses: Vec<ProcessUse> = (0..4)
            .map(|place| {
                // Busy one second of eight.
                let used = (0..250).map(|_| match random.next().is_multiple_of(8) {
                    true => 90.0 + 5.0 * random.normal(),
                    false => 5.0 + random.normal(),
                });
                named(place, used.collect::<Vec<f64>>())
            })
            .collect();
        twice(&uses).refused
    });
    let is_so = |refused: &Vec<PoolRefusal>| matches!(&refused[..], [PoolRefusal::NotNormal { error, .. }, ..] if error.abs() > 0.1);
    assert_eq!(part_of(&found, is_so), 1.0);
}

#[test]
fn what_cannot_be_told_is_not() {
    let mut random = Random(3);
    assert_eq!(pool(&[], &[vec![], vec![]]), None);
    let one = twice(&independent(&mut random, 1, 250, 0.0));
    assert_eq!(one.percentiles[0].together, None);
    assert_eq!(
        one.refused,
        [PoolRefusal::Untold {
            steps: 0,
            needed: None
        }]
    );
    // Two processes that never ran at the same time.
    let mut apart = independent(&mut random, 2, 250, 0.0);
    apart[1]
        .samples
        .iter_mut()
        .for_each(|(at_ns, _)| *at_ns += 1_000 * SECOND_NS);
    let apart = twice(&apart);
    assert!(
        matches!(apart.refused[..], [PoolRefusal::Untold { steps: 0, .. }]),
        "{apart:?}"
    );
    let few = twice(&independent(&mut random, 3, 20, 0.0));
    assert!(
        matches!(
            few.refused[..],
            [
                PoolRefusal::FewSamples { samples: 60, .. },
                ..,
                PoolRefusal::Untold {
                    steps: 20,
                    needed: Some(21..)
                }
            ]
        ),
        "{few:?}"
    );
    // The sum of constant uses is constant.
    let still = twice(&[named(0, vec![4.0; 200]), named(1, vec![4.0; 200])]);
    assert_eq!(
        still.percentiles[1],
        PooledPercentile {
            part: 0.95,
            normal: 8.0,
            independent: 8.0,
            together: Some(8.0)
        }
    );
    assert_eq!(still.refused, []);
}

#[test]
fn gaps_are_counted() {
    let mut random = Random(4);
    let mut uses = independent(&mut random, 2, 250, 0.0);
    uses[0].samples.drain(100..110);
    let pooled = twice(&uses);
    assert_eq!(
        (pooled.gaps, pooled.step_ns, pooled.samples),
        (10, SECOND_NS, 490)
    );
    assert_eq!(pooled.together, 240);
}

/// Compares with the sums of every value of one sample and every value of the other.
#[test]
fn a_sum_of_distributions_is_that_of_all_pairs() {
    let mut random = Random(5);
    for round in 0..50 {
        let mut some = |count: usize| {
            let mut values: Vec<f64> = (0..count)
                .map(|_| match round % 3 {
                    0 => random.normal() * 4.0 + 7.0,
                    1 => -random.part().ln() * 20.0,
                    _ => (random.next() % 7) as f64,
                })
                .collect();
            values.sort_unstable_by(f64::total_cmp);
            values
        };
        let (a, b) = (some(300), some(200));
        let mut all: Vec<f64> = a
            .iter()
            .flat_map(|a| b.iter().map(move |b| a + b))
            .collect();
        all.sort_unstable_by(f64::total_cmp);
        let sum = SumOf::independent(&[a.clone(), b]);
        let step = (a[299] - a[0]) / 512.0;
        for part in [0.1, 0.5, 0.9, 0.95, 0.99] {
            let (found, expected) = (sum.percentile(part), percentile_of(&all, part));
            // If the values are few, any value between two neighbours is right.
            let around = [part - 0.003, part + 0.003].map(|part| percentile_of(&all, part));
            assert!(
                (found - expected).abs() <= 2.0 * step
                    || (around[0] - step..=around[1] + step).contains(&found),
                "{round} {part}: {found} {expected}"
            );
        }
    }
}

/// Compares with the definition of rank correlation.
#[test]
fn a_dependence_is_that_of_ranks() {
    let mut random = Random(6);
    let first: Vec<f64> = (0..200).map(|_| random.normal()).collect();
    let second: Vec<f64> = (0..200)
        .map(|step| match step {
            0..3 => random.normal(),
            _ => first[step - 3].powi(3) + 0.2 * random.normal(),
        })
        .collect();
    let uses = [named(0, first.clone()), named(1, second.clone())];
    let found = pool(&uses, &[vec![0], vec![1]]).unwrap().strongest.unwrap();
    let rank = |values: &[f64], value: f64| values.iter().filter(|of| **of < value).count() as f64;
    let pairs = (0..197).map(|step| {
        (
            rank(&first, first[step]) - 99.5,
            rank(&second, second[step + 3]) - 99.5,
        )
    });
    let variance = (0..200)
        .map(|rank| (f64::from(rank) - 99.5).powi(2))
        .sum::<f64>()
        / 200.0;
    let expected = pairs.map(|(a, b)| a * b).sum::<f64>() / 197.0 / variance;
    assert_eq!(found.shift_ns, 3 * SECOND_NS);
    assert!(
        (found.correlation - expected).abs() < 1e-9,
        "{found:?} {expected}"
    );
}
