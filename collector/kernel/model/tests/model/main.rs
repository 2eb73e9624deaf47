//! The text of other tools, as those of this machine write it. What is missing says so by name and passes.

mod import;
