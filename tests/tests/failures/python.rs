//! A service in Python, by OpenTelemetry's SDK: a status of HTTP, one of gRPC, and an exception.

use std::path::Path;
use std::process::{Command, Stdio};

use stroboscope_tests::Server;

use crate::load;
use crate::metrics::Counted;
use crate::readers::Collector;

/// Returns the Python that has OpenTelemetry's packages. If there is none, prints this and returns
/// `None`.
fn python() -> Option<String> {
    let python = std::env::var("STROBOSCOPE_TEST_PYTHON").unwrap_or_else(|_| "python3".into());
    let mut import = Command::new(&python);
    import.args(["-c", "import opentelemetry.exporter.otlp.proto.http"]);
    let imported = import.stderr(Stdio::null()).status();
    let has_them = imported.is_ok_and(|status| status.success());
    if !has_them {
        eprintln!(
            "SKIPPED: a_python_service_fails_in_three_ways: pip install opentelemetry-sdk opentelemetry-exporter-otlp-proto-http, and \
             name its python by STROBOSCOPE_TEST_PYTHON"
        );
    }
    has_them.then_some(python)
}

#[test]
fn a_python_service_fails_in_three_ways() {
    let Some(python) = python() else { return };
    let collector = Collector::start();
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("clients/failing_service.py");
    let mut command = Command::new(python);
    command.arg(script).arg(&collector.otlp);
    let mut service = Server::start(command);
    let seen = load::run(&mut service);
    service.stop(libc::SIGTERM);
    let starts = [
        (Some(503), "front:GET /order", "HTTP 503", ""),
        (
            Some(502),
            "front:bank.Bank/Pay",
            "gRPC UNAVAILABLE",
            "no bank answers",
        ),
        (
            Some(500),
            "front:GET /order",
            "__main__.OutOfStock",
            "nothing is left",
        ),
    ];
    let [all, failed] = [seen.requests, seen.all_failed()];
    let counted = Counted {
        spans: &[
            (
                "front",
                "CLIENT",
                "bank.Bank/Pay",
                all,
                seen.failed[&Some(502)],
            ),
            ("front", "SERVER", "GET /order", all, failed),
        ],
        calls: &[],
    };
    collector.check(&seen, &starts, &counted);
}
