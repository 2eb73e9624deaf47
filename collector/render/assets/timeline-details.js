// @ts-check
// The panel next to a timeline, with the details of the selected span.

import { KERNEL, NONE, PIECE, SPAN, duration, idOf, operationOf } from "./timeline-columns.js";
import { boundsOf } from "./timeline-drawing.js";

/** @typedef {import("./timeline-columns.js").Trace} Trace */
/** @typedef {import("./timeline-drawing.js").Scene} Scene */

/** Maximum number of segments, events, or rows of kernel activity in a list. */
const LISTED_MAX = 100;

/**
 * Creates an element with texts and children. Texts are never parsed as markup.
 * @param {string} name
 * @param {Record<string, string>} attributes
 * @param {...(Node | string)} children
 */
export function element(name, attributes, ...children) {
    const made = document.createElement(name);
    for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
    made.append(...children);
    return made;
}

/** Returns sentences that explain a span's flags. @param {number} flags @returns {string[]} */
export function remarks(flags) {
    const said = [];
    if (flags & SPAN.CUT_OPEN) said.push("Cut by the burst's edge: it, or its request, began before recording did.");
    if (flags & SPAN.CUT_CLOSE) said.push("Cut by the burst's edge: recording ended before it did.");
    if (flags & SPAN.UNFINISHED) said.push("Its end was never seen; it is drawn up to where it was last known to be open.");
    if (flags & SPAN.FAILED) said.push("It failed.");
    if (flags & SPAN.PANICKED) said.push("Its thread was panicking when it ended.");
    if (flags & SPAN.ORPHAN) said.push("The span that caused it was not recorded, or it is in a cycle of parents.");
    return said;
}

/** Describes the clock of a span's host. @param {Trace} trace @param {number} span */
export function clockRemark(trace, span) {
    const host = trace.head.hosts[trace.host[span]];
    if (!host) return "";
    if (!host.tied) return `The clock of ${host.name} cannot be related to the others: the order of events across them is unknown.`;
    if (!host.moved_ns) return host.error_ns > 0 ? `Its clock may be off by ± ${duration(host.error_ns)}.` : "";
    const [least, most] = host.moved_ns;
    const by = least === most ? signed(least) : `${signed(least)} to ${signed(most)}`;
    return `Clock of ${host.name} corrected by ${by} ± ${duration(host.error_ns)}.`;
}

/** @param {number} ns */
const signed = (ns) => `${ns < 0 ? "−" : "+"}${duration(Math.abs(ns))}`;

/** Describes the selected row in one sentence, for the live region. @param {Scene} scene @param {number} span */
export function sentence(scene, span) {
    const { trace } = scene;
    const { start, end } = boundsOf(scene, span);
    const own = pieceSums(trace, span);
    const parts = [
        `${operationOf(trace, span)}, ${duration(end - start)}, from ${duration(start)}`,
    ];
    if (own.critical > 0) parts.push(`${duration(own.critical)} on the critical path`);
    else if (trace.head.has_path) parts.push("not on the critical path");
    if (own.critical === 0 && own.slack !== null) parts.push(`slack ${duration(own.slack)}`);
    const below = trace.last[span] - span - 1;
    if (below > 0) parts.push(`${below} spans below`);
    return `${[...parts, ...remarks(trace.flags[span])].join(", ")}`;
}

/** @param {Trace} trace @param {number} span */
function pieceSums(trace, span) {
    const { first, start, end, wait, slack, flags } = trace.pieces;
    let [own, critical, waited] = [0, 0, 0];
    /** @type {number | null} */
    let least = null;
    for (let at = first[span]; at < first[span + 1]; at += 1) {
        const took = end[at] - start[at];
        own += took;
        if (flags[at] & PIECE.CRITICAL) {
            critical += took;
            waited += wait[at];
        } else {
            // Unknown without a critical path.
            if (!Number.isNaN(slack[at])) least = Math.min(least ?? Infinity, slack[at]);
        }
    }
    return { own, critical, waited, slack: least };
}

/** Returns the heading, sums and lists that need no further request. @param {Scene} scene @param {number} span */
export function known(scene, span) {
    const { trace } = scene;
    const { start, end } = boundsOf(scene, span);
    const sums = pieceSums(trace, span);
    const facts = [
        ["takes", duration(end - start)],
        ["from", duration(start)],
        ["active itself", duration(sums.own)],
    ];
    if (sums.critical > 0) facts.push(["on the critical path", duration(sums.critical)]);
    if (sums.waited > 0) facts.push(["after waiting", duration(sums.waited)]);
    if (sums.slack !== null) facts.push(["least slack", duration(sums.slack)]);
    const host = trace.head.hosts[trace.host[span]];
    if (host) facts.push(["host", host.name]);
    const notes = [...remarks(trace.flags[span]), clockRemark(trace, span)].filter((said) => said !== "");
    const parts = [
        element("h3", {}, operationOf(trace, span)),
        list(facts),
        ...notes.map((said) => element("p", { class: "tl-remark" }, said)),
        segments(trace, span),
        kernel(trace, span),
    ];
    return parts.filter((part) => part !== null);
}

