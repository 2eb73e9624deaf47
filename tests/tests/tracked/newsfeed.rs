//! The newsfeed's pages, whose bytes its processes track: a story leads to the bytes of the store
//! that made it, and no change of such a byte reaches bytes that provenance does not name.

use std::collections::{BTreeMap, BTreeSet};
use std::process::Command;

use serde_json::Value;
use stroboscope::baggage::Provenance;
use stroboscope_tests::{Program, Server};
use tokio::runtime::Runtime;
use tonic::Request;
use tonic::transport::Channel;

use super::collect;

/// Messages and services of the newsfeed.
#[allow(clippy::all, clippy::pedantic, dead_code, unreachable_pub)]
mod wire {
    include!("../../../examples/newsfeed/src/generated/newsfeed.v1.rs");
}

use wire::page_client::PageClient;
use wire::store_client::StoreClient;
use wire::{PageRequest, ReadRequest, WriteRequest};

/// User whose page is loaded.
const USER: u64 = 12;
/// Secret of the newsfeed's session tokens.
const SECRET: u64 = 0x6e65_7773_6665_6564;
/// Length in bytes of a story on a page, and the places of its id and of its source.
const STORY_BYTES: usize = 320;
const ID: std::ops::Range<usize> = 6..22;
const SOURCE: std::ops::Range<usize> = 28..36;

/// Starts a role of the newsfeed that serves. Returns it with its address.
fn serve(collector: &str, arguments: &[&str]) -> (Server, String) {
    let mut command = role(collector, arguments);
    command.args(["--listen", "127.0.0.1:0"]);
    let mut server = Server::start(command);
    let address = server.wait_for("its address", |said| {
        let address = said
            .lines()
            .find_map(|line| line.strip_prefix("listening "))?;
        Some(format!("http://{address}"))
    });
    (server, address)
}

fn role(collector: &str, arguments: &[&str]) -> Command {
    let mut command = Command::new(Program::newsfeed());
    command.args(arguments);
    command.env("STROBOSCOPE_COLLECTOR", collector);
    command.env("STROBOSCOPE_BURST_CONFIG", "always");
    command
}

async fn connected(address: &str) -> Channel {
    let endpoint = Channel::from_shared(address.to_owned()).expect("an address");
    endpoint
        .connect()
        .await
        .expect("the server accepts connections")
}

/// Returns the answer of `stroboscope provenance` as JSON.
fn ask(program: &Program, arguments: &[&str]) -> Value {
    let all = [&["provenance"], arguments, &["--json", "--top", "0"]].concat();
    program.run(&all).succeeds().json()
}

/// Returns a list in an answer.
fn list<'a>(answer: &'a Value, name: &str) -> &'a Vec<Value> {
    answer[name]
        .as_array()
        .unwrap_or_else(|| panic!("{name}: {answer}"))
}

fn text(value: &Value) -> &str {
    value.as_str().expect("a text")
}

/// Returns the bytes of the items in a list, by name.
fn bytes_by_name(items: &[Value]) -> BTreeMap<String, BTreeSet<u64>> {
    let mut bytes: BTreeMap<String, BTreeSet<u64>> = BTreeMap::new();
    for item in items {
        let of = bytes.entry(text(&item["name"]).to_owned()).or_default();
        for range in list(item, "ranges") {
            let bound = |end: usize| range[end].as_u64().expect("an offset");
            of.extend(bound(0)..bound(1));
        }
    }
    bytes
}

async fn read(store: &mut StoreClient<Channel>, key: &str) -> Vec<u8> {
    let request = ReadRequest {
        key: key.to_owned(),
    };
    store
        .read(request)
        .await
        .expect("a value")
        .into_inner()
        .value
}

