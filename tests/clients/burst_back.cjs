// Back service with the burst sampler: answers over HTTP, and exports its spans until its standard input ends.
//
// Usage: burst_back.cjs ENDPOINT SAMPLER. Prints its port. SAMPLER is the path of the package.
'use strict'
const http = require('node:http')
const { context, propagation, ROOT_CONTEXT, SpanKind } = require('@opentelemetry/api')
const { W3CTraceContextPropagator } = require('@opentelemetry/core')
const { OTLPTraceExporter } = require('@opentelemetry/exporter-trace-otlp-http')
const { resourceFromAttributes } = require('@opentelemetry/resources')
const { BasicTracerProvider, BatchSpanProcessor } = require('@opentelemetry/sdk-trace-base')

const [endpoint, path] = process.argv.slice(2)
const { BurstSampler } = require(path)
propagation.setGlobalPropagator(new W3CTraceContextPropagator())
const provider = new BasicTracerProvider({
  sampler: new BurstSampler(),
  resource: resourceFromAttributes({ 'service.name': 'back' }),
  spanProcessors: [new BatchSpanProcessor(new OTLPTraceExporter({ url: endpoint }))]
})
const tracer = provider.getTracer('back')
const server = http.createServer((request, response) => {
  const parent = propagation.extract(ROOT_CONTEXT, request.headers)
  const span = tracer.startSpan('GET /', { kind: SpanKind.SERVER }, parent)
  response.end('ok', () => span.end())
})
server.listen(0, '127.0.0.1', () => console.log(server.address().port))
process.stdin.on('end', () => provider.shutdown().finally(() => process.exit(0)))
process.stdin.resume()
