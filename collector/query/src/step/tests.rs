use proptest::prelude::*;

use super::*;
use crate::test_noise::Noise;

const SECOND: i64 = 1_000_000_000;

impl Noise {
    /// Returns a random latency in ns. Most are close to `median_ms`, and some are much longer.
    fn latency_ns(&mut self, median_ms: f64) -> u64 {
        let (a, b) = (self.uniform(), self.uniform());
        let normal = (-2.0 * a.ln()).sqrt() * (std::f64::consts::TAU * b).cos();
        (median_ms * 1e6 * (normal * 0.5).exp()) as u64
    }
}

/// Returns ten minutes of requests, up to three per second. `median_ms` returns the median latency
/// in a second.
fn requests(noise: &mut Noise, median_ms: impl Fn(i64) -> f64) -> StepPass {
    let mut pass = StepPass::of(["web:home"].into_iter());
    for second in 0..600 {
        for _ in 0..(noise.uniform() * 4.0) as u32 {
            let at_ns = second * SECOND + (noise.uniform() * 1e9) as i64;
            let latency_ns = noise.latency_ns(median_ms(second));
            pass.see("web:home", at_ns, latency_ns, Weight::ONE);
            pass.see("other:job", at_ns, 7, Weight::ONE);
        }
    }
    pass
}

#[test]
fn bands_are_less_than_a_percent_wide() {
    for ns in [0, 1, 255, 256, 1_000, 68_123_456, 150_000_000, u64::MAX] {
        let back = ns_of(band_of(ns));
        assert!(back.abs_diff(ns) <= ns / 256, "{ns} {back}");
    }
    assert!((1..10_000u64).is_sorted_by_key(band_of_each));
}

fn band_of_each(ns: u64) -> u32 {
    band_of(ns)
}

#[test]
fn a_step_is_said_with_its_time_and_both_medians() {
    let mut noise = Noise(99);
    let pass = requests(&mut noise, |second| if second < 430 { 68.0 } else { 150.0 });
    let step = pass.step().unwrap();
    assert_eq!(step.root, "web:home");
    assert!((step.at_ns - 430 * SECOND).abs() < 12 * SECOND, "{step:?}");
    let [before, after] = step.medians_ns.map(|ns| ns as f64 / 1e6);
    assert!(
        (before - 68.0).abs() < 5.0 && (after - 150.0).abs() < 15.0,
        "{step:?}"
    );
    assert!(step.before_from_ns < 5 * SECOND, "{step:?}");
    assert!(step.until_ns > 597 * SECOND, "{step:?}");
    assert!(step.requests.iter().all(|requests| *requests > 100));
    // A slowdown of 200 s ends. The step is its end, and the time before the step is the slowdown.
    let pass = requests(&mut noise, |second| {
        if (200..400).contains(&second) {
            150.0
        } else {
            68.0
        }
    });
    let step = pass.step().unwrap();
    assert!((step.at_ns - 400 * SECOND).abs() < 12 * SECOND, "{step:?}");
    assert!(
        (step.before_from_ns - 200 * SECOND).abs() < 12 * SECOND,
        "{step:?}"
    );
    assert!(step.medians_ns[0] > step.medians_ns[1]);
}

