//! What a request's span is called: one name for all requests of a kind, as only like is compared with like.

use std::fmt::Write as _;

use http::header::CONTENT_TYPE;
use http::{Extensions, Request};

use crate::callsite::{self, Callsite, NAME_BYTES_MAX};

/// Finds a request's route among what the web framework has put beside it.
pub(super) type RouteOf = fn(&Extensions) -> Option<&str>;

/// gRPC's `package.Service/Method`, as OpenTelemetry names it; for others `GET /user/{id}`, by the route if it is known, and
/// otherwise by the path with what looks like an id left out.
pub(super) fn of<B>(request: &Request<B>, route_of: Option<RouteOf>) -> &'static Callsite {
    let path = request.uri().path();
    let kind = request
        .headers()
        .get(CONTENT_TYPE)
        .map_or(&[][..], |kind| kind.as_bytes());
    if kind.starts_with(b"application/grpc") {
        return callsite::named_after_path(path);
    }
    callsite::named(Name::of(request, route_of).text())
}

/// A name on the stack: most are known already.
struct Name {
    bytes: [u8; NAME_BYTES_MAX + 1],
    len: usize,
}

impl Name {
    fn of<B>(request: &Request<B>, route_of: Option<RouteOf>) -> Self {
        let mut name = Self {
            bytes: [0; NAME_BYTES_MAX + 1],
            len: 0,
        };
        // What does not fit is cut, and longer than a name may be.
        let _cut = match route_of.and_then(|of| of(request.extensions())) {
            Some(route) => write!(name, "{} {route}", request.method()),
            None => write!(name, "{} ", request.method())
                .and_then(|()| without_ids(request.uri().path(), &mut name)),
        };
        name
    }

    fn text(&self) -> &str {
        let bytes = self.bytes.get(..self.len).unwrap_or_default();
        // Cut in the middle of a character: too long in any case.
        std::str::from_utf8(bytes).unwrap_or("(no name)")
    }
}

impl std::fmt::Write for Name {
    fn write_str(&mut self, text: &str) -> std::fmt::Result {
        let room = &mut self.bytes[self.len..];
        let taken = room.len().min(text.len());
        room[..taken].copy_from_slice(&text.as_bytes()[..taken]);
        self.len += taken;
        if taken == text.len() {
            Ok(())
        } else {
            Err(std::fmt::Error)
        }
    }
}

fn without_ids(path: &str, into: &mut Name) -> std::fmt::Result {
    let mut parts = path.split('/');
    into.write_str(parts.next().unwrap_or_default())?;
    parts.try_for_each(|part| {
        into.write_str("/")?;
        into.write_str(if is_id(part) { "{id}" } else { part })
    })
}

/// A number; a UUID or a hash; or a long text with digits, as tokens are.
fn is_id(part: &str) -> bool {
    let bytes = part.as_bytes();
    let digits = bytes.iter().filter(|byte| byte.is_ascii_digit()).count();
    let all = |of: fn(&u8) -> bool| bytes.iter().all(of);
    match bytes.len() {
        _ if digits == 0 => false,
        len if digits == len => true,
        8.. if all(|byte| byte.is_ascii_hexdigit() || *byte == b'-') => true,
        20.. => {
            digits >= 3
                && all(|byte| {
                    byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_' | b'=' | b'.' | b'~')
                })
        }
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check<B>(request: &Request<B>, route_of: Option<RouteOf>, expected: &str) {
        assert_eq!(Name::of(request, route_of).text(), expected);
    }

    fn request(method: &str, path: &str) -> Request<()> {
        Request::builder()
            .method(method)
            .uri(path)
            .body(())
            .unwrap()
    }

    #[test]
    fn all_requests_of_a_kind_have_one_name() {
        for (path, expected) in [
            ("/", "GET /"),
            ("/user/7", "GET /user/{id}"),
            ("/user/123456789/cart/42?page=3", "GET /user/{id}/cart/{id}"),
            ("/v1/items", "GET /v1/items"),
            ("/api2/x", "GET /api2/x"),
            (
                "/order/0b3a6d7e-97c1-4f2e-8a52-0d1f5b8c9e11/",
                "GET /order/{id}/",
            ),
            ("/blob/deadbeef", "GET /blob/deadbeef"),
            ("/blob/deadbee7", "GET /blob/{id}"),
            ("/t/eyJhbGciOiJIUzI1NiJ9.x_9-1", "GET /t/{id}"),
            ("/a-name-of-a-long-page-in-2026", "GET /{id}"),
            (
                "/a-long-name-of-a-page-with-words",
                "GET /a-long-name-of-a-page-with-words",
            ),
            ("/caf%C3%A9", "GET /caf%C3%A9"),
        ] {
            check(&request("GET", path), None, expected);
        }
        check(&request("POST", "/user/7"), None, "POST /user/{id}");
    }

    #[test]
    fn the_route_is_the_name_where_it_is_known() {
        #[derive(Clone)]
        struct Route(&'static str);
        let route_of: RouteOf = |extensions| extensions.get::<Route>().map(|route| route.0);
        let routed = Request::get("/user/anna")
            .extension(Route("/user/{name}"))
            .body(())
            .unwrap();
        check(&routed, Some(route_of), "GET /user/{name}");
        check(
            &request("GET", "/nothing/1"),
            Some(route_of),
            "GET /nothing/{id}",
        );
    }

    #[test]
    fn what_is_too_long_is_longer_than_a_name_may_be() {
        let long = |path: &str| Name::of(&request("GET", path), None).text().len();
        assert_eq!(long(&format!("/{}", "x".repeat(400))), NAME_BYTES_MAX + 1);
        assert_eq!(
            long(&format!("/{}", "x".repeat(NAME_BYTES_MAX - 5))),
            NAME_BYTES_MAX
        );
    }
}
