//! CORS at the port of OTLP over HTTP: lets browsers send from pages of other origins.

use std::str::FromStr;

use axum::http::request::Parts;
use axum::http::{HeaderMap, HeaderValue, Method, header};
use url::Url;

const METHODS: HeaderValue = HeaderValue::from_static("POST");
/// Request headers that exporters in browsers send, and that instrumented pages add.
const HEADERS: HeaderValue = HeaderValue::from_static(
    "content-type, content-encoding, authorization, traceparent, tracestate, baggage",
);
/// Response header that scripts may read, in addition to those that they may always read.
const EXPOSED: HeaderValue = HeaderValue::from_static("retry-after");
/// Number of seconds for which a browser may reuse a preflight's response; Chromium's maximum. A
/// request from an origin that is not allowed any more is rejected nevertheless.
const MAX_AGE_S: HeaderValue = HeaderValue::from_static("7200");

/// Origin whose pages may send.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CorsOrigin {
    Any,
    /// An origin as browsers write it: in lower case, without the scheme's default port.
    Named(HeaderValue),
}

/// Error: the text is not an origin.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("write SCHEME://HOST or SCHEME://HOST:PORT without a path, such as {0}, or * for all")]
pub struct BadOrigin(String);

impl FromStr for CorsOrigin {
    type Err = BadOrigin;

    fn from_str(text: &str) -> Result<Self, BadOrigin> {
        const EXAMPLE: &str = "https://app.example.com";
        if text == "*" {
            return Ok(Self::Any);
        }
        let bad = || BadOrigin(EXAMPLE.to_owned());
        let url = Url::parse(text).map_err(|_| bad())?;
        let host = url.host_str().filter(|host| !host.contains('*'));
        let host = host.ok_or_else(bad)?;
        // Schemes such as those of browsers' extensions have no origin by the standard of URLs.
        let port = url.port().map(|port| format!(":{port}"));
        let origin = format!("{}://{host}{}", url.scheme(), port.unwrap_or_default());
        let is_origin = url.as_str().strip_suffix('/').unwrap_or(url.as_str()) == origin;
        if !is_origin || text.ends_with('/') {
            return Err(BadOrigin(origin));
        }
        HeaderValue::try_from(origin)
            .map(Self::Named)
            .map_err(|_| bad())
    }
}

impl CorsOrigin {
    fn fits(&self, origin: &HeaderValue) -> bool {
        match self {
            Self::Any => true,
            Self::Named(name) => name == origin,
        }
    }
}

/// Permission for a request from another origin, with the headers of the response.
#[derive(Clone, Debug, Default)]
pub(super) struct CorsGrant {
    /// True if responses differ between origins, which caches must know.
    varies: bool,
    /// Value of `Access-Control-Allow-Origin`; `None` if the request has no allowed origin.
    origin: Option<HeaderValue>,
    is_preflight: bool,
}

impl CorsGrant {
    /// Returns the permission for a request, given the allowed origins.
    pub(super) fn new(allowed: &[CorsOrigin], parts: &Parts) -> Self {
        if allowed.is_empty() {
            return Self::default();
        }
        let is_any = allowed.contains(&CorsOrigin::Any);
        let origin = parts.headers.get(header::ORIGIN);
        let origin = origin.filter(|&origin| allowed.iter().any(|allowed| allowed.fits(origin)));
        let origin = origin.map(|origin| match is_any {
            true => HeaderValue::from_static("*"),
            false => origin.clone(),
        });
        let is_preflight = parts.method == Method::OPTIONS
            && parts
                .headers
                .contains_key(header::ACCESS_CONTROL_REQUEST_METHOD);
        Self {
            varies: !is_any,
            is_preflight: is_preflight && origin.is_some(),
            origin,
        }
    }

    /// Reports whether the request comes from a page of an allowed origin.
    pub(super) fn is_allowed(&self) -> bool {
        self.origin.is_some()
    }

    /// Reports whether the request is a preflight for a page of an allowed origin. Browsers send
    /// preflights without a token.
    pub(super) fn is_preflight(&self) -> bool {
        self.is_preflight
    }

    /// Adds the headers to a response.
    pub(super) fn put_headers(&self, headers: &mut HeaderMap) {
        if self.varies {
            headers.append(header::VARY, HeaderValue::from_static("Origin"));
        }
        let Some(origin) = &self.origin else {
            return;
        };
        headers.insert(header::ACCESS_CONTROL_ALLOW_ORIGIN, origin.clone());
        if self.varies {
            // `navigator.sendBeacon` always sends credentials. They do not replace the token.
            let is_true = HeaderValue::from_static("true");
            headers.insert(header::ACCESS_CONTROL_ALLOW_CREDENTIALS, is_true);
        }
        if self.is_preflight {
            headers.insert(header::ACCESS_CONTROL_ALLOW_METHODS, METHODS);
            headers.insert(header::ACCESS_CONTROL_ALLOW_HEADERS, HEADERS);
            headers.insert(header::ACCESS_CONTROL_MAX_AGE, MAX_AGE_S);
        } else {
            headers.insert(header::ACCESS_CONTROL_EXPOSE_HEADERS, EXPOSED);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn origins_are_written_as_browsers_do() {
        let check = |text: &str, expected: Result<&str, &str>| {
            let parsed = text.parse::<CorsOrigin>();
            let expected = match expected {
                Ok(origin) => Ok(CorsOrigin::Named(origin.parse().unwrap())),
                Err(advice) => Err(BadOrigin(advice.to_owned())),
            };
            assert_eq!(parsed, expected, "{text}");
        };
        let example = "https://app.example.com";
        for text in [
            example,
            "HTTPS://App.Example.com",
            "https://app.example.com:443",
        ] {
            check(text, Ok(example));
        }
        for text in [
            "http://localhost:3000",
            "http://[::1]:8080",
            "capacitor://localhost",
        ] {
            check(text, Ok(text));
        }
        check(
            "https://bücher.example",
            Ok("https://xn--bcher-kva.example"),
        );
        for text in [
            "https://a.example/",
            "https://a.example/shop",
            "https://a.example?x",
        ] {
            check(text, Err("https://a.example"));
        }
        check("https://user@a.example", Err("https://a.example"));
        for text in [
            "",
            "null",
            "a.example",
            "https://",
            "https://*.a.example",
            "data:,x",
        ] {
            check(text, Err(example));
        }
        assert_eq!("*".parse(), Ok(CorsOrigin::Any));
    }
}