#[test]
fn where_nothing_changed_nothing_is_said() {
    let mut noise = Noise(4_321);
    let said = (0..100)
        .filter(|_| requests(&mut noise, |_| 68.0).step().is_some())
        .count();
    assert!(said <= 1, "{said}");
    assert_eq!(StepPass::of(["a"].into_iter()).step(), None);
    // The change from a median of 68 ms to one of 70 ms is too small to report.
    let more = requests(&mut noise, |second| if second < 300 { 68.0 } else { 70.0 });
    assert_eq!(more.step(), None);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]
    #[test]
    fn in_any_order_and_in_parts_it_is_the_same(
        requests in proptest::collection::vec((0usize..3, prop_oneof![0i64..1 << 30, 0i64..1 << 50], 0u64..1 << 40), 0..60),
        cut in 0usize..60,
    ) {
        let pass = |some: &[(usize, i64, u64)]| {
            let mut pass = StepPass::of(["a", "b"].into_iter());
            pass.seen = TimeColumns::within(Limit::Occupied(8));
            some.iter().for_each(|(root, start, latency)| pass.see(["a", "b", "c"][*root], *start, *latency, Weight::ONE));
            pass
        };
        let (before, after) = requests.split_at(cut.min(requests.len()));
        let mut merged = pass(after);
        merged.merge(pass(before));
        prop_assert_eq!(&merged, &pass(&requests));
        let known: WeightedCount = merged.seen.columns.values().flat_map(BTreeMap::values).map(count).sum();
        prop_assert_eq!(known.recorded(), requests.iter().filter(|(root, ..)| *root < 2).count() as u64);
    }
}

/// Pattern in which requests arrive, and in which their latencies resemble each other.
#[derive(Clone, Copy, Debug)]
enum Traffic {
    /// Requests arrive at any time.
    Steady,
    /// Requests arrive in bursts of about 25 ms. The requests of a burst share a latency level.
    Bursts,
    /// Requests pause for minutes. Each pause is followed by another latency level.
    Idle,
    /// Two kinds of phases alternate. In one of them, requests arrive ten times as often and take
    /// 1.5 times as long.
    Load,
}

const TRAFFIC: [Traffic; 4] = [
    Traffic::Steady,
    Traffic::Bursts,
    Traffic::Idle,
    Traffic::Load,
];

impl Noise {
    fn normal(&mut self) -> f64 {
        let (a, b) = (self.uniform(), self.uniform());
        (-2.0 * a.ln()).sqrt() * (std::f64::consts::TAU * b).cos()
    }

    fn pause(&mut self, mean: f64) -> f64 {
        -self.uniform().ln() * mean
    }

    /// Returns the arrivals of requests in s, and their latencies in ms. Latencies are about 100
    /// ms, and one in twenty is several times longer. `spread` is the standard deviation of their
    /// logarithms. All share a drift with the standard deviation `drifts`, which changes within
    /// about a minute.
    fn series(
        &mut self,
        traffic: Traffic,
        drifts: f64,
        spread: f64,
        requests: usize,
    ) -> Vec<(f64, f64)> {
        let (mut at, mut last, mut left, mut is_hot) = (0.0, 0.0, 0, false);
        let (mut level, mut drift) = (0.0, self.normal() * drifts);
        let mut series = Vec::new();
        while series.len() < requests {
            match traffic {
                Traffic::Steady => at += self.pause(0.5),
                Traffic::Bursts => {
                    if left == 0 {
                        left = 3 + (self.uniform() * 20.0) as u32;
                        at += 1.0 + self.pause(10.0);
                        level = self.normal() * 0.15;
                    }
                    left -= 1;
                    at += self.pause(0.002);
                }
                Traffic::Idle => {
                    at += self.pause(0.5);
                    if self.uniform() < 0.01 {
                        at += self.pause(600.0);
                        level = self.normal() * drifts;
                    }
                }
                Traffic::Load => {
                    if left == 0 {
                        is_hot = !is_hot;
                        left = 15 + (self.uniform() * 20.0) as u32;
                        level = if is_hot { 0.4 } else { 0.0 };
                    }
                    left -= 1;
                    at += self.pause(if is_hot { 0.1 } else { 1.0 });
                }
            }
            let kept = f64::exp(-(at - last) / 60.0);
            last = at;
            drift = drift * kept + self.normal() * drifts * (1.0 - kept * kept).sqrt();
            let tail = if self.uniform() < 0.05 {
                1.0 + 3.0 * self.uniform().powf(-0.8)
            } else {
                1.0
            };
            let takes = 100.0 * (level + drift + self.normal() * spread).exp() * tail;
            series.push((at, takes));
        }
        series
    }
}

