//! A collector, requests to it, and its tables as others read them.

use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::path::{Path, PathBuf};

use parquet::file::reader::{FileReader as _, SerializedFileReader};
use parquet::record::Field;
use serde_json::{Value, json};
use stroboscope_tests::{Program, Server};

/// A row as an object, by its columns' names. Ids of traces and processes are in hexadecimal.
pub(crate) type Row = Value;

/// Starts a collector on free ports. Returns it with its addresses for gRPC, OTLP over HTTP, and
/// pages.
pub(crate) fn collect(program: &Program) -> (Server, String, String, String) {
    collect_with(program, &[])
}

/// Starts a collector with further options.
pub(crate) fn collect_with(
    program: &Program,
    options: &[&str],
) -> (Server, String, String, String) {
    let mut command = program.command(&["collect", "--listen", "127.0.0.1:0"]);
    command.args(["--otlp-http", "127.0.0.1:0", "--http", "127.0.0.1:0"]);
    command.args(options);
    let mut server = Server::start(command);
    let grpc = server.collector_address();
    let http = server.after("collecting OTLP on ");
    let pages = server.after("page on http://");
    (server, grpc, http, pages)
}

/// Returns the rows of a table in the store's files.
pub(crate) fn rows(data: &Path, table: &str) -> Vec<Row> {
    fn files(directory: &Path, found: &mut Vec<PathBuf>) {
        for entry in std::fs::read_dir(directory).into_iter().flatten().flatten() {
            let path = entry.path();
            if path.is_dir() {
                files(&path, found);
            } else if path
                .extension()
                .is_some_and(|extension| extension == "parquet")
            {
                found.push(path);
            }
        }
    }
    let mut found = Vec::new();
    files(&data.join(table), &mut found);
    let read = |path: PathBuf| {
        let file = std::fs::File::open(path).expect("a file");
        let reader = SerializedFileReader::new(file).expect("Parquet");
        let row = |row: parquet::record::Row| {
            let fields = row.into_columns().into_iter();
            let fields = fields.map(|(name, field)| {
                let value = value(&name, field);
                (name, value)
            });
            Value::Object(fields.collect())
        };
        let rows = reader.get_row_iter(None).expect("rows");
        rows.map(|read| row(read.expect("a row")))
            .collect::<Vec<Row>>()
    };
    found.into_iter().flat_map(read).collect()
}

fn value(column: &str, field: Field) -> Value {
    let hex = |bytes: &[u8]| bytes.iter().map(|byte| format!("{byte:02x}")).collect();
    match field {
        Field::Null => Value::Null,
        Field::Str(text) => text.into(),
        Field::Bytes(bytes) if matches!(column, "trace_id" | "process") => {
            Value::String(hex(bytes.data()))
        }
        Field::Bytes(bytes) => bytes.as_utf8().expect("a text").into(),
        Field::Bool(is_so) => is_so.into(),
        Field::Double(number) => number.into(),
        Field::Long(number) => number.into(),
        Field::ULong(number) => number.into(),
        Field::Int(number) => number.into(),
        Field::UInt(number) => number.into(),
        other => format!("{other:?}").into(),
    }
}

/// Returns the rows of a table by SQL; `None` in a binary without SQL.
pub(crate) fn rows_in_sql(program: &Program, table: &str) -> Option<Vec<Row>> {
    if !cfg!(feature = "sql") {
        eprintln!("SKIPPED: {table} in SQL (--features sql)");
        return None;
    }
    let query = format!("SELECT * FROM {table}");
    let told = program.run(&["sql", "--json", &query]).succeeds().stdout;
    let row = |line| serde_json::from_str(line).expect("JSON");
    Some(told.lines().map(row).collect())
}

pub(crate) fn text(field: &Value) -> String {
    match field {
        Value::String(text) => text.clone(),
        other => panic!("{other} is no text"),
    }
}

pub(crate) fn number(value: &Value) -> i128 {
    let signed = value.as_i64().map(i128::from);
    let found = signed.or_else(|| value.as_u64().map(i128::from));
    found.unwrap_or_else(|| panic!("{value} is no integer"))
}

/// Returns all attributes of a row, from its columns and its JSON.
pub(crate) fn attributes(row: &Row) -> Value {
    let mut found = match &row["attributes"] {
        Value::Null => json!({}),
        field => serde_json::from_str(&text(field)).expect("JSON"),
    };
    for (name, value) in row.as_object().expect("a row") {
        if let (Some((_, key)), false) = (name.split_once(':'), value.is_null()) {
            found[key] = value.clone();
        }
    }
    found
}

/// Sends one request over HTTP/1.1. Returns the status line with the headers, and the body.
pub(crate) fn ask(
    address: &str,
    method: &str,
    path: &str,
    headers: &[&str],
    body: &[u8],
) -> (String, String) {
    let mut stream = TcpStream::connect(address).expect("it listens");
    let headers: String = headers
        .iter()
        .map(|header| format!("{header}\r\n"))
        .collect();
    let head = format!(
        "{method} {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\nContent-Length: {}\r\n{headers}\r\n",
        body.len()
    );
    stream.write_all(head.as_bytes()).expect("asked");
    // The server may answer before it has read all.
    let _ = stream.write_all(body);
    let mut answer = Vec::new();
    let _ = stream.read_to_end(&mut answer);
    let answer = String::from_utf8_lossy(&answer);
    let (head, body) = answer.split_once("\r\n\r\n").unwrap_or((&answer, ""));
    (head.to_owned(), body.to_owned())
}
