//! Compares as many requests as the paper's largest comparison.

use crate::fault::Fault;
use crate::ours::{self, rows};
use crate::period::period;
use crate::requests::{EPOCH_NS, Workload};
use crate::tool::Found;
use crate::{Bench, Failure, LATER_NS, SEED};

/// The paper's largest comparison.
const SFS97_REQUESTS: u64 = 210_669;
const SFS97_SEGMENTS: usize = 60;

/// Runs both on a tenth of the requests, and `compare` also on all of them.
pub(crate) fn scale(bench: &Bench) -> Result<(), Failure> {
    let arguments = &bench.arguments;
    let mut sizes = Vec::new();
    for requests in [SFS97_REQUESTS / 10, SFS97_REQUESTS] {
        let of = |fault, seed, epoch_ns, requests| Workload {
            seed,
            fault,
            requests,
            epoch_ns,
            segments: Some(SFS97_SEGMENTS),
        };
        let directory = bench.directory.join(requests.to_string());
        let half = requests / 2;
        let before = of(Fault::None, SEED, EPOCH_NS, half);
        let after = of(
            Fault::SlowOperation,
            SEED + 1,
            EPOCH_NS + LATER_NS,
            requests - half,
        );
        let before = period(before, &directory.join("before"), &bench.runtime)?;
        let after = period(after, &directory.join("after"), &bench.runtime)?;
        let stores = [before.directory.as_path(), &after.directory];
        let ours = ours::compare(&arguments.program, stores, arguments.runs)?;
        println!(
            "{requests} requests of {:.0} segments, {} and {} categories: {:.2} s, {:.2} s of CPU, at most {} MiB; {} causes, \
             first {}:{}",
            before.segments,
            ours.json["before"]["categories"],
            ours.json["after"]["categories"],
            ours.took.wall_s,
            ours.took.cpu_s,
            ours.took.peak_bytes >> 20,
            rows(&ours.json, "causes").len(),
            ours.json["causes"][0]["service"].as_str().unwrap_or("-"),
            ours.json["causes"][0]["operation"].as_str().unwrap_or("-"),
        );
        if sizes.is_empty()
            && let (Some(tool), Some((before, _)), Some((after, _))) = (
                &bench.tool,
                bench.graphs(stores[0])?,
                bench.graphs(stores[1])?,
            )
        {
            let Found {
                took, categories, ..
            } = tool.run([&before, &after], &directory.join("output"))?;
            println!(
                "theirs, of the same {requests}: {} and {} categories: {:.2} s, {:.2} s of CPU, at most {} MiB",
                categories[0],
                categories[1],
                took.wall_s,
                took.cpu_s,
                took.peak_bytes >> 20,
            );
        }
        sizes.push((requests, ours.took));
    }
    if let [(few, small), (many, large)] = sizes[..] {
        let times = many as f64 / few as f64;
        println!(
            "for {times:.1} times the requests: {:.2} times the time ({:+.0} % off linear), {:.2} times the CPU time, {:.2} times \
             the memory; goals: 10 s, 1024 MiB, within 15 %",
            large.wall_s / small.wall_s,
            100.0 * (large.wall_s / small.wall_s / times - 1.0),
            large.cpu_s / small.cpu_s,
            large.peak_bytes as f64 / small.peak_bytes as f64,
        );
    }
    Ok(())
}
