// @ts-check
// Which rows a timeline has: a span each, and what the kernel saw of threads: a row for each of them after all spans, or
// under each span a row for each that worked for it.

import { NONE, operationOf } from "./timeline-columns.js";

/** @typedef {import("./timeline-columns.js").Trace} Trace */

/** A row of a span itself, and of none of its threads. */
export const SPAN_ROW = -1;

/**
 * What of a request is shown.
 * @typedef {object} Shown
 * @property {Set<number>} closed spans whose inside is hidden
 * @property {boolean} fold only what is on the critical path, and what is around it
 * @property {import("./timeline-state.js").KernelRows} kernel
 */

/** Rows of no span, but of a thread for all spans, have the span `NONE`.
 * @typedef {{ span: Uint32Array, thread: Int32Array, placeOf: Int32Array }} Rows */

/**
 * Spans with a critical piece, or around one.
 * @param {Trace} trace
 */
export function spansOfPath(trace) {
    const isOfPath = new Uint8Array(trace.spans);
    for (const piece of trace.pieces.path) {
        let span = trace.pieces.span[piece];
        while (span !== NONE && !isOfPath[span]) {
            isOfPath[span] = 1;
            span = trace.parent[span];
        }
    }
    return isOfPath;
}

/**
 * @param {Trace} trace
 * @param {number} span
 */
export function threadsOf(trace, span) {
    const { first, thread } = trace.kernel;
    if (first[span] === first[span + 1]) return [];
    const threads = new Set(/** @type {number[]} */ ([]));
    for (let at = first[span]; at < first[span + 1]; at += 1) threads.add(thread[at]);
    return [...threads];
}

/**
 * @param {Trace} trace
 * @param {Shown} shown
 * @param {Uint8Array} isOfPath
 * @returns {Rows}
 */
export function layOut(trace, shown, isOfPath) {
    /** @type {number[]} */
    const spans = [];
    /** @type {number[]} */
    const threads = [];
    const placeOf = new Int32Array(trace.spans).fill(-1);
    for (let span = 0; span < trace.spans; ) {
        if (shown.fold && !isOfPath[span]) {
            span = trace.last[span];
            continue;
        }
        placeOf[span] = spans.length;
        spans.push(span);
        threads.push(SPAN_ROW);
        if (shown.kernel === "spans") {
            for (const thread of threadsOf(trace, span)) {
                spans.push(span);
                threads.push(thread);
            }
        }
        span = shown.closed.has(span) ? trace.last[span] : span + 1;
    }
    if (shown.kernel === "threads") {
        for (const thread of trace.kernel.lanes.keys()) {
            spans.push(NONE);
            threads.push(thread);
        }
    }
    return { span: Uint32Array.from(spans), thread: Int32Array.from(threads), placeOf };
}

/**
 * Opens everything around a span, so that it has a row.
 * @param {Trace} trace
 * @param {Shown} shown
 * @param {number} span
 */
export function reveal(trace, shown, span) {
    for (let above = trace.parent[span]; above !== NONE; above = trace.parent[above]) shown.closed.delete(above);
}

/**
 * Which operations a text is in, whatever the case of its letters.
 * @param {Trace} trace
 * @param {string} text
 */
export function found(trace, text) {
    const wanted = text.trim().toLowerCase();
    if (wanted === "") return [];
    const { services, operations } = trace.head;
    const isFound = operations.map(([service, name]) =>
        `${services[service] ?? ""}:${name}`.toLowerCase().includes(wanted),
    );
    const spans = [];
    for (let span = 0; span < trace.spans; span += 1) if (isFound[trace.operation[span]]) spans.push(span);
    return spans;
}

/**
 * The rows of the kernel that a row of a thread shows, in order of time where they are of all spans.
 * @param {Trace} trace
 * @param {number} span
 * @param {number} thread
 * @returns {Iterable<number>}
 */
export function kernelRows(trace, span, thread) {
    return span === NONE ? (trace.kernel.lanes.get(thread) ?? []) : rowsOf(trace, span, thread);
}

/** @param {Trace} trace @param {number} span @param {number} thread */
function* rowsOf({ kernel }, span, thread) {
    for (let at = kernel.first[span]; at < kernel.first[span + 1]; at += 1) {
        if (kernel.thread[at] === thread) yield at;
    }
}

/**
 * For which span a thread did what it did at an instant; `NONE` for none.
 * @param {Trace} trace
 * @param {number} thread
 * @param {number} instant
 */
export function spanAt(trace, thread, instant) {
    const { start, end, span } = trace.kernel;
    let found = NONE;
    for (const at of kernelRows(trace, NONE, thread)) {
        if (start[at] > instant) break;
        if (!(end[at] < instant)) found = span[at];
    }
    return found;
}

/**
 * What a row is, in words.
 * @param {Trace} trace
 * @param {number} span
 * @param {number} thread
 */
export function rowName(trace, span, thread) {
    if (thread === SPAN_ROW) return operationOf(trace, span);
    const name = trace.head.threads[thread]?.name ?? "thread";
    return span === NONE ? `kernel: ${name}` : name;
}
