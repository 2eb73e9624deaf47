//! Serves the JavaScript modules that pages load, each compressed once.

use std::io::Write as _;
use std::sync::LazyLock;

use axum::extract::Path;
use axum::http::{HeaderMap, HeaderValue, StatusCode, header};
use axum::response::{IntoResponse as _, Response};
use bytes::Bytes;
use flate2::Compression;
use flate2::write::GzEncoder;
use stroboscope_render::page::Asset;

/// Each module, compressed; `None` if compression failed.
static PACKED: LazyLock<[Option<Bytes>; Asset::COUNT]> = LazyLock::new(|| {
    Asset::ALL.map(|asset| {
        let mut packing = GzEncoder::new(Vec::new(), Compression::best());
        packing.write_all(asset.text().as_bytes()).ok()?;
        packing.finish().ok().map(Bytes::from)
    })
});

/// Serves a module by its name, from the directory below `/assets/` that is named by the hash of
/// all modules. Responds with 404 for another hash or name.
pub(crate) async fn asset(
    Path((hash, name)): Path<(String, String)>,
    asked: HeaderMap,
) -> Response {
    let path = format!("/assets/{hash}/{name}");
    let Some(asset) = Asset::ALL.into_iter().find(|asset| asset.path() == path) else {
        return (
            StatusCode::NOT_FOUND,
            "there is no such file; a page of another version refers to it\n",
        )
            .into_response();
    };
    let mut headers = HeaderMap::new();
    let tag = format!("\"{hash}\"");
    if let Ok(tag) = HeaderValue::from_str(&tag) {
        headers.insert(header::ETAG, tag);
    }
    for (key, value) in [
        (header::CONTENT_TYPE, "text/javascript; charset=utf-8"),
        (header::CACHE_CONTROL, "public, max-age=31536000, immutable"),
        (header::X_CONTENT_TYPE_OPTIONS, "nosniff"),
        (header::VARY, "accept-encoding"),
    ] {
        headers.insert(key, HeaderValue::from_static(value));
    }
    let text = |name| {
        asked
            .get(name)
            .and_then(|value: &HeaderValue| value.to_str().ok())
    };
    if text(header::IF_NONE_MATCH).is_some_and(|known| known.contains(&tag)) {
        return (StatusCode::NOT_MODIFIED, headers).into_response();
    }
    let takes_gzip = text(header::ACCEPT_ENCODING).is_some_and(|codings| codings.contains("gzip"));
    match PACKED[asset as usize].clone().filter(|_| takes_gzip) {
        Some(packed) => {
            headers.insert(header::CONTENT_ENCODING, HeaderValue::from_static("gzip"));
            (headers, packed).into_response()
        }
        None => (headers, asset.text()).into_response(),
    }
}
