//! Saves models to files and loads them, to display them again, merge them, or compare them with
//! later models.
//!
//! The format is one JSON object, compressed by zstd if the file's name ends in `.zst`:
//!
//! ```text
//! {"format": "stroboscope model", "version": 1, "written_by": "0.1.0",
//!  "max_labels": 4096, "traces": 1000, "refused_labels": 0, "unknown_segments": 0,
//!  "segments": [{"task": "web:page", "start": "start", "end": "end", "count": 1000, "traces": 1000}, …],
//!  "pairs": [[a, b, together, contradicted, overlapping], …],
//!  "pipelines": [{"first": "task", "second": "task", "together": 9, "ordered": 9, "contradicted": 0, "elements": 20}, …]}
//! ```
//!
//! `a` and `b` are indexes into `segments`. The three counts are numbers of traces. In `together`
//! traces, both segments occur; if `a` is `b`, the segment occurs several times. In `contradicted`
//! of them, some b certainly starts before an a has ended; 0 if `a` is `b`. In `overlapping` of
//! them, a and b certainly overlap. Every pair seen together is listed in both directions, so that
//! any tolerance can be applied later. `version` increases when an older program would misread a
//! file. Additional keys do not change it, and readers ignore them.

use std::fs::File;
use std::io::{self, BufReader, BufWriter, Read, Seek as _, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use serde::{Deserialize, Serialize};
use stroboscope_analysis::label::{SegmentId, SegmentLabel};
use stroboscope_analysis::model::{
    Model, ModelParts, ModelPartsError, PairCounts, PipelineCounts, SegmentCounts,
};

/// Version of the format that this program writes. [`load_model`] reads no other version.
pub const MODEL_VERSION: u32 = 1;
const FORMAT: &str = "stroboscope model";
/// First bytes of a file that zstd compressed.
const ZSTD_MAGIC: [u8; 4] = [0x28, 0xb5, 0x2f, 0xfd];

/// Reason why a model was not saved or loaded.
#[derive(Debug, thiserror::Error)]
pub enum SavedModelError {
    #[error("cannot read the model {}: {error}", path.display())]
    Read { path: PathBuf, error: io::Error },
    /// The file or its directory cannot be written.
    #[error("cannot write the model to {}: {error}", path.display())]
    Write { path: PathBuf, error: io::Error },
    /// The file does not contain a model.
    #[error("{} is not a saved model ({reason}); `stroboscope infer --save FILE` writes one", path.display())]
    NotAModel {
        path: PathBuf,
        /// Reason why the file is not a model.
        reason: String,
    },
    /// The file has another version of the format.
    #[error(
        "the model {} is of version {found}, and this program reads version {MODEL_VERSION}; infer it again, or read it \
         with the program that wrote it{}", path.display(), written_by.as_ref().map_or_else(String::new, |by| format!(", stroboscope {by}"))
    )]
    Version {
        path: PathBuf,
        /// Version of the format in the file.
        found: u64,
        /// Version of the program that wrote the file, if the file names it.
        written_by: Option<String>,
    },
    /// The parts of the model contradict each other.
    #[error("the model {} cannot be used: {error}", path.display())]
    Parts {
        path: PathBuf,
        /// Contradiction between the parts.
        error: ModelPartsError,
    },
}

/// Fields that are read whatever the version of the format.
#[derive(Debug, Deserialize)]
struct Head {
    format: String,
    version: u64,
    #[serde(default)]
    written_by: Option<String>,
}

#[derive(Debug, Serialize, Deserialize)]
pub(super) struct SavedModel {
    format: String,
    version: u32,
    written_by: String,
    max_labels: usize,
    traces: u64,
    refused_labels: u64,
    unknown_segments: u64,
    segments: Vec<SavedSegment>,
    pairs: Vec<(u32, u32, u64, u64, u64)>,
    pipelines: Vec<SavedPipeline>,
}

#[derive(Debug, Serialize, Deserialize)]
struct SavedSegment {
    task: String,
    start: String,
    end: String,
    count: u64,
    traces: u64,
}

#[derive(Debug, Serialize, Deserialize)]
struct SavedPipeline {
    first: String,
    second: String,
    together: u64,
    ordered: u64,
    contradicted: u64,
    elements: u64,
}

impl SavedModel {
    /// Drops the counts of pairs of segments and of tasks.
    pub(super) fn forget_pairs(&mut self) {
        self.pairs = Vec::new();
        self.pipelines = Vec::new();
    }
}

