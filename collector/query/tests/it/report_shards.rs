//! Shards of a report merge to the report of one run, and nothing else merges.

use std::fmt::Write as _;
use std::path::{Path, PathBuf};

use proptest::prelude::*;
use stroboscope_analysis::aggregate::PathAggregate;
use stroboscope_analysis::distribution::Distribution;
use stroboscope_analysis::sampling::Weight;
use stroboscope_fixtures::random::Random;
use stroboscope_query::{
    CategoryRule, InferSettings, Notes, Operations, OperationsQuestion, PartSet, PartsWanted,
    Paths, PathsQuestion, Shard, ShardError, ShardReport, Source, TraceAnswer, each_path,
    load_clocks, load_inference, merge_clocks, merge_report, save_inference, shard_report,
};
use stroboscope_store::query_memory::QueryMemory;

use crate::random_store::RandomStore;
use crate::shards::{Asked, Parts, check_same, merged_inference, shards};

type Question = (OperationsQuestion, PathsQuestion);

fn distribution(of: &Distribution) -> String {
    let weighted = of.weighted_count();
    format!(
        "{:?} {weighted:?} {} {}",
        of.counts(),
        of.sum_ns(),
        of.max_ns()
    )
}

/// Everything that reports read of an answer, as lines of text.
fn text((operations, paths): &(Operations, Paths)) -> String {
    let mut text = format!("others {}\n", operations.others);
    let mut line = |line: String| writeln!(text, "{line}").expect("written");
    for (name, of) in &operations.of {
        let (requests, failed, longest) = (of.requests, of.failed, of.longest);
        let took = distribution(&of.duration);
        line(format!("{name} {requests:?} {failed:?} {longest:?} {took}"));
    }
    let all = ("all".to_owned(), paths.aggregate.clone());
    for (root, of) in std::iter::once(&all).chain(&paths.by_root) {
        let counts = (of.traces(), of.without_length(), of.tail_wait());
        line(format!("{root} {counts:?} {}", distribution(of.latency())));
        line(distribution(of.after_answer()));
        for (id, mut segment) in of.segments().map(|(id, segment)| (id, segment.clone())) {
            line(distribution(&std::mem::take(&mut segment.duration)));
            line(distribution(&std::mem::take(&mut segment.slack)));
            line(format!("{id:?} {segment:?}"));
        }
    }
    for (root, latency) in &paths.latency_without_failed {
        line(format!("{root} {}", distribution(latency)));
    }
    line(format!("{:?}", paths.categories));
    line(format!("{:?} {:?}", paths.examples, paths.slack_examples));
    line(format!("{:?} {:?}", paths.failed, paths.circumstances()));
    let roots = stroboscope_render::roots::roots_json(&paths.notes.roots);
    let notes = Notes {
        roots: Default::default(),
        ..paths.notes.clone()
    };
    line(format!("{roots:?} {notes:?}"));
    text
}

/// Makes the part of a shard. The report has this rule of categories.
fn part(
    (asked, rule): (&Asked, &CategoryRule),
    source: Source,
    (shard, inference): (Shard, Option<&Path>),
    to: &Path,
) -> Result<(), ShardError> {
    let report = ShardReport::CriticalPath(rule.clone());
    let question: Question = (OperationsQuestion, PathsQuestion(rule.clone()));
    let inference = inference.map(load_inference).transpose()?;
    shard_report(
        &asked.study(source),
        (&question, report),
        (shard, inference),
        (Path::new("data"), to),
    )
    .map(|_| ())
}

/// Makes the parts of all shards, and returns their paths in random order.
fn parts(
    of: (&Asked, &CategoryRule),
    store: &RandomStore,
    (count, inference): (u32, Option<&Path>),
    (directory, random): (&Path, &mut Random),
) -> Vec<PathBuf> {
    let mut paths = Vec::new();
    for shard in shards(count) {
        let path = directory.join(format!("report-{}.part", shard.number));
        let threads = PartsWanted::Exactly(1 + random.below(3));
        let source = store.source().with_parts(threads);
        part(of, source, (shard, inference), &path).expect("a part");
        paths.insert(random.below(paths.len() + 1), path);
    }
    paths
}

fn merged(paths: &[PathBuf]) -> Result<String, ShardError> {
    let parts = PartSet::of(paths)?;
    let Some(ShardReport::CriticalPath(rule)) = parts.report() else {
        panic!("another report");
    };
    let question: Question = (OperationsQuestion, PathsQuestion(rule.clone()));
    let mut share = QueryMemory::of_one_query(64 << 20).share();
    let merged = merge_report(&parts, &question, &mut share)?;
    assert_eq!(merged.location, Path::new("data"));
    Ok(text(&merged.answer))
}

/// Inference of three shards, in a file.
fn inference(asked: &Asked, store: &RandomStore, to: &Path) -> Result<(), ShardError> {
    let parts = Parts::of(asked, store, 3, &mut Random(9));
    save_inference(&merged_inference(&parts.paths)?, to)
}

