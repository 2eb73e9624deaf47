//! The web servers that are compared. Each runs in a process of its own.

use std::net::SocketAddr;
use std::process::{ExitCode, Stdio};
use std::time::Duration;

use tokio::io::{AsyncBufReadExt as _, AsyncReadExt as _, BufReader};
use tokio::process::{Child, Command};
use tonic::transport::{Channel, Endpoint};

use crate::Failure;
use crate::backends::Backends;
use crate::wire::page_client::PageClient;

/// A web server to compare: a build of the newsfeed and its way of recording.
pub(crate) struct Variant {
    pub(crate) name: &'static str,
    build: &'static str,
    /// Value of `STROBOSCOPE_BURST_CONFIG`. `None`: the process gets no collector address and does
    /// not start recording.
    burst_config: Option<&'static str>,
    /// Value of `STROBOSCOPE_PROVENANCE`: recorded requests whose bytes are tracked.
    provenance: &'static str,
}

impl Variant {
    pub(crate) fn is_recording(&self) -> bool {
        self.burst_config.is_some()
    }
}

/// The variant with the SDK compiled in but not started.
pub(crate) const LINKED: Variant = Variant {
    name: "Stroboscope, not started",
    build: "stroboscope",
    burst_config: None,
    provenance: "off",
};

/// The variants that are compared. The first two are equal: their difference is the noise.
pub(crate) const VARIANTS: [Variant; 8] = [
    Variant {
        name: "nothing installed",
        build: "untraced",
        burst_config: None,
        provenance: "off",
    },
    Variant {
        name: "nothing installed, again",
        build: "untraced",
        burst_config: None,
        provenance: "off",
    },
    Variant {
        name: "Stroboscope, closed",
        build: "stroboscope",
        burst_config: Some("off"),
        provenance: "off",
    },
    Variant {
        name: "Stroboscope, 4ms/32ms",
        build: "stroboscope",
        burst_config: Some("4ms/32ms"),
        provenance: "off",
    },
    Variant {
        name: "Stroboscope, always on",
        build: "stroboscope",
        burst_config: Some("always"),
        provenance: "off",
    },
    Variant {
        name: "Stroboscope, always on, bytes of 1 %",
        build: "stroboscope",
        burst_config: Some("always"),
        provenance: "0.01",
    },
    Variant {
        name: "Stroboscope, always on, all bytes",
        build: "stroboscope",
        burst_config: Some("always"),
        provenance: "on",
    },
    Variant {
        name: "tracing-opentelemetry, OTLP",
        build: "otel",
        burst_config: Some(""),
        provenance: "off",
    },
];

/// Rounds of simulated work per microsecond. It is fixed, so that all processes do the same work.
pub(crate) const ROUNDS_PER_US: &str = "200";

/// Runs a web server in the child process. The arguments are the build and those of the newsfeed.
/// The exit code is 2 if the build is missing or unknown.
pub(crate) fn be(arguments: &[String]) -> ExitCode {
    let Some((build, role)) = arguments.split_first() else {
        return ExitCode::from(2);
    };
    match build.as_str() {
        "untraced" => newsfeed_untraced::run_role(role),
        "stroboscope" => stroboscope_newsfeed::run_role(role),
        "otel" => newsfeed_otel::run_role(role),
        _ => ExitCode::from(2),
    }
}

/// A running web server and a connection to it.
pub(crate) struct Web {
    child: Child,
    pid: i32,
    pub(crate) client: PageClient<Channel>,
}

impl Web {
    pub(crate) async fn start(
        variant: &Variant,
        backends: &Backends,
        sink: SocketAddr,
    ) -> Result<Self, Failure> {
        let program = Command::new(std::env::current_exe()?);
        Self::start_by(program, variant, ROUNDS_PER_US, backends, sink).await
    }

