//! Session tokens: a browser sends one, and the web server checks it.

use std::time::Duration;

use crate::cpu::Cpu;
use crate::random::mix;

/// Cost of checking a token.
const CHECK_TIME: Duration = Duration::from_micros(200);

const SECRET: u64 = 0x6e65_7773_6665_6564;

/// Returns the token of `user`, as a log-in would have issued it.
pub(crate) fn token(user: u64) -> u64 {
    mix(user ^ SECRET)
}

/// Reports whether `presented` is the token of `user`.
pub(crate) fn is_valid(cpu: &Cpu, user: u64, presented: u64) -> bool {
    cpu.work(CHECK_TIME, presented);
    presented == token(user)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_own_token_is_valid() {
        let cpu = Cpu::calibrate();
        assert!(is_valid(&cpu, 7, token(7)));
        assert!(!is_valid(&cpu, 7, token(8)));
        assert!(!is_valid(&cpu, 7, 0));
    }
}
