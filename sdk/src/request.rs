//! Names and failures of requests, following OpenTelemetry's semantic conventions for HTTP and
//! gRPC.

use std::fmt::Write as _;

use crate::callsite::{self, Callsite, NAME_BYTES_MAX};

/// Codes of gRPC that mean a fault of the server: UNKNOWN, DEADLINE_EXCEEDED, UNIMPLEMENTED,
/// INTERNAL, UNAVAILABLE, DATA_LOSS.
const SERVER_FAULTS: [u32; 6] = [2, 4, 12, 13, 14, 15];

/// Returns true if a response with this HTTP status is a failure: from 500 on for servers, from 400
/// on for clients.
pub(crate) fn is_failed_status(status: u32, is_client: bool) -> bool {
    status >= if is_client { 400 } else { 500 }
}

/// Returns true if a call with this gRPC code failed: any code but OK for clients,
/// [`SERVER_FAULTS`] for servers.
pub(crate) fn is_failed_code(code: u32, is_client: bool) -> bool {
    match is_client {
        true => code != 0,
        false => SERVER_FAULTS.contains(&code),
    }
}

/// Returns the callsite of requests with this method and route, such as `GET /user/{id}`. Without a
/// route, it uses the path, with `{id}` in place of each part that looks like an id, so that most
/// requests of a kind have one name.
pub(crate) fn callsite(method: &str, route: Option<&str>, path: &str) -> &'static Callsite {
    callsite::named(Name::of(method, route, path).text())
}

/// Returns the callsite of requests for a path where nothing was found. It is the callsite from
/// [`callsite`] if that already exists. Otherwise its name is the method and `(not found)`, so that
/// a scanner does not use up the names that a process may have.
#[cfg(feature = "tracing")]
pub(crate) fn callsite_of_missing(method: &str, path: &str) -> &'static Callsite {
    callsite::known(Name::of(method, None, path).text())
        .unwrap_or_else(|| callsite::named(Name::of(method, Some("(not found)"), "").text()))
}

/// Size of the buffer of a [`Name`]: a cut name is too long even without its last character.
const NAME_ROOM_BYTES: usize = NAME_BYTES_MAX + 4;

/// Name of a request, built on the stack without an allocation: most names are already registered.
struct Name {
    bytes: [u8; NAME_ROOM_BYTES],
    len: usize,
}

impl Name {
    fn of(method: &str, route: Option<&str>, path: &str) -> Self {
        let mut name = Self {
            bytes: [0; NAME_ROOM_BYTES],
            len: 0,
        };
        // Cuts excess text; the result is still longer than the maximum name.
        let _cut = match route {
            Some(route) => write!(name, "{method} {route}"),
            None => write!(name, "{method} ").and_then(|()| without_ids(path, &mut name)),
        };
        name
    }

    fn text(&self) -> &str {
        let bytes = self.bytes.get(..self.len).unwrap_or_default();
        // A name may be cut within its last character.
        bytes.utf8_chunks().next().map_or("", |chunk| chunk.valid())
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

/// Reports whether a part of a path looks like an id: a number, a UUID or hash (at least 8
/// hexadecimal digits and dashes, with a decimal digit), or a token (at least 20 letters, digits
/// and some signs, with at least 3 digits).
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
    fn check(method: &str, route: Option<&str>, path: &str, expected: &str) {
        assert_eq!(Name::of(method, route, path).text(), expected);
    }

    #[test]
    fn all_requests_of_a_kind_have_one_name() {
        for (path, expected) in [
            ("/", "GET /"),
            ("/user/7", "GET /user/{id}"),
            ("/user/123456789/cart/42", "GET /user/{id}/cart/{id}"),
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
            check("GET", None, path, expected);
        }
        check("POST", None, "/user/7", "POST /user/{id}");
    }

    #[test]
    fn the_route_is_the_name_where_it_is_known() {
        check(
            "GET",
            Some("/user/{name}"),
            "/user/anna",
            "GET /user/{name}",
        );
    }

    #[test]
    fn what_is_too_long_is_longer_than_a_name_may_be() {
        let long = |path: &str| Name::of("GET", None, path).text().len();
        for text in ["x", "é", "xé", "鳥", "x鳥", "🦜", "x🦜", "xx🦜", "xxx🦜"] {
            let path = format!("/{}", text.repeat(400));
            assert!(long(&path) > NAME_BYTES_MAX, "{text}");
        }
        assert_eq!(
            long(&format!("/{}", "x".repeat(NAME_BYTES_MAX - 5))),
            NAME_BYTES_MAX
        );
    }
}
