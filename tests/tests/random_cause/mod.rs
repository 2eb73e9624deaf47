//! Requests of a random causal structure: steps in sequence, in parallel, and under a lock.

use stroboscope_tests::{Line, Random};

/// Dependencies between steps.
enum Shape {
    Step(usize),
    Sequence(Vec<Shape>),
    Parallel(Vec<Shape>),
}

/// A kind of request.
pub(crate) struct Structure {
    shape: Shape,
    /// True for each step that holds the lock while it works.
    locked: Vec<bool>,
    seed: u64,
}

impl Structure {
    /// Creates a structure of this many steps; each is one segment of one task.
    pub(crate) fn random(seed: u64, steps: usize) -> Self {
        let mut random = Random::new(seed);
        let locked = (0..steps).map(|_| random.below(3) == 0).collect();
        let shape = shape(&mut random, 0, steps, 0);
        Self {
            shape,
            locked,
            seed,
        }
    }

    /// Returns the event lines of this many requests, request by request.
    pub(crate) fn run(&self, requests: u64) -> Vec<Line> {
        (0..requests)
            .flat_map(|request| self.request(request))
            .collect()
    }

    fn request(&self, request: u64) -> Vec<Line> {
        let mut random = Random::new(self.seed.wrapping_mul(1_000_003).wrapping_add(request));
        let begin_ns = 1_700_000_000_000_000_000 + request as i64 * 1_000_000_000;
        let mut running = Running {
            structure: self,
            random: &mut random,
            lock_free_ns: 0,
            lines: Vec::new(),
            request,
        };
        running.run(&self.shape, begin_ns);
        running.lines
    }

    /// Returns the pairs of tasks in adjacent parts of a sequence: the earlier one, and the later
    /// one.
    pub(crate) fn true_orders(&self) -> Vec<(String, String)> {
        let mut orders = Vec::new();
        collect_orders(&self.shape, &mut orders);
        orders
            .into_iter()
            .map(|(a, b)| (task(a), task(b)))
            .collect()
    }
}

fn shape(random: &mut Random, first: usize, steps: usize, depth: usize) -> Shape {
    if steps == 1 {
        return Shape::Step(first);
    }
    let (mut parts, mut at) = (Vec::new(), 0);
    while at < steps {
        let size = 1 + random.below((steps - at).min(1 + steps / 2) as u64) as usize;
        parts.push(shape(random, first + at, size, depth + 1));
        at += size;
    }
    if depth.is_multiple_of(2) {
        Shape::Sequence(parts)
    } else {
        Shape::Parallel(parts)
    }
}

fn steps_of(shape: &Shape, into: &mut Vec<usize>) {
    match shape {
        Shape::Step(step) => into.push(*step),
        Shape::Sequence(parts) | Shape::Parallel(parts) => {
            parts.iter().for_each(|part| steps_of(part, into));
        }
    }
}

fn collect_orders(shape: &Shape, into: &mut Vec<(usize, usize)>) {
    let (Shape::Sequence(parts) | Shape::Parallel(parts)) = shape else {
        return;
    };
    parts.iter().for_each(|part| collect_orders(part, into));
    if let Shape::Sequence(parts) = shape {
        for pair in parts.windows(2) {
            let (mut before, mut after) = (Vec::new(), Vec::new());
            steps_of(&pair[0], &mut before);
            steps_of(&pair[1], &mut after);
            into.extend(
                before
                    .iter()
                    .flat_map(|&a| after.iter().map(move |&b| (a, b))),
            );
        }
    }
}

fn task(step: usize) -> String {
    format!("task {step:02}")
}

struct Running<'a> {
    structure: &'a Structure,
    random: &'a mut Random,
    /// Time from which the lock is free. The steps hold it one at a time, in the order in which
    /// they run.
    lock_free_ns: i64,
    lines: Vec<Line>,
    request: u64,
}

impl Running<'_> {
    /// Runs a part that can begin at `ready_ns`. Returns the time at which it is done.
    fn run(&mut self, shape: &Shape, ready_ns: i64) -> i64 {
        match shape {
            Shape::Sequence(parts) => parts
                .iter()
                .fold(ready_ns, |ready_ns, part| self.run(part, ready_ns)),
            Shape::Parallel(parts) => {
                // Which branch gets the lock first differs from request to request.
                let first = self.random.below(parts.len() as u64) as usize;
                let (later, sooner) = parts.split_at(first);
                let branches = sooner.iter().chain(later);
                branches
                    .map(|part| self.run(part, ready_ns))
                    .max()
                    .unwrap_or(ready_ns)
            }
            Shape::Step(step) => {
                let mut start_ns = ready_ns + self.random.below(1_000_000) as i64;
                let end_ns;
                if self.structure.locked[*step] {
                    start_ns = start_ns.max(self.lock_free_ns);
                    end_ns = start_ns + self.random.below(3_000_000) as i64;
                    self.lock_free_ns = end_ns;
                } else {
                    end_ns = start_ns + self.random.below(3_000_000) as i64;
                }
                for (event, ts_ns) in [("begin", start_ns), ("done", end_ns)] {
                    self.lines.push(Line {
                        trace: format!("{:032x}", u128::from(self.request) + 1),
                        host: format!("host{}", step % 3),
                        ts_ns,
                        event: event.to_owned(),
                        task: task(*step),
                    });
                }
                end_ns
            }
        }
    }
}
