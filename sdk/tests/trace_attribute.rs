//! Tests `#[trace]` on synchronous, asynchronous and boxed functions, methods, and traits.

mod collector;

use collector::{Collector, wait_for};
use stroboscope::BurstConfig;

struct Store {
    values: Vec<String>,
}

trait Reads {
    fn read(&self, key: usize) -> impl Future<Output = Result<&str, String>> + Send;
}

impl Reads for Store {
    #[stroboscope::trace(fields(key), err)]
    async fn read(&self, key: usize) -> Result<&str, String> {
        let value = self
            .values
            .get(key)
            .ok_or_else(|| format!("no key {key}"))?;
        if value.is_empty() {
            return Err("empty".to_owned());
        }
        Ok(value)
    }
}

#[tonic::async_trait]
trait Boxed {
    async fn boxed(&self, n: u32) -> u32;
    async fn boxed_failing(&self, text: &str) -> Result<u32, std::num::ParseIntError>;
}

#[tonic::async_trait]
impl Boxed for Store {
    #[stroboscope::trace]
    async fn boxed(&self, n: u32) -> u32 {
        tokio::task::yield_now().await;
        n + 1
    }

    #[stroboscope::trace(err)]
    async fn boxed_failing(&self, text: &str) -> Result<u32, std::num::ParseIntError> {
        tokio::task::yield_now().await;
        text.parse()
    }
}

impl Store {
    #[stroboscope::trace(name = "first letter")]
    fn first<'a, T: AsRef<str> + ?Sized>(&self, text: &'a T) -> Option<&'a str> {
        let text = text.as_ref();
        Some(&text[..text.chars().next()?.len_utf8()])
    }

    #[stroboscope::trace(err)]
    fn set(&mut self, at: usize, value: &str) -> Result<&mut String, String> {
        if value.is_empty() {
            return Err("nothing to set".to_owned());
        }
        let place = self.values.get_mut(at).ok_or("no such place")?;
        value.clone_into(place);
        Ok(place)
    }

    /// Has a doc comment and a visibility, which the attribute must keep.
    #[stroboscope::trace]
    pub(crate) async fn nothing(&mut self) {
        self.values.clear();
    }
}

#[stroboscope::trace]
fn lines() -> impl Iterator<Item = u32> {
    0..3
}

#[test]
fn every_kind_of_function_keeps_its_meaning_and_makes_a_span() {
    let collector = Collector::default();
    let guard = stroboscope::builder()
        .collector(collector.clone().start())
        .burst_config(BurstConfig::ALWAYS_ON)
        .init()
        .unwrap();
    wait_for("the gate", || stroboscope::stats().windows > 0);
    let mut store = Store {
        values: vec!["a".into(), String::new()],
    };
    tokio::runtime::Builder::new_current_thread()
        .build()
        .unwrap()
        .block_on(async {
            assert_eq!(store.read(0).await, Ok("a"));
            assert_eq!(store.read(1).await, Err("empty".to_owned()));
            assert_eq!(store.read(2).await, Err("no key 2".to_owned()));
            assert_eq!(store.boxed(1).await, 2);
            assert_eq!(store.boxed_failing("7").await, Ok(7));
            assert!(store.boxed_failing("x").await.is_err());
            assert_eq!(store.set(0, "b"), Ok(&mut "b".to_owned()));
            assert_eq!(store.set(9, "b"), Err("no such place".to_owned()));
            store.nothing().await;
        });
    assert_eq!(store.first("xyz"), Some("x"));
    assert_eq!(lines().sum::<u32>(), 3);
    drop(guard);
    let mut names: Vec<String> = collector
        .spans()
        .into_iter()
        .map(|span| span.name)
        .collect();
    names.sort();
    assert_eq!(
        names,
        [
            "boxed",
            "boxed_failing",
            "boxed_failing",
            "first letter",
            "lines",
            "nothing",
            "read",
            "read",
            "read",
            "set",
            "set"
        ]
    );
    let keys: Vec<String> = collector
        .spans()
        .into_iter()
        .filter(|span| span.name == "read")
        .map(|span| span.attributes["key"].clone())
        .collect();
    assert_eq!(keys, ["0", "1", "2"]);
    // Two calls of `read` failed, and one of each other function that can fail.
    let spans = collector.spans();
    let failed = spans
        .iter()
        .filter(|span| span.attributes.contains_key("error"));
    let failed: Vec<(&str, &str)> = failed
        .map(|span| (&*span.name, &*span.attributes["otel.status_description"]))
        .collect();
    assert_eq!(
        failed,
        [
            ("read", "empty"),
            ("read", "no key 2"),
            ("boxed_failing", "invalid digit found in string"),
            ("set", "no such place"),
        ]
    );
}
