//! Tools over a data directory: the reports that the registry offers to agents, and their answers.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::PathBuf;
use std::sync::Arc;

use rmcp::model::{CallToolResult, ContentBlock, Tool, ToolAnnotations};
use serde_json::{Map, Value, json};
use stroboscope_render::show::{Doc, Part};
use stroboscope_reports::failure::{Failure, FailureCode};
use stroboscope_reports::form::VerbPage;
use stroboscope_reports::registry;
use stroboscope_reports::study::Reader;
use stroboscope_reports::verb::Page;
use stroboscope_store::progress::Silent;
use stroboscope_store::query_memory::QueryMemory;
use tokio::runtime::Handle;

use crate::arguments::fields_of;
use crate::bounds::{BoundedJson, CutList, bounded};
use crate::links::page_address;
use crate::schemas::{input_schema, output_schema};

/// Default maximum length of an answer's JSON, in bytes: some 10,000 tokens of a language model.
pub const ANSWER_BYTES_MAX: usize = 32 << 10;

/// Fields that tools lack: settings of the inference (they need experiments), and settings of the
/// reading.
const WITHOUT: [&str; 6] = [
    "tolerance",
    "trailing-elements",
    "max-segments",
    "exclude",
    "memory",
    "read-all",
];
/// Fields that make an answer shorter, the most effective first.
const NARROWING: [&str; 9] = [
    "top",
    "trace",
    "root",
    "operation",
    "service",
    "since",
    "until",
    "where",
    "host",
];

/// Maximum length of a report's sentences next to the JSON of its answer, in bytes. Notes and
/// addresses are not counted.
const SENTENCES_BYTES_MAX: usize = 4 << 10;
/// Maximum number of cut lists that an answer names.
const CUT_LISTS_MAX: usize = 10;

/// Store that tools read.
#[derive(Clone, Debug)]
pub struct ToolStore {
    /// Data directory; it need not exist yet.
    pub data: PathBuf,
    /// Runtime of the readings.
    pub runtime: Handle,
    /// Memory of the readings.
    pub memory: QueryMemory,
    /// Maximum length of an answer's JSON, in bytes.
    pub answer_bytes_max: usize,
}

/// The tools over a store.
#[derive(Debug)]
pub struct Tools {
    store: ToolStore,
    reports: Vec<ReportTool>,
}

#[derive(Debug)]
struct ReportTool {
    page: Page,
    form: VerbPage,
    tool: Tool,
}

impl Tools {
    /// Creates a tool of each report that the registry offers to agents.
    #[must_use]
    pub fn of(store: ToolStore) -> Self {
        let report = |entry: registry::Entry| {
            let page = entry.page?;
            let mut form = VerbPage::of(&page);
            form.fields.retain(|field| !WITHOUT.contains(&&*field.name));
            let about = match form.more.is_empty() {
                true => form.about.clone(),
                false => form.more.clone(),
            };
            let mut tool = Tool::new(page.name, about, input_schema(&form));
            tool.output_schema = output_schema(&entry).map(Arc::new);
            let reads = ToolAnnotations::new().read_only(true).open_world(false);
            let tool = tool.with_annotations(reads);
            Some(ReportTool { page, form, tool })
        };
        Self {
            store,
            reports: registry::tools().filter_map(report).collect(),
        }
    }

    /// Returns the definitions of the tools.
    pub fn definitions(&self) -> impl Iterator<Item = &Tool> {
        self.reports.iter().map(|report| &report.tool)
    }

    /// Answers a call. Blocks until the answer is ready; not for async code. `site` is the address
    /// of the pages, for links. Returns `None` if there is no such tool.
    #[must_use]
    pub fn call(
        &self,
        name: &str,
        arguments: Map<String, Value>,
        site: Option<&str>,
    ) -> Option<CallToolResult> {
        let mut reports = self.reports.iter();
        let report = reports.find(|report| report.page.name == name)?;
        let answer = || self.answer(report, arguments, site);
        let answer = catch_unwind(AssertUnwindSafe(answer)).unwrap_or_else(|_| {
            Err(Failure {
                remedy: Some("other arguments may work".to_owned()),
                ..Failure::new("the report panicked; standard error of the server has the place")
            })
        });
        Some(answer.unwrap_or_else(|failure| error(&failure)))
    }

