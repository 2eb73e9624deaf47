//! Interface to the command line's subcommands, as pages use them;
//! [`StoreVerbs`](crate::store_verbs::StoreVerbs) implements it.

use std::fmt::Debug;
use std::sync::Arc;

use stroboscope_render::show::Doc;
use stroboscope_reports::Failure;
use stroboscope_reports::notes::Remark;
use stroboscope_store::progress::Observer;

/// A subcommand that reads a store and has a page.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct VerbPage {
    /// Name on the command line; the page is `/NAME`.
    pub name: &'static str,
    /// Full name with its parent subcommand, such as `tradeoffs log`.
    pub words: &'static str,
    /// Description in one line.
    pub about: String,
    /// Description in several paragraphs.
    pub more: String,
    /// Options of the subcommand.
    pub fields: Vec<Field>,
}

/// One option of a subcommand.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Field {
    /// Name in the address of the page and after `--` on the command line; without `--` if
    /// `is_positional`.
    pub name: String,
    pub help: String,
    pub kind: FieldKind,
    /// Value if the option is not given; `None` if it has no default.
    pub default: Option<String>,
    /// True if the option is given without its name on the command line.
    pub is_positional: bool,
    /// True if the option is required.
    pub is_required: bool,
    /// True if the option may be given several times.
    pub is_list: bool,
    /// True if the option is common to the subcommands that read a store.
    pub is_common: bool,
}

/// Kind of value that an option takes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum FieldKind {
    /// No value: the option is given or not.
    Flag,
    /// One of these texts.
    Choice(Vec<String>),
    /// A number without a unit.
    Number,
    /// A factor: 0 or more, where 1 changes nothing.
    Factor,
    /// Any text. The value is the option's value name, such as `DURATION`, which describes the
    /// text.
    Text(String),
}

/// Answer of a subcommand for its page: the document, and remarks.
#[derive(Clone, Debug, Default)]
pub struct VerbAnswer {
    pub doc: Doc,
    pub remarks: Vec<Remark>,
}

/// Subcommands that read a store and have pages.
pub trait Verbs: Debug + Send + Sync + 'static {
    /// Returns the subcommands that are pages.
    fn pages(&self) -> &[VerbPage];

    /// Checks the arguments of a subcommand without reading the store.
    ///
    /// # Errors
    /// Fails with the reason if the arguments are invalid.
    fn check(&self, verb: &str, arguments: &[(String, String)]) -> Result<(), Failure>;

    /// Runs a subcommand; `arguments` are names and values of its fields. Blocks until the answer
    /// is ready; not for async code.
    ///
    /// # Errors
    /// Fails if there is no answer.
    fn answer(
        &self,
        verb: &str,
        arguments: &[(String, String)],
        observer: Arc<dyn Observer>,
    ) -> Result<VerbAnswer, Failure>;
}
