//! The collector as a process, and what the system says of it.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::TcpStream;
use std::path::Path;
use std::process::{Child, Command, Stdio};

use parquet::file::reader::{FileReader as _, SerializedFileReader};
use tempfile::TempDir;

use crate::Failure;

pub(crate) struct CollectorProcess {
    child: Child,
    folder: TempDir,
    pub(crate) grpc: String,
    pub(crate) otlp: String,
    pages: String,
}

/// What became of a run.
pub(crate) struct Stored {
    pub(crate) spans: u64,
    pub(crate) bytes: u64,
}

impl CollectorProcess {
    pub(crate) fn start(memory_limit: &str) -> Result<Self, Failure> {
        let folder = tempfile::tempdir()?;
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
            .arg(folder.path())
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
            folder,
            grpc,
            otlp,
            pages,
        })
    }

    /// The greatest memory it had so far.
    pub(crate) fn peak_mib(&self) -> Result<f64, Failure> {
        let status = std::fs::read_to_string(format!("/proc/{}/status", self.child.id()))?;
        let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
        let kib: f64 = line
            .and_then(|line| line.split_whitespace().next())
            .ok_or("no VmHWM")?
            .parse()?;
        Ok(kib / 1024.0)
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

    /// Ends it in order, and counts what is in the store.
    pub(crate) fn stop(&mut self) -> Result<Stored, Failure> {
        let id = self.child.id().to_string();
        Command::new("kill").args(["-TERM", &id]).status()?;
        self.child.wait()?;
        let mut stored = Stored { spans: 0, bytes: 0 };
        count(self.folder.path(), &mut stored)?;
        Ok(stored)
    }
}

impl Drop for CollectorProcess {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn count(folder: &Path, stored: &mut Stored) -> Result<(), Failure> {
    for entry in std::fs::read_dir(folder)? {
        let path = entry?.path();
        if path.is_dir() {
            count(&path, stored)?;
        } else if path
            .extension()
            .is_some_and(|extension| extension == "parquet")
        {
            stored.bytes += std::fs::metadata(&path)?.len();
            if path.components().any(|part| part.as_os_str() == "spans") {
                let file = SerializedFileReader::new(std::fs::File::open(&path)?)?;
                stored.spans += u64::try_from(file.metadata().file_metadata().num_rows())?;
            }
        }
    }
    Ok(())
}

/// User and system time, in seconds.
pub(crate) struct Cpu {
    pub(crate) own_s: f64,
    /// Of those that have ended.
    pub(crate) children_s: f64,
}

pub(crate) fn cpu() -> Result<Cpu, Failure> {
    let stat = std::fs::read_to_string("/proc/self/stat")?;
    // Behind the name, which may hold anything: fields 14 to 17, in ticks of 10 ms.
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

/// What this machine's processor is called.
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
