//! A service with existing `tracing` annotations, which three marked lines connect to Stroboscope.
//!
//! It records spans and events at `info` and above, without the internals of transports such as
//! tonic, h2 and hyper. To change this, set `STROBOSCOPE_TRACING=debug,h2=trace` in the
//! environment, or call `stroboscope::layer().recording(…)`.
//!
//! `cargo run -p stroboscope-examples --example existing_tracing`

use tracing_subscriber::layer::SubscriberExt as _;
use tracing_subscriber::util::SubscriberInitExt as _;

#[tracing::instrument]
fn checkout(cart: u64) -> u64 {
    tracing::info!(items = cart % 7, "priced");
    let _span = tracing::info_span!("payment", provider = "card").entered();
    cart * 3
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let _tracing = stroboscope::init("shop")?; // 1: start recording, by the environment
    tracing_subscriber::registry()
        .with(stroboscope::layer()) // 2: take the annotations
        .try_init()?;
    let total: u64 = (0..1_000).map(checkout).sum();
    println!("{total}");
    Ok(()) // 3: `_tracing` ships what is left when it is dropped
}
