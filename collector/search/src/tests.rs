//! Tests of formulas: their results, compared with their definitions, and the errors of invalid
//! ones.

mod brute;
mod counted;
mod meaning;
mod random;
mod syntax;