/// Compares the sources of all outputs of a request with the answers about each of them. Returns
/// the number of outputs.
fn check_map(program: &Program, trace: &str) -> usize {
    let of_trace = |arguments: &[&str]| ask(program, &[arguments, &["--trace", trace]].concat());
    let map = of_trace(&["map"]);
    let mut sources: BTreeMap<&str, Vec<&Value>> = BTreeMap::new();
    for output in list(&map, "without_sources") {
        sources.insert(text(&output["id"]), Vec::new());
    }
    for pair in list(&map, "pairs") {
        let of_output = sources.entry(text(&pair["output"]["id"])).or_default();
        of_output.push(&pair["source"]);
    }
    let shown = of_trace(&["show"]);
    let items = list(&shown, "items").iter();
    let outputs = items.filter(|item| item["kind"] == "output");
    let mut count = 0;
    for id in outputs.map(|item| text(&item["id"])) {
        let why = of_trace(&["why", id]);
        let expected: Vec<&Value> = list(&why, "ends").iter().collect();
        assert_eq!(sources.remove(id), Some(expected), "{id}");
        count += 1;
    }
    assert!(sources.is_empty(), "{sources:?} are no outputs");

    // Filters choose among the same pairs.
    let chosen = |map: &Value, is_it: &dyn Fn(&Value, &str) -> bool| -> Vec<Value> {
        let pairs = list(map, "pairs").iter();
        let pairs = pairs.filter(|pair| is_it(&pair["output"], text(&pair["source"]["name"])));
        pairs.cloned().collect()
    };
    let all = of_trace(&["map", "--between"]);
    let of_store = r#"{ service = "store" && name = "newsfeed.v1.Store/Read" }"#;
    type IsChosen = fn(&Value, &str) -> bool;
    let cases: [(&[&str], &Value, IsChosen); 3] = [
        (&["--source", "story/ads/*"], &map, |_, source| {
            source.starts_with("story/ads/")
        }),
        (
            &["--output", "page: s*s", "--source", "user/*"],
            &map,
            |output, source| output["name"] == "page: stories" && source.starts_with("user/"),
        ),
        (&["--output", of_store, "--between"], &all, |output, _| {
            output["service"] == "store"
        }),
    ];
    for (filters, map, is_it) in cases {
        let expected = chosen(map, &is_it);
        assert!(!expected.is_empty(), "{filters:?}: {map}");
        let found = of_trace(&[&["map"][..], filters].concat());
        assert_eq!(*list(&found, "pairs"), expected, "{filters:?}");
    }
    let unknown = ["provenance", "map", "--trace", trace, "--source", "stroy/*"];
    let problem = "no source matches stroy/*; there are: ";
    program.run(&unknown).fails_with(2, &[problem]);
    if cfg!(feature = "sql") {
        let query = format!(
            "SELECT output, source, bytes FROM provenance_map WHERE output_trace = '{trace}' AND source_service = 'store'"
        );
        let rows = program.run(&["sql", "--json", &query]).succeeds().stdout;
        let row = |line| {
            serde_json::from_str::<Value>(line)
                .expect("JSON")
                .to_string()
        };
        let rows: BTreeSet<String> = rows.lines().map(row).collect();
        let expected = chosen(&map, &|_, _| true).into_iter();
        let expected = expected.filter(|pair| pair["source"]["service"] == "store");
        let row = |pair: Value| {
            let (output, source) = (&pair["output"]["id"], &pair["source"]["id"]);
            let bytes = &pair["source"]["bytes"];
            serde_json::json!({ "output": output, "source": source, "bytes": bytes }).to_string()
        };
        assert_eq!(rows, expected.map(row).collect());
    }
    count
}