impl From<ModelParts> for SavedModel {
    fn from(parts: ModelParts) -> Self {
        let segment = |(label, counts): (SegmentLabel, SegmentCounts)| SavedSegment {
            task: label.task.to_string(),
            start: label.start.to_string(),
            end: label.end.to_string(),
            count: counts.occurrences,
            traces: counts.traces,
        };
        let pair = |pair: PairCounts| {
            let (together, contradicted) = (pair.cooccurrences, pair.contradictions);
            (pair.a.0, pair.b.0, together, contradicted, pair.overlaps)
        };
        let pipeline =
            |(first, second, counts): (Arc<str>, Arc<str>, PipelineCounts)| SavedPipeline {
                first: first.to_string(),
                second: second.to_string(),
                together: counts.cooccurrences,
                ordered: counts.ordered,
                contradicted: counts.contradictions,
                elements: counts.elements,
            };
        Self {
            format: FORMAT.to_owned(),
            version: MODEL_VERSION,
            written_by: env!("CARGO_PKG_VERSION").to_owned(),
            max_labels: parts.max_labels,
            traces: parts.traces,
            refused_labels: parts.refused_labels,
            unknown_segments: parts.unknown_segments,
            segments: parts.segments.into_iter().map(segment).collect(),
            pairs: parts.pairs.into_iter().map(pair).collect(),
            pipelines: parts.pipelines.into_iter().map(pipeline).collect(),
        }
    }
}

impl From<SavedModel> for ModelParts {
    fn from(saved: SavedModel) -> Self {
        let segment = |saved: SavedSegment| {
            let counts = SegmentCounts {
                occurrences: saved.count,
                traces: saved.traces,
            };
            let label = SegmentLabel::new(&saved.task, &saved.start, &saved.end);
            (label, counts)
        };
        let pair = |(a, b, cooccurrences, contradictions, overlaps)| PairCounts {
            a: SegmentId(a),
            b: SegmentId(b),
            cooccurrences,
            contradictions,
            overlaps,
        };
        let pipeline = |saved: SavedPipeline| {
            let counts = PipelineCounts {
                cooccurrences: saved.together,
                ordered: saved.ordered,
                contradictions: saved.contradicted,
                elements: saved.elements,
            };
            (saved.first.into(), saved.second.into(), counts)
        };
        Self {
            max_labels: saved.max_labels,
            traces: saved.traces,
            refused_labels: saved.refused_labels,
            unknown_segments: saved.unknown_segments,
            segments: saved.segments.into_iter().map(segment).collect(),
            pairs: saved.pairs.into_iter().map(pair).collect(),
            pipelines: saved.pipelines.into_iter().map(pipeline).collect(),
        }
    }
}

/// Saves a model atomically, and replaces a file of the same name. Compresses it if the name ends
/// in `.zst`.
///
/// # Errors
/// Fails if the file cannot be written.
pub fn save_model(model: &Model, path: &Path) -> Result<(), SavedModelError> {
    let mut part = path.as_os_str().to_owned();
    part.push(".part");
    let part = PathBuf::from(part);
    let is_packed = path.extension().is_some_and(|extension| extension == "zst");
    let written = write(&SavedModel::from(model.parts()), &part, is_packed)
        .and_then(|()| std::fs::rename(&part, path));
    written.map_err(|error| {
        // A partly written file is useless. It is no error if there is none.
        let _ = std::fs::remove_file(&part);
        SavedModelError::Write {
            path: path.to_owned(),
            error,
        }
    })
}

fn write(saved: &SavedModel, path: &Path, is_packed: bool) -> io::Result<()> {
    let mut file = BufWriter::new(File::create(path)?);
    if is_packed {
        let mut packer = zstd::Encoder::new(&mut file, zstd::DEFAULT_COMPRESSION_LEVEL)?;
        serde_json::to_writer(&mut packer, saved)?;
        packer.finish()?;
    } else {
        serde_json::to_writer(&mut file, saved)?;
        file.write_all(b"\n")?;
    }
    file.into_inner()?.sync_all()
}

/// Loads a model that [`save_model`] has written.
///
/// # Errors
/// Fails if the file cannot be read, is no model, or has another version of the format, or if the
/// parts of the model contradict each other.
pub fn load_model(path: &Path) -> Result<Model, SavedModelError> {
    let fail = |error| SavedModelError::Read {
        path: path.to_owned(),
        error,
    };
    let not_a_model = |reason: String| SavedModelError::NotAModel {
        path: path.to_owned(),
        reason,
    };
    // The version must be checked first. Reading the file twice avoids holding its content in
    // memory for that.
    let head: Head = parse(path)
        .map_err(fail)?
        .map_err(|error| not_a_model(error.to_string()))?;
    if head.format != FORMAT {
        return Err(not_a_model(format!(
            "its format is `{}`",
            head.format.escape_debug()
        )));
    }
    if head.version != u64::from(MODEL_VERSION) {
        return Err(SavedModelError::Version {
            path: path.to_owned(),
            found: head.version,
            written_by: head.written_by,
        });
    }
    let saved: SavedModel = parse(path)
        .map_err(fail)?
        .map_err(|error| not_a_model(error.to_string()))?;
    Model::from_parts(&saved.into()).map_err(|error| SavedModelError::Parts {
        path: path.to_owned(),
        error,
    })
}

/// Returns the model as the JSON object that [`save_model`] writes.
#[must_use]
pub fn model_to_json(model: &Model) -> String {
    // The model has only numbers and texts, so JSON serialization cannot fail.
    serde_json::to_string(&SavedModel::from(model.parts())).unwrap_or_default()
}

