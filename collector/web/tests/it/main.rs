//! The pages over real stores.
mod fixture;
mod links;
mod pages;
mod waiting;