/// Four processes: a story on a browser's page leads through the web server and the ranker to eight
/// bytes of the store, which are its id.
#[test]
fn a_story_leads_to_its_bytes_in_the_store() {
    let program = Program::new();
    let (mut collector, to) = collect(&program);
    let (mut store, at_store) = serve(&to, &["store"]);
    let (mut ranker, at_ranker) = serve(&to, &["ranker", "--store", &at_store]);
    let (mut web, at_web) = serve(&to, &["web", "--store", &at_store, "--ranker", &at_ranker]);
    let browser = ["client", "--edge", &at_web, "--rate", "4", "--seconds", "1"];
    let loaded = role(&to, &browser).output().expect("the browser runs");
    assert!(loaded.status.success(), "{loaded:?}");
    for server in [&mut web, &mut ranker, &mut store, &mut collector] {
        server.stop(libc::SIGTERM);
    }

    let shown = ask(&program, &["show", "--name", "page: stories"]);
    let page = list(&shown, "items").first().expect("a page");
    let why = ask(&program, &["why", text(&page["id"])]);
    let parts = list(&why, "content");
    let content: String = parts.iter().map(|part| text(&part["text"])).collect();
    let mut found = Vec::new();
    for story in 0..content.len() / STORY_BYTES {
        let place = |range: std::ops::Range<usize>| {
            story * STORY_BYTES + range.start..story * STORY_BYTES + range.end
        };
        if place(0..STORY_BYTES).end > 10 * STORY_BYTES {
            break;
        }
        let id = place(ID);
        let part = parts
            .iter()
            .find(|part| part["from"] == id.start)
            .expect("the id's part");
        assert_eq!(part["until"], id.end, "{part}");
        let [source] = &list(part, "sources")[..] else {
            panic!("{part}");
        };
        let (key, range) = text(source).split_once(' ').expect("a key and bytes");
        let (from, until) = range.split_once("..").expect("a range");
        let range: std::ops::Range<usize> = from.parse().unwrap()..until.parse().unwrap();
        let generator = content[place(SOURCE)].trim_end();
        assert!(key.starts_with(&format!("story/{generator}/")), "{source}");
        found.push((content[id].to_owned(), key.to_owned(), range));
    }
    assert_eq!(found.len(), 10, "{content}");
    // All stores have the same values.
    let (_store, at_store) = serve("http://127.0.0.1:1", &["store"]);
    let runtime = Runtime::new().expect("a runtime");
    runtime.block_on(async {
        let mut store = StoreClient::new(connected(&at_store).await);
        for (id, key, range) in found {
            let bytes = &read(&mut store, &key).await[range.clone()];
            let hex: String = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
            assert_eq!(id, hex, "{key} {range:?}");
        }
    });
    let outputs = check_map(&program, text(&page["trace"]));
    assert!(outputs >= 4, "{outputs}");
    let services: BTreeSet<&str> = ["through", "ends"]
        .iter()
        .flat_map(|name| list(&why, name))
        .chain([page])
        .filter_map(|item| Some(text(&item["log"]).split_once(' ')?.0))
        .collect();
    assert_eq!(
        services,
        BTreeSet::from(["client", "ranker", "store", "web"])
    );

    // The page colours the content, and the request's page lists its outputs.
    let mut view = Server::start(program.command(&["view", "--http", "127.0.0.1:0"]));
    let site = view.wait_for("its address", |said| {
        said.lines()
            .find_map(|line| Some(line.split_once("pages on ")?.1.to_owned()))
    });
    let get = |path: String| {
        let address = format!("{}{path}", site.trim_end_matches('/'));
        let response = async { reqwest::get(address).await?.text().await };
        runtime.block_on(response).expect("a page")
    };
    let coloured = get(format!("/provenance?item={}", text(&page["id"])));
    assert!(
        coloured.contains("<mark class=\"o0\" title=\"story/"),
        "{coloured}"
    );
    let request = get(format!("/traces/{}", text(&page["trace"])));
    assert!(request.contains("Bytes that it tracked"), "{request}");
    assert!(request.contains(&format!("/provenance?item={}", text(&page["id"]))));
    view.stop(libc::SIGTERM);
}

/// Bodies of a page's pagelets by name, and the ids of these outputs.
type Bodies = BTreeMap<String, (Vec<u8>, u64)>;

async fn load(web: &mut PageClient<Channel>) -> Bodies {
    let request = PageRequest {
        user: USER,
        session_token: mixed(USER ^ SECRET),
        count: 1 << 20,
    };
    let mut pagelets = web
        .load(Request::new(request))
        .await
        .expect("a page")
        .into_inner();
    let mut bodies = Bodies::new();
    while let Some(pagelet) = pagelets.message().await.expect("a pagelet") {
        let id = match Provenance::from_text(&pagelet.provenance).get("output") {
            Some(stroboscope::baggage::Value::Uint(id)) => *id,
            id => panic!("{id:?}"),
        };
        bodies.insert(pagelet.name, (pagelet.body, id));
    }
    bodies
}

