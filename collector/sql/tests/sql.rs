//! `infer` as an aggregate function, and results as tables.

use std::panic::{AssertUnwindSafe, catch_unwind};

use serde_json::Value;
use stroboscope_query::{
    InferSettings, Inference, PathsQuestion, Selection, Source, Study, infer, load_model,
    save_model,
};
use stroboscope_sql::{SqlError, SqlLimits, sql, sql_in_partitions, sql_with};
use stroboscope_store::data_dir::DataDir;
use stroboscope_store::record::Rows;
use stroboscope_store::tables::{DeltaLog, PartitionRule, Store, StoreTable, write_rows};

use stroboscope_fixtures::mutation::mutate;
use stroboscope_fixtures::random::Random;
use stroboscope_fixtures::workload;

const REQUESTS: u64 = 300;
const INFER: &str = "SELECT infer(trace_id, spans, events) AS model FROM traces";

struct Fixture {
    runtime: tokio::runtime::Runtime,
    directory: tempfile::TempDir,
}

impl Fixture {
    fn new() -> Self {
        Self::of(|_| ())
    }

    /// Creates a store of the test requests. Applies `change` to the rows of each file first.
    fn of(change: impl Fn(&mut Rows)) -> Self {
        let fixture = Self {
            runtime: tokio::runtime::Runtime::new().unwrap(),
            directory: tempfile::tempdir().unwrap(),
        };
        let store =
            Store::local(fixture.directory.path(), fixture.runtime.handle().clone()).unwrap();
        for file in 0..workload::files(REQUESTS) {
            let mut rows = workload::rows(5, REQUESTS, file);
            // This process lost a record, so the requests that it had a part in are incomplete.
            if file == 1 {
                let cause = rows.strings.intern("ring_full");
                rows.batches[0].losses.push((cause, 1));
            }
            change(&mut rows);
            let at_ns = workload::EPOCH_NS as i64;
            write_rows(
                &store,
                &format!("seg-{file}"),
                rows,
                &PartitionRule::received(at_ns, at_ns),
            )
            .unwrap();
        }
        fixture
    }

    fn source(&self) -> Source {
        Source::open(self.directory.path(), self.runtime.handle().clone()).unwrap()
    }

    fn inference(&self) -> Inference {
        infer(&self.source(), Selection::default(), 0.0).unwrap()
    }

    /// Checks that the model of the aggregate equals that of the subcommand.
    fn check_aggregate(&self, expected: &Inference) {
        let files = tempfile::tempdir().unwrap();
        let paths = ["streamed.json", "queried.json"].map(|name| files.path().join(name));
        save_model(&expected.model, &paths[0]).unwrap();
        std::fs::write(&paths[1], self.rows(INFER)[0]["model"].as_str().unwrap()).unwrap();
        let [expected, queried] = paths.map(|path| load_model(&path).unwrap().parts());
        assert_eq!(queried, expected);
    }

    fn rows(&self, query: &str) -> Vec<Value> {
        let rows = sql(self.directory.path(), query, self.runtime.handle())
            .unwrap()
            .render(true)
            .unwrap();
        rows.lines()
            .map(|line| serde_json::from_str(line).unwrap())
            .collect()
    }
}

#[test]
fn a_plan_of_many_partitions_equals_the_single_pass() {
    let fixture = Fixture::new();
    let expected = fixture.inference();
    let files = tempfile::tempdir().unwrap();
    let saved = files.path().join("streamed.json");
    save_model(&expected.model, &saved).unwrap();
    let expected = load_model(&saved).unwrap().parts();
    assert!(expected.traces > 0 && expected.pairs.len() > 1_000);
    for partitions in [1, 2, 8] {
        let run = |query: &str| {
            let rows = sql_in_partitions(
                fixture.directory.path(),
                query,
                partitions,
                fixture.runtime.handle(),
            );
            rows.unwrap().render(true).unwrap()
        };
        let plan = run(&format!("EXPLAIN {INFER}"));
        let partial = plan.contains("mode=Partial, gby=[], aggr=[infer");
        assert_eq!(partial, partitions > 1, "{plan}");
        let rows: Value = serde_json::from_str(run(INFER).trim()).unwrap();
        let file = files.path().join(format!("{partitions}.json"));
        std::fs::write(&file, rows["model"].as_str().unwrap()).unwrap();
        assert_eq!(
            load_model(&file).unwrap().parts(),
            expected,
            "{partitions} partitions"
        );
    }
}

