//! A service with a test of its trace: `cargo test -p stroboscope-testkit --example checkout`.

use stroboscope::span;

#[stroboscope::trace]
fn checkout(user: u64) -> String {
    let items = {
        let _query = span!("db.query", user).entered();
        user % 7
    };
    let _render = span!("render").entered();
    format!("{items} items for {user}")
}

fn main() {
    println!("{}", checkout(42));
}

#[cfg(test)]
mod tests {
    use super::checkout;

    #[test]
    fn checkout_asks_the_database_once() {
        let recording = stroboscope_testkit::start();
        assert_eq!(checkout(42), "0 items for 42");
        let traces = recording.traces();
        let trace = traces.only("checkout");
        trace.assert_calls("db.query", ..=1);
        trace.assert_holds(r#"{ name = "db.query" } before { name = "render" }"#);
        trace.assert_critical("db.query");
    }
}
