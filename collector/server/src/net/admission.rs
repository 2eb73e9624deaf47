//! Admission of requests: checks tokens, and the host names and origins that browsers send.

use std::net::IpAddr;
use std::time::Duration;

use axum::http::request::Parts;
use axum::http::{HeaderMap, Method, StatusCode, header};
use tonic::{Code, Status};
use tonic_types::{ErrorDetails, StatusExt as _};

use super::cors::CorsGrant;
use super::login::{LOGIN_PATH, LOGOUT_PATH, Login, login_cookie};
use super::ports::Ports;
use super::rejections::{PortName, RejectionCause};
use super::tokens::{Role, TokenMatch};
use crate::pool::Lack;

/// Retry delay sent with rejections for lack of capacity, and for too many wrong tokens.
const RETRY_AFTER: Duration = Duration::from_secs(5);
/// Path of the tools for AI agents. Its requests only read, although their method is POST.
const TOOLS_PATH: &str = "/mcp";
/// Maximum size of a request's head, in bytes. As in HTTP/2, each header counts 32 bytes in
/// addition to its name and value.
pub(super) const HEAD_BYTES_MAX: usize = 16 << 10;

/// Reason why a request is rejected.
#[derive(Clone, Debug)]
pub(crate) struct Rejection {
    pub(super) cause: RejectionCause,
    pub(crate) message: String,
}

impl Rejection {
    pub(super) fn new(cause: RejectionCause, message: impl Into<String>) -> Self {
        let message = message.into();
        Self { cause, message }
    }

    /// Creates a rejection for lack of capacity. The last argument names the unit for the message,
    /// such as "requests".
    pub(super) fn lack(lack: Lack, [of_pool, of_peer]: [RejectionCause; 2], what: &str) -> Self {
        let (cause, message) = match lack {
            Lack::Pool => (
                of_pool,
                format!("too many {what} at a time: try again later"),
            ),
            Lack::Peer => (
                of_peer,
                format!("too many {what} from this address at a time: try again later"),
            ),
        };
        Self { cause, message }
    }

    pub(crate) fn http(&self) -> StatusCode {
        match self.cause {
            RejectionCause::TokenMissing
            | RejectionCause::TokenUnknown
            | RejectionCause::TokenWithdrawn => StatusCode::UNAUTHORIZED,
            RejectionCause::TokenRole | RejectionCause::Host | RejectionCause::Origin => {
                StatusCode::FORBIDDEN
            }
            RejectionCause::HeaderSize => StatusCode::REQUEST_HEADER_FIELDS_TOO_LARGE,
            RejectionCause::SlowBody => StatusCode::REQUEST_TIMEOUT,
            RejectionCause::LoginAttempts => StatusCode::TOO_MANY_REQUESTS,
            _ => StatusCode::SERVICE_UNAVAILABLE,
        }
    }

    pub(crate) fn code(&self) -> Code {
        match self.cause {
            RejectionCause::TokenMissing
            | RejectionCause::TokenUnknown
            | RejectionCause::TokenWithdrawn => Code::Unauthenticated,
            RejectionCause::TokenRole | RejectionCause::Host | RejectionCause::Origin => {
                Code::PermissionDenied
            }
            RejectionCause::HeaderSize => Code::InvalidArgument,
            RejectionCause::SlowBody => Code::DeadlineExceeded,
            _ => Code::Unavailable,
        }
    }

    /// Returns the gRPC status. `UNAVAILABLE` carries a retry delay.
    pub(crate) fn status(&self) -> Status {
        let (code, message) = (self.code(), self.message.clone());
        match code {
            Code::Unavailable => {
                let details = ErrorDetails::with_retry_info(Some(RETRY_AFTER));
                Status::with_error_details(code, message, details)
            }
            _ => Status::new(code, message),
        }
    }

    /// Adds the header that an HTTP response to this rejection needs: `WWW-Authenticate` or
    /// `Retry-After`, or none.
    pub(crate) fn put_headers(&self, headers: &mut HeaderMap) {
        match self.http() {
            StatusCode::UNAUTHORIZED => {
                let bearer = header::HeaderValue::from_static("Bearer");
                headers.insert(header::WWW_AUTHENTICATE, bearer);
            }
            StatusCode::SERVICE_UNAVAILABLE | StatusCode::TOO_MANY_REQUESTS => {
                let after = header::HeaderValue::from(RETRY_AFTER.as_secs());
                headers.insert(header::RETRY_AFTER, after);
            }
            _ => {}
        }
    }
}

