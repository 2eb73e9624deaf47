//! Copies of page requests for a second web server, whose ranker explores in them what it may leave out.

use stroboscope::baggage::Value;
use stroboscope::tower::{CopiedBody, DuplicateLayer};
use tonic::body::Body;
use tonic::codegen::http::Request;
use tonic::transport::{Channel, Endpoint};
use tower::ServiceExt as _;
use tower::util::MapRequest;

use crate::upstream::UpstreamError;

/// Takes copies.
type Pipeline = MapRequest<Channel, fn(Request<CopiedBody>) -> Request<Body>>;

/// Sends some requests to a second pipeline, too.
pub(crate) type Copies = DuplicateLayer<Pipeline>;

/// The shares of candidates that copies leave out, in turn: every other one little or nothing, as answers that are whole say
/// what each candidate is worth.
const EXPLORED: [f64; 8] = [0.0, 0.1, 0.0, 0.3, 0.0, 0.5, 0.0, 0.8];

/// Copies of so many requests, 0 to 1, for the web server at `url`.
///
/// # Errors
/// The URL is none.
pub(crate) fn to(url: &str, share: f64) -> Result<Copies, UpstreamError> {
    let bad = |error: tonic::transport::Error| UpstreamError::BadUrl {
        role: "duplicate",
        url: url.to_owned(),
        problem: error.to_string(),
    };
    // Whoever is not there yet, or no longer, only misses copies.
    let channel = Endpoint::from_shared(url.to_owned())
        .map_err(bad)?
        .connect_lazy();
    let adapt: fn(Request<CopiedBody>) -> Request<Body> = |request| request.map(Body::new);
    let copies = DuplicateLayer::new(channel.map_request(adapt)).explore(|number| {
        let at = usize::try_from(number).unwrap_or(0) % EXPLORED.len();
        let rate = EXPLORED.get(at).copied().unwrap_or(0.0);
        vec![("explore.ranker.candidates".to_owned(), Value::from(rate))]
    });
    copies.rate().set(share);
    Ok(copies)
}
