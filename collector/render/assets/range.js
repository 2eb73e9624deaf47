// @ts-check
// The strip above a page: dragging over requests over time selects the page's time range. Without scripts, users type both ends.

const SVG = "http://www.w3.org/2000/svg";

/** Formats an instant for an address. @param {number} ns */
const written = (ns) => new Date(Math.round(ns / 1e6)).toISOString();

/** @param {HTMLFormElement} form */
function steer(form) {
    // Omits empty fields from the address.
    form.addEventListener("submit", () => {
        for (const field of form.querySelectorAll("input, select")) {
            if ((field instanceof HTMLInputElement || field instanceof HTMLSelectElement) && field.value === "") field.disabled = true;
        }
    });
    form.querySelector("select")?.addEventListener("change", () => form.requestSubmit());
    const svg = form.querySelector("svg");
    const [since, until] = ["since", "until"].map((name) => form.elements.namedItem(name));
    if (!svg || !(since instanceof HTMLInputElement) || !(until instanceof HTMLInputElement)) return;
    const [from, to] = [Number(svg.dataset.x0Ns), Number(svg.dataset.x1Ns)];
    const { width, height } = svg.viewBox.baseVal;
    const frame = document.createElementNS(SVG, "rect");
    frame.setAttribute("class", "heatmap-selection");
    frame.setAttribute("height", String(height));
    const said = form.querySelector(".rate-said");
    const quiet = said?.textContent ?? "";
    let begin = NaN;
    /** @param {PointerEvent} event */
    const at = (event) => {
        const box = svg.getBoundingClientRect();
        return Math.min(Math.max((event.clientX - box.left) / Math.max(1, box.width), 0), 1);
    };
    /** @param {number} share */
    const instant = (share) => from + share * (to - from);
    const clear = () => {
        begin = NaN;
        frame.remove();
        if (said) said.textContent = quiet;
    };
    svg.addEventListener("pointerdown", (event) => {
        if (event.button !== 0) return;
        begin = at(event);
        svg.setPointerCapture(event.pointerId);
        svg.append(frame);
    });
    svg.addEventListener("pointermove", (event) => {
        if (Number.isNaN(begin)) return;
        const ends = [begin, at(event)].sort((a, b) => a - b);
        frame.setAttribute("x", String(ends[0] * width));
        frame.setAttribute("width", String((ends[1] - ends[0]) * width));
        if (said) said.textContent = ends.map((end) => written(instant(end)).slice(11, 23)).join(" to ");
    });
    svg.addEventListener("pointercancel", clear);
    svg.addEventListener("pointerup", (event) => {
        const ends = [begin, at(event)].sort((a, b) => a - b);
        // A click selects nothing.
        if (!(ends[1] - ends[0] > 0.004)) return clear();
        [since.value, until.value] = ends.map((end) => written(instant(end)));
        begin = NaN;
        form.requestSubmit();
    });
}

for (const form of document.querySelectorAll("form[data-range]")) if (form instanceof HTMLFormElement) steer(form);
// Enables fields again that were disabled when the user left the page and came back by the browser's history.
addEventListener("pageshow", (event) => {
    if (!event.persisted) return;
    for (const field of document.querySelectorAll("form[data-range] :disabled")) field.removeAttribute("disabled");
});