/// Entry point of a request.
#[derive(Clone, Copy, Debug)]
pub(super) struct Way {
    pub(super) door: PortName,
    /// True if only this machine reaches the port. A request then comes from a local program, which
    /// may be a browser on behalf of a foreign page.
    pub(super) is_loopback: bool,
}

impl Ports {
    /// Checks that a request may proceed.
    ///
    /// Returns the role that its token had to have; `None` if the request needs no token.
    pub(super) fn admit(&self, way: Way, parts: &Parts) -> Result<Option<Role>, Rejection> {
        if head_bytes(parts) > HEAD_BYTES_MAX {
            let message = format!("the head of the request is larger than {HEAD_BYTES_MAX} bytes");
            return Err(Rejection::new(RejectionCause::HeaderSize, message));
        }
        let is_of_browsers = matches!(way.door, PortName::Pages | PortName::OtlpHttp);
        let is_change = !matches!(parts.method, Method::GET | Method::HEAD);
        let is_open = way.door == PortName::Pages && is_open(parts.uri.path(), is_change);
        if is_of_browsers && (way.is_loopback || way.door == PortName::Pages && is_change) {
            self.check_host(parts)?;
        }
        let cors = self.cors(way, parts);
        if is_of_browsers && is_change && !cors.is_allowed() {
            self.check_origin(way, parts)?;
        }
        if is_open || cors.is_preflight() {
            return Ok(None);
        }
        let role = role(way.door, is_change && parts.uri.path() != TOOLS_PATH);
        self.check_token(role, &parts.headers)?;
        Ok(self.settings.tokens.is_some().then_some(role))
    }

    /// Returns a page's permission to send a request to this port from another origin.
    pub(super) fn cors(&self, way: Way, parts: &Parts) -> CorsGrant {
        match way.door {
            PortName::OtlpHttp => CorsGrant::new(&self.settings.cors_origins, parts),
            _ => CorsGrant::default(),
        }
    }

    pub(super) fn check_token(&self, role: Role, headers: &HeaderMap) -> Result<(), Rejection> {
        self.check(role, bearer(headers), login_cookie(headers))
    }

    /// Checks that the token has a role. Without a token, checks the token that signed the login; a
    /// login never has the role `write`. Succeeds if the collector requires no tokens.
    pub(super) fn check(
        &self,
        role: Role,
        token: Option<&[u8]>,
        login: Option<Login>,
    ) -> Result<(), Rejection> {
        let secrets = self.secrets();
        let Some(tokens) = &secrets.tokens else {
            return Ok(());
        };
        // Sending needs the token itself, as logins are for browsers.
        let login = login.filter(|_| role != Role::Write);
        let known = match (token, login) {
            (Some(token), _) => tokens.look_up(token, role),
            (None, Some(login)) => login.known(tokens, role),
            (None, None) => {
                let message = "this collector requires a token: `authorization: Bearer TOKEN`, in services \
                               STROBOSCOPE_TOKEN, in a browser at /login";
                return Err(Rejection::new(RejectionCause::TokenMissing, message));
            }
        };
        match (known, token) {
            (TokenMatch::Good, _) => Ok(()),
            (TokenMatch::Unknown, Some(_)) => {
                let message = "the token is not one of the collector's";
                Err(Rejection::new(RejectionCause::TokenUnknown, message))
            }
            (TokenMatch::Unknown, None) => {
                let message = "the login has ended: log in again at /login";
                Err(Rejection::new(RejectionCause::TokenUnknown, message))
            }
            (TokenMatch::OtherRole, _) => {
                let message = format!("the token lacks the role {}", role.name());
                Err(Rejection::new(RejectionCause::TokenRole, message))
            }
        }
    }

    /// Counts a request that a handler rejected. The last argument describes its sender or the
    /// request itself for the log.
    pub(crate) fn refuse(&self, door: PortName, denied: &Rejection, who: &str) {
        self.refused.count(door, denied.cause, &who);
    }

    /// Checks the host name that a request uses. This rejects requests of a foreign page whose name
    /// resolves to this machine (DNS rebinding): they use the foreign name.
    fn check_host(&self, parts: &Parts) -> Result<(), Rejection> {
        let host = host_of(parts).map(|(host, _)| host).unwrap_or_default();
        if self.is_allowed(host) {
            return Ok(());
        }
        let message = format!(
            "the request is for the host {host:?}, which is not a known name of this collector: --allowed-host NAME allows it"
        );
        Err(Rejection::new(RejectionCause::Host, message))
    }

