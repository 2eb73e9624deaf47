//! The service of the tutorial: a shop with a page that one import of reviews makes slow.
//!
//! With `--listen`, it serves pages at `http://127.0.0.1:3000/item/3`. Otherwise it prints the page
//! of one item and ends.

use std::error::Error;
use std::ops::Range;
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};
use std::time::Duration;

use axum::Router;
use axum::extract::Path;
use axum::routing::{get, post};
use stroboscope::tower::ServerLayer;
use tokio::net::TcpListener;
use tokio::time::sleep;

/// Number of reviews of each item.
static REVIEWS: [AtomicU32; 8] = [const { AtomicU32::new(1) }; 8];

#[stroboscope::trace(fields(item))]
async fn page(Path(item): Path<usize>) -> String {
    let (price, names) = (price(item).await, reviews(item).await);
    format!("price {price}, reviews by {}", names.join(", "))
}

#[stroboscope::trace]
async fn price(item: usize) -> usize {
    sleep(Duration::from_millis(3)).await; // a query of a database
    10 * item
}

#[stroboscope::trace]
async fn reviews(item: usize) -> Vec<String> {
    let reviews = REVIEWS[item % 8].load(Relaxed);
    let mut names = Vec::new();
    for review in 0..reviews {
        names.extend(authors(review..review + 1).await);
    }
    names
}

#[stroboscope::trace]
async fn authors(reviews: Range<u32>) -> Vec<String> {
    sleep(Duration::from_millis(2)).await; // another query
    reviews.map(|review| format!("author {review}")).collect()
}

async fn import(Path((item, count)): Path<(usize, u32)>) {
    REVIEWS[item % 8].store(count, Relaxed);
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let _tracing = stroboscope::init("shop")?;
    let app = Router::new()
        .route("/item/{item}", get(page))
        .route("/item/{item}/reviews/{count}", post(import))
        .layer(ServerLayer::new());
    if std::env::args().any(|argument| argument == "--listen") {
        let listener = TcpListener::bind("127.0.0.1:3000").await?;
        axum::serve(listener, app).await?;
    } else {
        println!("{}", page(Path(3)).await);
    }
    Ok(())
}
