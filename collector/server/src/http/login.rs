//! `/login`: exchanges a token for a cookie in a browser.

use std::sync::Arc;

use axum::Router;
use axum::extract::{Extension, RawQuery, State};
use axum::http::request::Parts;
use axum::http::{HeaderMap, HeaderName, Method, StatusCode, header};
use axum::response::{IntoResponse as _, Response};
use axum::routing::{get, post};
use stroboscope_render::page::{Html, PageHead, policy};
use url::form_urlencoded::{Serializer, parse};

use super::body::BodyText;
use crate::net::{LOGIN_PATH, LOGOUT_PATH, PortName, Ports, Rejection};
use crate::pool::Peer;

/// Returns the routes of login and logout. There are no routes if the collector requires no tokens.
pub(super) fn routes(doors: &Arc<Ports>) -> Router {
    if !doors.asks_for_tokens() {
        return Router::new();
    }
    Router::new()
        .route(LOGIN_PATH, get(form).post(log_in))
        .route(LOGOUT_PATH, post(log_out))
        .with_state(doors.clone())
}

/// Redirects a browser that lacks a valid token to the login, which then leads back to the
/// requested page. Returns `None` for programs, for methods other than GET, and for other
/// rejections.
pub(super) fn lead(parts: &Parts, denied: &Rejection) -> Option<Response> {
    let is_page = parts.method == Method::GET && accepts_page(&parts.headers);
    if !is_page || denied.http() != StatusCode::UNAUTHORIZED {
        return None;
    }
    let page = parts.uri.path_and_query().map_or("/", |page| page.as_str());
    Some(see_other(&address(page)))
}

/// Reports whether a client accepts pages, as browsers do.
pub(super) fn accepts_page(headers: &HeaderMap) -> bool {
    let accepted = headers.get(header::ACCEPT);
    let accepted = accepted.and_then(|accepted| accepted.to_str().ok());
    accepted.is_some_and(|accepted| accepted.contains("text/html"))
}

/// Returns the address of the login that then leads to `page`.
fn address(page: &str) -> String {
    let query = Serializer::new(String::new())
        .append_pair("to", page)
        .finish();
    format!("{LOGIN_PATH}?{query}")
}

/// Returns the page that a login leads to, from the query of the login's address. It is always a
/// page of this site, even if the query names another site.
fn page(query: Option<&str>) -> String {
    let mut pairs = parse(query.unwrap_or_default().as_bytes());
    let page = pairs.find(|(name, _)| name == "to");
    let page = page.map_or_else(String::new, |(_, page)| page.into_owned());
    // Browsers treat `//name` and `/\name` as another site, even with control characters in
    // between.
    let is_own = page.starts_with('/')
        && !page[1..].starts_with(['/', '\\'])
        && page.bytes().all(|byte| byte.is_ascii_graphic());
    if is_own { page } else { "/".to_owned() }
}

fn see_other(address: &str) -> Response {
    let headers = [
        (header::LOCATION, address),
        (header::CACHE_CONTROL, "no-store"),
    ];
    (StatusCode::SEE_OTHER, headers).into_response()
}

fn with_cookie(mut response: Response, cookie: &str) -> Response {
    if let Ok(cookie) = cookie.parse() {
        response.headers_mut().insert(header::SET_COOKIE, cookie);
    }
    response
}

async fn form(
    State(doors): State<Arc<Ports>>,
    RawQuery(query): RawQuery,
    headers: HeaderMap,
) -> Response {
    let page = page(query.as_deref());
    let body = if doors.is_logged_in(&headers) {
        logout_form(&page)
    } else {
        login_form(&page, None)
    };
    answer(StatusCode::OK, &body)
}

async fn log_in(
    State(doors): State<Arc<Ports>>,
    Extension(peer): Extension<Peer>,
    RawQuery(query): RawQuery,
    BodyText(body): BodyText,
) -> Response {
    let page = page(query.as_deref());
    let token = parse(body.as_bytes()).find(|(name, _)| name == "token");
    let token = token.map_or_else(String::new, |(_, token)| token.trim().to_owned());
    match doors.log_in(peer, token.as_bytes()) {
        Ok(cookie) => with_cookie(see_other(&page), &cookie),
        Err(denied) => {
            doors.refuse(PortName::Pages, &denied, "the login");
            let mut response = answer(denied.http(), &login_form(&page, Some(&denied)));
            denied.put_headers(response.headers_mut());
            response
        }
    }
}

async fn log_out(State(doors): State<Arc<Ports>>) -> Response {
    with_cookie(see_other(LOGIN_PATH), &doors.log_out())
}

fn login_form(page: &str, denied: Option<&Rejection>) -> Html {
    let mut html = Html::new();
    if let Some(denied) = denied {
        html.markup("<div class=\"notice error\" role=\"alert\"><p>")
            .text(&format!("Not logged in: {}.", denied.message))
            .markup("</p></div>");
    }
    html.markup("<form class=\"options\" method=\"post\" action=\"")
        .text(&address(page))
        .markup(
            "\"><p><label for=\"token\">Token</label> <input id=\"token\" name=\"token\" type=\"password\" required=\"\" \
             autocomplete=\"current-password\" autofocus=\"\"/> <button>Log in</button></p><p class=\"hint\">A token of the role \
             read, from the file that the collector was started with (--token-file). The browser keeps a cookie for 12 hours, \
             which does not contain the token.</p></form>\n",
        );
    html
}

fn logout_form(page: &str) -> Html {
    let mut html = Html::new();
    html.markup("<p>This browser is logged in. <a href=\"")
        .text(page)
        .markup("\">To the pages</a></p><form class=\"options\" method=\"post\" action=\"")
        .markup(LOGOUT_PATH)
        .markup("\"><p><button>Log out</button></p></form>\n");
    html
}

fn answer(status: StatusCode, content: &Html) -> Response {
    let head = PageHead {
        title: "Login",
        about: "",
        of: "",
        navigation: &[],
        current: LOGIN_PATH,
        scripts: &[],
        above: &Html::new(),
    };
    let mut html = head.begin();
    html.html(content).html(&PageHead::end());
    let headers: [(HeaderName, &str); 4] = [
        (header::CONTENT_TYPE, "text/html; charset=utf-8"),
        (header::CONTENT_SECURITY_POLICY, policy()),
        (header::REFERRER_POLICY, "no-referrer"),
        (header::CACHE_CONTROL, "no-store"),
    ];
    (status, headers, html.as_str().to_owned()).into_response()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_login_leads_to_pages_of_its_own_site() {
        let check = |to: &str, expected: &str| {
            let query = address(to);
            let query = query.split_once('?').map(|(_, query)| query);
            assert_eq!(page(query), expected, "{to:?}");
        };
        for own in ["/", "/fleet", "/traces?since=1h&root=a%20b#x", "/a//b"] {
            check(own, own);
        }
        for other in [
            "",
            "//evil.example",
            "/\\evil.example",
            "/\t/evil.example",
            "https://evil.example",
            "javascript:alert(1)",
            "/a\r\nset-cookie: b",
            "/é",
        ] {
            check(other, "/");
        }
        assert_eq!(page(None), "/");
    }
}
