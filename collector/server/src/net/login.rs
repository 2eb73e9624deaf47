//! Browser logins: a cookie that grants the roles of its token, except `write`, for a limited time.
//!
//! The cookie contains its expiry time, signed with a key derived from the token. So it does not
//! contain the token, and no process keeps a list of logins. Every collector that has the token
//! accepts the cookie. The cookie becomes invalid when the token is removed from the file.

use std::time::SystemTime;

use axum::http::{HeaderMap, header};

use super::tokens::{Role, TokenMatch, Tokens, sign};

/// Path of the page that asks for a token.
pub(crate) const LOGIN_PATH: &str = "/login";
/// Path that ends a login.
pub(crate) const LOGOUT_PATH: &str = "/logout";
/// Name of the cookie.
pub(super) const COOKIE: &str = "stroboscope_login";

/// A login, as stored in its cookie.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Login {
    /// Expiry time, in seconds since the Unix epoch.
    ends_s: u64,
    signature: [u8; 32],
}

impl Login {
    fn parse(text: &str) -> Option<Self> {
        let (ends, signature) = text.split_once('.')?;
        let mut login = Self {
            ends_s: ends.parse().ok()?,
            signature: [0; 32],
        };
        if signature.len() != 2 * login.signature.len() || !signature.is_ascii() {
            return None;
        }
        for (at, byte) in login.signature.iter_mut().enumerate() {
            *byte = u8::from_str_radix(&signature[2 * at..2 * at + 2], 16).ok()?;
        }
        Some(login)
    }

    /// Looks up the token that signed this login. An expired login matches no token.
    pub(super) fn known(&self, tokens: &Tokens, role: Role) -> TokenMatch {
        if self.ends_s <= now_s() {
            return TokenMatch::Unknown;
        }
        tokens.look_up_signer(&message(self.ends_s), &self.signature, role)
    }
}

/// Returns a login signed with a token, as the cookie's value.
pub(super) fn signed(ends_s: u64, token: &[u8]) -> String {
    let signature = sign(token, &message(ends_s));
    let signature = signature.as_ref().iter().map(|byte| format!("{byte:02x}"));
    format!("{ends_s}.{}", signature.collect::<String>())
}

/// Returns the bytes that the signature of a login covers. The prefix keeps the signature from
/// being valid for anything else.
fn message(ends_s: u64) -> Vec<u8> {
    format!("stroboscope login until {ends_s}").into_bytes()
}

pub(super) fn now_s() -> u64 {
    let since_epoch = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
    since_epoch.map_or(0, |since| since.as_secs())
}

/// Returns the login in a request's cookies: the first login cookie that is well-formed. Its
/// signature is not checked here.
pub(super) fn login_cookie(headers: &HeaderMap) -> Option<Login> {
    let values = headers.get_all(header::COOKIE).iter();
    let texts = values.filter_map(|value| value.to_str().ok());
    let mut cookies = texts.flat_map(|text| text.split(';'));
    cookies.find_map(|cookie| {
        let (name, value) = cookie.trim().split_once('=')?;
        (name == COOKIE).then(|| Login::parse(value))?
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const TOKEN: &[u8] = b"0123456789abcdef";

    fn login(cookie: &str) -> Option<Login> {
        let mut headers = HeaderMap::new();
        headers.insert(header::COOKIE, cookie.parse().unwrap());
        login_cookie(&headers)
    }

    #[test]
    fn a_login_is_good_for_the_roles_of_its_token_until_it_ends() {
        let tokens =
            Tokens::parse("read,control 0123456789abcdef\nwrite fedcba9876543210").unwrap();
        let check = |ends_s, token, role, expected| {
            let cookie = format!("a=b; {COOKIE}={}; c", signed(ends_s, token));
            assert_eq!(login(&cookie).unwrap().known(&tokens, role), expected);
        };
        let later = now_s() + 60;
        check(later, TOKEN, Role::Read, TokenMatch::Good);
        check(later, TOKEN, Role::Control, TokenMatch::Good);
        check(later, TOKEN, Role::Write, TokenMatch::OtherRole);
        check(
            later,
            b"fedcba9876543210",
            Role::Read,
            TokenMatch::OtherRole,
        );
        check(later, b"0123456789abcdeg", Role::Read, TokenMatch::Unknown);
        check(now_s(), TOKEN, Role::Read, TokenMatch::Unknown);
        // A changed expiry time invalidates the signature.
        let mut longer = login(&format!("{COOKIE}={}", signed(later, TOKEN))).unwrap();
        longer.ends_s += 1;
        assert_eq!(longer.known(&tokens, Role::Read), TokenMatch::Unknown);
        // The login becomes invalid when its token is removed from the file.
        let others = Tokens::parse("read fedcba9876543210").unwrap();
        let of_before = login(&format!("{COOKIE}={}", signed(later, TOKEN))).unwrap();
        assert_eq!(of_before.known(&others, Role::Read), TokenMatch::Unknown);
    }

    #[test]
    fn what_is_no_login_is_none() {
        let good = signed(1, TOKEN);
        assert!(login(&format!("{COOKIE}=; {COOKIE}={good}")).is_some());
        let short = &good[..good.len() - 1];
        for bad in ["", ".", "1", "1.", "x.00", short, &good.replace('.', "")] {
            assert_eq!(login(&format!("{COOKIE}={bad}")), None, "{bad}");
        }
        assert_eq!(login(&format!("other={good}")), None);
        let wide = format!("1.{}", "é".repeat(32));
        let mut headers = HeaderMap::new();
        let wide = header::HeaderValue::from_bytes(format!("{COOKIE}={wide}").as_bytes());
        headers.insert(header::COOKIE, wide.unwrap());
        assert_eq!(login_cookie(&headers), None);
    }
}