    fn is_allowed(&self, host: &str) -> bool {
        let name = host.strip_suffix('.').unwrap_or(host);
        let address = name
            .strip_prefix('[')
            .and_then(|name| name.strip_suffix(']'))
            .unwrap_or(name);
        address.parse::<IpAddr>().is_ok()
            || name.eq_ignore_ascii_case("localhost")
            || self
                .settings
                .allowed_hosts
                .iter()
                .any(|allowed| allowed.eq_ignore_ascii_case(name))
    }

    /// Checks the origin of a change without a CORS grant. Only programs and this collector's own
    /// pages, possibly under an allowed host name, may request one.
    fn check_origin(&self, way: Way, parts: &Parts) -> Result<(), Rejection> {
        let text = |name: &str| {
            parts
                .headers
                .get(name)
                .map(|value| value.to_str().unwrap_or("?"))
        };
        let is_own_site =
            text("sec-fetch-site").is_none_or(|site| matches!(site, "same-origin" | "none"));
        let is_own_origin = text("origin").is_none_or(|origin| {
            let authority = origin.split_once("://").map(|(_, authority)| authority);
            let of_origin = authority.and_then(split_port);
            of_origin.is_some_and(|of_origin| {
                let of_request = host_of(parts);
                let is_same = of_request.is_some_and(|(host, port)| {
                    host.eq_ignore_ascii_case(of_origin.0) && port == of_origin.1
                });
                let names = &self.settings.allowed_hosts;
                is_same
                    || names
                        .iter()
                        .any(|name| name.eq_ignore_ascii_case(of_origin.0))
            })
        });
        if is_own_site && is_own_origin {
            return Ok(());
        }
        let message = if way.door == PortName::OtlpHttp {
            "a page of another origin sends data: --cors-origin ORIGIN allows it"
        } else if is_own_site {
            "a page of another origin requests a change. If it is the collector's own, behind a proxy that changes the \
             host name, --allowed-host NAME allows the name that the browser uses"
        } else {
            "a page of another origin requests a change, which only the collector's own pages may"
        };
        Err(Rejection::new(RejectionCause::Origin, message))
    }
}

/// Returns true for requests at the port of the pages that need no token: those for the login and
/// the logout, and reads of the probes and of the pages' assets.
fn is_open(path: &str, is_change: bool) -> bool {
    let is_login = [LOGIN_PATH, LOGOUT_PATH].contains(&path);
    let is_asked = ["/healthz", "/readyz"].contains(&path) || path.starts_with("/assets/");
    is_login || is_asked && !is_change
}

fn role(door: PortName, is_change: bool) -> Role {
    match (door, is_change) {
        (PortName::Pages, false) | (PortName::Worker, _) => Role::Read,
        (PortName::Pages, true) => Role::Control,
        _ => Role::Write,
    }
}

fn bearer(headers: &HeaderMap) -> Option<&[u8]> {
    const SCHEME: &[u8] = b"bearer ";
    let value = headers.get(header::AUTHORIZATION)?.as_bytes();
    let (scheme, token) = value.split_at_checked(SCHEME.len())?;
    scheme
        .eq_ignore_ascii_case(SCHEME)
        .then(|| token.trim_ascii())
}

fn head_bytes(parts: &Parts) -> usize {
    let of_headers = parts.headers.iter();
    let of_headers = of_headers.map(|(name, value)| name.as_str().len() + value.len() + 32);
    let of_target = parts
        .uri
        .path_and_query()
        .map_or(0, |target| target.as_str().len());
    of_headers.sum::<usize>() + of_target
}

/// Returns the host that a request names, and its port if there is one; `None` if the host is
/// missing or malformed.
fn host_of(parts: &Parts) -> Option<(&str, Option<&str>)> {
    if let Some(authority) = parts.uri.authority() {
        return split_port(authority.as_str());
    }
    // Several `Host` headers count as none: a proxy may use another of them than we do.
    let mut hosts = parts.headers.get_all(header::HOST).iter();
    match (hosts.next(), hosts.next()) {
        (Some(host), None) => split_port(host.to_str().ok()?),
        _ => None,
    }
}

fn split_port(authority: &str) -> Option<(&str, Option<&str>)> {
    let after_address = authority.rfind(']').map_or(0, |at| at + 1);
    let (host, port) = match authority[after_address..].find(':') {
        Some(at) => {
            let (host, port) = authority.split_at(after_address + at);
            (host, Some(&port[1..]))
        }
        None => (authority, None),
    };
    (!host.is_empty() && !host.contains(['/', '@', ' '])).then_some((host, port))
}

#[cfg(test)]
mod tests {
    use super::super::ports::NetSettings;
    use super::*;
    use axum::http::Request;