    fn answer(
        &self,
        report: &ReportTool,
        arguments: Map<String, Value>,
        site: Option<&str>,
    ) -> Result<CallToolResult, Failure> {
        let (page, form) = (&report.page, &report.form);
        let arguments = fields_of(form, arguments)?;
        let matches = form.parsed(page.command, &self.store.data, &arguments)?;
        let reader = Reader {
            runtime: self.store.runtime.clone(),
            observer: Arc::new(Silent),
            memory: Some(self.store.memory.clone()),
        };
        let (mut value, mut words) = (Value::Null, Vec::new());
        (page.serve)(&matches, &reader, &mut |report| {
            value = report.value()?;
            words = sentences(&report.document());
            words.extend(report.remarks().iter().map(ToString::to_string));
            Ok(())
        })?;
        let BoundedJson { value, cut } = self.bounded(report, value)?;
        words.extend(self.cut_text(report, &cut));
        if let Some(site) = site {
            words.push(format!("page: {}", page_address(site, page, &arguments)));
            words.push(format!("page of a request: {site}/traces/TRACE"));
        }
        let mut content = vec![ContentBlock::text(value.to_string())];
        if !words.is_empty() {
            content.push(ContentBlock::text(words.join("\n")));
        }
        let mut result = CallToolResult::success(content);
        result.structured_content = Some(value);
        Ok(result)
    }

    fn bounded(&self, report: &ReportTool, value: Value) -> Result<BoundedJson, Failure> {
        let bytes_max = self.store.answer_bytes_max;
        bounded(value, bytes_max).map_err(|bytes| Failure {
            remedy: Some(report.narrowing()),
            ..Failure::coded(
                FailureCode::TooLarge,
                format!("the answer has {bytes} bytes without its lists, and may have {bytes_max}"),
            )
        })
    }

    /// Describes the lists that were cut; `None` if there are none.
    fn cut_text(&self, report: &ReportTool, cut: &[CutList]) -> Option<String> {
        let named = cut.iter().take(CUT_LISTS_MAX);
        let named =
            named.map(|list| format!("{} has {} of {} items", list.path, list.shown, list.of));
        let mut named: Vec<String> = named.collect();
        if cut.len() > CUT_LISTS_MAX {
            named.push(format!("{} others are cut, too", cut.len() - CUT_LISTS_MAX));
        }
        (!named.is_empty()).then(|| {
            format!(
                "note: the answer is limited to {} bytes, so lists are cut: {}; {}",
                self.store.answer_bytes_max,
                named.join(", "),
                report.narrowing()
            )
        })
    }
}

impl ReportTool {
    /// Names the arguments that make the answer shorter.
    fn narrowing(&self) -> String {
        let has = |name: &&&str| self.form.fields.iter().any(|field| field.name == ***name);
        let names: Vec<&str> = NARROWING.iter().filter(has).copied().collect();
        format!("these arguments make it shorter: {}", names.join(", "))
    }
}

/// Returns the first sentences of a document, up to [`SENTENCES_BYTES_MAX`].
fn sentences(doc: &Doc) -> Vec<String> {
    let mut bytes = 0;
    let sentences = doc.parts().iter().filter_map(|part| match part {
        Part::Sentence(text) => Some(text.clone()),
        _ => None,
    });
    let fits = |text: &String| {
        bytes += text.len();
        bytes <= SENTENCES_BYTES_MAX
    };
    sentences.take_while(fits).collect()
}

/// Returns a failure as the result of a call, with code, cause and remedy as JSON.
fn error(failure: &Failure) -> CallToolResult {
    let (cause, remedy) = (&failure.cause, &failure.remedy);
    let said = json!({"code": failure.code.name(), "cause": cause, "remedy": remedy});
    CallToolResult::error(vec![ContentBlock::text(said.to_string())])
}
