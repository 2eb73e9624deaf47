// What is looked at: OTLP in JSON, written to a file.
//
// node recorded.mjs FILE [SPANS]: 200 small requests, or two and one of so many spans. Their ids end in abc000, abc001 …, and
// in b16. Names and values of anybody are among them.
import { writeFileSync } from "node:fs";

const [file, spans] = [process.argv[2], Number(process.argv[3] ?? 0)];
const BASE_NS = 1_795_309_397_000_000_000n;
const HOSTILE = "<script>window.hacked=1</script>";
let seed = 7;
const random = (/** @type {number} */ bound) => (seed = (seed * 1_103_515_245 + 12_345) & 0x7fffffff) % bound;
const id = (/** @type {number} */ number, /** @type {number} */ digits) => number.toString(16).padStart(digits, "0");

/** @type {Map<string, object[]>} */
const byService = new Map();

/**
 * @param {string} service @param {string} trace @param {number} number @param {number} parent @param {string} name
 * @param {[number, number]} times @param {[string, string][]} attributes
 */
function span(service, trace, number, parent, name, [start, end], attributes = []) {
    const known = byService.get(service) ?? [];
    byService.set(service, known);
    known.push({
        traceId: trace,
        spanId: id(number, 16),
        ...(parent ? { parentSpanId: id(parent, 16) } : {}),
        name,
        kind: 1,
        startTimeUnixNano: String(BASE_NS + BigInt(start)),
        endTimeUnixNano: String(BASE_NS + BigInt(end)),
        attributes: attributes.map(([key, value]) => ({ key, value: { stringValue: value } })),
    });
}

/** A page that asks two services, the second of them for six rows. @param {number} request */
function small(request) {
    const trace = id(0xabc000 + request, 32);
    const [at, slow] = [request * 5_000_000, 1_000_000 + random(3_000_000)];
    const root = (request + 1) * 100;
    const row = Math.floor(slow / 7);
    span("web", trace, root, 0, "GET /home", [at, at + slow + 700_000], [["user", `u${random(9)}`], ["note", HOSTILE]]);
    span("auth", trace, root + 1, root, "check", [at + 100_000, at + 300_000 + random(200_000)]);
    span("store", trace, root + 2, root, HOSTILE, [at + 520_000, at + 520_000 + slow]);
    for (let number = 0; number < 6; number += 1) {
        const times = [at + 530_000 + number * row, at + 525_000 + (number + 1) * row];
        span("store", trace, root + 3 + number, root + 2, "read", /** @type {[number, number]} */ (times));
    }
}

/** A tree of calls, ten in each, one after the other. */
function large() {
    const trace = id(0xb16, 32);
    const [starts, ends] = [[0], [2_000_000_000]];
    span("web", trace, 1, 0, "batch", [0, ends[0]]);
    for (let at = 1; at < spans; at += 1) {
        const parent = Math.floor((at - 1) / 10);
        const width = (ends[parent] - starts[parent]) / 10.5;
        starts.push(Math.floor(starts[parent] + ((at - 1) % 10) * width + width * 0.05));
        ends.push(Math.max(starts[at] + 1, Math.floor(starts[at] + width * 0.9)));
        const service = ["web", "store", "auth"][at % 3];
        span(service, trace, at + 1, parent + 1, `step ${at % 37}`, [starts[at], ends[at]]);
    }
}

for (let request = 0; request < (spans > 0 ? 2 : 200); request += 1) small(request);
if (spans > 0) large();
const attribute = (/** @type {string} */ key, /** @type {string} */ value) => ({ key, value: { stringValue: value } });
const resourceSpans = [...byService].map(([service, spans]) => ({
    resource: { attributes: [attribute("service.name", service), attribute("host.name", `host-${service}`)] },
    scopeSpans: [{ spans }],
}));
writeFileSync(file, JSON.stringify({ resourceSpans }));
