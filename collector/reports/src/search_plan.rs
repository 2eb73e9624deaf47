//! Report of `search --explain`.

use schemars::JsonSchema;
use serde::Serialize;
use stroboscope_query::{ProbedFile, SearchReport};
use stroboscope_render::humanise::counted;
use stroboscope_render::rows;
use stroboscope_render::show::Doc;

const FILES_SHOWN_MAX: usize = 20;

/// Data that was read and skipped, and the reasons.
#[derive(Debug, Serialize, JsonSchema)]
pub(crate) struct SearchPlanSays {
    /// Conditions on spans, some or all of which a request needs.
    needs: Vec<String>,
    /// Reason for reading all requests; null if only selected ones were read.
    all_because: Option<&'static str>,
    /// Number of requests read, of all `requests` in the range; if the search skips some requests,
    /// the number of traces read.
    read: u64,
    requests: u64,
    /// Number of traces that may have the needed spans; 0 if the search did not look for them, or
    /// if files are damaged.
    candidates: u64,
    /// Number of requests that may be incomplete, all of which were read; 0 in a search for bursts.
    not_all_seen: u64,
    /// Number of groups of bursts that were held in memory one after the other; `held_bytes` is the
    /// size of the largest.
    slices: u64,
    held_bytes: u64,
    files: Vec<FileSays>,
}

#[derive(Debug, Serialize, JsonSchema)]
struct FileSays {
    file: String,
    row_groups: u64,
    skipped_row_groups: u64,
    rows: u64,
    skipped_rows: u64,
}

impl SearchPlanSays {
    pub(crate) fn of(found: &SearchReport) -> Self {
        let plan = &found.plan;
        let file = |file: &ProbedFile| FileSays {
            file: file.file.clone(),
            row_groups: file.row_groups,
            skipped_row_groups: file.skipped_row_groups,
            rows: file.rows,
            skipped_rows: file.skipped_rows,
        };
        Self {
            needs: plan.needs.clone(),
            all_because: plan.all_because,
            read: plan.read,
            requests: plan.of,
            candidates: plan.candidates,
            not_all_seen: plan.unseen,
            slices: found.slices,
            held_bytes: found.held_bytes,
            files: plan.files.iter().map(file).collect(),
        }
    }

    pub(crate) fn show(&self, doc: &mut Doc) {
        doc.heading("Data read");
        let needs = self.needs.iter().map(|need| format!("{{ {need} }}"));
        let needs: Vec<String> = needs.collect();
        if !needs.is_empty() {
            doc.sentence(format!(
                "A request needs spans for it: {}.",
                needs.join(", ")
            ));
        }
        match self.all_because {
            Some(because) => doc.sentence(format!("All requests were read: {because}.")),
            None => doc.sentence(format!(
                "Traces read: {} (maybe with such spans: {}, incomplete: {}); requests in all: {}.",
                self.read, self.candidates, self.not_all_seen, self.requests
            )),
        };
        if self.slices > 0 {
            doc.sentence(format!(
                "Bursts were searched in {}, of which the largest took {:.1} MiB.",
                counted(self.slices, "slice"),
                self.held_bytes as f64 / f64::from(1 << 20)
            ));
        }
        if !self.files.is_empty() {
            let sum = |of: fn(&FileSays) -> u64| self.files.iter().map(of).sum::<u64>();
            let is_skipped = |file: &&FileSays| file.row_groups == file.skipped_row_groups;
            doc.sentence(format!(
                "Skipped by dictionaries and statistics: {} of {}, {} of {}.",
                self.files.iter().filter(is_skipped).count(),
                counted(self.files.len() as u64, "file"),
                sum(|file| file.skipped_row_groups),
                counted(sum(|file| file.row_groups), "row group")
            ));
        }
        doc.table("Files", &self.files, FILES_SHOWN_MAX);
    }
}

rows! {
    FileSays as row, "searched_files": "A file, and how many of its row groups could not have what a formula needs.";
    file: Text, "file" = &*row.file;
    row_groups: Count, "row groups" = row.row_groups;
    skipped_row_groups: Count, "skipped" = row.skipped_row_groups;
    rows: Count, "rows" = row.rows;
    skipped_rows: Count, "rows skipped" = row.skipped_rows;
}