/// Returns the newsfeed's hash for session tokens.
fn mixed(number: u64) -> u64 {
    let mut z = number;
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

/// Returns the bytes of the store to change: used ones of each kind, and unused ones.
fn bytes_to_change() -> Vec<(String, usize)> {
    let mut bytes = Vec::new();
    for generator in ["friends", "pages", "ads"] {
        for part in 0..3 {
            let key = format!("story/{generator}/{USER}/{part}");
            bytes.extend((0..4).map(|candidate| (key.clone(), 8 * candidate + 2 * part + 1)));
            bytes.push((key, 40));
        }
    }
    for (place, property) in ["name", "locale", "timezone", "quota", "theme"]
        .iter()
        .enumerate()
    {
        bytes.push((format!("user/{USER}/{property}"), 200 * place));
    }
    bytes.extend([0, 1_023].map(|byte| (format!("model/{}", USER % 8), byte)));
    bytes.push(("user/13/name".to_owned(), 0));
    bytes
}

/// Changes bytes of the store, one at a time, and compares the pages with the first one: under
/// the linkage of indices, provenance names all bytes that differ.
#[test]
fn no_changed_byte_is_missed() {
    let program = Program::new();
    let (mut collector, to) = collect(&program);
    let (mut store, at_store) = serve(&to, &["store"]);
    let ranker = ["ranker", "--store", &at_store, "--linkage", "index"];
    let uncached = ["--fault", "ranker.cache-miss"];
    let (mut ranker, at_ranker) = serve(&to, &[&ranker[..], &uncached].concat());
    let (mut web, at_web) = serve(&to, &["web", "--store", &at_store, "--ranker", &at_ranker]);
    let changes = bytes_to_change();
    let runtime = Runtime::new().expect("a runtime");
    let (first, pages) = runtime.block_on(async {
        let mut store = StoreClient::new(connected(&at_store).await);
        let mut web = PageClient::new(connected(&at_web).await);
        let first = load(&mut web).await;
        let again = load(&mut web).await;
        for (name, (body, _)) in &first {
            assert!(again[name].0 == *body, "the same page twice: {name}");
        }
        let mut pages = Vec::new();
        for (key, byte) in &changes {
            let value = read(&mut store, key).await;
            let mut changed = value.clone();
            changed[*byte] ^= 0x5a;
            for (last, value) in [(false, changed), (true, value)] {
                let key = key.clone();
                store
                    .write(WriteRequest { key, value })
                    .await
                    .expect("written");
                if !last {
                    pages.push(load(&mut web).await);
                }
            }
        }
        (first, pages)
    });
    for server in [&mut web, &mut ranker, &mut store, &mut collector] {
        server.stop(libc::SIGTERM);
    }

    let shown = ask(&program, &["show", "--name", "stories"]);
    let id = format!("{:016x}", first["stories"].1);
    let stories = list(&shown, "items").iter().find(|item| item["id"] == *id);
    let trace = text(&stories.expect("the first page's stories")["trace"]);
    let of_trace = ask(&program, &["show", "--trace", trace]);
    let sources: BTreeMap<&str, &str> = list(&of_trace, "items")
        .iter()
        .filter(|item| item["kind"] == "source")
        .map(|item| (text(&item["name"]), text(&item["id"])))
        .collect();
    let (mut all_changed, mut all_named, mut unused) = (0, 0, 0);
    for ((key, byte), page) in changes.iter().zip(&pages) {
        let named = match sources.get(&**key) {
            Some(id) => {
                let of = ask(&program, &["of", &format!("{id}:{byte}"), "--trace", trace]);
                bytes_by_name(list(&of, "ends"))
            }
            None => BTreeMap::new(),
        };
        let mut changed = 0;
        for (name, (body, _)) in &first {
            let now = &page[name].0;
            // Lengths are no bytes: the number of ads depends on all candidates.
            for (place, (was, now)) in body.iter().zip(now).enumerate() {
                if was != now {
                    changed += 1;
                    let of = named.get(name);
                    let is_named = of.is_some_and(|of| of.contains(&(place as u64)));
                    assert!(is_named, "{key}:{byte} changed {name}:{place}");
                }
            }
        }
        let count: usize = named.values().map(BTreeSet::len).sum();
        if count == 0 {
            unused += 1;
        }
        all_changed += changed;
        all_named += count;
    }
    println!("{all_changed} bytes of pages changed, {all_named} named, {unused} bytes unused");
    assert_eq!(
        unused, 10,
        "nine behind the candidates, and one of another user"
    );
    assert!(all_changed > 50_000);
}
