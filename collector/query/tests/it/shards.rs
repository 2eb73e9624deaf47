//! Shards merge to the result of one run, and nothing else merges.

use std::path::{Path, PathBuf};

use proptest::prelude::*;
use stroboscope_analysis::by_root::ByRoot;
use stroboscope_fixtures::random::Random;
use stroboscope_query::{
    InferSettings, Inference, MergedInference, Notes, PartSet, PartsWanted, Selection, Shard,
    ShardError, Source, Study, TimeRange, infer_shard, load_clocks, merge_clocks, merge_parts,
};
use stroboscope_render::roots::roots_json;
use stroboscope_store::query_memory::QueryMemory;

use crate::random_store::{EPOCH_NS, RandomStore};

/// Everything that reports read of an inference, as lines of text.
fn text(inference: &Inference) -> String {
    let notes = Notes {
        roots: ByRoot::default(),
        ..inference.notes.clone()
    };
    let lines = [
        format!("{:?}", inference.model.parts()),
        format!("{:?}", inference.relations),
        format!("{:?}", inference.alignment),
        format!("{:?}", inference.clocks),
        format!("{:?}", inference.convergence),
        format!("{:?}", roots_json(&inference.roots)),
        format!("{:?}", roots_json(&inference.notes.roots)),
        format!("{notes:?}"),
    ];
    lines.join("\n")
}

/// Compares two results, and shows only the first line that differs.
#[track_caller]
pub(crate) fn check_same(
    found: &Result<String, String>,
    expected: &Result<String, String>,
    of: &str,
) {
    if found == expected {
        return;
    }
    let lines = |result: &Result<String, String>| -> Vec<String> {
        let (Ok(text) | Err(text)) = result;
        text.lines().map(str::to_owned).collect()
    };
    for (found, expected) in lines(found).iter().zip(&lines(expected)) {
        let at = found
            .bytes()
            .zip(expected.bytes())
            .position(|(a, b)| a != b);
        let from = at.unwrap_or_default().saturating_sub(150);
        let near = |text: &str| text.chars().skip(from).take(300).collect::<String>();
        assert!(
            found == expected,
            "{of}:\n{}\n{}",
            near(found),
            near(expected)
        );
    }
    panic!("{of}");
}

/// Settings of one run.
#[derive(Clone)]
pub(crate) struct Asked {
    pub(crate) selection: Selection,
    pub(crate) settings: InferSettings,
    pub(crate) root: Option<&'static str>,
}

impl Asked {
    /// Settings of all complete requests.
    pub(crate) fn plain() -> Self {
        Self {
            selection: Selection::default(),
            settings: InferSettings::default(),
            root: None,
        }
    }

    pub(crate) fn random(random: &mut Random) -> Self {
        let since_ns = EPOCH_NS + random.below(1_000) as i64 * 1_000_000;
        let selection = Selection {
            include_incomplete: random.happens(500),
            trust_clocks: random.happens(200),
            range: TimeRange {
                since_ns: random.happens(300).then_some(since_ns),
                until_ns: random.happens(300).then_some(since_ns + 1_000_000_000),
            },
        };
        let settings = InferSettings {
            tolerance: [0.0, 0.1][random.below(2)],
            exclude: random
                .happens(200)
                .then(|| regex::Regex::new("read").expect("a pattern")),
            ..InferSettings::default()
        };
        let root = random.happens(300).then_some("web:page");
        Self {
            selection,
            settings,
            root,
        }
    }

    fn source(&self, source: Source) -> Source {
        source.with_root(self.root.map(str::to_owned))
    }

    pub(crate) fn study(&self, source: Source) -> Study {
        Study::new(
            self.source(source).with_parts(PartsWanted::Exactly(2)),
            self.selection,
            self.settings.clone(),
        )
    }

    fn whole(&self, source: Source) -> Result<String, String> {
        self.study(source)
            .into_inference()
            .map(|inference| text(&inference))
            .map_err(|error| error.to_string())
    }

    fn part(&self, source: Source, shard: Shard, to: &Path) -> Result<(), ShardError> {
        self.part_by(source, shard, to, None)
    }

