// Sends a few requests by OpenTelemetry's SDK for JavaScript, over HTTP as JSON, and prints what was acknowledged as JSON
// lines. Its packages are found by NODE_PATH.
//
// Usage: otlp_client.cjs ENDPOINT REQUESTS
//
// ENDPOINT is that of traces; logs go beside it.

const { ROOT_CONTEXT, SpanKind, SpanStatusCode, trace } = require("@opentelemetry/api");
const { SeverityNumber } = require("@opentelemetry/api-logs");
const { OTLPLogExporter } = require("@opentelemetry/exporter-logs-otlp-http");
const { OTLPTraceExporter } = require("@opentelemetry/exporter-trace-otlp-http");
const { resourceFromAttributes } = require("@opentelemetry/resources");
const { BatchLogRecordProcessor, LoggerProvider } = require("@opentelemetry/sdk-logs");
const { BasicTracerProvider, BatchSpanProcessor } = require("@opentelemetry/sdk-trace-base");

const ns = ([seconds, nanos]) => BigInt(seconds) * 1_000_000_000n + BigInt(nanos);
const id = (hex) => (hex ? BigInt("0x" + hex) : 0n);

// Numbers of 64 bits are no numbers of JavaScript: they are written as digits.
const print = (value) =>
    console.log(JSON.stringify(value, (_, v) => (typeof v === "bigint" ? `#${v}#` : v)).replace(/"#(\d+)#"/g, "$1"));

const toldSpan = (span) => ({
    signal: "span",
    trace_id: span.spanContext().traceId,
    span_id: id(span.spanContext().spanId),
    parent_id: id(span.parentSpanContext?.spanId),
    name: span.name,
    kind: SpanKind[span.kind],
    start_ns: ns(span.startTime),
    end_ns: ns(span.endTime),
    status: SpanStatusCode[span.status.code],
    description: span.status.message ?? null,
    attributes: span.attributes,
    events: span.events.map((event) => ({ name: event.name, time_ns: ns(event.time), attributes: event.attributes ?? {} })),
    links: span.links.map(({ context }) => ({ trace_id: context.traceId, span_id: context.spanId })),
});

const toldLog = (record) => ({
    signal: "log",
    trace_id: record.spanContext?.traceId ?? "0".repeat(32),
    span_id: id(record.spanContext?.spanId),
    time_ns: ns(record.hrTime),
    observed_ns: ns(record.hrTimeObserved),
    severity_text: record.severityText,
    severity_number: record.severityNumber,
    body: record.body,
    event_name: record.eventName ?? "",
    attributes: record.attributes,
});

// An exporter that prints what was acknowledged, and only that.
const noted = (inner, told) => ({
    export: (items, done) =>
        inner.export(items, (result) => {
            if (result.code === 0) items.forEach((item) => print(told(item)));
            else console.error(result.error);
            done(result);
        }),
    shutdown: () => inner.shutdown(),
    forceFlush: () => inner.forceFlush?.() ?? Promise.resolve(),
});

async function main() {
    const [endpoint, requests] = [process.argv[2], Number(process.argv[3])];
    const resource = resourceFromAttributes({
        "service.name": "shop",
        "host.name": "web1",
        "deployment.zone": "a",
        "telemetry.sdk.language": "nodejs",
    });
    const spans = new BatchSpanProcessor(noted(new OTLPTraceExporter({ url: endpoint, compression: "gzip" }), toldSpan));
    const provider = new BasicTracerProvider({ resource, spanProcessors: [spans] });
    const tracer = provider.getTracer("shop.tracing", "1.2");
    const url = endpoint.replace("/v1/traces", "/v1/logs");
    const exporter = noted(new OTLPLogExporter({ url }), toldLog);
    const processor = new BatchLogRecordProcessor({ exporter });
    const logs = new LoggerProvider({ resource, processors: [processor] });
    const logger = logs.getLogger("shop.log", "2.1");
    const line = { severityText: "INFO", severityNumber: SeverityNumber.INFO };
    logger.emit({ ...line, body: "started, for nobody in particular", context: ROOT_CONTEXT });
    for (let number = 0; number < requests; number++) {
        const attributes = { "http.route": "/cart", n: number, share: 0.5, cached: false, items: ["a", "b"] };
        const server = tracer.startSpan("GET /cart", { kind: SpanKind.SERVER, attributes }, ROOT_CONTEXT);
        const within = trace.setSpan(ROOT_CONTEXT, server);
        const client = tracer.startSpan("SELECT", { kind: SpanKind.CLIENT }, within);
        client.addEvent("row", { rows: 2 });
        client.setStatus({ code: SpanStatusCode.OK });
        client.end();
        const of_line = { "thread.name": "worker", n: number };
        logger.emit({ ...line, body: `user ${number} has a cart`, attributes: of_line, context: within });
        logger.emit({ ...line, body: { amount: 3 }, eventName: "cart.paid", context: within });
        const links = [{ context: client.spanContext() }];
        const producer = tracer.startSpan("publish", { kind: SpanKind.PRODUCER, links }, within);
        producer.setStatus({ code: SpanStatusCode.ERROR, message: "queue is full" });
        producer.end();
        server.end();
    }
    await provider.shutdown();
    await logs.shutdown();
}

main();
