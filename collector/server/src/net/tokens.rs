//! Bearer tokens, by role.

use std::fmt;

use ring::hmac;
use ring::rand::SystemRandom;

/// Permission that a token grants. A token may have several roles.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    /// Sending batches, OTLP and forwarded data, and receiving directives.
    Write,
    /// Reading pages, metrics and the model, and using a worker.
    Read,
    /// Changing the fleet's behaviour: `POST /burst-config`, or the form of `/fleet`.
    Control,
}

impl Role {
    /// List of all roles.
    pub const ALL: [Self; 3] = [Self::Write, Self::Read, Self::Control];

    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Write => "write",
            Self::Read => "read",
            Self::Control => "control",
        }
    }
}

/// Minimum length of a token, in bytes; shorter ones could be guessed.
const TOKEN_BYTES_MIN: usize = 16;

/// Error in a file of tokens. It never contains the file's content.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BadTokens {
    #[error(
        "line {0} is not `ROLE TOKEN`, with the role write, read or control, or several as read,control"
    )]
    Line(usize),
    #[error(
        "the token in line {0} is shorter than {TOKEN_BYTES_MIN} characters: it could be guessed"
    )]
    Short(usize),
    #[error("it contains no token: a line is `ROLE TOKEN`, with the role write, read or control")]
    Empty,
    #[error("the system has no random numbers")]
    NoRandom,
}

/// Result of looking up a token for a role.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum TokenMatch {
    Good,
    /// The token is known, but has other roles only.
    OtherRole,
    Unknown,
}

/// Set of tokens, as keyed hashes: timing a comparison reveals nothing about them, and nothing
/// prints them.
pub(crate) struct Tokens {
    /// Random key of this set.
    key: hmac::Key,
    tokens: Vec<TokenOfRole>,
}

/// A token with one of its roles.
struct TokenOfRole {
    role: Role,
    /// Hash of the token.
    tag: hmac::Tag,
    /// Key derived from the token, which signs the expiry time of a login. Every process that has
    /// the token derives the same key.
    signing: hmac::Key,
}

impl Tokens {
    /// Parses lines of `ROLE[,ROLE...] TOKEN`; skips empty lines and those that begin with `#`.
    pub(crate) fn parse(text: &str) -> Result<Self, BadTokens> {
        let key = hmac::Key::generate(hmac::HMAC_SHA256, &SystemRandom::new())
            .map_err(|_| BadTokens::NoRandom)?;
        let mut tokens = Vec::new();
        for (number, line) in (1..).zip(text.lines().map(str::trim)) {
            if line.is_empty() || line.starts_with('#') {
                continue;
            }
            let mut words = line.split_whitespace();
            let (Some(roles), Some(token), None) = (words.next(), words.next(), words.next())
            else {
                return Err(BadTokens::Line(number));
            };
            if token.len() < TOKEN_BYTES_MIN {
                return Err(BadTokens::Short(number));
            }
            for role in roles.split(',') {
                let role = Role::ALL.into_iter().find(|known| known.name() == role);
                let role = role.ok_or(BadTokens::Line(number))?;
                tokens.push(TokenOfRole {
                    role,
                    tag: hmac::sign(&key, token.as_bytes()),
                    signing: signing_key(token.as_bytes()),
                });
            }
        }
        if tokens.is_empty() {
            return Err(BadTokens::Empty);
        }
        Ok(Self { key, tokens })
    }

    /// Returns the roles that no token has.
    pub(crate) fn missing_roles(&self) -> Vec<&'static str> {
        let is_missing = |role: &Role| self.tokens.iter().all(|token| token.role != *role);
        let missing = Role::ALL.into_iter().filter(is_missing);
        missing.map(Role::name).collect()
    }

    pub(super) fn look_up(&self, token: &[u8], role: Role) -> TokenMatch {
        let tag = hmac::sign(&self.key, token);
        // Comparing hashes byte by byte reveals nothing about tokens, as the key is secret.
        self.known(role, |known| known.tag.as_ref() == tag.as_ref())
    }

    /// Looks up the token that signed a message, and checks that it has the role.
    pub(super) fn look_up_signer(
        &self,
        message: &[u8],
        signature: &[u8],
        role: Role,
    ) -> TokenMatch {
        self.known(role, |known| {
            hmac::verify(&known.signing, message, signature).is_ok()
        })
    }

    fn known(&self, role: Role, is_it: impl Fn(&TokenOfRole) -> bool) -> TokenMatch {
        let mut known = TokenMatch::Unknown;
        // Checks all tokens even after a match, so that the time reveals nothing.
        for token in &self.tokens {
            if is_it(token) {
                known = if token.role == role || known == TokenMatch::Good {
                    TokenMatch::Good
                } else {
                    TokenMatch::OtherRole
                };
            }
        }
        known
    }
}

/// Signs a message with the key derived from a token.
pub(super) fn sign(token: &[u8], message: &[u8]) -> hmac::Tag {
    hmac::sign(&signing_key(token), message)
}

fn signing_key(token: &[u8]) -> hmac::Key {
    hmac::Key::new(hmac::HMAC_SHA256, token)
}

impl fmt::Debug for Tokens {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} tokens", self.tokens.len())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str =
        "# of the fleet\nwrite  0123456789abcdef\n\nread,control fedcba9876543210 \n";

    #[test]
    fn a_token_is_good_for_its_roles() {
        let tokens = Tokens::parse(TEXT).unwrap();
        let check = |token: &[u8], role, expected| {
            assert_eq!(tokens.look_up(token, role), expected);
        };
        check(b"0123456789abcdef", Role::Write, TokenMatch::Good);
        check(b"0123456789abcdef", Role::Read, TokenMatch::OtherRole);
        check(b"fedcba9876543210", Role::Read, TokenMatch::Good);
        check(b"fedcba9876543210", Role::Control, TokenMatch::Good);
        check(b"fedcba9876543210", Role::Write, TokenMatch::OtherRole);
        check(b"0123456789abcde", Role::Write, TokenMatch::Unknown);
        check(b"", Role::Write, TokenMatch::Unknown);
        assert!(tokens.missing_roles().is_empty());
        let few = Tokens::parse("read 0123456789abcdef").unwrap();
        assert_eq!(few.missing_roles(), ["write", "control"]);
    }

    #[test]
    fn what_is_wrong_is_said_without_secrets() {
        let error = |text: &str| Tokens::parse(text).unwrap_err();
        assert_eq!(error("\n# nothing\n"), BadTokens::Empty);
        assert_eq!(error("write short-one"), BadTokens::Short(1));
        for bad in [
            "write",
            "0123456789abcdef",
            "admin 0123456789abcdef",
            "write 0123456789abcdef more",
            "write, 0123456789abcdef",
        ] {
            assert_eq!(error(bad), BadTokens::Line(1), "{bad}");
            assert!(!error(bad).to_string().contains("0123456789abcdef"));
        }
        let tokens = Tokens::parse(TEXT).unwrap();
        assert_eq!(format!("{tokens:?}"), "3 tokens");
    }
}
