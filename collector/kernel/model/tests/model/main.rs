//! Imports the output of other tools on this machine. A test whose tool is missing prints this and
//! passes.

mod import;
