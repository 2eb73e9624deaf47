// @ts-check
// Determines the rows of a timeline: one for each span, and rows for kernel activity. The latter are either below all spans,
// one for each thread, or below each span, one for each thread that worked for it.

import { NONE, operationOf } from "./timeline-columns.js";

/** @typedef {import("./timeline-columns.js").Trace} Trace */

/** Thread number of rows that belong to a span itself, not to a thread. */
export const SPAN_ROW = -1;

/**
 * Selection of the visible rows.
 * @typedef {object} Shown
 * @property {Set<number>} closed spans whose descendants are hidden
 * @property {boolean} fold true to show only spans on the critical path, and their ancestors
 * @property {import("./timeline-state.js").KernelRows} kernel
 */

/** Rows. A thread's row for all spans has the span `NONE`.
 * @typedef {{ span: Uint32Array, thread: Int32Array, placeOf: Int32Array }} Rows */

/**
 * Marks the spans with a critical segment, and their ancestors.
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
 * Opens the ancestors of a span, so that it has a row.
 * @param {Trace} trace
 * @param {Shown} shown
 * @param {number} span
 */
export function reveal(trace, shown, span) {
    for (let above = trace.parent[span]; above !== NONE; above = trace.parent[above]) shown.closed.delete(above);
}

/**
 * Returns the spans whose operations contain a text, ignoring case.
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
 * Returns the kernel's rows that a thread's row shows; for all spans, they are in order of time.
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
 * Returns the span for which a thread worked at an instant; `NONE` if there is none.
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
 * Returns the name of a row.
 * @param {Trace} trace
 * @param {number} span
 * @param {number} thread
 */
export function rowName(trace, span, thread) {
    if (thread === SPAN_ROW) return operationOf(trace, span);
    const name = trace.head.threads[thread]?.name ?? "thread";
    return span === NONE ? `kernel: ${name}` : name;
}