fn step_of(series: &[(f64, f64)]) -> Option<LatencyStep> {
    let mut pass = StepPass::of(["gateway:/*"].into_iter());
    for (at, takes) in series {
        let (at_ns, latency_ns) = ((at * 1e9) as i64, (takes * 1e6) as u64);
        pass.see("gateway:/*", at_ns, latency_ns, Weight::ONE);
    }
    pass.step()
}

#[test]
fn of_quiet_series_at_most_one_in_twenty_has_a_step_either_way() {
    const SERIES: usize = 150;
    let mut noise = Noise(20_261);
    for traffic in TRAFFIC {
        let (mut steps, mut slower, mut doubtful) = (0, 0, 0);
        for at in 0..SERIES {
            let spread = 0.3 + 0.1 * (at % 6) as f64;
            let series = noise.series(traffic, 0.05, spread, 60 + at * 37 % 1_000);
            match step_of(&series) {
                Some(step) if step.requests_needed.is_none() => {
                    steps += 1;
                    slower += usize::from(step.medians_ns[1] > step.medians_ns[0]);
                }
                Some(_) => doubtful += 1,
                None => {}
            }
        }
        println!(
            "{traffic:?}: {steps} of {SERIES}, {slower} of them slower; {doubtful} too short to tell"
        );
        assert!(steps * 20 <= SERIES, "{traffic:?}: {steps}");
        assert!(doubtful * 20 <= SERIES, "{traffic:?}: {doubtful}");
    }
}

#[test]
fn a_step_by_half_is_found_after_fifty_requests_and_before_fifty() {
    const SERIES: usize = 20;
    let mut noise = Noise(777);
    let (mut found, mut all) = (0, 0);
    for traffic in [Traffic::Steady, Traffic::Idle] {
        for sides in [[50, 50], [50, 400], [400, 50], [111, 260]] {
            let mut of_these = 0;
            for at in 0..SERIES {
                let mut series = noise.series(traffic, 0.025, 0.3, sides[0] + sides[1]);
                let factor = if at % 2 == 0 { 1.5 } else { 1.0 / 1.5 };
                let later = series[sides[0]..].iter_mut();
                later.for_each(|(_, takes)| *takes *= factor);
                let step = step_of(&series).filter(|step| step.requests_needed.is_none());
                of_these += usize::from(step.is_some());
            }
            println!("{traffic:?} {sides:?}: {of_these} of {SERIES}");
            found += of_these;
            all += SERIES;
        }
    }
    assert!(found * 20 >= all * 19, "{found} of {all}");
}

#[test]
fn an_idle_hour_hides_no_step_and_few_requests_are_too_short_to_tell() {
    let mut noise = Noise(5);
    let mut step = |sides: [usize; 2]| {
        let mut series = noise.series(Traffic::Steady, 0.0, 0.3, sides[0] + sides[1]);
        for (at, takes) in &mut series[sides[0]..] {
            *at += 3_600.0;
            *takes *= 3.0;
        }
        (step_of(&series), series)
    };
    let (found, series) = step([111, 260]);
    let found = found.unwrap();
    assert_eq!((found.requests, found.requests_needed), ([111, 260], None));
    assert!((found.at_ns as f64 / 1e9 - series[111].0).abs() < 0.5);
    let (doubtful, _) = step([4, 4]);
    let doubtful = doubtful.unwrap();
    assert_eq!(doubtful.requests, [4, 4]);
    let needed = doubtful.requests_needed.unwrap();
    assert!((9..100).contains(&needed), "{needed}");
    // With two requests on either side, no step is reported.
    assert_eq!(step([2, 2]).0, None);
}