/** @param {string[][]} facts */
function list(facts) {
    const terms = facts.flatMap(([term, value]) => [element("dt", {}, term), element("dd", {}, value)]);
    return element("dl", {}, ...terms);
}

/** @param {string} title @param {HTMLElement[]} items @param {number} more */
function titled(title, items, more) {
    if (more > 0) items.push(element("li", { class: "tl-more" }, `and ${more} more`));
    return element("section", {}, element("h4", {}, title), element("ul", {}, ...items));
}

/** @param {Trace} trace @param {number} span */
function segments(trace, span) {
    const { first, start, end, slack, flags, from, to } = trace.pieces;
    const count = first[span + 1] - first[span];
    if (count === 0) return null;
    const items = [];
    for (let at = first[span]; at < Math.min(first[span + 1], first[span] + LISTED_MAX); at += 1) {
        const isCritical = (flags[at] & PIECE.CRITICAL) !== 0;
        const name = `${trace.head.boundaries[from[at]]} … ${trace.head.boundaries[to[at]]}`;
        const rest = isCritical ? ", critical" : Number.isNaN(slack[at]) ? "" : `, slack ${duration(slack[at])}`;
        const text = `${name}: ${duration(end[at] - start[at])}${rest}`;
        items.push(element("li", isCritical ? { class: "tl-critical" } : {}, text));
    }
    return titled("Its own segments", items, Math.max(0, count - LISTED_MAX));
}

/** Returns the time range and root operation that all links of a page carry. */
function carried() {
    const said = new URLSearchParams(location.search);
    const read = (/** @type {string} */ name, other = name) => {
        const value = said.get(name) || said.get(other);
        return value ? `&${name}=${encodeURIComponent(value)}` : "";
    };
    return read("since", "from") + read("until", "to") + read("root");
}

/** @param {Trace} trace @param {number} span */
function kernel(trace, span) {
    const { first, start, end, kind, thread, text, holder, lock } = trace.kernel;
    const count = first[span + 1] - first[span];
    if (count === 0) return null;
    // Selects the longest rows, and sorts them by time.
    const rows = Array.from({ length: count }, (_, at) => first[span] + at);
    const took = (/** @type {number} */ at) => (Number.isNaN(end[at]) ? Infinity : end[at] - start[at]);
    rows.sort((a, b) => took(b) - took(a) || start[a] - start[b]);
    rows.length = Math.min(rows.length, LISTED_MAX);
    rows.sort((a, b) => start[a] - start[b]);
    const items = rows.map((at) => {
        const said = Number.isNaN(end[at]) ? "not ended in the window" : duration(end[at] - start[at]);
        const by = trace.head.threads[thread[at]]?.name ?? "";
        const item = element("li", {}, `at ${duration(start[at])}, ${trace.head.texts[text[at]]}: ${said} (${by})`);
        if (holder[at] !== NONE) {
            const low = trace.head.holders[holder[at]];
            const isHeld = kind[at] === KERNEL.LOCK && trace.head.texts[text[at]].includes("held");
            // A holder held the lock when the wait began; a waker acted when the wait ended.
            const moment = isHeld || Number.isNaN(end[at]) ? start[at] : end[at];
            const near = BigInt(trace.head.origin_ns) + BigInt(Math.round(moment));
            const what = isHeld ? "the request that held it" : "the request that woke it";
            item.append(" ", element("a", { href: `/traces/${low}?at=${near}${carried()}` }, what));
        }
        if (lock[at] !== NONE) {
            const name = encodeURIComponent(trace.head.locks[lock[at]]);
            item.append(" ", element("a", { href: `/timeline?lock=${name}${carried()}` }, "all requests waiting there"));
        }
        return item;
    });
    return titled("Kernel activity", items, Math.max(0, count - LISTED_MAX));
}

/**
 * @typedef {object} SpanJson
 * @property {[string, string][]} attributes
 * @property {[string, string][]} event_attributes
 * @property {{ name: string, at_ns: number }[]} events
 */

/** Returns the attributes and events from the server's answer. @param {Trace} trace @param {number} span @param {SpanJson} said */
export function asked(trace, span, said) {
    const parts = [];
    if (said.attributes.length > 0) parts.push(element("h4", {}, "Attributes"), list(said.attributes));
    if (said.events.length > 0) {
        const items = said.events
            .slice(0, LISTED_MAX)
            .map((event) => element("li", {}, `${duration(event.at_ns)} ${event.name}`));
        parts.push(titled("Events", items, Math.max(0, said.events.length - LISTED_MAX)));
    }
    if (said.event_attributes.length > 0) {
        parts.push(element("h4", {}, "Attributes of its events"), list(said.event_attributes));
    }
    parts.push(element("p", { class: "tl-id" }, `span ${idOf(trace, span)}`));
    return parts;
}
