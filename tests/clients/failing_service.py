"""Serves HTTP, traced by OpenTelemetry's own SDK; some requests fail, as their query says.

Usage: failing_service.py ENDPOINT

Prints its address, and ends with SIGTERM.
"""

import signal
import sys
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from opentelemetry import trace
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor
from opentelemetry.trace import SpanKind, Status, StatusCode

TRACER = trace.get_tracer("shop")


class OutOfStock(Exception):
    pass


def ask_bank(way):
    with TRACER.start_as_current_span("bank.Bank/Pay", kind=SpanKind.CLIENT) as call:
        call.set_attribute("rpc.system", "grpc")
        fails = way == "grpc"
        call.set_attribute("rpc.grpc.status_code", 14 if fails else 0)
        if fails:
            call.set_status(Status(StatusCode.ERROR, "no bank answers"))
        return not fails


def order(way):
    """The status of the answer."""
    # As instrumentations do, it records an exception that leaves it, and sets the status.
    with TRACER.start_as_current_span("GET /order", kind=SpanKind.SERVER) as span:
        span.set_attribute("http.request.method", "GET")
        status = 503 if way == "status" else 200
        if not ask_bank(way):
            status = 502
        if way == "panic":
            span.set_attribute("http.response.status_code", 500)
            raise OutOfStock("nothing is left")
        span.set_attribute("http.response.status_code", status)
        if status >= 500:
            span.set_status(Status(StatusCode.ERROR))
        return status


class Handler(BaseHTTPRequestHandler):
    def do_GET(self):
        _, _, way = self.path.partition("?way=")
        try:
            status = order(way)
        except OutOfStock:
            status = 500
        self.send_response(status)
        self.send_header("Content-Length", "0")
        self.end_headers()

    def log_message(self, *_):
        pass


def main():
    # Before there are threads, which inherit it.
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM})
    provider = TracerProvider(resource=Resource.create({"service.name": "front"}))
    exporter = OTLPSpanExporter(endpoint=sys.argv[1])
    provider.add_span_processor(BatchSpanProcessor(exporter, schedule_delay_millis=500))
    trace.set_tracer_provider(provider)
    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    print(f"serving on http://127.0.0.1:{server.server_port}", flush=True)
    signal.sigwait({signal.SIGTERM})
    server.shutdown()
    provider.shutdown()


main()
