//! Tests the judge with answers whose correctness is known.

use serde_json::{Value, json};

use crate::Failure;
use crate::change::Change;
use crate::judge::{Judged, Share, judge, names};

fn change(name: &str) -> Result<&'static Change, Failure> {
    static ALL: [Change; 8] = Change::ALL;
    let found = ALL.iter().find(|change| change.name == name);
    Ok(found.ok_or_else(|| format!("no change {name}"))?)
}

fn mutation(category: &str, after: u64, edges: &Value, precursors: &Value) -> Value {
    json!({
        "category": category, "requests": {"before": 10, "after": after}, "edges": edges, "precursors": precursors,
    })
}

fn share(part: u64, whole: u64) -> Share {
    Share { part, whole }
}

/// Fails if the judge misjudges a correct or an incorrect answer.
pub(crate) fn judge_is_right() -> Result<(), Failure> {
    let slower = json!([{"service": "store", "operation": "read", "change_ns": 1e5}]);
    let faster = json!([{"service": "store", "operation": "read", "change_ns": -1e5}]);
    let parted = json!([{"divergence": "ranker:candidates now also does ranker:trending"}]);
    let other = json!([{"divergence": "ranker:candidates2 now also does ranker:trending"}]);
    let none = json!([]);
    let cause =
        |service: &str, operation: &str| json!({"service": service, "operation": operation});

    let answer = json!({
        "after": {"requests": 100},
        "causes": [cause("web", "render"), cause("store", "read")],
        "mutations": [
            mutation("a", 60, &slower, &none),
            mutation("b", 20, &faster, &none),
            mutation("c", 10, &none, &parted),
        ],
    });
    assert_eq!(
        judge(&answer, change("read-100us")?)?,
        Judged {
            of_first_ten: share(1, 3),
            false_positives: share(2, 3),
            coverage: share(60, 100),
            rank: Some(2),
            first: "web:render".to_owned(),
            explained: None,
        }
    );
    assert_eq!(
        judge(&answer, change("extra-call")?)?,
        Judged {
            of_first_ten: share(1, 3),
            false_positives: share(2, 3),
            coverage: share(10, 100),
            rank: None,
            first: "web:render".to_owned(),
            explained: None,
        }
    );

    // A category that is both kinds of mutation counts once. `of_first_ten` covers only the first
    // ten rows. A longer name is another operation.
    let mut mutations: Vec<Value> = (0..10)
        .map(|number| mutation(&format!("other {number}"), 1, &none, &other))
        .collect();
    mutations.extend((0..2).map(|_| mutation("both", 90, &none, &parted)));
    let answer = json!({
        "after": {"requests": 100}, "mutations": mutations, "causes": [cause("ranker", "candidates")],
    });
    let judged = judge(&answer, change("extra-call")?)?;
    assert_eq!(judged.of_first_ten, share(0, 10));
    assert_eq!(judged.false_positives, share(10, 12));
    assert_eq!(judged.coverage, share(90, 100));
    assert_eq!(judged.rank, Some(1));

    // An answer without mutations covers no request. An answer without the list is an error.
    let answer = json!({"after": {"requests": 100}, "mutations": [], "causes": []});
    let judged = judge(&answer, change("read-1ms")?)?;
    assert_eq!((judged.coverage, judged.rank), (share(0, 100), None));
    assert_eq!(judged.first, "none");
    assert!(judge(&json!({"causes": []}), change("read-1ms")?).is_err());

    assert!(names(
        &json!({"leaves": [{"rule": "page.count <= 4096"}]}),
        "count"
    ));
    assert!(!names(
        &json!({"count": 3, "rule": "discount <= 4096"}),
        "count"
    ));
    println!("the judge of the newsfeed's changes is right");
    Ok(())
}
