//! Critical paths across traces against the enumeration of every chain of causes.

use crate::generator::Random;
use proptest::prelude::*;
use std::convert::Infallible;
use stroboscope_analysis::critical_path::{
    Entry, LEGS_MAX, LinkedRequests, PathAcross, SegmentTiming, TracePath, path_across,
};
use stroboscope_analysis::label::SegmentId;

/// Request with its segments in order of time, and the predecessors of each.
struct Request {
    start_ns: i64,
    segments: Vec<(i64, i64)>,
    predecessors: Vec<Vec<usize>>,
}

/// Producer: its request, its last segment, and its end.
type Producer = (usize, Option<usize>, i64);

/// Linking segment, or the whole request, and the producer.
type Link = ((usize, Option<usize>), Producer);

struct World {
    requests: Vec<Request>,
    links: Vec<Link>,
    current: usize,
}

fn timing((start_ns, end_ns): (i64, i64), ready_ns: i64) -> SegmentTiming {
    SegmentTiming {
        segment: SegmentId(0),
        start_ns,
        end_ns,
        wait_ns: (start_ns - ready_ns) as u64,
        critical: false,
        after_answer: false,
        slack_ns: 0,
        predecessor: None,
    }
}

impl World {
    fn producers(&self, from: (usize, Option<usize>), by_ns: i64) -> Vec<Producer> {
        let of = self.links.iter().filter(|(link, _)| *link == from);
        of.map(|(_, producer)| *producer)
            .filter(|producer| producer.2 <= by_ns)
            .collect()
    }

    fn entry(&self, (at, last, end_ns): Producer) -> Entry {
        let request = &self.requests[at];
        let segments = request.segments.iter().zip(&request.predecessors);
        let segments = segments.map(|(segment, before)| {
            let predecessor = before
                .iter()
                .copied()
                .max_by_key(|i| request.segments[*i].1);
            let ready_ns = predecessor.map_or(request.start_ns, |i| request.segments[i].1);
            SegmentTiming {
                predecessor,
                ..timing(*segment, ready_ns)
            }
        });
        Entry {
            path: TracePath {
                latency_ns: 0,
                critical_path_ns: 0,
                tail_wait_ns: 0,
                segments: segments.collect(),
                after_answer: None,
            },
            start_ns: request.start_ns,
            end_ns,
            last,
        }
    }

    /// Instants of every chain of causes, from a segment of a request back to where it ends.
    fn chains(&self, (at, segment): (usize, Option<usize>)) -> Vec<Vec<i64>> {
        let request = &self.requests[at];
        let mut chains = Vec::new();
        let mut add = |instant: i64, rest: Vec<Vec<i64>>| {
            chains.extend(rest.into_iter().map(|rest| [vec![instant], rest].concat()));
        };
        let start_ns = segment.map_or(request.start_ns, |i| request.segments[i].0);
        let mut producers = self.producers((at, segment), start_ns);
        if let Some(segment) = segment {
            for before in &request.predecessors[segment] {
                add(
                    request.segments[*before].1,
                    self.chains((at, Some(*before))),
                );
            }
            if start_ns > request.start_ns {
                add(request.start_ns, self.chains((at, None)));
            } else {
                producers.extend(self.producers((at, None), start_ns));
            }
        }
        for (at, last, end_ns) in producers {
            let last_end_ns = last.map_or(self.requests[at].start_ns, |i| {
                self.requests[at].segments[i].1
            });
            let rest = self.chains((at, last)).into_iter();
            add(
                end_ns,
                rest.map(|rest| [vec![last_end_ns], rest].concat())
                    .collect(),
            );
        }
        if chains.is_empty() {
            chains.push(Vec::new());
        }
        chains
    }

    fn random(random: &mut Random) -> World {
        // All instants differ, so that no two causes end last.
        let mut unique = 0;
        let mut instant = |random: &mut Random, from: i64| {
            unique += 1;
            (from / 1_000 + random.below(60) as i64) * 1_000 + unique
        };
        let mut requests: Vec<Request> = Vec::new();
        for _ in 0..1 + random.below(4) {
            let start_ns = instant(random, 0);
            let mut segments = Vec::new();
            for at in 0..random.below(5) {
                let begins = at == 0 && random.below(2) == 0;
                let begin_ns = if begins {
                    start_ns
                } else {
                    instant(random, start_ns)
                };
                segments.push((begin_ns, instant(random, begin_ns)));
            }
            segments.sort_unstable();
            let may_precede = |i: usize, j: usize| i < j && segments[i].1 <= segments[j].0;
            let predecessors = (0..segments.len())
                .map(|j| {
                    let before = (0..j).filter(|i| may_precede(*i, j));
                    before.filter(|_| random.below(3) > 0).collect()
                })
                .collect();
            requests.push(Request {
                start_ns,
                segments,
                predecessors,
            });
        }
        let mut links = Vec::new();
        for _ in 0..random.below(12) {
            let mut place = || {
                let at = random.below(requests.len());
                let segment = random.below(requests[at].segments.len() + 1).checked_sub(1);
                (at, segment)
            };
            let (consumer, (at, last)) = (place(), place());
            if consumer.0 == at {
                continue;
            }
            let last_end_ns = last.map_or(requests[at].start_ns, |i| requests[at].segments[i].1);
            // Only a producer that takes time cannot be its own cause.
            let end_ns = match last {
                Some(_) if random.below(2) == 0 => last_end_ns,
                _ => instant(random, last_end_ns),
            };
            links.push((consumer, (at, last, end_ns)));
        }
        World {
            requests,
            links,
            current: 0,
        }
    }
}

