//! The collector and rotel as processes, and the system's measurements of them.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use parquet::file::reader::{FileReader as _, SerializedFileReader};
use stroboscope_store::tables::{Store, StoreTable};
use tempfile::TempDir;

use crate::Failure;
use crate::load::Target;

pub(crate) struct CollectorProcess {
    child: Child,
    directory: TempDir,
    pub(crate) target: Target,
    pages: String,
}

/// The agent rotel, which drops the OTLP that it receives.
pub(crate) struct Rotel {
    child: Child,
    pub(crate) target: Target,
}

impl Rotel {
    pub(crate) fn start(program: &Path) -> Result<Self, Failure> {
        // rotel cannot report the free port that it chose.
        let free = || -> Result<String, Failure> {
            let listener = TcpListener::bind("127.0.0.1:0")?;
            Ok(listener.local_addr()?.to_string())
        };
        let target = Target {
            from: Ipv4Addr::LOCALHOST.into(),
            grpc: free()?,
            otlp: free()?,
        };
        let child = Command::new(program)
            .args(["start", "--exporter", "blackhole"])
            .args(["--otlp-grpc-endpoint", &target.grpc])
            .args(["--otlp-http-endpoint", &target.otlp])
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()?;
        let rotel = Self { child, target };
        for _ in 0..100 {
            if TcpStream::connect(&rotel.target.otlp).is_ok() {
                return Ok(rotel);
            }
            std::thread::sleep(Duration::from_millis(100));
        }
        Err("rotel listens on no port".into())
    }

    pub(crate) fn peak_mib(&self) -> Result<f64, Failure> {
        memory_mib(self.child.id(), "VmHWM:")
    }

    pub(crate) fn stop(&mut self) -> Result<(), Failure> {
        let id = self.child.id().to_string();
        Command::new("kill").args(["-TERM", &id]).status()?;
        self.child.wait()?;
        Ok(())
    }
}

impl Drop for Rotel {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Returns a value in MiB from the process's `/proc/PID/status`.
fn memory_mib(process: u32, mark: &str) -> Result<f64, Failure> {
    let status = std::fs::read_to_string(format!("/proc/{process}/status"))?;
    let line = status.lines().find_map(|line| line.strip_prefix(mark));
    let kib: f64 = line
        .and_then(|line| line.split_whitespace().next())
        .ok_or_else(|| format!("no {mark}"))?
        .parse()?;
    Ok(kib / 1024.0)
}

/// Content of the store after a run.
pub(crate) struct Stored {
    pub(crate) spans: u64,
    pub(crate) bytes: u64,
}

impl CollectorProcess {
    pub(crate) fn start(memory_limit: &str) -> Result<Self, Failure> {
        Self::start_with(memory_limit, |_| Ok(()))
    }

    /// Starts a collector over a directory that `fill` prepares.
    pub(crate) fn start_with(
        memory_limit: &str,
        fill: impl FnOnce(&Path) -> Result<(), Failure>,
    ) -> Result<Self, Failure> {
        let directory = tempfile::tempdir()?;
        fill(directory.path())?;
        let mut child = Command::new(env!("CARGO_BIN_EXE_stroboscope"))
            .args([
                "collect",
                "--listen",
                "127.0.0.1:0",
                "--otlp-http",
                "127.0.0.1:0",
            ])
            .args([
                "--http",
                "127.0.0.1:0",
                "--memory-limit",
                memory_limit,
                "--data",
            ])
            .arg(directory.path())
            .stdout(Stdio::piped())
            .spawn()?;
        let mut lines = BufReader::new(child.stdout.take().ok_or("no output")?).lines();
        let mut after = |mark: &str| -> Result<String, Failure> {
            let line = lines.next().ok_or("the collector ended")??;
            let rest = line.strip_prefix(mark).ok_or_else(|| format!("{line:?}"))?;
            Ok(rest
                .trim_end_matches('/')
                .trim_end_matches("/v1/traces")
                .to_owned())
        };
        let (grpc, otlp, pages) = (
            after("collecting on grpc ")?,
            after("collecting OTLP on http://")?,
            after("page on http://")?,
        );
        std::thread::spawn(move || lines.for_each(drop));
        Ok(Self {
            child,
            directory,
            target: Target {
                from: Ipv4Addr::LOCALHOST.into(),
                grpc,
                otlp,
            },
            pages,
        })
    }

