// Which rows a request's timeline has, by the modules alone: spans come first, and what the kernel did after them.
// `node rows.mjs DIRECTORY`: the modules, in a directory whose package.json says that they are such.

import assert from "node:assert/strict";
import { pathToFileURL } from "node:url";

const module = (name) => import(pathToFileURL(`${process.argv[2]}/${name}.js`).href);
const { NONE, duration, lanesOf, tickTexts } = await module("timeline-columns");
const { SPAN_ROW, kernelRows, layOut, rowName, spanAt } = await module("timeline-rows");
const { NEXT_KERNEL, read, written } = await module("timeline-state");

// A page, a read in it, and a write; threads 0 and 1 work for them, and for the write nothing was recorded.
const start = Float64Array.from([10, 60, 20, 30]);
const thread = Uint8Array.from([1, 1, 0, 1]);
const kernel = {
    first: Uint32Array.from([0, 2, 4, 4]),
    start,
    end: Float64Array.from([20, 70, 25, NaN]),
    span: Uint32Array.from([0, 0, 1, 1]),
    thread,
    lanes: lanesOf(thread, start),
};
const trace = {
    spans: 3,
    parent: Uint32Array.from([NONE, 0, 0]),
    last: Uint32Array.from([3, 2, 3]),
    kernel,
    head: { threads: [{ name: "worker 7" }, { name: "worker 8" }] },
};
const rows = (shown) => {
    const laid = layOut(trace, { closed: new Set(), fold: false, ...shown }, Uint8Array.from([1, 1, 0]));
    return [...laid.span].map((span, place) => [span, laid.thread[place]]);
};
const spans = [[0, SPAN_ROW], [1, SPAN_ROW], [2, SPAN_ROW]];
const threads = [[NONE, 1], [NONE, 0]];

// As it is first seen: all spans, and then one row for each thread, in the order in which they began.
assert.deepEqual(rows({ kernel: read("").kernel }), [...spans, ...threads]);
assert.deepEqual(rows({ kernel: "none" }), spans);
const under = [[0, SPAN_ROW], [0, 1], [1, SPAN_ROW], [1, 0], [1, 1], [2, SPAN_ROW]];
assert.deepEqual(rows({ kernel: "spans" }), under);
// What hides spans hides no thread.
assert.deepEqual(rows({ kernel: "threads", closed: new Set([0]) }), [spans[0], ...threads]);
assert.deepEqual(rows({ kernel: "threads", fold: true }), [spans[0], spans[1], ...threads]);

// A thread's row has all of it in order of time, and leads to the span that it worked for.
assert.deepEqual([...kernelRows(trace, NONE, 1)], [0, 3, 1]);
assert.deepEqual([...kernelRows(trace, 1, 1)], [3]);
assert.equal(rowName(trace, NONE, 1), "kernel: worker 8");
assert.deepEqual([5, 15, 26, 40, 65].map((at) => spanAt(trace, 1, at)), [NONE, 0, NONE, 1, 0]);

// What is chosen is in the address; addresses from before mean what they meant.
for (const kernel of Object.keys(NEXT_KERNEL)) {
    assert.equal(read(written({ ...read(""), kernel })).kernel, kernel);
}
assert.equal(written(read("")), "");
assert.equal(read("#kernel=0").kernel, "none");
assert.deepEqual(["threads", "spans", "none"].map((at) => NEXT_KERNEL[at]), ["spans", "none", "threads"]);

// An instant that others lead to is what ran then, innermost, with the kernel's rows; what else is said comes first.
const timed = {
    spans: 3,
    start: Float64Array.from([0, 10, 40]),
    end: Float64Array.from([100, 30, 60]),
    depth: Uint16Array.from([0, 1, 1]),
    id: BigUint64Array.from([0xan, 0xbn, 0xcn]),
    head: { origin_ns: "1795537558434944983" },
};
const at = (offset) => read(`#at=${1795537558434944983n + BigInt(offset)}`, timed);
assert.deepEqual([5, 20, 50, 99].map((offset) => Number(`0x${at(offset).span}`)), [10, 11, 12, 10]);
assert.deepEqual([at(20).kernel, at(20).details], ["spans", true]);
assert.deepEqual(at(500), read(""));
assert.deepEqual(read("#at=soon", timed), read(""));
assert.equal(read("#span=c&at=1795537558434944993", timed).span, "c");

// Durations round to the next unit.
assert.deepEqual([999.6, 999_600, 999_600_000].map(duration), ["1.00\u00a0µs", "1.00\u00a0ms", "1.00\u00a0s"]);

// Ticks of an axis read differently, however far it is zoomed in.
assert.deepEqual(tickTexts([0, 5e6, 1e7], 5e6), ["0\u00a0ns", "5\u00a0ms", "10\u00a0ms"]);
assert.deepEqual(tickTexts([164_302_000, 164_304_000, 164_306_000], 2_000), ["164.302\u00a0ms", "+2\u00a0µs", "+4\u00a0µs"]);
