//! Heavy-tailed distributions of times.

use super::random::Random;

/// Calls whose times are not from the lognormal body.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Tail {
    /// No calls.
    Absent,
    /// Multiplies the time of this share of the calls by a Pareto variable.
    Pareto { share: f64, alpha: f64 },
    /// Cache misses: this share of the calls takes a multiple of its time.
    Misses { share: f64, factor: f64 },
    /// Cold starts or garbage collection: few calls take many times as long.
    Stalls { share: f64, factor: f64 },
    /// This share of the calls waits for a timeout.
    Timeout { share: f64, timeout_ns: f64 },
}

/// Parameters that the operations and links of one system share.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Habits {
    /// Minimum and maximum spread of the bodies.
    sigma: (f64, f64),
    /// Fraction of the operations that have no tail.
    without_tail: f64,
}

impl Habits {
    /// Returns random habits: of calm systems, whose few slow calls stand out, or of restless ones.
    pub(crate) fn random(random: &mut Random) -> Habits {
        let least = random.log_between(0.08, 0.5);
        let greatest = (least * random.log_between(1.2, 6.0)).min(1.5);
        Habits {
            sigma: (least, greatest),
            without_tail: random.unit(),
        }
    }
}

/// Distribution of the time that an operation or a link takes.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Latency {
    pub(crate) median_ns: f64,
    /// Standard deviation of the logarithm of the body.
    pub(crate) sigma: f64,
    pub(crate) tail: Tail,
}

impl Latency {
    /// Returns a random distribution of an operation's own time.
    pub(crate) fn of_operation(random: &mut Random, habits: &Habits) -> Latency {
        let tail = match random.below(8) {
            _ if random.chance(habits.without_tail) => Tail::Absent,
            0..2 => Tail::Pareto {
                share: random.log_between(0.003, 0.1),
                alpha: random.between(1.1, 2.5),
            },
            2..3 => Tail::Misses {
                share: random.between(0.05, 0.4),
                factor: random.log_between(5.0, 30.0),
            },
            3..7 => Tail::Stalls {
                share: random.log_between(0.001, 0.03),
                factor: random.log_between(10.0, 150.0),
            },
            _ => Tail::Timeout {
                share: random.log_between(0.001, 0.01),
                timeout_ns: random.log_between(3e8, 3e9),
            },
        };
        Latency {
            median_ns: random.log_between(3e4, 1e7),
            sigma: random.log_between(habits.sigma.0, habits.sigma.1),
            tail,
        }
    }

    /// Returns a random distribution of the time between two services, both directions together.
    pub(crate) fn of_link(random: &mut Random, habits: &Habits) -> Latency {
        Latency {
            median_ns: random.log_between(5e4, 8e5),
            sigma: random.log_between(habits.sigma.0, habits.sigma.1.min(1.0)),
            tail: Tail::Absent,
        }
    }

    /// Draws a time. `more_misses` adds to the share of misses. Each call takes the same number of
    /// values from the stream.
    pub(crate) fn draw_ns(&self, random: &mut Random, more_misses: f64) -> f64 {
        let body_ns = self.median_ns * (self.sigma * random.normal()).exp();
        let (chosen, size) = (random.unit(), random.unit());
        match self.tail {
            Tail::Pareto { share, alpha } if chosen < share => body_ns * size.powf(-1.0 / alpha),
            Tail::Misses { share, factor } if chosen < share + more_misses => body_ns * factor,
            Tail::Stalls { share, factor } if chosen < share => body_ns * factor,
            Tail::Timeout { share, timeout_ns } if chosen < share => body_ns + timeout_ns,
            _ => body_ns,
        }
    }
}
