"""Middle service with the burst sampler: answers over HTTP after a call of a back service, and exports its spans until its
standard input ends.

Usage: burst_middle.py ENDPOINT BACK. Prints its port, and at the end the number of requests and of sampled ones.
"""

import sys
import threading
import urllib.request
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from opentelemetry import propagate, trace
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor
from opentelemetry.trace import SpanKind
from stroboscope_otel import BurstSampler

endpoint, back = sys.argv[1], sys.argv[2]
provider = TracerProvider(sampler=BurstSampler(), resource=Resource.create({"service.name": "middle"}))
provider.add_span_processor(BatchSpanProcessor(OTLPSpanExporter(endpoint=endpoint)))
tracer = trace.get_tracer("middle", tracer_provider=provider)
counts = [0, 0]


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_GET(self):
        parent = propagate.extract(dict(self.headers))
        with tracer.start_as_current_span("GET /middle", context=parent, kind=SpanKind.SERVER) as span:
            counts[0] += 1
            counts[1] += span.is_recording()
            with tracer.start_as_current_span("call back", kind=SpanKind.CLIENT):
                headers = {}
                propagate.inject(headers)
                body = urllib.request.urlopen(urllib.request.Request(back, headers=headers)).read()
            self.send_response(200)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

    def log_message(self, *_):
        pass


server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
server.daemon_threads = True
threading.Thread(target=server.serve_forever, daemon=True).start()
print(server.server_address[1], flush=True)
sys.stdin.read()
server.shutdown()
provider.shutdown()
print(*counts)
