//! Interface to the command line's subcommands, as pages use them;
//! [`StoreVerbs`](crate::store_verbs::StoreVerbs) implements it.

use std::fmt::Debug;
use std::sync::Arc;

use stroboscope_render::show::Doc;
use stroboscope_reports::Failure;
use stroboscope_reports::form::VerbPage;
use stroboscope_reports::notes::Remark;
use stroboscope_store::progress::Observer;

/// Answer of a subcommand for its page: the document, and remarks.
#[derive(Clone, Debug, Default)]
pub struct VerbAnswer {
    pub doc: Doc,
    pub remarks: Vec<Remark>,
}

/// Subcommands that read a store and have pages.
pub trait Verbs: Debug + Send + Sync + 'static {
    /// Returns the pages of the subcommands.
    fn pages(&self) -> &[VerbPage];

    /// Checks the arguments of a subcommand without reading the store.
    ///
    /// # Errors
    /// Fails with the reason if the subcommand is unknown, or the arguments are invalid.
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