fn rule(random: &mut Random) -> CategoryRule {
    match ["", "", "key", "host", "rare", "no such"][random.below(6)] {
        "" => CategoryRule::Kinds,
        name => CategoryRule::Attribute(name.to_owned()),
    }
}

#[test]
fn reports_of_shards_merge_to_one_run() {
    let (mut answers, mut without) = (0, 0);
    for seed in 0..10 {
        let mut random = Random(seed);
        let store = RandomStore::new(seed);
        let (asked, rule) = (Asked::random(&mut random), rule(&mut random));
        let question: Question = (OperationsQuestion, PathsQuestion(rule.clone()));
        let whole = asked.study(store.source()).ask(&question);
        let whole = whole
            .map(|found| text(&found))
            .map_err(|error| error.to_string());
        let directory = tempfile::tempdir().expect("a directory");
        let file = directory.path().join("inference");
        if let Err(error) = inference(&asked, &store, &file) {
            check_same(&Err(error.to_string()), &whole, "inference");
            continue;
        }
        answers += usize::from(whole.is_ok());
        without += usize::from(whole.is_err());
        // Of 90 shards, most are empty.
        let counts: &[u32] = match seed {
            1 => &[1, 2, 3, 7, 16, 90],
            _ => &[[2, 3, 7][random.below(3)], 16],
        };
        for &count in counts {
            // Without the file, each shard infers the model of all requests, or finds it cached.
            let inference = (count != 3).then_some(&*file);
            let into = (directory.path(), &mut random);
            let paths = parts((&asked, &rule), &store, (count, inference), into);
            let found = merged(&paths).map_err(|error| error.to_string());
            check_same(&found, &whole, &format!("seed {seed}, {count} shards"));
        }
    }
    assert!(answers > 4 && without > 0, "{answers} {without}");
}

/// A deserialized aggregate counts more traces like the original one.
#[test]
fn a_decoded_aggregate_goes_on() {
    let store = RandomStore::new(1);
    let study = Asked::plain().study(store.source());
    let paths = study.ask(&PathsQuestion::default()).expect("paths");
    let mut whole = paths.aggregate;
    let bytes = postcard::to_stdvec(&whole).expect("encoded");
    let mut decoded: PathAggregate = postcard::from_bytes(&bytes).expect("decoded");
    let inference = study.inference().expect("inferred");
    let visit = |answer: TraceAnswer| {
        for aggregate in [&mut whole, &mut decoded] {
            aggregate.observe(&answer.path, Weight::ONE);
        }
        true
    };
    each_path(study.source(), study.selection(), inference, visit).expect("paths");
    assert!(decoded == whole && decoded.without_length() == whole.without_length());
}

fn check_refused(found: Result<String, ShardError>, words: &[&str]) {
    let error = found.expect_err("refused").to_string();
    for word in words {
        assert!(error.contains(word), "{word}: {error}");
    }
}

/// A store with the parts of three shards of a report, and the file of their inference.
struct Fixture {
    store: RandomStore,
    directory: tempfile::TempDir,
    file: PathBuf,
    paths: Vec<PathBuf>,
}

impl Fixture {
    fn new() -> Self {
        let (asked, store) = (Asked::plain(), RandomStore::new(1));
        let directory = tempfile::tempdir().expect("a directory");
        let file = directory.path().join("inference");
        inference(&asked, &store, &file).expect("saved");
        let (of, into) = ((&asked, &CategoryRule::Kinds), directory.path());
        let paths = parts(of, &store, (3, Some(&file)), (into, &mut Random(1)));
        Self {
            store,
            directory,
            file,
            paths,
        }
    }

    /// Merges the parts, with another file in place of the last shard's.
    fn with(&self, last: &Path) -> Result<String, ShardError> {
        let is_last = |path: &Path| path.ends_with("report-3.part");
        let paths = self.paths.iter().filter(|path| !is_last(path)).cloned();
        merged(&paths.chain([last.to_owned()]).collect::<Vec<_>>())
    }

    /// Makes another part of the last shard, and merges it with the others.
    fn with_other(
        &self,
        (asked, rule): (&Asked, &CategoryRule),
        (store, count): (&RandomStore, u32),
        inference: Option<&Path>,
    ) -> Result<String, ShardError> {
        let path = self.directory.path().join("other.part");
        let shard = Shard { number: 3, count };
        part((asked, rule), store.source(), (shard, inference), &path)?;
        self.with(&path)
    }
}

