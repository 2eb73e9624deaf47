//! Two services that track their bytes: a shop answers with a price, and a web service makes an
//! invoice from it.
//!
//! `STROBOSCOPE_BURST_CONFIG=always cargo run -p stroboscope-examples --example tracked`; if a
//! collector runs as well (`stroboscope collect`), `stroboscope provenance show` has the invoice
//! afterwards, and `stroboscope provenance why ID` the bytes that made it.

use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};
use stroboscope::baggage::Provenance;
use stroboscope::span;
use stroboscope::tracked::{self, DataLinkage, Tracked, TrackedBuf};

/// Answers with the price in a row of a table.
fn price() -> Option<(Vec<u8>, Provenance)> {
    let row = tracked::source("row of apples", *b"apples;12;EUR"); // bytes from elsewhere
    let price = row.slice(7..9)?; // keeps its sources
    let provenance = tracked::send(&price, "price"); // travels with the bytes
    Some((price.into_bytes(), provenance))
}

/// Makes an invoice from a service's answer.
fn invoice(answer: &[u8], provenance: &Provenance) -> Option<Vec<u8>> {
    let price = tracked::receive(provenance, "price", answer); // of the sender, if it tracks bytes
    let count = tracked::source("form", *b"3");
    let sum = price.parse::<u64, DataLinkage>().ok()? * count.parse::<u64, DataLinkage>().ok()?;
    let mut invoice = TrackedBuf::from(&b"sum="[..]);
    invoice.push_text(&sum);
    tracked::send_with_content(&invoice, "invoice", 1_000); // also ships the first 1,000 bytes
    Some(invoice.into_bytes())
}

#[derive(Deserialize)]
struct Order {
    item: String,
    count: Tracked<u64>,
}

#[derive(Serialize)]
struct Receipt {
    item: String,
    sum: Tracked<u64>,
}

/// Makes a receipt for an order in JSON.
fn receipt(order: &TrackedBuf, price: u64) -> serde_json::Result<TrackedBuf> {
    let order: Order = tracked::from_json(order)?; // the count has the label of its digits
    let item = order.item;
    let sum = order.count * price;
    tracked::to_json(&Receipt { item, sum }) // and so have the digits of the sum
}

fn main() -> Result<(), stroboscope::InitError> {
    let _tracing = stroboscope::init("tracked")?;
    // Waits for a window, because only recorded requests are tracked.
    let until = Instant::now() + Duration::from_millis(500);
    while stroboscope::stats().windows == 0 && Instant::now() < until {
        std::thread::sleep(Duration::from_millis(1));
    }
    let invoice = span!("request").scope(|| {
        tracked::scope(|| {
            let order = tracked::source("order", *br#"{"item": "apples", "count": 3}"#);
            let receipt = receipt(&order, 12).ok()?;
            tracked::send_with_content(&receipt, "receipt", 1_000);
            println!("{}", String::from_utf8_lossy(receipt.as_bytes()));
            Some(())
        });
        let (answer, provenance) = tracked::scope(price)?;
        tracked::scope(|| invoice(&answer, &provenance))
    });
    let text = String::from_utf8_lossy(invoice.as_deref().unwrap_or_default()).into_owned();
    println!("{text}");
    Ok(())
}
