# Requests that say by markers which system calls are theirs, and write their spans; see search_kernel.rs.
import json
import os
import sys
import time


def mark(kind, trace, span, *words):
    more = list(words) + [0] * (3 - len(words))
    text = "STROBE " + " ".join("%x" % word for word in [kind, trace, span, *more])
    try:
        os.write(-1, text.encode())
    except OSError:
        pass


spans = []
for number in range(1, 25):
    trace, from_ns = 0xABC000 + number, time.time_ns()
    mark(1, trace, 1)
    for _ in range(number % 5):
        os.getppid()
    if number % 3 == 0:
        time.sleep(0.004)
    if number % 6 == 0:
        mark(5, trace, 1, 0, 7)
        time.sleep(0.001)
        mark(6, trace, 1, 0, 7)
    os.write(1, b"x" * number)
    mark(2, trace, 1)
    spans.append(
        {
            "traceId": "%032x" % trace,
            "spanId": "%016x" % 1,
            "name": "request",
            "kind": 2,
            "startTimeUnixNano": str(from_ns),
            "endTimeUnixNano": str(time.time_ns()),
        }
    )
# A call of no request.
os.getppid()
service = {"key": "service.name", "value": {"stringValue": "calls"}}
resource = {"resource": {"attributes": [service]}, "scopeSpans": [{"spans": spans}]}
with open("spans.json", "w") as file:
    json.dump({"resourceSpans": [resource]}, file)
