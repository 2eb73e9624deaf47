// @ts-check
// Which rows a timeline has: a span each, and under it the threads that the kernel saw work for it.

import { NONE, operationOf } from "./timeline-columns.js";

/** @typedef {import("./timeline-columns.js").Trace} Trace */

/** A row of a span itself, and of none of its threads. */
export const SPAN_ROW = -1;

/**
 * What of a request is shown.
 * @typedef {object} Shown
 * @property {Set<number>} closed spans whose inside is hidden
 * @property {boolean} fold only what is on the critical path, and what is around it
 * @property {boolean} kernel
 */

/** @typedef {{ span: Uint32Array, thread: Int32Array, placeOf: Int32Array }} Rows */

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
        if (shown.kernel) {
            for (const thread of threadsOf(trace, span)) {
                spans.push(span);
                threads.push(thread);
            }
        }
        span = shown.closed.has(span) ? trace.last[span] : span + 1;
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
 * What a row is, in words.
 * @param {Trace} trace
 * @param {number} span
 * @param {number} thread
 */
export function rowName(trace, span, thread) {
    if (thread === SPAN_ROW) return operationOf(trace, span);
    return trace.head.threads[thread]?.name ?? "thread";
}