    fn part_by(
        &self,
        source: Source,
        shard: Shard,
        to: &Path,
        clocks: Option<&Path>,
    ) -> Result<(), ShardError> {
        let clocks = clocks.map(load_clocks).transpose()?;
        infer_shard(
            &self.source(source),
            self.selection,
            &self.settings,
            (shard, clocks.as_ref()),
            (Path::new("data"), to),
        )
        .map(|_| ())
    }
}

pub(crate) fn shards(count: u32) -> impl Iterator<Item = Shard> {
    (1..=count).map(move |number| Shard { number, count })
}

pub(crate) fn merged_inference(paths: &[PathBuf]) -> Result<MergedInference, ShardError> {
    let mut share = QueryMemory::of_one_query(64 << 20).share();
    merge_parts(&PartSet::of(paths)?, false, &mut share)
}

fn merged(paths: &[PathBuf]) -> Result<String, ShardError> {
    merged_inference(paths).map(|merged| text(&merged.inference))
}

/// Parts of all shards of a store, in random order.
pub(crate) struct Parts {
    pub(crate) directory: tempfile::TempDir,
    pub(crate) paths: Vec<PathBuf>,
}

impl Parts {
    pub(crate) fn of(asked: &Asked, store: &RandomStore, count: u32, random: &mut Random) -> Self {
        let directory = tempfile::tempdir().expect("a directory");
        let mut paths = Vec::new();
        for shard in shards(count) {
            let path = directory.path().join(format!("{}.part", shard.number));
            let threads = PartsWanted::Exactly(1 + random.below(3));
            let source = store.source().with_parts(threads);
            asked.part(source, shard, &path).expect("a part");
            paths.insert(random.below(paths.len() + 1), path);
        }
        Self { directory, paths }
    }
}

#[test]
fn shards_merge_to_one_run() {
    let mut answers = 0;
    for seed in 0..6 {
        let mut random = Random(seed);
        let store = RandomStore::new(seed);
        let asked = Asked::random(&mut random);
        let whole = asked.whole(store.source());
        answers += usize::from(whole.is_ok());
        // Of 90 shards, most are empty.
        let counts = [1, 2, 3, 7, 16, 90];
        for &count in &counts[..if seed == 1 { 6 } else { 5 }] {
            let parts = Parts::of(&asked, &store, count, &mut random);
            let found = merged(&parts.paths).map_err(|error| error.to_string());
            check_same(&found, &whole, &format!("seed {seed}, {count} shards"));
        }
    }
    assert!(answers > 3, "{answers}");
}

fn check_refused(paths: &[PathBuf], parts: &[&str]) {
    let error = merged(paths).expect_err("refused").to_string();
    for part in parts {
        assert!(error.contains(part), "{part}: {error}");
    }
}

