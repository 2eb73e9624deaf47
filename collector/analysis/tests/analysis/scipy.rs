//! Compares statistics with scipy's, on equal random samples.

use std::fmt::Write as _;
use std::io::Write as _;
use std::process::{Command, Stdio};

use stroboscope_analysis::statistics::kolmogorov_smirnov;

/// Python program that reads lines `method;a,a,…;b,b,…`, and prints the statistic and the p-value
/// of each.
const PROGRAM: &str = "
import sys
from scipy.stats import ks_2samp
for line in sys.stdin:
    method, a, b = line.strip().split(';')
    numbers = lambda text: [int(one) for one in text.split(',')]
    found = ks_2samp(numbers(a), numbers(b), method=method)
    print(repr(float(found.statistic)), repr(float(found.pvalue)))
";

/// Returns the command of a Python that has scipy.
fn python() -> Option<String> {
    let python = std::env::var("STROBOSCOPE_TEST_PYTHON").unwrap_or_else(|_| "python3".into());
    let has_it = Command::new(&python)
        .args(["-c", "import scipy.stats"])
        .stderr(Stdio::null())
        .status()
        .is_ok_and(|status| status.success());
    has_it.then_some(python)
}

struct Dice(u64);

impl Dice {
    fn below(&mut self, limit: u64) -> u64 {
        self.0 = self
            .0
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % limit
    }
}

fn counted(sample: &[u64]) -> Vec<(u64, u64)> {
    let mut sorted = sample.to_vec();
    sorted.sort_unstable();
    let alike = sorted.chunk_by(|a, b| a == b);
    alike.map(|alike| (alike[0], alike.len() as u64)).collect()
}

#[test]
fn kolmogorov_and_smirnov_are_those_of_scipy() {
    let Some(python) = python() else {
        eprintln!(
            "SKIPPED: kolmogorov_and_smirnov_are_those_of_scipy: pip install scipy, and name its python by STROBOSCOPE_TEST_PYTHON"
        );
        return;
    };
    let mut dice = Dice(3);
    let mut samples = Vec::new();
    let mut asked = String::new();
    for case in 0..300 {
        // At least two of three cases are so small that the test is exact. Half of the cases have
        // hardly any ties.
        let most = if case % 3 == 2 { 900 } else { 80 };
        let sizes = [0, 1].map(|_| 5 + dice.below(most));
        let range = if case % 2 == 0 { 1 << 30 } else { 400 };
        let shift = dice.below(range / 3);
        let mut sample =
            |size, shift| -> Vec<u64> { (0..size).map(|_| dice.below(range) + shift).collect() };
        let both = [sample(sizes[0], 0), sample(sizes[1], shift)];
        let method = if sizes[0] * sizes[1] <= 10_000 {
            "exact"
        } else {
            "asymp"
        };
        let text = both.each_ref().map(|sample| {
            let texts: Vec<String> = sample.iter().map(u64::to_string).collect();
            texts.join(",")
        });
        let _ = writeln!(asked, "{method};{};{}", text[0], text[1]);
        samples.push(both);
    }
    let mut child = Command::new(python)
        .args(["-c", PROGRAM])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .expect("python starts");
    let mut input = child.stdin.take().expect("it is piped");
    let writer = std::thread::spawn(move || input.write_all(asked.as_bytes()));
    let said = child.wait_with_output().expect("python ends");
    writer.join().expect("no panic").expect("all was written");
    assert!(said.status.success());
    let said = String::from_utf8(said.stdout).expect("figures");
    assert_eq!(said.lines().count(), samples.len());
    let mut largest = 0.0f64;
    for (line, [a, b]) in said.lines().zip(&samples) {
        let mut figures = line
            .split(' ')
            .map(|figure| figure.parse::<f64>().expect("a figure"));
        let (statistic, p_value) = (figures.next().expect("one"), figures.next().expect("two"));
        let found = kolmogorov_smirnov(&counted(a), &counted(b));
        assert!(
            (found.statistic - statistic).abs() < 1e-9,
            "{found:?} {line}"
        );
        // The error is relative to the p-value, or to 1e-12 if the p-value is smaller.
        let off = (found.p_value - p_value).abs() / p_value.max(1e-12);
        assert!(off < 1e-6, "{found:?} {line}");
        largest = largest.max(off);
    }
    println!("300 samples: p-values at most {largest:.1e} of their size from scipy's");
}
