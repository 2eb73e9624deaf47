// @ts-check
// Stores the state of a timeline in the address, after `#`, so that users can share a view.

import { NONE, idOf } from "./timeline-columns.js";

/** @typedef {import("./timeline-columns.js").Trace} Trace */

/**
 * Place of the kernel's rows: for each thread after all spans, below each span, or none.
 * @typedef {"threads" | "spans" | "none"} KernelRows
 */

/** @type {Record<KernelRows, KernelRows>} */
export const NEXT_KERNEL = { threads: "spans", spans: "none", none: "threads" };

/**
 * @typedef {object} State
 * @property {[number, number] | null} range offsets in ns
 * @property {string} span
 * @property {boolean} fold
 * @property {boolean} raw
 * @property {KernelRows} kernel
 * @property {boolean} details
 * @property {string} find
 */

/** Returns the innermost span at an instant, of several the one that began last; NONE if there is none.
 * @param {Trace} trace @param {number} at offset in ns */
function innermost(trace, at) {
    let found = NONE;
    for (let span = 0; span < trace.spans; span += 1) {
        if (trace.start[span] > at || trace.end[span] < at) continue;
        const isInner = found === NONE || trace.depth[span] > trace.depth[found];
        if (isInner || (trace.depth[span] === trace.depth[found] && trace.start[span] >= trace.start[found])) found = span;
    }
    return found;
}

/** Selects the span that ran at the instant `at` (ns since the Unix epoch) of a link, with the kernel's rows below it.
 * @param {URLSearchParams} said @param {Trace} trace */
function intoInstant(said, trace) {
    const at = said.get("at") ?? "";
    if (!/^\d{1,19}$/.test(at) || said.has("span")) return;
    const span = innermost(trace, Number(BigInt(at) - BigInt(trace.head.origin_ns)));
    if (span === NONE) return;
    said.set("span", idOf(trace, span));
    said.set("details", "");
    if (!said.has("kernel")) said.set("kernel", "spans");
}

/** @param {string} fragment @param {Trace} [trace] @returns {State} */
export function read(fragment, trace) {
    const said = new URLSearchParams(fragment.replace(/^#/, ""));
    if (trace) intoInstant(said, trace);
    const range = (said.get("t") ?? "").split("-").map(Number);
    const kernel = said.get("kernel");
    const isRange = range.length === 2 && range.every(Number.isFinite) && range[0] < range[1];
    return {
        range: isRange ? [range[0], range[1]] : null,
        span: said.get("span") ?? "",
        fold: said.has("fold"),
        raw: said.has("raw"),
        kernel: kernel === "0" ? "none" : kernel === "spans" ? "spans" : "threads",
        details: said.has("details"),
        find: said.get("find") ?? "",
    };
}

/** @param {State} state @returns {string} */
export function written(state) {
    const said = new URLSearchParams();
    if (state.range) said.set("t", state.range.map((ns) => String(Math.round(Math.max(0, ns)))).join("-"));
    if (state.span) said.set("span", state.span);
    if (state.fold) said.set("fold", "");
    if (state.raw) said.set("raw", "");
    if (state.kernel !== "threads") said.set("kernel", state.kernel === "none" ? "0" : state.kernel);
    if (state.details) said.set("details", "");
    if (state.find) said.set("find", state.find);
    const text = said.toString().replace(/=(&|$)/g, "$1");
    return text === "" ? "" : `#${text}`;
}
