//! Browser sessions: exchanges a token for a login cookie.

use std::time::{Duration, Instant};

use axum::http::HeaderMap;

use super::admission::Rejection;
use super::login::{COOKIE, login_cookie, now_s, signed};
use super::ports::Ports;
use super::rejections::RejectionCause;
use super::tokens::Role;
use crate::pool::Peer;

/// Lifetime of a login.
const VALID: Duration = Duration::from_secs(12 * 3_600);

impl Ports {
    /// Reports whether the ports require tokens.
    pub(crate) fn asks_for_tokens(&self) -> bool {
        self.settings.tokens.is_some()
    }

    /// Checks that a token has the role `read`. Returns the value of the `Set-Cookie` header for
    /// its login.
    ///
    /// # Errors
    /// Returns a rejection if the token is wrong or lacks the role, or if too many logins of the
    /// peer failed.
    pub(crate) fn log_in(&self, peer: Peer, token: &[u8]) -> Result<String, Rejection> {
        let now = Instant::now();
        if !self.attempts.take(peer, now) {
            let message = "too many wrong tokens came from this address: try again in a minute";
            return Err(Rejection::new(RejectionCause::LoginAttempts, message));
        }
        self.check(Role::Read, Some(token), None)?;
        self.attempts.give_back(peer, now);
        Ok(self.cookie(&signed(now_s() + VALID.as_secs(), token), VALID))
    }

    /// Returns the value of the `Set-Cookie` header that deletes a login's cookie.
    pub(crate) fn log_out(&self) -> String {
        self.cookie("", Duration::ZERO)
    }

    /// Reports whether a request has a login cookie and may read the pages.
    pub(crate) fn is_logged_in(&self, headers: &HeaderMap) -> bool {
        login_cookie(headers).is_some() && self.check_token(Role::Read, headers).is_ok()
    }

    /// Formats a cookie that scripts cannot read, and that browsers do not send with change
    /// requests from other sites. With TLS configured, browsers send it over TLS only.
    fn cookie(&self, value: &str, valid: Duration) -> String {
        let secure = match self.settings.tls {
            Some(_) => "; Secure",
            None => "",
        };
        let age_s = valid.as_secs();
        format!("{COOKIE}={value}; Path=/; Max-Age={age_s}; HttpOnly; SameSite=Lax{secure}")
    }
}