#[test]
fn what_slows_a_fifth_or_a_tenth_of_the_requests_is_found_though_the_median_stays() {
    const SERIES: usize = 20;
    let mut noise = Noise(31);
    let (mut found, mut all) = (0, 0);
    for share in [0.2, 0.1] {
        for sides in [[300, 300], [1_000, 200]] {
            let mut of_these = 0;
            for _ in 0..SERIES {
                // In this series, one in twenty requests takes several times as long, before and
                // after.
                let mut series = noise.series(Traffic::Steady, 0.025, 0.3, sides[0] + sides[1]);
                for (_, takes) in &mut series[sides[0]..] {
                    if noise.uniform() < share {
                        *takes += 1_500.0;
                    }
                }
                let step = step_of(&series).filter(|step| step.requests_needed.is_none());
                let is_right = |step: &LatencyStep| {
                    step.is_of_tail()
                        && step.p95_ns[1] > step.p95_ns[0]
                        && step.requests[0].abs_diff(sides[0] as u64) < 100
                };
                of_these += usize::from(step.is_some_and(|step| is_right(&step)));
            }
            println!("{share} {sides:?}: {of_these} of {SERIES}");
            found += of_these;
            all += SERIES;
        }
    }
    assert!(found * 10 >= all * 9, "{found} of {all}");
}

/// Returns requests of a client that loads one page after the other. A page takes `page_ms` or a
/// little more, and one in eight takes 130 ms after 12 s. Only requests that begin in a burst of
/// 64 ms in 128 ms are recorded. The second result is the number of requests before 12 s.
fn pages_of_one_client(noise: &mut Noise, page_ms: f64) -> (Vec<(f64, f64)>, usize) {
    let (mut at_ms, mut series) = (0.0, Vec::new());
    while at_ms < 30_000.0 {
        let is_slow = at_ms >= 12_000.0 && noise.uniform() < 0.125;
        let least_ms = if is_slow { 130.0 } else { page_ms };
        let takes_ms = least_ms * (1.0 + noise.uniform() / 5.0);
        if at_ms % 128.0 < 64.0 {
            series.push((at_ms / 1e3, takes_ms));
        }
        at_ms += takes_ms + 1.0 + noise.pause(0.3);
    }
    let before = series.partition_point(|(at, _)| *at < 12.0);
    (series, before)
}

#[test]
fn pauses_that_slow_requests_cause_hide_no_step() {
    const SERIES: usize = 40;
    let mut noise = Noise(64_128);
    let mut found = 0;
    for at in 0..SERIES {
        let (series, before) = pages_of_one_client(&mut noise, 6.0 + at as f64 / 10.0);
        let step = step_of(&series).filter(|step| step.requests_needed.is_none());
        let is_right = |step: LatencyStep| step.requests[0].abs_diff(before as u64) < 60;
        found += usize::from(step.is_some_and(is_right));
    }
    println!("{found} of {SERIES}");
    assert!(found >= SERIES - 1, "{found} of {SERIES}");
}

/// Thinning keeps all slow requests of the old hours, and one in ten of the others.
#[test]
fn thinned_requests_make_no_step_and_hide_none() {
    let mut noise = Noise(2_020);
    let kept = Weight::of_threshold((1 << 56) - (1u64 << 56) / 10);
    for factor in [1.0, 2.5] {
        let mut pass = StepPass::of(["web:home"].into_iter());
        for second in 0..4_000 {
            let (is_old, is_slow) = (second < 2_000, noise.uniform() < 0.1);
            let median_ms = if is_slow { 2_000.0 } else { 68.0 };
            let by = if is_old { 1.0 } else { factor };
            let latency_ns = noise.latency_ns(median_ms * by);
            let is_thinned = is_old && !is_slow;
            if !is_thinned || noise.uniform() < 0.1 {
                let weight = if is_thinned { kept } else { Weight::ONE };
                pass.see("web:home", second * SECOND, latency_ns, weight);
            }
        }
        let step = pass.step();
        assert_eq!(step.is_some(), factor > 1.0, "{step:?}");
        if let Some(step) = step {
            assert!(
                step.at_ns.abs_diff(2_000 * SECOND) < 300_000_000_000,
                "{step:?}"
            );
            assert!(step.requests[0].abs_diff(2_000) < 600, "{step:?}");
            assert!(step.medians_ns[0] < 100_000_000, "{step:?}");
        }
    }
}