#[test]
fn clocks_are_corrected_and_requests_divided() {
    const SKEW_NS: i64 = 100_000_000;
    let fixture = Fixture::of(|rows| {
        let host = rows.strings.intern("host-06");
        for span in rows.spans.iter_mut().filter(|span| span.host == host) {
            (span.start_ns, span.end_ns) = (span.start_ns + SKEW_NS, span.end_ns + SKEW_NS);
        }
    });
    let inference = fixture.inference();
    assert!(inference.alignment.is_some());
    fixture.check_aggregate(&inference);
    let trusting = Selection {
        trust_clocks: true,
        ..Selection::default()
    };
    let as_recorded = infer(&fixture.source(), trusting, 0.0).unwrap();
    assert_ne!(as_recorded.model.parts(), inference.model.parts());
    let data = DataDir::existing(fixture.directory.path()).unwrap();
    data.set_requests(&["web:render".to_owned()]).unwrap();
    let divided = fixture.inference();
    assert_ne!(divided.model.parts(), inference.model.parts());
    fixture.check_aggregate(&divided);
}

#[test]
fn results_are_tables() {
    let fixture = Fixture::new();
    let inference = fixture.inference();
    let study = Study::new(
        fixture.source(),
        Selection::default(),
        InferSettings::default(),
    );
    let paths = study.ask(&PathsQuestion::default()).unwrap();
    let count = |table: &str| {
        fixture.rows(&format!("SELECT count(*) AS n FROM {table}"))[0]["n"]
            .as_u64()
            .unwrap()
    };
    assert_eq!(count("segments") as usize, inference.segments().count());
    assert_eq!(
        count("relations WHERE kind = 'happens-before'") as usize,
        inference.relations.all_happens_before().len()
    );
    assert_eq!(
        count("relations WHERE kind <> 'happens-before'") as usize,
        inference.relations.all_mutual_exclusion().len()
    );
    assert_eq!(count("pipelines"), 0);
    let query = "SELECT p.mean_share, s.task, p.slack_p50_ns FROM paths p JOIN segments s ON s.id = p.segment \
                 ORDER BY p.mean_share DESC, p.segment LIMIT 1";
    let most = &fixture.rows(query)[0];
    let (id, statistics) = paths
        .aggregate
        .segments()
        .max_by(|a, b| {
            let share = |of: &stroboscope_analysis::aggregate::PathStatistics| {
                of.shares().mean(paths.aggregate.traces())
            };
            share(a.1).total_cmp(&share(b.1)).then(b.0.cmp(&a.0))
        })
        .unwrap();
    assert_eq!(
        most["task"],
        *inference.model.labels().get(id).unwrap().task
    );
    assert_eq!(most["slack_p50_ns"], statistics.slack.percentiles().p50_ns);
}

/// Returns the command of a Python that has the engines; `None` if it lacks one of them.
fn python() -> Option<String> {
    let python = std::env::var("STROBOSCOPE_TEST_PYTHON").unwrap_or_else(|_| "python3".into());
    let has_them = std::process::Command::new(&python)
        .args(["-c", "import chdb, deltalake, duckdb, pyarrow.dataset"])
        .stderr(std::process::Stdio::null())
        .status()
        .is_ok_and(|status| status.success());
    has_them.then_some(python)
}

