//! A simulated object store: requests fail, succeed although they seem to fail, or are carried out
//! late.

use std::collections::BTreeSet;
use std::fmt;
use std::sync::{Arc, Mutex};

use futures_util::StreamExt as _;
use futures_util::stream::BoxStream;
use object_store::memory::InMemory;
use object_store::path::Path;
use object_store::{
    CopyOptions, Error, GetOptions, GetResult, ListResult, MultipartUpload, ObjectMeta,
    ObjectStore, ObjectStoreExt as _, PutMode, PutMultipartOptions, PutOptions, PutPayload,
    PutResult, Result,
};
use stroboscope_fixtures::random::Random;

use crate::log::{Log, lock};

/// Faults of requests, each per thousand.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct ObjectFaults {
    /// The store does nothing, and returns an error.
    pub(crate) fail: usize,
    /// The store carries out the request, and returns an error.
    pub(crate) ambiguous: usize,
    /// The store carries out a write after some further requests, and returns an error. A read
    /// fails.
    pub(crate) late: usize,
}

/// Write that the store carries out after `after` further requests.
struct Late {
    after: usize,
    path: Path,
    payload: PutPayload,
    options: PutOptions,
}

/// Action that runs once, before an update ([`PutMode::Update`]), such as a round of another
/// publisher.
pub(crate) type Meanwhile = Box<dyn FnOnce() + Send>;

#[derive(Default)]
struct State {
    random: Random,
    faults: ObjectFaults,
    late: Vec<Late>,
    /// Action, and the number of updates that begin before it.
    meanwhile: Option<(usize, Meanwhile)>,
    /// First problem found in the written manifests; `None` if there is none.
    broken: Option<String>,
    pub(crate) manifests: usize,
}

/// The objects. Clones share them, for use by different programs.
#[derive(Clone)]
pub(crate) struct SimObjects {
    inner: Arc<InMemory>,
    state: Arc<Mutex<State>>,
    log: Log,
    /// Name of the program that uses this handle, for the log.
    of: &'static str,
    /// Planted defect: the store ignores the condition of an update.
    is_blind: bool,
    /// Seed and faults of a reader; `None` for other programs. A reader fetches several objects at
    /// a time, so the path of an object decides whether its request fails.
    reader: Option<(u64, ObjectFaults)>,
}

impl SimObjects {
    pub(crate) fn new(seed: u64, log: Log) -> Self {
        let state = State {
            random: Random(seed),
            ..State::default()
        };
        Self {
            inner: Arc::default(),
            state: Arc::new(Mutex::new(state)),
            log,
            of: "objects",
            is_blind: false,
            reader: None,
        }
    }

    pub(crate) fn used_by(&self, of: &'static str, is_blind: bool) -> Arc<Self> {
        Arc::new(Self {
            of,
            is_blind,
            ..self.clone()
        })
    }

    pub(crate) fn used_by_reader(&self, number: u64, faults: ObjectFaults) -> Arc<Self> {
        Arc::new(Self {
            of: "reader",
            reader: Some((number, faults)),
            ..self.clone()
        })
    }

    pub(crate) fn set_faults(&self, faults: ObjectFaults) {
        lock(&self.state).faults = faults;
    }

    /// Ends the faults of all programs but readers. Late writes arrive before the next request.
    pub(crate) fn mend(&self) {
        let mut state = lock(&self.state);
        state.faults = ObjectFaults::default();
        state.meanwhile = None;
        state.late.iter_mut().for_each(|late| late.after = 0);
    }

    /// Sets an action that runs before an update by any program, once `after` other updates have
    /// begun.
    pub(crate) fn set_meanwhile(&self, after: usize, meanwhile: Meanwhile) {
        lock(&self.state).meanwhile = Some((after, meanwhile));
    }

    /// Returns the number of written manifests, or the problem found in them.
    pub(crate) fn check(&self) -> std::result::Result<usize, String> {
        let state = lock(&self.state);
        state.broken.clone().map_or(Ok(state.manifests), Err)
    }

    fn draw(&self, what: &str, path: &Path) -> Drawn {
        if let Some((number, faults)) = self.reader {
            let hash =
                |hash: u64, byte: u8| (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3);
            let mut random = Random(path.as_ref().bytes().fold(number, hash));
            return if random.happens(faults.fail / 4) {
                Drawn::Fails
            } else {
                Drawn::Works
            };
        }
        let mut state = lock(&self.state);
        let State { random, faults, .. } = &mut *state;
        let at = random.below(1_000);
        let drawn = if at < faults.fail {
            Drawn::Fails
        } else if at < faults.fail + faults.ambiguous {
            Drawn::IsAmbiguous
        } else if at < faults.fail + faults.ambiguous + faults.late {
            Drawn::IsLate(1 + random.below(4))
        } else {
            Drawn::Works
        };
        drop(state);
        if drawn != Drawn::Works {
            self.log
                .add(self.of, format_args!("{what} {path}: {drawn:?}"));
        }
        drawn
    }

    /// Carries out the late writes that are due. Called before each put and get; has no effect for
    /// readers.
    async fn catch_up(&self) {
        if self.reader.is_some() {
            return;
        }
        let mut due = Vec::new();
        {
            let mut state = lock(&self.state);
            for late in std::mem::take(&mut state.late) {
                match late.after {
                    0 => due.push(late),
                    after => state.late.push(Late {
                        after: after - 1,
                        ..late
                    }),
                }
            }
        }
        for Late {
            path,
            payload,
            options,
            ..
        } in due
        {
            let done = self.carry_out(&path, payload, options).await;
            self.log.add(
                self.of,
                format_args!("put {path} comes late: {}", done.is_ok()),
            );
        }
    }

