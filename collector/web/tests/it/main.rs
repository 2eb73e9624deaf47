//! The pages over real stores.
mod fixture;
mod pages;
mod waiting;