    /// Address of the pages.
    pub(crate) fn pages(&self) -> &str {
        &self.pages
    }

    /// Returns the collector's peak memory so far.
    pub(crate) fn peak_mib(&self) -> Result<f64, Failure> {
        memory_mib(self.child.id(), "VmHWM:")
    }

    /// Returns the collector's user and system time so far, in seconds.
    pub(crate) fn cpu_s(&self) -> Result<f64, Failure> {
        cpu_of(&self.child.id().to_string()).map(|cpu| cpu.own_s)
    }

    /// Returns the collector's resident memory.
    pub(crate) fn resident_mib(&self) -> Result<f64, Failure> {
        memory_mib(self.child.id(), "VmRSS:")
    }

    pub(crate) fn metric(&self, name: &str) -> Result<f64, Failure> {
        let mut stream = TcpStream::connect(&self.pages)?;
        stream
            .write_all(b"GET /metrics HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")?;
        let mut text = String::new();
        stream.read_to_string(&mut text)?;
        let prefix = format!("stroboscope_{name} ");
        let value = text.lines().find_map(|line| line.strip_prefix(&prefix));
        Ok(value.ok_or_else(|| format!("no {name}"))?.parse()?)
    }

    /// Stops the collector by SIGTERM, and counts the spans and bytes in its store.
    pub(crate) fn stop(&mut self) -> Result<Stored, Failure> {
        let id = self.child.id().to_string();
        Command::new("kill").args(["-TERM", &id]).status()?;
        self.child.wait()?;
        let runtime = tokio::runtime::Runtime::new()?;
        let store = Store::local(self.directory.path(), runtime.handle().clone())?;
        let mut stored = Stored { spans: 0, bytes: 0 };
        for table in [StoreTable::Spans, StoreTable::Events, StoreTable::Batches] {
            // The list omits files that compaction merged into others.
            for (path, bytes) in store.list(table)? {
                stored.bytes += bytes;
                if table == StoreTable::Spans {
                    let file = std::fs::File::open(self.directory.path().join(path.as_ref()))?;
                    let file = SerializedFileReader::new(file)?;
                    stored.spans += u64::try_from(file.metadata().file_metadata().num_rows())?;
                }
            }
        }
        Ok(stored)
    }
}

impl Drop for CollectorProcess {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// User and system time, in seconds.
pub(crate) struct Cpu {
    pub(crate) own_s: f64,
    /// Time of child processes that have ended.
    pub(crate) children_s: f64,
}

pub(crate) fn cpu() -> Result<Cpu, Failure> {
    cpu_of("self")
}

fn cpu_of(process: &str) -> Result<Cpu, Failure> {
    let stat = std::fs::read_to_string(format!("/proc/{process}/stat"))?;
    // Fields 14 to 17, in ticks of 10 ms. They follow the name, which may contain any character.
    let rest = stat.rsplit_once(')').ok_or("no name")?.1;
    let fields = rest.split_whitespace().skip(11).take(4);
    let ticks: Vec<f64> = fields.map(str::parse).collect::<Result<_, _>>()?;
    let [user, system, of_children, system_of_children] = ticks[..] else {
        return Err("too few fields".into());
    };
    Ok(Cpu {
        own_s: (user + system) / 100.0,
        children_s: (of_children + system_of_children) / 100.0,
    })
}

/// Returns the name of this machine's processor.
pub(crate) fn processor() -> String {
    let info = std::fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let count = info
        .lines()
        .filter(|line| line.starts_with("processor"))
        .count();
    let name = info
        .lines()
        .find_map(|line| line.strip_prefix("model name"))
        .map_or("an unknown processor", |rest| {
            rest.trim_start_matches(['\t', ' ', ':'])
        });
    format!("{count} × {name}")
}
