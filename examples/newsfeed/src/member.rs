//! Child process of a fleet.

use std::io;
use std::net::SocketAddr;
use std::process::{ExitStatus, Stdio};
use std::time::Duration;

use tokio::io::{AsyncBufReadExt, AsyncReadExt, BufReader};
use tokio::process::{Child, ChildStdin, ChildStdout, Command};

use crate::server::LISTENING;

/// Time within which a serving role must be ready.
const READY_WITHIN: Duration = Duration::from_secs(20);

/// Time within which a role must end after a stop; it ends itself a little earlier.
const END_WITHIN: Duration = Duration::from_secs(8);

/// Maximum length of a line or report that a role prints, in bytes.
const OUTPUT_BYTES_MAX: u64 = 1 << 20;

/// Failure of a role process. The role's own messages are on standard error.
#[derive(Debug, thiserror::Error)]
pub enum MemberError {
    /// The process could not be started.
    #[error("cannot start {program} as {role}: {source}")]
    Spawn {
        /// Name of the role.
        role: &'static str,
        /// The program that should have run it.
        program: String,
        /// Error of the system.
        source: io::Error,
    },
    /// The process ended before it accepted connections.
    #[error("the {role} ended ({status}) before it was ready; its own message is above")]
    NotReady {
        /// Name of the role.
        role: &'static str,
        /// Exit status, as text.
        status: String,
    },
    /// The process did not accept connections in time.
    #[error("the {role} was not ready within {} s", READY_WITHIN.as_secs())]
    Late {
        /// Name of the role.
        role: &'static str,
    },
    /// The process printed something other than its address, or its output could not be read.
    #[error("the {role} printed {line:?} and not its address")]
    Unclear {
        /// Name of the role.
        role: &'static str,
        /// Line that the role printed.
        line: String,
    },
    /// The process ended while it was needed.
    #[error("the {role} ended ({status}) during the run; its own message is above")]
    Died {
        /// Name of the role.
        role: &'static str,
        /// Exit status, as text.
        status: String,
    },
}

/// Report on the exit of a role process.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ExitReport {
    /// Name of the role.
    pub role: &'static str,
    /// Process id that the role had.
    pub pid: u32,
    /// Exit status of the role, the error of waiting for it, or a note that it was killed.
    pub status: String,
    /// True if it ended with status 0 and was not killed.
    pub clean: bool,
}

/// A running role. This process holds the role's standard input open. The role stops when the input
/// ends, which also happens if this process is killed. Dropping a member kills the role.
#[derive(Debug)]
pub(crate) struct Member {
    role: &'static str,
    pid: u32,
    child: Child,
    stdin: Option<ChildStdin>,
    stdout: BufReader<ChildStdout>,
}

impl Member {
    /// Starts `command`, which must be `role` with `--stop-with-stdin`.
    pub(crate) fn spawn(role: &'static str, mut command: Command) -> Result<Self, MemberError> {
        command
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .kill_on_drop(true);
        let program = command
            .as_std()
            .get_program()
            .to_string_lossy()
            .into_owned();
        let failed = |source| MemberError::Spawn {
            role,
            program,
            source,
        };
        let gone = || io::Error::other("the process has no id or no pipes");
        let mut child = match command.spawn() {
            Ok(child) => child,
            Err(source) => return Err(failed(source)),
        };
        let stdin = child.stdin.take();
        let (Some(pid), Some(stdout)) = (child.id(), child.stdout.take()) else {
            return Err(failed(gone()));
        };
        Ok(Self {
            role,
            pid,
            child,
            stdin,
            stdout: BufReader::new(stdout),
        })
    }

    pub(crate) fn role(&self) -> &'static str {
        self.role
    }

    pub(crate) fn pid(&self) -> u32 {
        self.pid
    }

    /// Waits until the role accepts connections and returns its address.
    pub(crate) async fn ready(&mut self) -> Result<SocketAddr, MemberError> {
        let role = self.role;
        let mut line = String::new();
        let mut first_line = (&mut self.stdout).take(OUTPUT_BYTES_MAX);
        let read = tokio::time::timeout(READY_WITHIN, first_line.read_line(&mut line)).await;
        match read {
            Err(_) => Err(MemberError::Late { role }),
            Ok(Ok(0)) => Err(MemberError::NotReady {
                role,
                status: self.ended().await,
            }),
            Ok(Err(error)) => Err(MemberError::Unclear {
                role,
                line: error.to_string(),
            }),
            Ok(Ok(_)) => line
                .strip_prefix(LISTENING)
                .and_then(|address| address.trim().parse().ok())
                .ok_or_else(|| MemberError::Unclear {
                    role,
                    line: line.trim_end().to_owned(),
                }),
        }
    }

    /// Waits until a role that ends without being stopped has ended, and returns the first MiB of
    /// its output.
    pub(crate) async fn output(&mut self) -> Result<String, MemberError> {
        let role = self.role;
        let mut text = String::new();
        let read = (&mut self.stdout)
            .take(OUTPUT_BYTES_MAX)
            .read_to_string(&mut text)
            .await;
        // Also read the output beyond the limit, because a process may never end if its output is
        // not read.
        let read = match read {
            Ok(_) => tokio::io::copy(&mut self.stdout, &mut tokio::io::sink()).await,
            Err(error) => Err(error),
        };
        if let Err(error) = read {
            return Err(MemberError::Unclear {
                role,
                line: error.to_string(),
            });
        }
        match self.child.wait().await {
            Ok(status) if status.success() => Ok(text),
            status => Err(MemberError::Died {
                role,
                status: describe(status),
            }),
        }
    }

    /// Returns an error if the role has ended although it was not stopped.
    pub(crate) fn check(&mut self) -> Result<(), MemberError> {
        match self.child.try_wait() {
            Ok(None) => Ok(()),
            Ok(Some(status)) => Err(MemberError::Died {
                role: self.role,
                status: status.to_string(),
            }),
            Err(error) => Err(MemberError::Died {
                role: self.role,
                status: error.to_string(),
            }),
        }
    }

    /// Closes the role's standard input, waits until it ends, and kills it if that takes too long.
    pub(crate) async fn stop(mut self) -> ExitReport {
        drop(self.stdin.take());
        let (status, clean) = match tokio::time::timeout(END_WITHIN, self.child.wait()).await {
            Ok(Ok(status)) => (status.to_string(), status.success()),
            Ok(Err(error)) => (error.to_string(), false),
            Err(_) => {
                let killed = self.child.kill().await;
                (
                    format!("killed after {} s: {killed:?}", END_WITHIN.as_secs()),
                    false,
                )
            }
        };
        ExitReport {
            role: self.role,
            pid: self.pid,
            status,
            clean,
        }
    }

    async fn ended(&mut self) -> String {
        match tokio::time::timeout(END_WITHIN, self.child.wait()).await {
            Ok(status) => describe(status),
            Err(_) => "it closed its output".to_owned(),
        }
    }
}

fn describe(status: io::Result<ExitStatus>) -> String {
    status.map_or_else(|error| error.to_string(), |status| status.to_string())
}
