//! Formulas against their definitions, and what is said of bad ones.

mod brute;
mod meaning;
mod random;
mod syntax;
