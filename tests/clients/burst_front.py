"""Front service with the burst sampler: calls a back service over HTTP, again and again, and exports its spans.

Usage: burst_front.py ENDPOINT BACK SECONDS. Prints the number of requests.
"""

import sys
import time
import urllib.request

from opentelemetry import propagate, trace
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor
from opentelemetry.trace import SpanKind
from stroboscope_otel import BurstSampler

endpoint, back, seconds = sys.argv[1], sys.argv[2], float(sys.argv[3])
provider = TracerProvider(sampler=BurstSampler(), resource=Resource.create({"service.name": "front"}))
provider.add_span_processor(BatchSpanProcessor(OTLPSpanExporter(endpoint=endpoint)))
tracer = trace.get_tracer("front", tracer_provider=provider)
requests, end = 0, time.monotonic() + seconds
while time.monotonic() < end:
    with tracer.start_as_current_span("GET /page", kind=SpanKind.SERVER):
        with tracer.start_as_current_span("call back", kind=SpanKind.CLIENT):
            headers = {}
            propagate.inject(headers)
            urllib.request.urlopen(urllib.request.Request(back, headers=headers)).read()
    requests += 1
    time.sleep(0.001)
provider.shutdown()
print(requests)
