//! Plain threads, no async runtime: spans, events, and the context on another thread.
//!
//! `cargo run -p stroboscope-examples --example threads`; if a collector runs as well (`stroboscope
//! collect`), it has the records afterwards.

use std::time::Duration;

#[stroboscope::trace]
fn page(user: u64) -> usize {
    let stories = stories(user);
    let _span = stroboscope::span!("render", count = stories.len()).entered();
    stroboscope::event!("rendered", user);
    stories.len()
}

#[stroboscope::trace(fields(user))]
fn stories(user: u64) -> Vec<String> {
    // The other thread works for the same request.
    let work = stroboscope::in_current_context(move || {
        let _span = stroboscope::span!("load", user).entered();
        std::thread::sleep(Duration::from_millis(1));
        (0..user % 5).map(|n| format!("story {n}")).collect()
    });
    std::thread::spawn(work).join().unwrap_or_default()
}

fn main() -> Result<(), stroboscope::InitError> {
    let _tracing = stroboscope::builder()
        .service("threads")
        .burst_config("64ms/128ms".parse().unwrap_or_default())
        .env()?
        .init()?;
    let shown: usize = (0..200).map(page).sum();
    let stats = stroboscope::stats();
    println!(
        "{shown} stories shown; {} windows, {} spans finished so far",
        stats.windows, stats.spans
    );
    Ok(())
}
