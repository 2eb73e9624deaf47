//! Logins of browsers: a token in, a cookie out.

use std::time::{Duration, Instant};

use axum::http::HeaderMap;

use super::guard::Denied;
use super::login::{COOKIE, login_cookie, now_s, signed};
use super::refused::DoorCause;
use super::settings::Doors;
use super::tokens::Role;
use crate::pool::Peer;

/// Length of a login.
const VALID: Duration = Duration::from_secs(12 * 3_600);

impl Doors {
    /// Returns true if pages ask for a token.
    pub(crate) fn asks_for_tokens(&self) -> bool {
        self.settings.tokens.is_some()
    }

    /// Checks a token of the role `read`. Returns the cookie of its login, as a header sets it.
    ///
    /// # Errors
    /// Returns why not: the token is wrong, or too many were.
    pub(crate) fn log_in(&self, peer: Peer, token: &[u8]) -> Result<String, Denied> {
        let now = Instant::now();
        if !self.attempts.take(peer, now) {
            let message = "too many wrong tokens came from this address: try again in a minute";
            return Err(Denied::new(DoorCause::LoginAttempts, message));
        }
        self.check(Role::Read, Some(token), None)?;
        self.attempts.give_back(peer, now);
        Ok(self.cookie(&signed(now_s() + VALID.as_secs(), token), VALID))
    }

    /// The cookie that takes a login's place when it ends.
    pub(crate) fn log_out(&self) -> String {
        self.cookie("", Duration::ZERO)
    }

    /// Returns true if a request has a login that is valid.
    pub(crate) fn is_logged_in(&self, headers: &HeaderMap) -> bool {
        login_cookie(headers).is_some() && self.check_token(Role::Read, headers).is_ok()
    }

    /// Formats a cookie that no script reads, that no form of another site sends, and that goes over TLS alone where there is TLS.
    fn cookie(&self, value: &str, valid: Duration) -> String {
        let secure = match self.settings.tls {
            Some(_) => "; Secure",
            None => "",
        };
        let age_s = valid.as_secs();
        format!("{COOKIE}={value}; Path=/; Max-Age={age_s}; HttpOnly; SameSite=Lax{secure}")
    }
}
