//! An async service: spans across `.await`, in spawned tasks, and in blocking work.
//!
//! `cargo run -p stroboscope-examples --example tokio`

use std::time::Duration;

use stroboscope::{BurstConfig, FutureExt as _, span};

#[stroboscope::trace]
async fn page(user: u64) -> u64 {
    let properties = properties(user).in_span(span!("properties", user)).await;
    // A task of its own, in the same request.
    let ranked = tokio::spawn(rank(user).in_current_span());
    // Blocking work, in the same request.
    let rendered =
        tokio::task::spawn_blocking(stroboscope::in_current_context(move || render(user)));
    properties + ranked.await.unwrap_or(0) + rendered.await.unwrap_or(0)
}

async fn properties(user: u64) -> u64 {
    tokio::time::sleep(Duration::from_millis(1)).await;
    user
}

#[stroboscope::trace]
async fn rank(user: u64) -> u64 {
    tokio::time::sleep(Duration::from_millis(2)).await;
    user * 2
}

#[stroboscope::trace]
fn render(user: u64) -> u64 {
    std::thread::sleep(Duration::from_millis(1));
    user * 3
}

#[tokio::main]
async fn main() -> Result<(), stroboscope::InitError> {
    let _tracing = stroboscope::builder()
        .service("tokio")
        .burst_config(BurstConfig::ALWAYS_ON)
        .env()?
        .init()?;
    let mut sum = 0;
    for user in 0..100 {
        sum += page(user).await;
    }
    println!(
        "sum {sum}; {} spans finished so far",
        stroboscope::stats().spans
    );
    Ok(())
}
