// Pages in a real browser send OTLP to collectors of another origin: one that allows it, and one that does not.
//
// node cors.mjs '{"page": "http://…", "allowing": "http://…", "others": "http://…", "chromium": "…"}'
import assert from "node:assert/strict";
import { createRequire } from "node:module";
import { join } from "node:path";

const asked = JSON.parse(process.argv[2]);
const require = createRequire(join(process.env.STROBOSCOPE_TEST_NODE_MODULES, "package.json"));
const { chromium } = require("playwright-core");

const browser = await chromium.launch({ executablePath: asked.chromium, args: ["--no-sandbox", "--disable-dev-shm-usage"] });
const page = await browser.newPage();
page.setDefaultTimeout(120_000);
await page.goto(asked.page);

/** Sends a request by a script of the page; returns the status and body, or the error. */
const send = (url, headers) =>
    page.evaluate(
        async ([url, headers]) => {
            try {
                const answer = await fetch(url, { method: "POST", headers, body: "{}" });
                return [answer.status, await answer.text()];
            } catch (error) {
                return [0, String(error)];
            }
        },
        [url, headers],
    );

const json = { "content-type": "application/json" };
assert.deepEqual(await send(`${asked.allowing}/v1/traces`, { ...json, authorization: "Bearer x", traceparent: "00-1-2-3" }), [200, "{}"]);
const [status, reason] = await send(`${asked.allowing}/v1/logs`, { "content-type": "text/plain" });
assert.equal(status, 415);
assert.match(reason, /content type/);
// A header that no exporter sends.
assert.equal((await send(`${asked.allowing}/v1/traces`, { ...json, "x-other": "1" }))[0], 0);
assert.deepEqual(await send(`${asked.others}/v1/traces`, json), [0, "TypeError: Failed to fetch"]);
const span = { traceId: "07".repeat(16), spanId: "0100000000000000", name: "click", startTimeUnixNano: "1700000000000000000", endTimeUnixNano: "1700000000000000001" };
const request = JSON.stringify({ resourceSpans: [{ scopeSpans: [{ spans: [span] }] }] });
for (const url of [asked.allowing, asked.others]) {
    const beacon = ([url, request]) => navigator.sendBeacon(url, new Blob([request], { type: "application/json" }));
    assert.ok(await page.evaluate(beacon, [`${url}/v1/traces`, request]));
}
// The browser sends beacons later.
await page.waitForTimeout(2_000);
await browser.close();
