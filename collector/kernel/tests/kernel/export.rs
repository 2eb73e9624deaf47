//! Tests that other tools read exported recordings, with equal counts.

use std::process::Command;

use stroboscope::BurstConfig;
use stroboscope_analysis::kernel::call::Architecture;
use stroboscope_analysis::kernel::event::{Body, Event};
use stroboscope_analysis::kernel::summary;
use stroboscope_kernel_model::export::NamedSegment;
use stroboscope_kernel_model::{Facility, export};

use crate::ground_truth::record;
use crate::machine;
use crate::workload::{Plan, What};

/// Python program that counts the content of a trace, with the messages of Perfetto's own package.
const READER: &str = r#"
import sys, collections
from perfetto.protos.perfetto.trace.perfetto_trace_pb2 import Trace
trace = Trace(); trace.ParseFromString(open(sys.argv[1], 'rb').read())
count = collections.Counter()
tracks, depth, flows, ends = set(), collections.Counter(), set(), set()
for p in trace.packet:
    if p.HasField('track_descriptor'): tracks.add(p.track_descriptor.uuid); count['tracks'] += 1
for p in trace.packet:
    for e in p.ftrace_events.event: count[e.WhichOneof('event')] += 1
    if p.HasField('clock_snapshot'): count['snapshots'] += 1
    if p.HasField('track_event'):
        t = p.track_event
        assert t.track_uuid in tracks
        count[{1: 'begin', 2: 'end', 3: 'instant'}[t.type]] += 1
        flows.update(t.flow_ids); ends.update(t.terminating_flow_ids)
assert flows == ends, (len(flows), len(ends))
count['flows'] = len(flows)
for name in ['sys_enter', 'sys_exit', 'sched_switch', 'sched_waking', 'begin', 'end', 'flows', 'snapshots']: print(name, count[name])
"#;

fn count(events: &[Event], is: fn(&Body) -> bool) -> usize {
    events.iter().filter(|event| is(&event.body)).count()
}

#[test]
fn perfettos_own_package_reads_the_same_counts() {
    const TEST: &str = "perfettos_own_package_reads_the_same_counts";
    let _alone = machine::alone();
    let plan = Plan {
        threads: 3,
        request_us: 500,
        run_ms: 300,
        pairs: false,
    };
    let Some((recording, truth)) = record(TEST, BurstConfig::ALWAYS_ON, Facility::Ebpf, plan)
    else {
        return;
    };
    let timeline = recording.timeline();

    let requests = summary::requests(&timeline, Architecture::native());
    let true_requests = truth
        .iter()
        .filter(|line| line.what == What::Request)
        .count();
    assert_eq!(requests.len(), true_requests);
    let json = export::json(&timeline, &recording.clocks, Architecture::native());
    assert_eq!(
        json["requests"].as_array().map(Vec::len),
        Some(true_requests)
    );
    assert_eq!(
        json["calls"].as_array().map(Vec::len),
        Some(timeline.calls.len())
    );
    let table = export::request_table(&requests, Architecture::native());
    assert_eq!(table.lines().count(), true_requests + 1, "{table}");

    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("trace.pftrace");
    let wall = |at_ns| recording.clocks.wall_ns(at_ns);
    // One segment of the first request's span.
    let segments: Vec<NamedSegment> = timeline.work_intervals[..1]
        .iter()
        .map(|interval| NamedSegment {
            trace: interval.request.trace,
            span: interval.request.span,
            track: "test:request".into(),
            name: "start … end".into(),
            start_ns: wall(interval.start_ns),
            end_ns: wall(interval.end_ns.unwrap_or(interval.start_ns)),
        })
        .collect();
    let trace = export::perfetto(&timeline, &recording.events, &recording.clocks, &segments);
    std::fs::write(&file, trace).unwrap();
    let python = std::env::var("STROBOSCOPE_TEST_PYTHON").unwrap_or_else(|_| "python3".into());
    let read = Command::new(python)
        .args(["-c", READER])
        .arg(&file)
        .output();
    let read = match read {
        Ok(output) if String::from_utf8_lossy(&output.stderr).contains("ModuleNotFoundError") => {
            return eprintln!(
                "SKIPPED: {TEST}: pip install perfetto, and name its python by STROBOSCOPE_TEST_PYTHON"
            );
        }
        Ok(output) => output,
        Err(error) => return eprintln!("SKIPPED: {TEST}: python3: {error}"),
    };
    assert!(
        read.status.success(),
        "{}",
        String::from_utf8_lossy(&read.stderr)
    );
    let events = &recording.events;
    let slices = timeline.work_intervals.len()
        + segments.len()
        + timeline
            .lock_waits
            .iter()
            .filter(|wait| wait.is_marked && wait.owner.trace().is_some() && wait.end_ns.is_some())
            .count();
    let flows: usize = timeline
        .lock_waits
        .iter()
        .filter(|wait| wait.is_marked && wait.end_ns.is_some() && wait.owner.trace().is_some())
        .map(|wait| {
            wait.releases
                .iter()
                .filter(|release| release.owner.trace().is_some())
                .count()
        })
        .sum();
    let expected = format!(
        "sys_enter {}\nsys_exit {}\nsched_switch {}\nsched_waking {}\nbegin {slices}\nend {slices}\nflows {flows}\nsnapshots {}\n",
        count(events, |body| matches!(body, Body::Enter { .. })),
        count(events, |body| matches!(body, Body::Exit { .. })),
        count(events, |body| matches!(body, Body::Switch { .. })),
        count(events, |body| matches!(body, Body::Waking { .. })),
        recording.clocks.samples().len(),
    );
    assert_eq!(String::from_utf8_lossy(&read.stdout), expected);
    assert!(flows > 10, "{flows}");
}