impl LinkedRequests for World {
    type Producer = Producer;
    type Error = Infallible;

    fn latest(&self, segment: Option<usize>, by_ns: i64) -> Option<(i64, Producer)> {
        let producers = self.producers((self.current, segment), by_ns).into_iter();
        let latest = producers.max_by_key(|producer| (producer.2, *producer))?;
        Some((latest.2, latest))
    }

    fn enter(&mut self, producer: &Producer) -> Result<Option<Entry>, Infallible> {
        self.current = producer.0;
        Ok(Some(self.entry(*producer)))
    }
}

/// Instants of the causes on a path, the last one first.
fn instants(world: &World, own: usize, path: &PathAcross<Producer>) -> Vec<i64> {
    let mut instants = Vec::new();
    for (number, leg) in path.legs.iter().enumerate().rev() {
        let at = leg.producer.map_or(own, |producer| producer.0);
        if leg.producer.is_some() {
            instants.push(leg.end_ns);
            instants.push(leg.end_ns - leg.tail_wait_ns as i64);
        }
        let ends = leg.steps.iter().rev().skip(1);
        instants.extend(ends.map(|(_, timing)| timing.end_ns));
        let begins_with = leg.steps.first().map(|(_, timing)| timing.start_ns);
        let is_cut = number == 0 && leg.start_ns != world.requests[at].start_ns;
        assert!(!is_cut, "a path does not end inside a request");
        if begins_with.is_some_and(|start_ns| start_ns > leg.start_ns) {
            instants.push(leg.start_ns);
        }
    }
    instants
}

fn check(world: &mut World, own: usize) {
    let last =
        (0..world.requests[own].segments.len()).max_by_key(|i| world.requests[own].segments[*i].1);
    let start_ns = world.requests[own].start_ns;
    let end_ns = last.map_or(start_ns, |i| world.requests[own].segments[i].1) + 7;
    world.current = own;
    let entry = world.entry((own, last, end_ns));
    let expected = world.chains((own, last)).into_iter().max();
    let Ok(path) = path_across(world, entry);
    assert!(!path.is_cut);
    assert_eq!(Some(instants(world, own, &path)), expected);
    let mut at_ns = path.legs[0].start_ns;
    for leg in &path.legs {
        assert_eq!(leg.start_ns, at_ns + leg.queued_ns as i64);
        let steps = leg.steps.iter().map(|(_, timing)| timing.weight_ns());
        let length_ns = steps.sum::<u64>() + leg.tail_wait_ns;
        assert_eq!(length_ns, (leg.end_ns - leg.start_ns) as u64);
        at_ns = leg.end_ns;
    }
    assert_eq!(at_ns, end_ns);
    assert_eq!(path.length_ns(), (end_ns - path.legs[0].start_ns) as u64);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2_000))]

    #[test]
    fn a_path_follows_the_producer_that_ended_last(seed in any::<u64>()) {
        let mut world = World::random(&mut Random(seed));
        for own in 0..world.requests.len() {
            check(&mut world, own);
        }
    }
}

/// A chain of requests of one segment each.
fn chain(requests: usize, takes_ns: i64) -> World {
    let request = |at: i64| Request {
        start_ns: at * takes_ns,
        segments: vec![(at * takes_ns, (at + 1) * takes_ns)],
        predecessors: vec![Vec::new()],
    };
    let link = |at: usize| ((at, None), (at - 1, Some(0), at as i64 * takes_ns));
    World {
        requests: (0..requests as i64).map(request).collect(),
        links: (1..requests).map(link).collect(),
        current: requests - 1,
    }
}

#[test]
fn a_long_chain_is_cut() {
    for (requests, is_cut) in [(LEGS_MAX, false), (LEGS_MAX + 1, true)] {
        let mut world = chain(requests, 10);
        let own = world.entry((requests - 1, Some(0), requests as i64 * 10));
        let Ok(path) = path_across(&mut world, own);
        assert_eq!((path.legs.len(), path.is_cut), (LEGS_MAX, is_cut));
        assert_eq!(path.length_ns(), LEGS_MAX as u64 * 10);
    }
}

#[test]
fn a_cycle_ends() {
    let mut world = chain(3, 0);
    world.links.push(((0, None), (2, Some(0), 0)));
    let own = world.entry((2, Some(0), 0));
    let Ok(path) = path_across(&mut world, own);
    let through: Vec<_> = path.legs.iter().map(|leg| leg.producer).collect();
    let expected = [
        Some((2, Some(0), 0)),
        Some((0, Some(0), 0)),
        Some((1, Some(0), 0)),
        None,
    ];
    assert_eq!(through, expected);
    assert!(path.is_cut);
}
