//! Segments of calls between hosts whose clocks are off: which information is lost, and which still
//! counts.

use std::collections::BTreeSet;

use stroboscope_analysis::label::Labels;
use stroboscope_analysis::model::Model;
use stroboscope_analysis::record::{HostClock, TraceRecords};
use stroboscope_analysis::segment::segment;

use crate::generator::Random;
use crate::segmentation::parse;

/// The records of a call's server count by its own clock, wherever the caller's clock puts the
/// call. The caller's records after the call also count, even if its clock leaves no time for them.
#[test]
fn what_a_wrong_clock_hides_counts_against_an_order() {
    // By an exact clock, the calls of `r` are 0..1010 and 940..1990. Its own clock is 80 behind,
    // with an error of at most 100.
    let mut records = parse(
        "r:x 0..2000
           r:one -80..930 =client
             s:one 10..1000 ^s =server
           r:two 860..1910 =client
             s:two 950..1980 ^s =server",
    );
    let slow = HostClock {
        error_ns: 100,
        ..HostClock::exact("h".into())
    };
    records.clocks = vec![slow, HostClock::exact("s".into())];
    let mut model = Model::new();
    let (trace, _) = segment(&records, model.labels_mut());
    model.observe(&trace);
    let support = |a: &str, b: &str| {
        let id = |text: &str| {
            let found = model
                .labels()
                .iter()
                .find(|(_, label)| label.to_string().ends_with(text));
            found.unwrap_or_else(|| panic!("no {text}")).0
        };
        let support = model.happens_before_support(id(a), id(b));
        (support.cooccurrences, support.contradictions)
    };
    assert_eq!(
        support("s:one [start … end]", "s:two [start … end]"),
        (1, 1)
    );
    assert_eq!(
        support("s:two [start … end]", "s:one [start … end]"),
        (1, 1)
    );
    assert_eq!(
        support("s:one [start … end]", "r:one [←s:one … end]"),
        (1, 0)
    );
    assert_eq!(
        support("s:two [start … end]", "r:one [←s:one … end]"),
        (1, 1)
    );
}

/// Returns a caller on `h` with sequential calls to a server on `s`, some of them repeated, by
/// exact clocks.
fn calls(random: &mut Random) -> TraceRecords {
    let mut lines = Vec::new();
    let mut now_ns = 0;
    let mut pass = |random: &mut Random| {
        now_ns += 1 + random.below(40) as i64;
        now_ns
    };
    for call in 0..1 + random.below(4) {
        let from_ns = pass(random);
        let mut served = Vec::new();
        for _ in 0..1 + random.below(2) {
            let (start_ns, inner_ns) = (pass(random), pass(random));
            let (done_ns, end_ns) = (pass(random), pass(random));
            served.push(format!("    s:serve {start_ns}..{end_ns} ^s =server"));
            served.push(format!("      s:work {inner_ns}..{done_ns} ^s"));
        }
        lines.push(format!(
            "  h:call{call} {from_ns}..{} =client",
            pass(random)
        ));
        lines.append(&mut served);
    }
    let root = format!("h:x 0..{}", pass(random));
    parse(&format!("{root}\n{}", lines.join("\n")))
}

/// A caller's clock that is off within its bound changes no segments, even if all records of the
/// server lie before or after the call. Contradictions to an order still count.
#[test]
fn a_clock_that_is_off_within_its_bound_loses_no_segment() {
    const ERROR_NS: i64 = 100;
    for seed in 0..2_000 {
        let mut random = Random(seed);
        let right = calls(&mut random);
        let mut off = right.clone();
        let off_ns = random.below(2 * ERROR_NS as usize + 1) as i64 - ERROR_NS;
        for span in off.spans.iter_mut().filter(|span| &*span.host == "h") {
            span.start_ns += off_ns;
            span.end_ns += off_ns;
        }
        off.clocks = vec![
            HostClock {
                error_ns: ERROR_NS as u64,
                ..HostClock::exact("h".into())
            },
            HostClock::exact("s".into()),
        ];
        let mut labels = Labels::default();
        let (truth, _) = segment(&right, &mut labels);
        let mut model = Model::new();
        let (seen, _) = segment(&off, model.labels_mut());
        model.observe(&seen);
        let of = |labels: &Labels, id| labels.get(id).expect("a label").to_string();
        let expected: BTreeSet<String> = truth.segments.iter().map(|s| of(&labels, s.id)).collect();
        let found: BTreeSet<String> = seen
            .segments
            .iter()
            .map(|s| of(model.labels(), s.id))
            .collect();
        let differ: Vec<&String> = found.symmetric_difference(&expected).collect();
        let spans = right.spans.iter().map(|s| (&s.name, s.start_ns, s.end_ns));
        assert!(
            differ.is_empty(),
            "{seed}: {off_ns} ns off: {differ:?} of {:?}",
            spans.collect::<Vec<_>>()
        );
        for a in &truth.segments {
            for b in truth.segments.iter().filter(|b| b.id != a.id) {
                let [first, second] = [a, b].map(|one| {
                    let label = labels.get(one.id).expect("a label");
                    let id = model.labels().id(&label.task, &label.start, &label.end);
                    id.expect("was seen")
                });
                let support = model.happens_before_support(first, second);
                let is_contradicted = support.contradictions > 0;
                // An end that was moved may be off by both clocks' errors.
                assert!(
                    is_contradicted || b.start_ns - a.end_ns >= -4 * ERROR_NS,
                    "{seed}: {} before {}",
                    of(&labels, a.id),
                    of(&labels, b.id)
                );
            }
        }
    }
}