#[test]
fn parts_that_do_not_belong_together_are_refused() {
    let mut random = Random(1);
    let store = RandomStore::new(1);
    let asked = Asked::plain();
    let Parts { directory, .. } = Parts::of(&asked, &store, 3, &mut random);
    let at = |name: &str| directory.path().join(name);
    let [one, two, three] = [1, 2, 3].map(|number| at(&format!("{number}.part")));
    let with_third = |third: &Path| [one.clone(), two.clone(), third.to_owned()];
    let third = Shard {
        number: 3,
        count: 3,
    };
    assert!(merged(&with_third(&three)).is_ok());
    check_refused(&[], &["missing"]);
    check_refused(&[one.clone(), three.clone()], &["1 of 3 shards", ": 2;"]);
    check_refused(
        &[one.clone(), two.clone(), three.clone(), two.clone()],
        &["both shard 2/3", "2.part"],
    );
    check_refused(&with_third(&at("none.part")), &["none.part", "cannot read"]);
    for (other, flag) in [
        (
            Asked {
                settings: InferSettings {
                    tolerance: 0.25,
                    ..InferSettings::default()
                },
                ..asked.clone()
            },
            "--tolerance is 0 in the first, and 0.25 in the second",
        ),
        (
            Asked {
                root: Some("web:page"),
                ..asked.clone()
            },
            "--root is none in the first, and web:page in the second",
        ),
        (
            Asked {
                selection: Selection {
                    range: TimeRange {
                        since_ns: Some(5),
                        until_ns: None,
                    },
                    ..Selection::default()
                },
                ..asked.clone()
            },
            "not as an age",
        ),
    ] {
        let path = at("other.part");
        other.part(store.source(), third, &path).expect("a part");
        check_refused(&with_third(&path), &["1.part", "other.part", flag]);
    }
    let path = at("of four.part");
    let fourth = Shard {
        number: 3,
        count: 4,
    };
    asked.part(store.source(), fourth, &path).expect("a part");
    check_refused(&with_third(&path), &["of four.part is shard 3/4", "3/"]);
    let path = at("another store.part");
    let another = RandomStore::new(2);
    asked.part(another.source(), third, &path).expect("a part");
    check_refused(&with_third(&path), &["another store.part", "snapshots"]);
    let path = at("text.part");
    std::fs::write(&path, "text").expect("written");
    check_refused(&with_third(&path), &["text.part is no part"]);
    let bytes = std::fs::read(&three).expect("read");
    for cut in [17, 30, 100, bytes.len() / 2, bytes.len() - 1] {
        std::fs::write(&path, &bytes[..cut]).expect("written");
        check_refused(&with_third(&path), &["text.part", "truncated"]);
    }
    let longer = [&bytes[..], b"x"].concat();
    std::fs::write(&path, longer).expect("written");
    check_refused(&with_third(&path), &["text.part", "damaged"]);
    let mut newer = bytes.clone();
    newer[16] = 9;
    std::fs::write(&path, newer).expect("written");
    check_refused(&with_third(&path), &["text.part has version 9"]);
    check_refused(
        &{
            merge_clocks(
                &PartSet::of(&with_third(&three)).expect("parts"),
                &path,
                &mut QueryMemory::unbounded().share(),
            )
            .expect("written");
            with_third(&path)
        },
        &["text.part has the clocks"],
    );
    let error = load_clocks(&three).expect_err("no clocks").to_string();
    assert!(error.contains("3.part has no clocks"), "{error}");
    // Clocks of another store are refused, too.
    let clocks = |store: &RandomStore| asked.part_by(store.source(), third, &three, Some(&path));
    clocks(&store).expect("a part");
    let error = clocks(&another).expect_err("refused").to_string();
    assert!(error.contains("text.part"), "{error}");
}

#[test]
fn little_memory_is_an_error() {
    let mut random = Random(1);
    let store = RandomStore::new(4);
    let asked = Asked::plain();
    let parts = Parts::of(&asked, &store, 2, &mut random);
    let mut share = QueryMemory::of_one_query(1 << 10).share();
    let set = PartSet::of(&parts.paths).expect("parts");
    let error = merge_parts(&set, false, &mut share).expect_err("too little");
    assert!(error.to_string().contains("memory"), "{error}");
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(6))]
    /// A changed byte anywhere in a part is found.
    #[test]
    fn damage_never_changes_a_result(seed in 0_u64..100, bits in 1_u8..) {
        let mut random = Random(seed);
        let store = RandomStore::new(seed);
        let asked = Asked {
            selection: Selection { include_incomplete: true, ..Selection::default() },
            settings: InferSettings::default(),
            root: None,
        };
        let parts = Parts::of(&asked, &store, 2, &mut random);
        let path = &parts.paths[random.below(2)];
        let bytes = std::fs::read(path).expect("read");
        for _ in 0..300 {
            let mut changed = bytes.clone();
            // About half of the changes are in the first bytes, which have lengths and settings.
            let among = [200.min(bytes.len()), bytes.len()][random.below(2)];
            changed[random.below(among)] ^= bits;
            std::fs::write(path, changed).expect("written");
            prop_assert!(merged(&parts.paths).is_err());
        }
        std::fs::write(path, bytes).expect("written");
        prop_assert!(merged(&parts.paths).is_ok());
    }
}