    /// Starts the web server with `command`, which must run this program with the arguments that
    /// are added to it. `rounds_per_us` sets the length of the simulated work.
    pub(crate) async fn start_by(
        mut command: Command,
        variant: &Variant,
        rounds_per_us: &str,
        backends: &Backends,
        sink: SocketAddr,
    ) -> Result<Self, Failure> {
        command.args([
            "--web",
            variant.build,
            "web",
            "--stop-with-stdin",
            "--listen",
            "127.0.0.1:0",
        ]);
        command.args(["--store", &backends.url, "--ranker", &backends.url]);
        for (name, _) in std::env::vars_os() {
            let name = name.to_string_lossy();
            if name.starts_with("STROBOSCOPE_")
                || name.starts_with("OTEL_")
                || name.starts_with("NEWSFEED_")
            {
                command.env_remove(&*name);
            }
        }
        command.env("NEWSFEED_ROUNDS_PER_US", rounds_per_us);
        if let Some(burst_config) = variant.burst_config {
            command.env("STROBOSCOPE_COLLECTOR", format!("http://{sink}"));
            command.env("STROBOSCOPE_SERVICE", variant.name);
            command.env("STROBOSCOPE_BURST_CONFIG", burst_config);
            command.env("STROBOSCOPE_PROVENANCE", variant.provenance);
            // Spans must be exported within their slice. The default delay of 5 s is longer than
            // a slice.
            command.env("OTEL_BSP_SCHEDULE_DELAY", "200");
        }
        let mut child = command
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .kill_on_drop(true)
            .spawn()?;
        let address = listening(&mut child).await?;
        let pid = child
            .id()
            .ok_or("the web server ended at once")?
            .cast_signed();
        let channel = Endpoint::try_from(format!("http://{address}"))?
            .tcp_nodelay(true)
            .connect()
            .await?;
        let client = PageClient::new(channel);
        Ok(Self { child, pid, client })
    }

    /// Returns the CPU time that the process has used since its start, over all threads.
    pub(crate) fn cpu(&self) -> Result<Duration, Failure> {
        cpu_of(self.pid)
    }

    /// Stops the process and returns its output on standard error, which is empty if standard error
    /// is not piped.
    pub(crate) async fn stop_and_read(mut self) -> Result<String, Failure> {
        let mut said = String::new();
        let stderr = self.child.stderr.take();
        self.stop().await?;
        if let Some(mut stderr) = stderr {
            stderr.read_to_string(&mut said).await?;
        }
        Ok(said)
    }

    pub(crate) async fn stop(mut self) -> Result<(), Failure> {
        drop(self.child.stdin.take());
        let status = tokio::time::timeout(Duration::from_secs(20), self.child.wait()).await??;
        if status.success() {
            Ok(())
        } else {
            Err(format!("a web server ended with {status}").into())
        }
    }
}

/// Waits for the address that a child prints when it is ready. Fails if the child prints something
/// else or ends.
pub(crate) async fn listening(child: &mut Child) -> Result<SocketAddr, Failure> {
    let stdout = child
        .stdout
        .as_mut()
        .ok_or("a child without standard output")?;
    let mut line = String::new();
    BufReader::new(stdout).read_line(&mut line).await?;
    let address = line
        .trim()
        .strip_prefix("listening ")
        .ok_or("a child did not become ready; see above")?;
    Ok(address.parse()?)
}

/// Returns the CPU time of a process. It reads the process's CPU clock, which has a resolution of
/// nanoseconds, unlike `/proc/PID/stat`.
#[allow(unsafe_code)]
fn cpu_of(pid: i32) -> Result<Duration, Failure> {
    let mut clock = 0;
    let mut time = libc::timespec {
        tv_sec: 0,
        tv_nsec: 0,
    };
    // SAFETY: the call writes only to the variable whose address it gets.
    let error = match unsafe { libc::clock_getcpuclockid(pid, &raw mut clock) } {
        // SAFETY: as above.
        0 if unsafe { libc::clock_gettime(clock, &raw mut time) } == 0 => None,
        0 => Some(std::io::Error::last_os_error()),
        // It does not set `errno`.
        error => Some(std::io::Error::from_raw_os_error(error)),
    };
    if let Some(error) = error {
        return Err(format!("process {pid} has no CPU clock: {error}").into());
    }
    Ok(Duration::new(
        time.tv_sec.cast_unsigned(),
        time.tv_nsec as u32,
    ))
}
