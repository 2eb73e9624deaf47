//! Distribution of the largest distance between a sample's distribution function and the true one.
//!
//! Simard and L'Ecuyer (Computing the two-sided Kolmogorov-Smirnov distribution, 2011) give the
//! rules for choosing among the methods of computation. The tests compare results with those of
//! scipy's `kstwo.sf`.

use std::f64::consts::PI;

/// Maximum size of a sample that Simard and L'Ecuyer treat as small.
const SMALL_MAX: u64 = 140;
/// Maximum size of a sample for the matrix method. Above it, the matrix takes long, and the
/// expansion is precise enough.
const MATRIX_MAX: u64 = 2_000;
/// Maximum size of a sample for the exact one-sided sum, which takes long above it.
const SUM_MAX: u64 = 50_000;

/// Returns the probability that the distance is at least `x` for a sample of `n` values.
pub(super) fn at_least(n: u64, x: f64) -> f64 {
    let size = n as f64;
    let scaled = size * x * x;
    if n == 0 || size * x <= 0.5 {
        return 1.0;
    }
    if x >= 1.0 {
        return 0.0;
    }
    // Large distances almost never occur on both sides at once, so the two one-sided probabilities
    // add up.
    let is_far = scaled > if n <= SMALL_MAX { 4.0 } else { 2.2 };
    let p = if x >= 0.5 || is_far {
        2.0 * one_side(n, x)
    } else if n <= SMALL_MAX || (n <= MATRIX_MAX && size * x.powf(1.5) <= 1.4) {
        1.0 - matrix(n, x)
    } else {
        1.0 - expansion(n, x)
    };
    p.clamp(0.0, 1.0)
}

/// Returns the probability that the distance to one side is at least `x` (Birnbaum and Tingey,
/// 1951).
fn one_side(n: u64, x: f64) -> f64 {
    let size = n as f64;
    if n > SUM_MAX {
        // Lauwerier's expansion (The asymptotic expansion of the statistical distribution of N. V.
        // Smirnov, 1963), in logarithms.
        let x2 = x * x;
        let ln = -2.0 * size * x2 - 2.0 / 3.0 * x
            + 4.0 / 9.0 * (x2 - size * x2 * x2)
            + 4.0 / 45.0 * x / size
            - 88.0 / 405.0 * x2 * x;
        return ln.exp();
    }
    let mut ln_choose = 0.0;
    let mut sum = 0.0;
    for j in 0..n {
        let (j, below) = (j as f64, x + j as f64 / size);
        if below >= 1.0 {
            break;
        }
        sum += (ln_choose + (j - 1.0) * below.ln() + (size - j) * (-below).ln_1p()).exp();
        ln_choose += ((size - j) / (j + 1.0)).ln();
    }
    x * sum
}

/// Returns the probability of a distance below `x`, by Durbin's matrix (Marsaglia, Tsang and Wang,
/// Evaluating Kolmogorov's distribution, 2003). Only one element of the matrix's n-th power is
/// needed, so one row is multiplied by the matrix n times.
fn matrix(n: u64, x: f64) -> f64 {
    let reach = n as f64 * x;
    let middle = reach.ceil() as usize;
    let h = middle as f64 - reach;
    let size = 2 * middle - 1;
    // 1 / k!
    let mut inverse = vec![1.0; size + 1];
    for k in 1..=size {
        inverse[k] = inverse[k - 1] / k as f64;
    }
    let edge = |k: usize| (1.0 - h.powi(k as i32)) * inverse[k];
    let corner = (1.0 - 2.0 * h.powi(size as i32) + (2.0 * h - 1.0).max(0.0).powi(size as i32))
        * inverse[size];
    let element = |i: usize, j: usize| match (i + 1 == size, j == 0) {
        (true, true) => corner,
        (false, true) => edge(i + 1),
        (true, false) => edge(size - j),
        (false, false) if i + 1 >= j => inverse[i + 1 - j],
        _ => 0.0,
    };
    let columns: Vec<Vec<f64>> = (0..size)
        .map(|j| (0..size).map(|i| element(i, j)).collect())
        .collect();
    let mut row = vec![0.0; size];
    row[middle - 1] = 1.0;
    let mut exponent = 0;
    for step in 1..=n {
        let factor = step as f64 / n as f64;
        row = columns
            .iter()
            .map(|column| factor * dot(&row, column))
            .collect();
        let largest = row.iter().copied().fold(0.0, f64::max);
        if largest > 0.0 && largest < SCALE {
            row.iter_mut().for_each(|element| *element /= SCALE);
            exponent += 1;
        }
    }
    row[middle - 1] * SCALE.powi(exponent)
}

