//! Tests of the pages over stores on disk.
mod fixture;
mod links;
mod pages;
mod waiting;