    /// Carries out a put, and checks the content if it is a manifest.
    async fn carry_out(
        &self,
        path: &Path,
        payload: PutPayload,
        options: PutOptions,
    ) -> Result<PutResult> {
        let before = match path.filename() {
            Some("manifest.json") => self.manifest(path).await,
            _ => None,
        };
        let put = self.inner.put_opts(path, payload, options).await?;
        if let Some(after) = self
            .manifest(path)
            .await
            .filter(|_| path.filename() == Some("manifest.json"))
        {
            self.note_manifest(path, before.as_ref(), &after);
        }
        Ok(put)
    }

    async fn manifest(&self, path: &Path) -> Option<Manifest> {
        let bytes = self.inner.get(path).await.ok()?.bytes().await.ok()?;
        let generation = number_after(&bytes, "\"generation\":");
        let text = String::from_utf8_lossy(&bytes).into_owned();
        let files = text.split("\"unnamed\"").next().unwrap_or_default();
        let files = files.split("\"path\":\"").skip(1);
        Some(Manifest {
            generation,
            files: files
                .filter_map(|rest| Some(rest.split_once('"')?.0.to_owned()))
                .collect(),
        })
    }

    /// Checks that each manifest continues the one that it replaces: no published file is
    /// forgotten.
    fn note_manifest(&self, path: &Path, before: Option<&Manifest>, after: &Manifest) {
        let mut state = lock(&self.state);
        state.manifests += 1;
        let (generation, files) =
            before.map_or((0, None), |before| (before.generation, Some(&before.files)));
        self.log.add(
            self.of,
            format_args!(
                "{path} is number {} and names {} files",
                after.generation,
                after.files.len()
            ),
        );
        let lost = files.and_then(|files| files.difference(&after.files).next());
        if after.generation != generation + 1 || lost.is_some() {
            let broken = format!(
                "{path} of number {} replaces number {generation}; it forgets {lost:?}",
                after.generation
            );
            state.broken.get_or_insert(broken);
        }
    }

    /// Runs the action of [`set_meanwhile`](Self::set_meanwhile), if it is due.
    fn let_in(&self) {
        let meanwhile = {
            let mut state = lock(&self.state);
            match state.meanwhile.take() {
                Some((0, meanwhile)) => Some(meanwhile),
                Some((after, meanwhile)) => {
                    state.meanwhile = Some((after - 1, meanwhile));
                    None
                }
                None => None,
            }
        };
        if let Some(meanwhile) = meanwhile {
            // The action blocks on a runtime of its own.
            std::thread::scope(|scope| scope.spawn(meanwhile).join())
                .expect("the other publisher ends");
        }
    }
}

struct Manifest {
    generation: u64,
    files: BTreeSet<String>,
}

fn number_after(bytes: &[u8], key: &str) -> u64 {
    let text = String::from_utf8_lossy(bytes);
    let rest = text.split_once(key).map_or("", |(_, rest)| rest);
    let digits: String = rest.chars().take_while(char::is_ascii_digit).collect();
    digits.parse().unwrap_or(0)
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Drawn {
    Works,
    Fails,
    IsAmbiguous,
    IsLate(usize),
}

fn away() -> Error {
    Error::Generic {
        store: "simulated",
        source: "the answer did not come".into(),
    }
}

impl fmt::Display for SimObjects {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.of)
    }
}

impl fmt::Debug for SimObjects {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.of)
    }
}

#[async_trait::async_trait]
impl ObjectStore for SimObjects {
    async fn put_opts(
        &self,
        path: &Path,
        payload: PutPayload,
        mut options: PutOptions,
    ) -> Result<PutResult> {
        self.catch_up().await;
        if matches!(options.mode, PutMode::Update(_)) {
            self.let_in();
            if self.is_blind {
                options.mode = PutMode::Overwrite;
            }
        }
        match self.draw("put", path) {
            Drawn::Works => self.carry_out(path, payload, options).await,
            Drawn::Fails => Err(away()),
            Drawn::IsAmbiguous => {
                let _ = self.carry_out(path, payload, options).await;
                Err(away())
            }
            Drawn::IsLate(after) => {
                let path = path.clone();
                let late = Late {
                    after,
                    path,
                    payload,
                    options,
                };
                lock(&self.state).late.push(late);
                Err(away())
            }
        }
    }

    async fn put_multipart_opts(
        &self,
        _: &Path,
        _: PutMultipartOptions,
    ) -> Result<Box<dyn MultipartUpload>> {
        // No object here is so large.
        Err(away())
    }

    async fn get_opts(&self, path: &Path, options: GetOptions) -> Result<GetResult> {
        self.catch_up().await;
        match self.draw("get", path) {
            Drawn::Works => self.inner.get_opts(path, options).await,
            _ => Err(away()),
        }
    }

    fn delete_stream(
        &self,
        paths: BoxStream<'static, Result<Path>>,
    ) -> BoxStream<'static, Result<Path>> {
        self.inner.delete_stream(paths)
    }

    fn list(&self, prefix: Option<&Path>) -> BoxStream<'static, Result<ObjectMeta>> {
        let drawn = self.draw("list", &prefix.cloned().unwrap_or_default());
        let listed = self.inner.list(prefix);
        match drawn {
            Drawn::Works => listed,
            _ => futures_util::stream::once(async { Err(away()) }).boxed(),
        }
    }

    async fn list_with_delimiter(&self, prefix: Option<&Path>) -> Result<ListResult> {
        self.inner.list_with_delimiter(prefix).await
    }

    async fn copy_opts(&self, from: &Path, to: &Path, options: CopyOptions) -> Result<()> {
        self.inner.copy_opts(from, to, options).await
    }
}
