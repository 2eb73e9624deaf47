// @ts-check
// What of a timeline is in the address: the part after `#`, so that a view can be sent to somebody.

/**
 * Where stands what the kernel did: a row for each thread after all spans, rows under each span, or nowhere.
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

/** @param {string} fragment @returns {State} */
export function read(fragment) {
    const said = new URLSearchParams(fragment.replace(/^#/, ""));
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