/// Restores a model from the text that [`model_to_json`] returned.
///
/// # Errors
/// Fails with a description if the text is no model, or if the parts of the model contradict each
/// other.
pub fn model_from_json(json: &[u8]) -> Result<Model, String> {
    let saved: SavedModel = serde_json::from_slice(json).map_err(|error| error.to_string())?;
    Model::from_parts(&saved.into()).map_err(|error| error.to_string())
}

/// Parses a file, compressed or not. The outer error is about reading or decompressing the file,
/// the inner one about its content.
fn parse<T: for<'de> Deserialize<'de>>(path: &Path) -> io::Result<Result<T, serde_json::Error>> {
    let mut file = File::open(path)?;
    let mut magic = Vec::new();
    (&mut file)
        .take(ZSTD_MAGIC.len() as u64)
        .read_to_end(&mut magic)?;
    file.rewind()?;
    let parsed = if magic == ZSTD_MAGIC {
        serde_json::from_reader(BufReader::new(zstd::Decoder::new(file)?))
    } else {
        serde_json::from_reader(BufReader::new(file))
    };
    match parsed {
        Err(error) if error.is_io() => Err(error.into()),
        parsed => Ok(parsed),
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use stroboscope_analysis::record::TraceId;
    use stroboscope_analysis::segment::{ElementId, Segment, SegmentedTrace};

    use super::*;

    /// Builds a model from traces of segments (label, start, length, element).
    fn model(traces: &[Vec<(u8, i8, u8, u8)>]) -> Model {
        let mut model = Model::new();
        for segments in traces {
            let segments = segments.iter().map(|&(label, start, length, element)| {
                let (task, start) = (format!("t{} \"<\\", label / 2), i64::from(start));
                let label = SegmentLabel::new(&task, &format!("e{}", label % 2), "\u{7}end");
                let id = model
                    .labels_mut()
                    .intern(&label.task, &label.start, &label.end)
                    .unwrap();
                let element = if element == 0 {
                    ElementId::NONE
                } else {
                    ElementId(u32::from(element))
                };
                Segment {
                    element,
                    ..Segment::new(id, start, start + i64::from(length))
                }
            });
            let segments = segments.collect();
            model.observe(&SegmentedTrace::new(TraceId(1), None, 0, 0, segments));
        }
        model
    }

    fn check_error(content: &[u8], parts: &[&str]) {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("m.json");
        std::fs::write(&path, content).unwrap();
        let error = load_model(&path).unwrap_err().to_string();
        for part in parts.iter().chain(&["m.json"]) {
            assert!(error.contains(part), "{part}: {error}");
        }
    }

    #[test]
    fn what_cannot_be_read_is_said() {
        check_error(
            br#"{"format":"stroboscope model","version":2,"written_by":"9.1"}"#,
            &["version 2", "version 1", "stroboscope 9.1"],
        );
        check_error(
            br#"{"format":"stroboscope model","version":0,"traces":[]}"#,
            &["version 0", "version 1"],
        );
        check_error(
            br#"{"format":"else","version":1}"#,
            &["not a saved model", "`else`"],
        );
        check_error(
            br#"{"format":"stroboscope model","version":1}"#,
            &["not a saved model", "missing field"],
        );
        check_error(b"PAR1", &["not a saved model", "line 1"]);
        check_error(&[0x28, 0xb5, 0x2f, 0xfd, 1, 2, 3], &["m.json"]);
        let pairs = r#"{"format":"stroboscope model","version":1,"written_by":"1","max_labels":4,"traces":1,
            "refused_labels":0,"unknown_segments":0,"segments":[],"pairs":[[0,1,1,0,0]],"pipelines":[]}"#;
        check_error(pairs.as_bytes(), &["cannot be used", "(0, 1)"]);
        let gone = load_model(Path::new("no/such.json"))
            .unwrap_err()
            .to_string();
        assert!(gone.contains("no/such.json"), "{gone}");
        let nowhere = save_model(&Model::new(), Path::new("no/such.json"))
            .unwrap_err()
            .to_string();
        assert!(nowhere.contains("no/such.json"), "{nowhere}");
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(32))]
        #[test]
        fn what_is_saved_is_loaded(
            traces in prop::collection::vec(prop::collection::vec((0u8..8, any::<i8>(), any::<u8>(), 0u8..4), 0..12), 0..8),
            is_packed in any::<bool>(),
        ) {
            let model = model(&traces);
            let directory = tempfile::tempdir().unwrap();
            let path = directory.path().join(if is_packed { "m.json.zst" } else { "m.json" });
            save_model(&model, &path).unwrap();
            let loaded = load_model(&path).unwrap();
            prop_assert_eq!(loaded.parts(), model.parts());
            for tolerance in [0.0, 0.3] {
                prop_assert_eq!(loaded.relations(tolerance), model.relations(tolerance));
            }
            prop_assert_eq!(std::fs::read_dir(directory.path()).unwrap().count(), 1);
        }
    }
}