    async fn doors(allowed: &[&str]) -> std::sync::Arc<Ports> {
        let allowed_hosts = allowed.iter().map(|&name| name.to_owned()).collect();
        let settings = NetSettings {
            allowed_hosts,
            ..NetSettings::default()
        };
        Ports::open(settings).unwrap()
    }

    fn parts(method: &str, headers: &[(&str, &str)]) -> Parts {
        let mut request = Request::builder().method(method).uri("/burst-config");
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        request.body(()).unwrap().into_parts().0
    }

    #[tokio::test]
    async fn names_that_are_not_ours_are_turned_away() {
        let doors = doors(&["collector.internal"]).await;
        let check = |door, is_loopback, method: &str, headers: &[(&str, &str)], expected| {
            let way = Way { door, is_loopback };
            let admitted = doors.admit(way, &parts(method, headers));
            let cause = admitted.err().map(|denied| denied.cause);
            assert_eq!(cause, expected, "{method} {headers:?} {way:?}");
        };
        let pages = PortName::Pages;
        for host in [
            "localhost",
            "LOCALHOST:4319",
            "localhost.",
            "127.0.0.1:1",
            "[::1]:4319",
            "[::1]",
            "10.1.2.3:80",
            "collector.internal:4319",
        ] {
            check(pages, true, "GET", &[("host", host)], None);
            check(pages, false, "POST", &[("host", host)], None);
        }
        for host in [
            "evil.example",
            "evil.example:4319",
            "",
            "localhost.evil.example",
            "127.0.0.1.evil.example",
            "[::1].evil",
        ] {
            check(
                pages,
                true,
                "GET",
                &[("host", host)],
                Some(RejectionCause::Host),
            );
            check(
                pages,
                false,
                "POST",
                &[("host", host)],
                Some(RejectionCause::Host),
            );
            check(
                PortName::OtlpHttp,
                true,
                "POST",
                &[("host", host)],
                Some(RejectionCause::Host),
            );
            // On a non-loopback address, tokens control reading.
            check(pages, false, "GET", &[("host", host)], None);
            check(PortName::OtlpHttp, false, "POST", &[("host", host)], None);
            check(PortName::Grpc, true, "POST", &[("host", host)], None);
        }
        check(pages, true, "GET", &[], Some(RejectionCause::Host));
        check(
            pages,
            true,
            "GET",
            &[("host", "localhost"), ("host", "evil.example")],
            Some(RejectionCause::Host),
        );
    }

    #[tokio::test]
    async fn pages_of_others_change_nothing() {
        let doors = doors(&["ui.internal"]).await;
        let check = |headers: &[(&str, &str)], expected| {
            let mut all = vec![("host", "localhost:4319")];
            all.extend(headers);
            let way = Way {
                door: PortName::Pages,
                is_loopback: true,
            };
            let cause = |method| {
                doors
                    .admit(way, &parts(method, &all))
                    .err()
                    .map(|denied| denied.cause)
            };
            assert_eq!(cause("POST"), expected, "{headers:?}");
            assert_eq!(cause("GET"), None, "{headers:?}");
        };
        check(&[], None);
        check(
            &[
                ("origin", "http://localhost:4319"),
                ("sec-fetch-site", "same-origin"),
            ],
            None,
        );
        check(&[("origin", "https://ui.internal")], None);
        for origin in [
            "null",
            "http://evil.example",
            "http://localhost",
            "http://localhost:4320",
            "localhost:4319",
            "http://localhost:4319@evil.example",
        ] {
            check(&[("origin", origin)], Some(RejectionCause::Origin));
        }
        check(
            &[("sec-fetch-site", "cross-site")],
            Some(RejectionCause::Origin),
        );
        check(
            &[("sec-fetch-site", "same-site")],
            Some(RejectionCause::Origin),
        );
    }

    #[tokio::test]
    async fn a_flag_is_advised_only_where_it_helps() {
        let doors = doors(&[]).await;
        let way = Way {
            door: PortName::Pages,
            is_loopback: true,
        };
        for (header, is_advised) in [
            (("origin", "https://ui.internal"), true),
            (("sec-fetch-site", "cross-site"), false),
        ] {
            let parts = parts("POST", &[("host", "localhost:4319"), header]);
            let denied = doors.admit(way, &parts).unwrap_err();
            assert_eq!(denied.cause, RejectionCause::Origin);
            let is_named = denied.message.contains("--allowed-host");
            assert_eq!(is_named, is_advised, "{denied:?}");
        }
    }
}