/// 2⁻¹²⁸. A row with only smaller elements is divided by it, so that it does not underflow.
const SCALE: f64 = 2.938_735_877_055_719e-39;

fn dot(a: &[f64], b: &[f64]) -> f64 {
    a.iter().zip(b).map(|(a, b)| a * b).sum()
}

/// Returns the probability of a distance below `x`, by the expansion of Pelz and Good
/// (Approximating the lower tail-areas of the Kolmogorov-Smirnov one-sample statistic, 1976). It
/// has at least five correct decimals for more than 140 values.
fn expansion(n: u64, x: f64) -> f64 {
    let root = (n as f64).sqrt();
    let z = root * x;
    let (z2, z4, z6) = (z.powi(2), z.powi(4), z.powi(6));
    let mut terms = [0.0; 4];
    // Further terms of both sums are below the precision, since z is less than 1.5 here.
    for k in (0..20).rev() {
        let a = (f64::from(k) + 0.5).powi(2) * PI * PI;
        let weight = 2.0 * (-a / (2.0 * z2)).exp();
        terms[0] += weight;
        terms[1] += weight * (a - z2);
        terms[2] +=
            weight * ((6.0 * z6 + 2.0 * z4) + (2.0 * z4 - 5.0 * z2) * a + (1.0 - 2.0 * z2) * a * a);
        terms[3] += weight
            * ((5.0 - 30.0 * z2) * a.powi(3)
                + (212.0 * z4 - 60.0 * z2) * a * a
                + (135.0 * z4 - 96.0 * z6) * a
                - (30.0 * z6 + 90.0 * z4 * z4));
    }
    let mut others = [0.0; 2];
    for k in (1..20).rev() {
        let a = f64::from(k * k) * PI * PI;
        let weight = 2.0 * (-a / (2.0 * z2)).exp();
        others[0] += weight * a;
        others[1] += weight * (3.0 * a * z2 - a * a);
    }
    let half = (PI / 2.0).sqrt();
    half * (terms[0] / z
        + terms[1] / (6.0 * z4) / root
        + (terms[2] / (72.0 * z6 * z) - others[0] / (36.0 * z2 * z)) / root.powi(2)
        + (terms[3] / (6480.0 * z6 * z4) + others[1] / (216.0 * z6)) / root.powi(3))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The expected values are those of `kstwo.sf(x, n)` in scipy 1.17.
    #[test]
    fn figures_are_those_of_scipy() {
        for (n, x, expected) in SCIPY {
            let found = at_least(n, x);
            assert!(
                (found / expected - 1.0).abs() < 1e-6,
                "{n} {x}: {found:e} {expected:e}"
            );
        }
    }

    const SCIPY: [(u64, f64, f64); 88] = [
        (1, 0.55, 0.8999999999999999),
        (1, 0.8, 0.3999999999999999),
        (2, 0.38890872965260115, 0.8456349186104045),
        (2, 0.565685424949238, 0.37725830020304796),
        (2, 0.7071067811865475, 0.17157287525381),
        (2, 0.9192388155425117, 0.013044737829952885),
        (5, 0.24596747752497689, 0.8568630671630602),
        (5, 0.35777087639996635, 0.4415172023820515),
        (5, 0.4472135954999579, 0.19951883851095398),
        (5, 0.5813776741499453, 0.0390672239448251),
        (5, 0.84970583144992, 0.00015337008087284936),
        (17, 0.13339459376998314, 0.884563587829474),
        (17, 0.19402850002906638, 0.4849576932710211),
        (17, 0.24253562503633297, 0.22958717474910617),
        (17, 0.3152963125472329, 0.0531598844107567),
        (17, 0.46081768756903263, 0.0007993294335126855),
        (17, 0.5578319375835658, 1.647823859749587e-05),
        (17, 0.7761140001162655, 2.6324488264291798e-11),
        (50, 0.07778174593052023, 0.8997597227285193),
        (50, 0.1131370849898476, 0.5081313822203297),
        (50, 0.1414213562373095, 0.24581239735690597),
        (50, 0.18384776310850234, 0.059546079313210765),
        (50, 0.26870057685088805, 0.0011174138962533053),
        (50, 0.3252691193458118, 3.282469119434835e-05),
        (50, 0.4525483399593904, 7.171358540182203e-10),
        (140, 0.04648348401006842, 0.908861368408526),
        (140, 0.06761234037828133, 0.522084041434605),
        (140, 0.08451542547285165, 0.25530484459737574),
        (140, 0.10987005311470716, 0.06303472003210353),
        (140, 0.16057930839841814, 0.0012747445780697598),
        (140, 0.1943854785875588, 4.14345603428748e-05),
        (140, 0.2704493615131253, 1.5518732635534006e-09),
        (141, 0.04631835565865855, 0.9089131834623161),
        (141, 0.06737215368532153, 0.5221577963245764),
        (141, 0.0842151921066519, 0.2553544927215675),
        (141, 0.10947974973864748, 0.06305333984860362),
        (141, 0.1600088650026386, 0.001275518040145407),
        (141, 0.19369494184529934, 4.1476331600109324e-05),
        (141, 0.2694886147412861, 1.5565228560461017e-09),
        (500, 0.024596747752497688, 0.9153790366024218),
        (500, 0.03577708763999664, 0.5322609545817769),
        (500, 0.044721359549995794, 0.26212693581294755),
        (500, 0.05813776741499453, 0.06543386037161181),
        (500, 0.084970583144992, 0.0013712625981535517),
        (500, 0.10285912696499032, 4.650617819075129e-05),
        (500, 0.14310835055998655, 2.1284231515423615e-09),
        (2000, 0.012298373876248844, 0.9190850081156627),
        (2000, 0.01788854381999832, 0.5381410279866505),
        (2000, 0.022360679774997897, 0.26603461590004307),
        (2000, 0.029068883707497266, 0.06676793866612074),
        (2000, 0.042485291572496, 0.0014197325376568105),
        (2000, 0.05142956348249516, 4.8876378409942776e-05),
        (2000, 0.07155417527999328, 2.3810740131686615e-09),
        (2001, 0.012295300435272138, 0.9190859377136747),
        (2001, 0.01788407336039584, 0.5381425124255413),
        (2001, 0.022355091700494795, 0.2660355994783937),
        (2001, 0.029061619210643236, 0.06676827083210268),
        (2001, 0.04247467423094011, 0.0014197440908335242),
        (2001, 0.051416710911138024, 4.8876921716824336e-05),
        (2001, 0.07153629344158335, 2.381127689053772e-09),
        (20000, 0.0038890872965260115, 0.9216342383217923),
        (20000, 0.00565685424949238, 0.5422312148794965),
        (20000, 0.007071067811865475, 0.26873939434518745),
        (20000, 0.009192388155425118, 0.06767449940262693),
        (20000, 0.013435028842544402, 0.0014502499313107482),
        (20000, 0.01626345596729059, 5.026505941335997e-05),
        (20000, 0.02262741699796952, 2.5073401399498286e-09),
        (50000, 0.0024596747752497687, 0.9220686324980496),
        (50000, 0.0035777087639996636, 0.5429322107227403),
        (50000, 0.00447213595499958, 0.2692019015855349),
        (50000, 0.0058137767414994535, 0.0678281438197389),
        (50000, 0.008497058314499201, 0.001455215327171437),
        (50000, 0.010285912696499032, 5.0481074778690625e-05),
        (50000, 0.014310835055998655, 2.524468928027386e-09),
        (60000, 0.002245365597551247, 0.9221337856300007),
        (60000, 0.0032659863237109042, 0.5430374550825441),
        (60000, 0.00408248290463863, 0.26927131439877905),
        (60000, 0.0053072277760302196, 0.06785116812975345),
        (60000, 0.0077567175188133965, 0.0014559541068191633),
        (60000, 0.009389710680668848, 5.051294568152711e-05),
        (60000, 0.013063945294843617, 2.526922913075032e-09),
        (1000000, 0.00055, 0.9226494281265247),
        (1000000, 0.0008, 0.5438713666611479),
        (1000000, 0.001, 0.26982107442589376),
        (1000000, 0.0013, 0.06803320588112582),
        (1000000, 0.0019, 0.0014617459887777949),
        (1000000, 0.0023, 5.0760287993365106e-05),
        (1000000, 0.0032, 2.5452722655456384e-09),
    ];

    /// Adjacent methods agree where one ends and the next begins.
    #[test]
    fn ways_agree_where_they_meet() {
        for n in [60, 139, 140, 141, 400, 1_999] {
            for z in [0.6f64, 0.8, 1.0, 1.2, 1.4] {
                let x = z / (n as f64).sqrt();
                let (exact, expanded) = (matrix(n, x), expansion(n, x));
                assert!(
                    (exact - expanded).abs() < 2e-5,
                    "{n} {z}: {exact} {expanded}"
                );
            }
        }
        for z in [1.5f64, 2.0, 2.8, 3.7] {
            let x = z / (SUM_MAX as f64).sqrt();
            let (summed, expanded) = (one_side(SUM_MAX, x), one_side(SUM_MAX + 1, x));
            // One value more reduces the probability by this factor.
            let next = summed * (-2.0 * x * x).exp();
            assert!(
                (expanded / next - 1.0).abs() < 1e-6,
                "{z}: {next:e} {expanded:e}"
            );
        }
    }
}
