//! A program that serves the pages of a store, asked over its socket.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::TcpStream;
use std::path::Path;
use std::process::{Child, Command, Stdio};

/// A running `view`, which ends with the test.
pub(crate) struct Viewing {
    program: Child,
    pub(crate) address: String,
}

impl Drop for Viewing {
    fn drop(&mut self) {
        let _ = self.program.kill();
        let _ = self.program.wait();
    }
}

impl Viewing {
    pub(crate) fn start(directory: &Path, arguments: &[&str]) -> Self {
        Self::of_default_data(directory, &[&["--data", "data"], arguments].concat())
    }

    /// Starts `view` over its default store, unless the arguments name one.
    pub(crate) fn of_default_data(directory: &Path, arguments: &[&str]) -> Self {
        let mut program = Command::new(env!("CARGO_BIN_EXE_stroboscope"))
            .args(["view", "--http", "127.0.0.1:0"])
            .args(arguments)
            .current_dir(directory)
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut said = String::new();
        let mut lines = BufReader::new(program.stdout.take().unwrap());
        lines.read_line(&mut said).unwrap();
        let address = said.trim().strip_prefix("pages on http://").unwrap();
        Self {
            address: address.trim_end_matches('/').to_owned(),
            program,
        }
    }

    pub(crate) fn pid(&self) -> u32 {
        self.program.id()
    }

    /// Head and body of an answer.
    pub(crate) fn ask(&self, first_line: &str, headers: &str) -> (String, String) {
        let mut stream = TcpStream::connect(&self.address).unwrap();
        let address = &self.address;
        write!(
            stream,
            "{first_line} HTTP/1.1\r\nHost: {address}\r\n{headers}Connection: close\r\n\r\n"
        )
        .unwrap();
        let mut answer = Vec::new();
        stream.read_to_end(&mut answer).unwrap();
        let answer = String::from_utf8_lossy(&answer);
        let (head, body) = answer.split_once("\r\n\r\n").unwrap();
        (head.to_owned(), body.to_owned())
    }

    /// Body of a page that answers with this status.
    #[track_caller]
    pub(crate) fn page(&self, path: &str, status: u16) -> String {
        let (head, body) = self.ask(&format!("GET {path}"), "");
        assert!(
            head.starts_with(&format!("HTTP/1.1 {status} ")),
            "{path}: {head}\n{body}"
        );
        assert!(
            head.contains("content-security-policy: default-src 'none'"),
            "{head}"
        );
        assert!(
            !body.contains("<script>") && body.contains("</html>"),
            "{path}: {body}"
        );
        body
    }

    /// Addresses that the header of a page links to.
    pub(crate) fn links(&self) -> Vec<String> {
        let overview = self.page("/", 200);
        let (_, header) = overview.split_once("<nav").unwrap();
        let (header, _) = header.split_once("</nav>").unwrap();
        let links = header.split("href=\"").skip(1);
        let links = links.filter_map(|rest| rest.split('"').next());
        links.map(str::to_owned).collect()
    }
}