#[test]
fn parts_of_other_reports_stores_settings_and_models_are_refused() {
    let fixture = Fixture::new();
    let Fixture { store, file, .. } = &fixture;
    let (asked, kinds) = (Asked::plain(), CategoryRule::Kinds);
    let other = |of: (&Asked, &CategoryRule), store: (&RandomStore, u32), file| {
        fixture.with_other(of, store, file)
    };
    assert!(other((&asked, &kinds), (store, 3), Some(file)).is_ok());
    // The shard finds the same model by itself.
    assert!(other((&asked, &kinds), (store, 3), None).is_ok());
    let key = CategoryRule::Attribute("key".to_owned());
    check_refused(
        other((&asked, &key), (store, 3), Some(file)),
        &["--category-by is none in the first, and key in the second"],
    );
    check_refused(
        other((&asked, &kinds), (store, 4), Some(file)),
        &["other.part is shard 3/4"],
    );
    let tolerant = Asked {
        settings: InferSettings {
            tolerance: 0.25,
            ..InferSettings::default()
        },
        ..asked.clone()
    };
    check_refused(
        other((&tolerant, &kinds), (store, 3), Some(file)),
        &[
            "inference and",
            "other.part",
            "--tolerance is 0 in the first",
        ],
    );
    check_refused(
        other((&tolerant, &kinds), (store, 3), None),
        &["other.part", "--tolerance is 0 in the first"],
    );
    let another = RandomStore::new(2);
    check_refused(
        other((&asked, &kinds), (&another, 3), Some(file)),
        &["inference and", "snapshots"],
    );
    check_refused(
        other((&asked, &kinds), (&another, 3), None),
        &["other.part", "snapshots"],
    );
    // A file of this snapshot with the inference of another store.
    let forged = fixture.directory.path().join("forged");
    let of_another = Parts::of(&asked, &another, 1, &mut Random(1));
    let own = Parts::of(&asked, store, 1, &mut Random(1));
    let mut merged_own = merged_inference(&own.paths).expect("merged");
    let inference_of_another = merged_inference(&of_another.paths)
        .expect("merged")
        .inference;
    let own_clocks = merged_own.inference.clocks.clone();
    merged_own.inference = inference_of_another;
    merged_own.inference.clocks = own_clocks;
    save_inference(&merged_own, &forged).expect("saved");
    check_refused(
        other((&asked, &kinds), (store, 3), Some(&forged)),
        &["other.part", "different inferences"],
    );
    // Files of other kinds.
    check_refused(
        fixture.with(file),
        &["inference of all shards, and is no part"],
    );
    check_refused(
        other((&asked, &kinds), (store, 3), Some(&own.paths[0])),
        &["1.part has no inference of all shards"],
    );
    check_refused(
        fixture.with(&own.paths[0]),
        &[
            "1.part of `infer`",
            "report-1.part is a part of `critical-path`",
        ],
    );
    let clocks = fixture.directory.path().join("clocks");
    let mut share = QueryMemory::unbounded().share();
    let of_infer = PartSet::of(&own.paths).expect("parts");
    merge_clocks(&of_infer, &clocks, &mut share).expect("saved");
    check_refused(fixture.with(&clocks), &["clocks has the clocks"]);
    let error = load_clocks(file).expect_err("no clocks").to_string();
    assert!(error.contains("inference has no clocks"), "{error}");
    let of_report = PartSet::of(&fixture.paths).expect("parts");
    let error = merge_clocks(&of_report, &clocks, &mut share).expect_err("refused");
    assert!(
        error.to_string().contains("those of `infer` are needed"),
        "{error}"
    );
    // A part of another subcommand.
    let path = fixture.directory.path().join("slack.part");
    let shard = Shard {
        number: 3,
        count: 3,
    };
    shard_report(
        &asked.study(store.source()),
        (&PathsQuestion::default(), ShardReport::Slack),
        (shard, None),
        (Path::new("data"), &path),
    )
    .expect("a part");
    check_refused(
        fixture.with(&path),
        &["is a part of `critical-path`, and", "slack.part of `slack`"],
    );
    let mut newer = std::fs::read(&path).expect("read");
    newer[16] = 9;
    std::fs::write(&path, newer).expect("written");
    check_refused(fixture.with(&path), &["slack.part has version 9"]);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(3))]
    /// A changed byte anywhere in a part or in the inference is found.
    #[test]
    fn damage_never_changes_a_report(seed in 0_u64..100, bits in 1_u8..) {
        let mut random = Random(seed);
        let fixture = Fixture::new();
        let last = fixture.directory.path().join("report-3.part");
        let parts = (Asked::plain(), CategoryRule::Kinds);
        for (path, changes) in [(&last, 300), (&fixture.file, 20)] {
            let bytes = std::fs::read(path).expect("read");
            for _ in 0..changes {
                let mut changed = bytes.clone();
                // About half of the changes are in the first bytes, which have lengths and
                // settings.
                let among = [200.min(bytes.len()), bytes.len()][random.below(2)];
                changed[random.below(among)] ^= bits;
                std::fs::write(path, changed).expect("written");
                let found = match path == &last {
                    true => fixture.with(path),
                    false => {
                        let of = (&parts.0, &parts.1);
                        fixture.with_other(of, (&fixture.store, 3), Some(path))
                    }
                };
                prop_assert!(found.is_err());
            }
            std::fs::write(path, bytes).expect("written");
        }
        prop_assert!(fixture.with(&last).is_ok());
    }
}
