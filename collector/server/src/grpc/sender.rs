//! Identity of a stream's sender, and interpretation of how its stream ends.

use std::error::Error;
use std::fmt;
use std::net::SocketAddr;

use stroboscope_proto::v1::Batch;
use tonic::Status;

/// Maximum length of a service or host name in a message, in characters before escaping.
const NAME_CHARS_MAX: usize = 64;

/// Sender of a stream. It is known by its address until a batch identifies its process.
#[derive(Debug, Default)]
pub(super) struct Sender {
    pub(super) peer: Option<SocketAddr>,
    process: Option<Process>,
    pub(super) batches: u64,
}

#[derive(Debug)]
struct Process {
    service: String,
    host: String,
    pid: u32,
    incarnation: Vec<u8>,
}

impl Sender {
    pub(super) fn new(peer: Option<SocketAddr>) -> Self {
        Self {
            peer,
            ..Self::default()
        }
    }

    /// Counts a batch, and learns the sender's identity from it.
    pub(super) fn learn(&mut self, batch: &Batch) {
        self.batches += 1;
        let Some(process) = &batch.process else {
            return;
        };
        if self
            .process
            .as_ref()
            .is_none_or(|known| known.incarnation != process.incarnation)
        {
            self.process = Some(Process {
                service: name(&process.service),
                host: name(&process.host),
                pid: process.pid,
                // An incarnation has 16 bytes; this one is not checked yet.
                incarnation: process.incarnation.iter().take(16).copied().collect(),
            });
        }
    }
}

/// Truncates and escapes a name from the network for a line of the log.
fn name(text: &str) -> String {
    text.chars()
        .take(NAME_CHARS_MAX)
        .flat_map(char::escape_debug)
        .collect()
}

impl fmt::Display for Sender {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (&self.process, self.peer) {
            (
                Some(Process {
                    service,
                    host,
                    pid,
                    incarnation,
                }),
                _,
            ) => {
                write!(f, "{service} (process {pid} on {host}, incarnation ")?;
                incarnation
                    .iter()
                    .try_for_each(|byte| write!(f, "{byte:02x}"))?;
                f.write_str(")")
            }
            (None, Some(peer)) => write!(f, "a process at {peer}, which sent no batch"),
            (None, None) => f.write_str("a process on the unix socket, which sent no batch"),
        }
    }
}

/// Returns the cause if the peer or the network broke a stream: the peer was killed, ended or reset
/// the stream, or was cut off. Returns `None` for other failures, such as a violation of a limit
/// or of the protocol.
pub(super) fn cause_if_gone(failed: &Status) -> Option<String> {
    let mut cause: Option<&(dyn Error + 'static)> = failed.source();
    while let Some(error) = cause {
        if error.is::<std::io::Error>() {
            return Some(error.to_string());
        }
        if let Some(error) = error.downcast_ref::<h2::Error>() {
            return (error.is_io() || error.is_remote()).then(|| error.to_string());
        }
        cause = error.source();
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;
    use stroboscope_proto::v1;

    fn batch(service: &str) -> Batch {
        let process = v1::Process {
            incarnation: vec![0xab; 16],
            service: service.to_owned(),
            host: "h1".to_owned(),
            pid: 7,
            ..v1::Process::default()
        };
        Batch {
            process: Some(process),
            ..Batch::default()
        }
    }

    #[test]
    fn says_who_it_is_as_far_as_known() {
        let mut sender = Sender::new(Some("10.0.0.1:4242".parse().unwrap()));
        assert_eq!(
            sender.to_string(),
            "a process at 10.0.0.1:4242, which sent no batch"
        );
        assert!(Sender::new(None).to_string().contains("unix socket"));
        sender.learn(&batch("web"));
        assert_eq!(
            sender.to_string(),
            "web (process 7 on h1, incarnation abababababababababababababababab)"
        );
        // Names come from the network.
        let mut hostile = Sender::new(None);
        hostile.learn(&batch(&format!("a\nb\u{1b}[31m{}", "x".repeat(1_000))));
        let said = hostile.to_string();
        assert!(
            said.starts_with("a\\nb\\u{1b}") && said.len() < 200,
            "{said}"
        );
    }

    #[test]
    fn an_end_and_a_breach_are_told_apart() {
        let check = |error: h2::Error, expected: Option<&str>| {
            assert_eq!(
                cause_if_gone(&Status::from_error(Box::new(error))).as_deref(),
                expected
            );
        };
        check(h2::Reason::PROTOCOL_ERROR.into(), None);
        check(h2::Reason::FLOW_CONTROL_ERROR.into(), None);
        let broken = std::io::Error::from(std::io::ErrorKind::BrokenPipe);
        assert_eq!(
            cause_if_gone(&Status::from_error(Box::new(broken))).as_deref(),
            Some("broken pipe")
        );
        assert_eq!(
            cause_if_gone(&Status::out_of_range("a message too large")),
            None
        );
    }
}
