//! The verbs of the command line, as pages have them: who has them is the program.

use std::fmt::Debug;
use std::sync::Arc;

use stroboscope_present::show::Doc;
use stroboscope_reports::Failure;
use stroboscope_reports::notes::Remark;
use stroboscope_store::progress::Observer;

/// A verb that reads, as a page.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct VerbPage {
    /// What it is called on the command line; its page is `/NAME`.
    pub name: &'static str,
    /// The same, with what it is below: `tradeoffs log`.
    pub words: &'static str,
    /// What it does, in a line.
    pub about: String,
    /// The same at length.
    pub more: String,
    /// What may be asked of it.
    pub fields: Vec<Field>,
}

/// One option of a verb.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Field {
    /// As in the address of the page and after `--` on the command line; without `--` where `is_positional`.
    pub name: String,
    pub help: String,
    pub kind: FieldKind,
    /// What it is where it is not given.
    pub default: Option<String>,
    /// Whether it is given without its name on the command line.
    pub is_positional: bool,
    /// Whether it is needed.
    pub is_required: bool,
    /// Whether it may be given several times.
    pub is_list: bool,
    /// Whether all verbs that read have it.
    pub is_common: bool,
}

/// What an option takes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum FieldKind {
    /// Nothing: it is there or not.
    Flag,
    /// One of these.
    Choice(Vec<String>),
    /// A number.
    Number,
    /// What is multiplied by: from 0 up, 1 changes nothing.
    Factor,
    /// Any text, such as is called this.
    Text(String),
}

/// What a verb said.
#[derive(Clone, Debug, Default)]
pub struct VerbAnswer {
    pub doc: Doc,
    pub remarks: Vec<Remark>,
}

/// The verbs.
pub trait Verbs: Debug + Send + Sync + 'static {
    /// Those that are pages.
    fn pages(&self) -> &[VerbPage];

    /// Whether one may be asked that, as far as its arguments say. Nothing is read.
    ///
    /// # Errors
    /// When not, and why.
    fn check(&self, verb: &str, arguments: &[(String, String)]) -> Result<(), Failure>;

    /// Asks one; `arguments` are names and values of its fields. Takes as long as it does: not for async code.
    ///
    /// # Errors
    /// When there is no answer.
    fn answer(
        &self,
        verb: &str,
        arguments: &[(String, String)],
        observer: Arc<dyn Observer>,
    ) -> Result<VerbAnswer, Failure>;
}