/// Other engines read the store's files, whose attribute columns differ, or its Delta log, and get
/// the same results as `sql`.
#[test]
fn other_engines_agree() {
    let Some(python) = python() else {
        eprintln!(
            "SKIPPED: other_engines_agree: pip install chdb deltalake duckdb pyarrow, and name its python by STROBOSCOPE_TEST_PYTHON"
        );
        return;
    };
    let files = std::cell::Cell::new(0);
    let fixture = Fixture::of(|rows| {
        // No two files that follow each other have the same columns.
        let file = files.replace(files.get() + 1) % 2;
        for (place, span) in rows.spans.iter_mut().enumerate() {
            let text = match (file, place % 4) {
                (_, 0) => continue,
                (0, _) => format!(r#"{{"user":{},"http.route":"/a\u00e9"}}"#, place % 7),
                (1, 1) => r#"{"user":"ann","cost":0.5}"#.to_owned(),
                _ => format!(r#"{{"user":{},"hit":{}}}"#, place % 5, place % 2 == 0),
            };
            span.attributes = Some(text.into());
        }
    });
    let store = Store::local(fixture.directory.path(), fixture.runtime.handle().clone()).unwrap();
    DeltaLog::begin(&store, StoreTable::Spans).unwrap();
    DeltaLog::of(StoreTable::Spans).update(&store, 1).unwrap();
    let keys = [
        "int:user",
        "text:user",
        "text:http.route",
        "real:cost",
        "bool:hit",
    ];
    let script = concat!(
        env!("CARGO_MANIFEST_DIR"),
        "/../../tests/clients/read_store.py"
    );
    let output = std::process::Command::new(python)
        .arg(script)
        .arg(fixture.directory.path())
        .args(keys)
        .output()
        .unwrap();
    assert!(
        output.status.success(),
        "{}",
        String::from_utf8_lossy(&output.stderr)
    );
    let others: Value = serde_json::from_slice(&output.stdout).unwrap();
    for key in keys {
        let rows = fixture.rows(&format!(
            r#"SELECT name, "{key}" AS value, count(*) AS spans, sum(end_ns - start_ns) AS total_ns
            FROM spans GROUP BY 1, 2 ORDER BY 1, 2 NULLS FIRST"#
        ));
        let ours: Vec<Value> = rows
            .iter()
            .map(|row| {
                let of = |name: &str| row.get(name).cloned().unwrap_or_default();
                serde_json::json!([of("name"), of("value"), of("spans"), of("total_ns")])
            })
            .collect();
        assert!(ours.iter().any(|row| !row[1].is_null()), "{key}: {ours:?}");
        for engine in [
            "duckdb",
            "pyarrow",
            "delta",
            "clickhouse",
            "clickhouse_delta",
        ] {
            assert_eq!(
                others[key][engine],
                Value::Array(ours.clone()),
                "{engine}, {key}"
            );
        }
    }
}

/// Queries read the store and nothing else, and change nothing.
#[test]
fn queries_change_and_reach_nothing_else() {
    let fixture = Fixture::new();
    let outside = tempfile::tempdir().unwrap();
    let secret = outside.path().join("secret.csv");
    std::fs::write(&secret, "a,b\n1,2\n").unwrap();
    let (from, to) = (secret.display(), outside.path().join("copied.parquet"));
    let run = |query: &str, limits: SqlLimits| {
        let rows = sql_with(
            fixture.directory.path(),
            query,
            limits,
            Vec::new(),
            fixture.runtime.handle(),
        );
        rows.map(|rows| rows.render(true).unwrap())
    };
    for query in [
        format!("CREATE EXTERNAL TABLE t STORED AS CSV LOCATION '{from}'"),
        format!("COPY (SELECT 1) TO '{}'", to.display()),
        format!("SELECT * FROM '{from}'"),
        "SET datafusion.execution.target_partitions = 1".to_owned(),
        "INSERT INTO spans SELECT * FROM spans".to_owned(),
        "DROP TABLE spans".to_owned(),
    ] {
        let refused = run(&query, SqlLimits::default());
        assert!(refused.is_err(), "{query}: {refused:?}");
    }
    assert!(!to.exists());
    let sorting = "SELECT count(DISTINCT span_id) AS n FROM spans";
    assert!(run(sorting, SqlLimits::default()).is_ok());
    let little = SqlLimits {
        memory_bytes: 1_000,
        ..SqlLimits::default()
    };
    let refused = run(sorting, little).unwrap_err().to_string();
    assert!(refused.contains("Resources exhausted"), "{refused}");
    let forever = "SELECT count(*) FROM spans a, spans b, spans c, spans d
        WHERE a.start_ns + b.start_ns * c.start_ns > d.end_ns";
    let short = SqlLimits {
        time: std::time::Duration::from_millis(1),
        ..SqlLimits::default()
    };
    let refused = run(forever, short).unwrap_err();
    assert!(matches!(refused, SqlError::Timeout(_)), "{refused}");
}

/// Valid queries of many kinds; the mutations begin with them.
const QUERIES: [&str; 14] = [
    "SELECT service, count(*) FROM spans GROUP BY service ORDER BY 2 DESC LIMIT 3",
    "SELECT * FROM spans WHERE name LIKE 'r%' AND end_ns - start_ns > 1000000 AND date = '2026-01-02' LIMIT 5",
    "SELECT arrow_typeof(trace_id), encode(trace_id, 'hex') FROM events LIMIT 2",
    "SELECT task, sum(count) OVER (PARTITION BY task ORDER BY id) FROM segments LIMIT 4",
    "SELECT infer(trace_id, spans, events) AS model FROM traces",
    "SELECT a.name, b.name FROM spans a JOIN spans b ON a.span_id = b.parent_id WHERE a.start_ns > b.start_ns",
    "WITH RECURSIVE up(id, depth) AS (SELECT span_id, 0 FROM spans WHERE parent_id = 0 UNION ALL \
     SELECT s.span_id, depth + 1 FROM spans s JOIN up ON s.parent_id = up.id WHERE depth < 3) SELECT max(depth) FROM up",
    "SELECT count(*) FILTER (WHERE \"flags\" & 1 = 1), approx_percentile_cont(end_ns - start_ns, 0.99) FROM spans",
    "EXPLAIN ANALYZE SELECT * FROM batches",
    "SELECT unnest(spans) FROM traces LIMIT 1",
    "SELECT CAST('1e400' AS DOUBLE), TRY_CAST(service AS BIGINT), '2026-01-01'::timestamp FROM batches LIMIT 1",
    "SHOW TABLES",
    "SELECT CASE WHEN \"attributes\" IS NULL THEN 1 ELSE 7 / flags END FROM spans UNION SELECT NULL",
    "SELECT regexp_replace(name, '(a+)+$', 'b'), substr(name, -2147483648, 9223372036854775807) FROM spans",
];

/// Tokens that parsers and planners treat specially.
const SQL_TOKENS: [&[u8]; 40] = [
    b"(",
    b")",
    b"'",
    b"\"",
    b";",
    b"--",
    b"/*",
    b"*",
    b",",
    b" NULL ",
    b" NOT ",
    b" IN (",
    b" AS ",
    b" SELECT ",
    b" FROM ",
    b" WHERE ",
    b" JOIN ",
    b" LATERAL ",
    b" OVER (",
    b" GROUP BY ",
    b" HAVING ",
    b" ORDER BY ",
    b" LIMIT ",
    b" OFFSET 9223372036854775807 ",
    b"-1",
    b"18446744073709551616",
    b"0.0/0",
    b"'NaN'::double",
    b"INTERVAL '1' DAY",
    b"ARRAY[1]",
    b"infer",
    b"spans",
    b"trace_id",
    b"generate_series(1, 9)",
    b"\0",
    "ü".as_bytes(),
    b"$1",
    b"@x",
    b"::date",
    b"repeat('a', 99)",
];

/// Removes a random word of a query, or replaces it by a word of another query or by a constant.
fn exchange_a_word(random: &mut Random, query: &mut Vec<u8>) {
    const CONSTANTS: [&str; 12] = [
        "0",
        "-1",
        "9223372036854775807",
        "1e308",
        "''",
        "'r'",
        "NULL",
        "trace_id",
        "flags",
        "start_ns",
        "spans",
        "\"attributes\"",
    ];
    let text = String::from_utf8_lossy(query).into_owned();
    let mut words: Vec<&str> = text.split_inclusive([' ', '(', ')', ',']).collect();
    let other = QUERIES[random.below(QUERIES.len())];
    let others: Vec<&str> = other.split_inclusive([' ', '(', ')', ',']).collect();
    let at = random.below(words.len());
    let bare = words[at].trim_end_matches([' ', '(', ')', ',']);
    let end = &words[at][bare.len()..];
    let constant = format!("{}{end}", CONSTANTS[random.below(CONSTANTS.len())]);
    match random.below(4) {
        0 => drop(words.remove(at)),
        1 => words[at] = others[random.below(others.len())],
        _ => words[at] = &constant,
    }
    *query = words.concat().into_bytes();
}

/// Mutated queries have a result or an error: none panics, takes too long, or changes the store.
/// `STROBOSCOPE_MUTATIONS=100000` sets the number of mutations; the default is 400.
#[test]
fn any_text_is_answered_or_refused() {
    let rounds: u64 = match std::env::var("STROBOSCOPE_MUTATIONS") {
        Ok(count) => count.parse().unwrap(),
        Err(_) => 400,
    };
    let fixture = Fixture::new();
    let files = || {
        let mut found = Vec::new();
        let mut directories = vec![fixture.directory.path().to_owned()];
        while let Some(directory) = directories.pop() {
            for entry in std::fs::read_dir(directory).unwrap() {
                let path = entry.unwrap().path();
                // A cache is no part of the store.
                if path.is_dir() && !path.ends_with("cache") {
                    directories.push(path);
                } else if path.is_file() {
                    found.push((std::fs::read(&path).unwrap(), path));
                }
            }
        }
        found.sort();
        found
    };
    let before = files();
    let ask = |query: &str, seconds| {
        let limits = SqlLimits {
            memory_bytes: 64 << 20,
            time: std::time::Duration::from_secs(seconds),
        };
        let (data, runtime) = (fixture.directory.path(), fixture.runtime.handle());
        let rows = sql_with(data, query, limits, Vec::new(), runtime)?;
        rows.render(true)
    };
    for query in QUERIES {
        // A busy machine needs more time.
        let asked = ask(query, 60);
        let said = asked.map_err(|error| error.to_string());
        assert!(said.is_ok(), "{query}: {said:?}");
    }
    let samples = QUERIES.map(|query| query.as_bytes().to_vec());
    let (mut answered, mut refused) = (0, 0);
    for round in 0..rounds {
        let mut random = Random(round);
        let mut text = samples[random.below(samples.len())].clone();
        // Mutated bytes mostly affect the parser, and exchanged words the planner.
        if random.below(4) == 0 {
            mutate(&mut random, &mut text, &SQL_TOKENS, &samples);
        } else {
            exchange_a_word(&mut random, &mut text);
        }
        let query = String::from_utf8_lossy(&text);
        let began = std::time::Instant::now();
        let asked = catch_unwind(AssertUnwindSafe(|| ask(&query, 2)));
        let asked = asked.unwrap_or_else(|_| panic!("round {round}: {query:?} panicked"));
        let took = began.elapsed();
        assert!(
            took.as_secs() < 30,
            "round {round}: {query:?} took {took:?}"
        );
        match asked {
            Ok(_) => answered += 1,
            Err(error) => {
                assert!(!error.to_string().is_empty(), "{query:?}");
                refused += 1;
            }
        }
    }
    assert!(
        answered > rounds / 20 && refused > rounds / 20,
        "{answered} {refused}"
    );
    assert!(before == files(), "a query changed the store");
}
