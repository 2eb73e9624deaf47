//! Reports as SQL tables.

use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use arrow_array::RecordBatch;
use arrow_schema::SchemaRef;
use tokio::runtime::Handle;

use stroboscope_render::show::{TableSpec, batch, schema};
use stroboscope_reports::registry::tables;
use stroboscope_reports::study::NamedStudy;
use stroboscope_reports::verb::Tables;
use stroboscope_sql::GivenTable;

/// Returns the SQL tables of all reports that have any. The tables share one study, which the first
/// read creates.
pub(super) fn of_reports(data: &Path, runtime: &Handle) -> Vec<Arc<dyn GivenTable>> {
    let studied = Arc::new(StudyTable {
        data: data.to_owned(),
        runtime: runtime.clone(),
        study: Mutex::default(),
    });
    let of_verb = |of: Tables| {
        let studied = studied.clone();
        of.specs.iter().map(move |spec| {
            let table = VerbTable {
                spec: spec.clone(),
                of,
                studied: studied.clone(),
            };
            Arc::new(table) as Arc<dyn GivenTable>
        })
    };
    tables().into_iter().flat_map(of_verb).collect()
}

#[derive(Debug)]
struct StudyTable {
    data: PathBuf,
    runtime: Handle,
    study: Mutex<Option<Arc<NamedStudy>>>,
}

impl StudyTable {
    fn study(&self) -> Result<Arc<NamedStudy>, String> {
        let mut known = self.study.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(study) = &*known {
            return Ok(study.clone());
        }
        let study = NamedStudy::of_directory(&self.data, &self.runtime)
            .map_err(|failure| failure.to_string())?;
        Ok(known.insert(Arc::new(study)).clone())
    }
}

#[derive(Debug)]
struct VerbTable {
    spec: TableSpec,
    of: Tables,
    studied: Arc<StudyTable>,
}

impl GivenTable for VerbTable {
    fn name(&self) -> &str {
        self.spec.name
    }

    fn schema(&self) -> SchemaRef {
        schema(&self.spec)
    }

    fn rows(&self) -> Result<RecordBatch, String> {
        let study = self.studied.study()?;
        let doc = (self.of.document)(&self.studied.data, &study)
            .map_err(|failure| failure.to_string())?;
        match doc
            .tables()
            .into_iter()
            .find(|table| table.spec.name == self.spec.name)
        {
            Some(table) => batch(&table).map_err(|error| error.to_string()),
            None => Ok(RecordBatch::new_empty(self.schema())),
        }
    }
}
