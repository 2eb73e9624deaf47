//! A service that reads a database with sqlx. sqlx logs its statements with `tracing`, so they need
//! no annotations.
//!
//! The service has three usual faults: it reads the items of each order by a separate statement
//! (N+1), finds payments without an index, and has fewer connections than concurrent requests. The
//! argument `indexed` adds the index.
//!
//! `cargo run --manifest-path examples/sqlx/Cargo.toml`

use std::error::Error;

use log::LevelFilter;
use sqlx::sqlite::{SqliteConnectOptions, SqlitePoolOptions};
use sqlx::{Row as _, SqlitePool};
use tracing_subscriber::layer::SubscriberExt as _;
use tracing_subscriber::util::SubscriberInitExt as _;

const REQUESTS: i64 = 304;
const ORDERS: i64 = 20_000;

async fn filled(pool: &SqlitePool) -> sqlx::Result<()> {
    for table in [
        "CREATE TABLE orders (id INTEGER PRIMARY KEY, customer INTEGER)",
        "CREATE INDEX orders_of ON orders (customer)",
        "CREATE TABLE items (id INTEGER PRIMARY KEY, order_id INTEGER, name TEXT)",
        "CREATE INDEX items_of ON items (order_id)",
        "CREATE TABLE payments (id INTEGER PRIMARY KEY, order_id INTEGER, cents INTEGER)",
    ] {
        sqlx::query(table).execute(pool).await?;
    }
    let mut transaction = pool.begin().await?;
    for order in 0..ORDERS {
        for (statement, value) in [
            ("INSERT INTO orders (customer) VALUES (?)", order % 1_000),
            (
                "INSERT INTO items (order_id, name) VALUES (?, 'tea')",
                order,
            ),
            (
                "INSERT INTO payments (order_id, cents) VALUES (?, 990)",
                order,
            ),
        ] {
            let query = sqlx::query(statement).bind(value);
            query.execute(&mut *transaction).await?;
        }
    }
    transaction.commit().await
}

// SQLite's statements run in another thread, which inherits spans of `tracing`, but not of the SDK.
#[tracing::instrument(skip(pool))]
async fn account(pool: SqlitePool, customer: i64) -> sqlx::Result<i64> {
    let mut connection = pool.acquire().await?;
    let orders = sqlx::query("SELECT id FROM orders WHERE customer = ?").bind(customer);
    let mut cents = 0;
    for order in orders.fetch_all(&mut *connection).await? {
        let order: i64 = order.get(0);
        let items = sqlx::query("SELECT name FROM items WHERE order_id = ?").bind(order);
        items.fetch_all(&mut *connection).await?;
        if order % 10 == 0 {
            // A value inside the text, as some services write it.
            let payment = format!("SELECT cents FROM payments WHERE order_id = {order}");
            let payment = sqlx::query(&payment).fetch_one(&mut *connection).await?;
            cents += payment.get::<i64, _>(0);
        }
    }
    Ok(cents)
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let _tracing = stroboscope::init("accounts")?;
    tracing_subscriber::registry()
        .with(stroboscope::layer()) // sqlx's statements
        .try_init()?;
    let directory = std::env::temp_dir().join(format!("accounts-{}", std::process::id()));
    std::fs::create_dir_all(&directory)?;
    let database = directory.join("accounts.db");
    let options = SqliteConnectOptions::new().filename(database);
    let pool = SqlitePoolOptions::new()
        .max_connections(2)
        .acquire_time_level(LevelFilter::Debug) // waits for a connection
        .connect_with(options.create_if_missing(true))
        .await?;
    filled(&pool).await?;
    if std::env::args().any(|argument| argument == "indexed") {
        let index = "CREATE INDEX payments_of ON payments (order_id)";
        sqlx::query(index).execute(&pool).await?;
    }
    let mut cents = 0;
    for first in (0..REQUESTS).step_by(8) {
        let requests =
            (first..first + 8).map(|customer| tokio::spawn(account(pool.clone(), customer)));
        for request in requests.collect::<Vec<_>>() {
            cents += request.await??;
        }
    }
    println!("{cents}");
    pool.close().await;
    std::fs::remove_dir_all(directory)?;
    Ok(())
}
