//! The `#[trace]` attribute of the Stroboscope SDK. Use it as `#[stroboscope::trace]`.

mod body;
mod options;

use proc_macro::TokenStream;
use syn::{ItemFn, parse_macro_input};

/// Makes every call of a function a span, named after the function.
///
/// Works on `fn` and `async fn`, on methods, and on methods that `#[async_trait]` has rewritten. An async function's
/// span is the current one whenever its future is polled, on whichever thread.
///
/// - `name = "…"`: another name.
/// - `fields(key = expression, argument)`: fields, as in `span!`; evaluated only while something is recorded.
/// - `err`: the function gives a `Result`, whose error can be displayed; if it gives an error, its span has failed, as by
///   `stroboscope::error`.
/// - `request`: each call is a request, also inside of another span, as `span!(request: "…")` makes them.
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
