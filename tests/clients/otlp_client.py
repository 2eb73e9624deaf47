"""Sends a few requests by OpenTelemetry's own SDK and exporter, and prints what it sent as JSON lines.

Usage: otlp_client.py grpc|http ENDPOINT REQUESTS [PAUSE_MS]
"""

import json
import sys
import time

from opentelemetry import trace
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor
from opentelemetry.sdk.trace.export import SpanExporter, SpanExportResult
from opentelemetry.trace import Link, SpanKind, Status, StatusCode


def exporter_of(protocol, endpoint):
    if protocol == "grpc":
        import grpc
        from opentelemetry.exporter.otlp.proto.grpc.trace_exporter import OTLPSpanExporter

        return OTLPSpanExporter(endpoint=endpoint, insecure=True, compression=grpc.Compression.Gzip)
    from opentelemetry.exporter.otlp.proto.http import Compression
    from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter

    return OTLPSpanExporter(endpoint=endpoint, compression=Compression.Gzip)


class Noted(SpanExporter):
    """An exporter that prints what was acknowledged, and only that."""

    def __init__(self, inner):
        self.inner = inner

    def export(self, spans):
        result = self.inner.export(spans)
        if result == SpanExportResult.SUCCESS:
            for span in spans:
                print(json.dumps(told(span)), flush=True)
        return result

    def shutdown(self):
        self.inner.shutdown()


def told(span):
    return {
        "trace_id": f"{span.context.trace_id:032x}",
        "span_id": span.context.span_id,
        "parent_id": span.parent.span_id if span.parent else 0,
        "name": span.name,
        "kind": span.kind.name,
        "start_ns": span.start_time,
        "end_ns": span.end_time,
        "status": span.status.status_code.name,
        "description": span.status.description,
        "attributes": {key: list(v) if isinstance(v, tuple) else v for key, v in span.attributes.items()},
        "events": [
            {"name": event.name, "time_ns": event.timestamp, "attributes": dict(event.attributes)}
            for event in span.events
        ],
        "links": [
            {"trace_id": f"{link.context.trace_id:032x}", "span_id": f"{link.context.span_id:016x}"}
            for link in span.links
        ],
    }


def main():
    protocol, endpoint, requests = sys.argv[1], sys.argv[2], int(sys.argv[3])
    pause_s = int(sys.argv[4]) / 1000 if len(sys.argv) > 4 else 0
    resource = Resource.create({"service.name": "shop", "host.name": "web1", "deployment.zone": "a"})
    provider = TracerProvider(resource=resource)
    provider.add_span_processor(BatchSpanProcessor(Noted(exporter_of(protocol, endpoint)), schedule_delay_millis=50))
    tracer = provider.get_tracer("shop.tracing", "1.2", attributes={"scope.says": "so"})
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
            with tracer.start_as_current_span(
                "publish", kind=SpanKind.PRODUCER, links=[Link(client.get_span_context())]
            ) as producer:
                producer.set_status(Status(StatusCode.ERROR, "queue is full"))
        time.sleep(pause_s)
    provider.shutdown()


main()
