"""Sends a few requests by OpenTelemetry's own SDK and exporters, and prints what was acknowledged as JSON lines.

Usage: otlp_client.py grpc|http ENDPOINT REQUESTS [PAUSE_MS]

ENDPOINT is that of traces; over HTTP, logs go beside it.
"""

import json
import sys
import threading
import time

from opentelemetry import trace
from opentelemetry._logs import LogRecord, SeverityNumber
from opentelemetry.sdk._logs import LoggerProvider
from opentelemetry.sdk._logs.export import BatchLogRecordProcessor, LogRecordExporter, LogRecordExportResult
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor
from opentelemetry.sdk.trace.export import SpanExporter, SpanExportResult
from opentelemetry.trace import Link, SpanKind, Status, StatusCode


def exporters_of(protocol, endpoint):
    if protocol == "grpc":
        import grpc
        from opentelemetry.exporter.otlp.proto.grpc._log_exporter import OTLPLogExporter
        from opentelemetry.exporter.otlp.proto.grpc.trace_exporter import OTLPSpanExporter

        options = {"endpoint": endpoint, "insecure": True, "compression": grpc.Compression.Gzip}
        return OTLPSpanExporter(**options), OTLPLogExporter(**options)
    from opentelemetry.exporter.otlp.proto.http import Compression
    from opentelemetry.exporter.otlp.proto.http._log_exporter import OTLPLogExporter
    from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter

    logs = endpoint.replace("/v1/traces", "/v1/logs")
    return (
        OTLPSpanExporter(endpoint=endpoint, compression=Compression.Gzip),
        OTLPLogExporter(endpoint=logs, compression=Compression.Gzip),
    )


SAYING = threading.Lock()


def say(told):
    # Spans and logs are exported by threads of their own: a line at a time.
    with SAYING:
        sys.stdout.write(json.dumps(told) + "\n")
        sys.stdout.flush()


class Noted(SpanExporter):
    """An exporter that prints what was acknowledged, and only that."""

    def __init__(self, inner):
        self.inner = inner

    def export(self, spans):
        result = self.inner.export(spans)
        if result == SpanExportResult.SUCCESS:
            for span in spans:
                say(told(span))
        return result

    def shutdown(self):
        self.inner.shutdown()


class NotedLogs(LogRecordExporter):
    """The same for log records."""

    def __init__(self, inner):
        self.inner = inner

    def export(self, batch):
        result = self.inner.export(batch)
        if result == LogRecordExportResult.SUCCESS:
            for each in batch:
                say(told_log(each.log_record))
        return result

    def force_flush(self, timeout_millis=30_000):
        return self.inner.force_flush(timeout_millis)

    def shutdown(self):
        self.inner.shutdown()


def plain(attributes):
    return {key: list(v) if isinstance(v, tuple) else v for key, v in (attributes or {}).items()}


def told(span):
    return {
        "signal": "span",
        "trace_id": f"{span.context.trace_id:032x}",
        "span_id": span.context.span_id,
        "parent_id": span.parent.span_id if span.parent else 0,
        "name": span.name,
        "kind": span.kind.name,
        "start_ns": span.start_time,
        "end_ns": span.end_time,
        "status": span.status.status_code.name,
        "description": span.status.description,
        "attributes": plain(span.attributes),
        "events": [
            {"name": event.name, "time_ns": event.timestamp, "attributes": dict(event.attributes)}
            for event in span.events
        ],
        "links": [
            {"trace_id": f"{link.context.trace_id:032x}", "span_id": f"{link.context.span_id:016x}"}
            for link in span.links
        ],
    }


def told_log(record):
    return {
        "signal": "log",
        "trace_id": f"{record.trace_id or 0:032x}",
        "span_id": record.span_id or 0,
        "time_ns": record.timestamp,
        "observed_ns": record.observed_timestamp,
        "severity_text": record.severity_text,
        "severity_number": record.severity_number.value,
        "body": record.body,
        "event_name": record.event_name or "",
        "attributes": plain(record.attributes),
    }


def log(logger, body, event_name=None, **attributes):
    record = LogRecord(
        timestamp=time.time_ns(),
        severity_text="INFO",
        severity_number=SeverityNumber.INFO,
        body=body,
        attributes=attributes,
        event_name=event_name,
    )
    logger.emit(record)


def main():
    protocol, endpoint, requests = sys.argv[1], sys.argv[2], int(sys.argv[3])
    pause_s = int(sys.argv[4]) / 1000 if len(sys.argv) > 4 else 0
    resource = Resource.create({"service.name": "shop", "host.name": "web1", "deployment.zone": "a"})
    to_spans, to_logs = exporters_of(protocol, endpoint)
    provider = TracerProvider(resource=resource)
    provider.add_span_processor(BatchSpanProcessor(Noted(to_spans), schedule_delay_millis=50))
    tracer = provider.get_tracer("shop.tracing", "1.2", attributes={"scope.says": "so"})
    logs = LoggerProvider(resource=resource)
    logs.add_log_record_processor(BatchLogRecordProcessor(NotedLogs(to_logs), schedule_delay_millis=50))
    logger = logs.get_logger("shop.log", "2.1")
    log(logger, "started, for nobody in particular")
    for number in range(requests):
        with tracer.start_as_current_span("GET /cart", kind=SpanKind.SERVER) as server:
            server.set_attribute("http.route", "/cart")
            server.set_attribute("n", number)
            server.set_attribute("share", 0.5)
            server.set_attribute("cached", False)
            server.set_attribute("items", ["a", "b"])
            with tracer.start_as_current_span("SELECT", kind=SpanKind.CLIENT) as client:
                client.add_event("row", {"rows": 2})
                client.set_status(Status(StatusCode.OK))
            log(logger, f"user {number} has a cart", **{"thread.name": "worker", "n": number})
            log(logger, {"amount": 3}, event_name="cart.paid")
            with tracer.start_as_current_span(
                "publish", kind=SpanKind.PRODUCER, links=[Link(client.get_span_context())]
            ) as producer:
                producer.set_status(Status(StatusCode.ERROR, "queue is full"))
        time.sleep(pause_s)
    provider.shutdown()
    logs.shutdown()


main()
