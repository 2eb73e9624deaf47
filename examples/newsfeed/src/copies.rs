//! Copies of page requests for a second web server. Its ranker uses them to explore which
//! candidates it may omit.

use stroboscope::baggage::Value;
use stroboscope::tower::{CopiedBody, DuplicateLayer};
use tonic::body::Body;
use tonic::codegen::http::Request;
use tonic::transport::{Channel, Endpoint};
use tower::ServiceExt as _;
use tower::util::MapRequest;

use crate::upstream::UpstreamError;

/// Connection to the second web server, which takes the copies.
type Pipeline = MapRequest<Channel, fn(Request<CopiedBody>) -> Request<Body>>;

/// Layer that sends copies of some requests to a second web server.
pub(crate) type Copies = DuplicateLayer<Pipeline>;

/// Shares of candidates that copies omit, in turn. Every other copy omits nothing, because complete
/// answers measure the worth of each candidate.
const EXPLORED: [f64; 8] = [0.0, 0.1, 0.0, 0.3, 0.0, 0.5, 0.0, 0.8];

/// Copies this `share` of requests, 0 to 1, to the web server at `url`.
///
/// # Errors
/// Returns an error if `url` is not a URL.
pub(crate) fn to(url: &str, share: f64) -> Result<Copies, UpstreamError> {
    let bad = |error: tonic::transport::Error| UpstreamError::BadUrl {
        role: "duplicate",
        url: url.to_owned(),
        problem: error.to_string(),
    };
    // Connect lazily: if the second web server is down, only copies fail.
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
