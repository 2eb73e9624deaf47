// @ts-check
// Builds a timeline: buttons, the strip, the canvas, the panel, and the table of the page without scripts.

import { duration } from "./timeline-columns.js";
import { element } from "./timeline-details.js";

/** @typedef {import("./timeline-columns.js").Trace} Trace */

const HELP =
    "Arrow keys choose a row and move in time, plus and minus zoom, 0 shows all, z the chosen span. n and p go to the next " +
    "and previous critical piece, f folds to the critical path, Enter shows details, Space opens and closes, slash searches.";
const WITH_KERNEL = " k shows and hides kernel activity.";
const WITH_RAW = " r shows the clocks as recorded.";
const BY_POINTER =
    " The wheel with Ctrl zooms where the pointer is, and so it does without on the axis and the strip; with Shift it moves in time, as dragging does. A click shows " +
    "details, two clicks zoom to the span.";

/** Returns help on the keys. @param {Trace} trace */
const help = (trace) => HELP + (trace.kernel.start.length > 0 ? WITH_KERNEL : "") + (trace.rawStart ? WITH_RAW : "");

/**
 * Actions of buttons.
 * @typedef {object} Actions
 * @property {(what: "fold" | "raw" | "kernel") => void} toggle
 * @property {(by: number) => void} zoom
 * @property {(by: number) => void} step
 * @property {() => void} showAll
 */

/** @param {string} text @param {string} label @param {() => void} act */
function button(text, label, act) {
    const made = element("button", { type: "button", title: label }, text);
    if (label.length > 1) made.setAttribute("aria-label", label);
    made.addEventListener("click", act);
    return made;
}

/** @param {string} name @param {Record<string, string>} attributes */
const canvas = (name, attributes = {}) =>
    /** @type {HTMLCanvasElement} */ (element("canvas", { class: name, "aria-hidden": "true", ...attributes }));

/** Adds all parts to the page. @param {HTMLElement} host @param {Trace} trace @param {Actions} actions */
export function build(host, trace, actions) {
    const parts = {
        foldButton: button("Critical path only", "f", () => actions.toggle("fold")),
        rawButton: button("Clocks as recorded", "r", () => actions.toggle("raw")),
        kernelButton: button("Kernel", "", () => actions.toggle("kernel")),
        search: /** @type {HTMLInputElement} */ (
            element("input", { type: "search", placeholder: "Find operations  /", "aria-label": "Find operations" })
        ),
        count: element("span", { class: "tl-count" }),
        stripCanvas: canvas("tl-strip"),
        canvas: canvas("tl-canvas"),
        hover: element("div", { class: "tl-hover", "aria-hidden": "true", hidden: "" }),
        live: element("p", { class: "tl-live", role: "status" }),
        details: element("aside", { class: "tl-details", "aria-label": "Details of the selected span", hidden: "" }),
        spacer: element("div", { class: "tl-spacer" }),
        view: element("div", {
            class: "tl-view",
            tabindex: "0",
            role: "application",
            "aria-roledescription": "timeline",
            "aria-label": `Timeline of ${trace.spans} spans, ${duration(trace.head.length_ns)} long. ${help(trace)}`,
        }),
    };
    // The button's text states the current mode; a separate label would hide it.
    parts.kernelButton.title = "Kernel activity: by thread, under each span, or hidden (k)";
    parts.spacer.append(parts.canvas);
    parts.view.append(parts.spacer);
    const tools = element("div", { class: "tl-tools", role: "group", "aria-label": "Timeline" }, parts.foldButton);
    if (trace.rawStart) tools.append(parts.rawButton);
    if (trace.kernel.start.length > 0) tools.append(parts.kernelButton);
    tools.append(
        element(
            "span",
            { class: "tl-group" },
            button("‹ Critical", "Previous critical piece (p)", () => actions.step(-1)),
            button("Critical ›", "Next critical piece (n)", () => actions.step(1)),
        ),
        element(
            "span",
            { class: "tl-group" },
            button("−", "Zoom out (-)", () => actions.zoom(1.6)),
            button("+", "Zoom in (+)", () => actions.zoom(1 / 1.6)),
            button("All", "Show all (0)", () => actions.showAll()),
        ),
        parts.search,
        parts.count,
    );
    const fallback = element("details", { class: "tl-fallback" }, element("summary", {}, "As a table"));
    fallback.append(...host.childNodes);
    const keys = element("p", { class: "tl-keys" }, help(trace) + BY_POINTER);
    const body = element("div", { class: "tl-body" }, parts.view, parts.details);
    host.replaceChildren(tools, legend(trace), parts.stripCanvas, body, parts.hover, parts.live, keys, fallback);
    host.classList.add("tl-ready");
    return parts;
}

/** Returns the legend; without cuts or kernel activity, it lacks their marks. @param {Trace} trace */
function legend(trace) {
    const marks = [
        ["critical", "on the critical path"],
        ["wait", "waited for, on it"],
        ["beside", "not on it"],
        ["slack", "slack"],
        ["around", "waits for spans below"],
    ];
    if (trace.flags.some((flags) => (flags & 7) !== 0)) marks.push(["torn", "cut by the burst's edge"]);
    if (trace.kernel.start.length > 0) {
        marks.push(["cpu", "on a processor"], ["runnable", "ready, without one"], ["blocked", "blocked"]);
        marks.push(["call", "system call"], ["lock", "waits for a lock or futex"]);
    }
    const items = marks.map(([name, text]) =>
        element("li", {}, element("span", { class: `tl-mark tl-mark-${name}`, "aria-hidden": "true" }), text),
    );
    return element("ul", { class: "tl-legend", "aria-label": "Legend" }, ...items);
}
