//! `#[trace]` attribute of the Stroboscope SDK. Use it as `#[stroboscope::trace]`.

mod body;
mod options;

use proc_macro::TokenStream;
use syn::{ItemFn, parse_macro_input};

/// Records the calls of a function as spans, named after the function, while recording is on.
///
/// Works on `fn` and `async fn`, on methods, and on methods rewritten by `#[async_trait]`. The span
/// of an async function is the current span whenever its future is polled, on any thread.
///
/// - `name = "…"`: sets another name.
/// - `fields(key = expression, argument)`: adds fields, as in `span!`; they are evaluated only if
///   something may be recorded.
/// - `err`: marks the span as failed, like `stroboscope::error`, if the function returns an error.
///   The function must return a `Result` whose error implements `Display`.
/// - `request`: makes each call a request, even inside another span, like `span!(request: "…")`.
///
/// ```text
/// #[stroboscope::trace(name = "score", fields(stories = stories.len()))]
/// fn rank(stories: &[Story]) -> Vec<f64> { … }
/// ```
#[proc_macro_attribute]
pub fn trace(options: TokenStream, item: TokenStream) -> TokenStream {
    let options = parse_macro_input!(options as options::Options);
    let function = parse_macro_input!(item as ItemFn);
    body::traced(&options, function).into()
}
