//! The service of the README, unchanged.

use stroboscope::{FutureExt as _, span};

#[stroboscope::trace] // a function, async or not
async fn page(user: u64) -> String {
    let stories = stories(user).in_span(span!("stories", user)).await; // a future
    let _span = span!("render").entered(); // a scope without .await
    stroboscope::event!("rendered", stories);
    format!("{stories} stories for {user}")
}

async fn stories(user: u64) -> u64 {
    tokio::time::sleep(std::time::Duration::from_millis(2)).await;
    user % 7
}

#[tokio::main]
async fn main() -> Result<(), stroboscope::InitError> {
    let _tracing = stroboscope::init("web")?; // ships until it is dropped
    for user in 0..1_000 {
        page(user).await;
    }
    Ok(())
}
