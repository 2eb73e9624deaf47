// @ts-check
// A heatmap in which users select a part. Below it, links then lead to the requests in the part, and to a comparison with
// earlier requests. Without scripts, each cell is a link to a list with the same links.

/** @typedef {{ x: number, y: number, width: number, height: number, from: bigint, to: bigint, min: bigint, max: bigint, count: number }} Cell */

const SVG = "http://www.w3.org/2000/svg";

/** @param {string | null | undefined} text */
const whole = (text) => BigInt((text ?? "0").split(".")[0] || "0");

/** Formats a duration for users. @param {bigint} ns */
function duration(ns) {
    const value = Number(ns);
    if (value < 1e3) return `${value}\u00a0ns`;
    const [scaled, unit] = value < 999.5e3 ? [value / 1e3, "µs"] : value < 999.5e6 ? [value / 1e6, "ms"] : [value / 1e9, "s"];
    return `${scaled.toFixed(scaled < 10 ? 2 : scaled < 100 ? 1 : 0)}\u00a0${unit}`;
}

/** Formats an instant as subcommands parse it, rounded down to milliseconds. @param {bigint} ns */
const written = (ns) => new Date(Number(ns / 1_000_000n)).toISOString();

/** Minimum number of requests in an earlier period to compare with. */
const BEFORE_MIN = 20;

/** Formats the time of day of an instant, in UTC. @param {bigint} ns */
const clock = (ns) => new Date(Number(ns / 1_000_000n)).toISOString().slice(11, 23);

class Heatmap {
    /** @param {HTMLElement} figure @param {SVGSVGElement} svg @param {SVGElement[]} rects */
    constructor(figure, svg, rects) {
        this.figure = figure;
        this.svg = svg;
        this.rects = rects;
        this.cells = rects.map(cellOf);
        // The distance of columns and rows is the size of a cell.
        this.unit = this.cells[0];
        this.readOut = document.createElement("p");
        this.readOut.className = "heatmap-readout";
        this.readOut.setAttribute("role", "status");
        this.quiet();
        this.ways = document.createElement("p");
        this.ways.className = "ways";
        this.ways.hidden = true;
        figure.append(this.readOut, this.ways);
        this.frame = document.createElementNS(SVG, "rect");
        this.frame.setAttribute("class", "heatmap-selection");
        this.frame.setAttribute("visibility", "hidden");
        svg.append(this.frame);
        // Scrolls a heatmap that is wider than the window to the latest requests, in the next frame like `tables.js`.
        requestAnimationFrame(() => {
            for (let box = svg.parentElement; box && box !== figure.parentElement; box = box.parentElement) box.scrollLeft = box.scrollWidth;
        });
        /** @type {{ x: number, y: number } | null} */
        this.begin = null;
        this.isDragged = false;
        this.listen();
    }

    quiet() {
        this.readOut.textContent = "Drag over the cells to choose requests, to list them or to compare them with those before; with the keyboard, arrows move, Shift extends and Enter chooses.";
    }

    /** @param {PointerEvent | MouseEvent} event */
    at(event) {
        const matrix = this.svg.getScreenCTM();
        if (!matrix) return { x: 0, y: 0 };
        const point = new DOMPoint(event.clientX, event.clientY).matrixTransform(matrix.inverse());
        return { x: point.x, y: point.y };
    }

    listen() {
        const { svg } = this;
        // Otherwise the browser would drag links.
        svg.addEventListener("dragstart", (event) => event.preventDefault());
        svg.addEventListener("pointerdown", (event) => {
            if (event.button !== 0 || event.pointerType === "touch") return;
            this.begin = this.at(event);
            this.isDragged = false;
        });
        svg.addEventListener("pointermove", (event) => {
            if (!this.begin) return this.hover(event);
            const end = this.at(event);
            if (!this.isDragged && Math.hypot(end.x - this.begin.x, end.y - this.begin.y) < 4) return;
            if (!this.isDragged) svg.setPointerCapture(event.pointerId);
            this.ways.hidden = true;
            this.isDragged = true;
            this.choose(this.begin, end);
        });
        svg.addEventListener("pointerup", (event) => {
            if (this.begin && this.isDragged) this.offer(this.begin, this.at(event));
            this.begin = null;
        });
        svg.addEventListener("pointercancel", () => this.clear());
        svg.addEventListener("pointerleave", () => !this.begin && this.ways.hidden && this.quiet());
        // Ignores the click on a link that ends a drag.
        svg.addEventListener("click", (event) => this.isDragged && event.preventDefault(), true);
        svg.addEventListener("keydown", (event) => this.key(event));
        // Tab reaches one cell, and arrows reach the others from there.
        const fullest = this.cells.reduce((best, cell, at) => (cell.count > this.cells[best].count ? at : best), 0);
        for (const [at, rect] of this.rects.entries()) {
            const link = rect.closest("a");
            link?.setAttribute("tabindex", at === fullest ? "0" : "-1");
            link?.addEventListener("focus", () => this.say([this.cells[at]]));
        }
    }

    clear() {
        this.begin = null;
        this.ways.hidden = true;
        this.frame.setAttribute("visibility", "hidden");
        this.quiet();
    }

    /** @param {PointerEvent} event */
    hover(event) {
        if (!this.ways.hidden) return;
        const at = event.target instanceof SVGElement ? this.rects.indexOf(event.target) : -1;
        if (at >= 0) this.say([this.cells[at]]);
        else this.quiet();
    }

    /** @param {Cell[]} cells */
    say(cells) {
        const range = rangeOf(cells);
        const count = cells.reduce((sum, cell) => sum + cell.count, 0);
        const requests = `${count} request${count === 1 ? "" : "s"}`;
        this.readOut.textContent = range
            ? `${clock(range.from)} to ${clock(range.to)}, ${duration(range.min)} to ${duration(range.max)}: ${requests}`
            : "no requests there";
    }

    /** Returns the cells between two points. @param {{ x: number, y: number }} a @param {{ x: number, y: number }} b */
    between(a, b) {
        const [left, right] = [Math.min(a.x, b.x), Math.max(a.x, b.x)];
        const [top, bottom] = [Math.min(a.y, b.y), Math.max(a.y, b.y)];
        return this.cells.filter(
            ({ x, y, width, height }) => x < right && x + width > left && y < bottom && y + height > top,
        );
    }

    /** @param {{ x: number, y: number }} begin @param {{ x: number, y: number }} end */
    choose(begin, end) {
        const cells = this.between(begin, end);
        this.say(cells);
        const [x, y] = [Math.min(begin.x, end.x), Math.min(begin.y, end.y)];
        const sizes = { x, y, width: Math.abs(end.x - begin.x), height: Math.abs(end.y - begin.y) };
        for (const [name, value] of Object.entries(sizes)) this.frame.setAttribute(name, String(value));
        this.frame.setAttribute("visibility", "visible");
        return cells;
    }

    /** Offers links for the selected cells. @param {{ x: number, y: number }} begin @param {{ x: number, y: number }} end */
    offer(begin, end) {
        const range = rangeOf(this.choose(begin, end));
        const { select, compare, explain } = this.figure.dataset;
        if (!range || !select) return this.clear();
        const { from, to, min, max } = range;
        const period = this.before(from, to);
        /** @type {Record<string, string>} */
        const values = { from_ns: `${from}`, to_ns: `${to}`, min_ns: `${min}`, max_ns: `${max}`, after: `${written(from)}..${written(to + 999_999n)}` };
        if (period) values.before = `${written(period.from)}..${written(from)}`;
        const link = (/** @type {string} */ template, /** @type {string} */ said) => {
            const to = document.createElement("a");
            to.href = template.replace(/\{(\w+)\}/g, (whole, name) => encodeURIComponent(values[name] ?? whole));
            to.textContent = said;
            return to;
        };
        const links = [link(select, "List these requests")];
        if (period && compare && explain) links.push(link(compare, `Compare this time with ${period.said}`), link(explain, "Explain what changed"));
        this.ways.replaceChildren(...links.flatMap((one, at) => (at === 0 ? [one] : [" · ", one])));
        if (!period) this.ways.append(" · There are no earlier requests to compare with.");
        this.ways.hidden = false;
        links[0].focus({ preventScroll: true });
    }

    /** Returns the earlier period of equal length, or all earlier time if that period has few requests; null without requests.
     * @param {bigint} from @param {bigint} to */
    before(from, to) {
        const all = whole(this.figure.dataset.x0Ns);
        const since = from - (to - from) > all ? from - (to - from) : all;
        const count = (/** @type {bigint} */ since) =>
            this.cells.reduce((sum, cell) => sum + (cell.from >= since && cell.from < from ? cell.count : 0), 0);
        if (count(since) >= BEFORE_MIN) return { from: since, said: "as long before" };
        return count(all) > 0 ? { from: all, said: "all before" } : null;
    }

    /** Handles keys: arrows go to the next cell in a direction, and with Shift they select the
     * cells between. Enter offers links for selected cells, and Escape clears the selection.
     * @param {KeyboardEvent} event */
    key(event) {
        const from = this.rects.findIndex((rect) => rect.closest("a") === document.activeElement);
        if (event.key === "Escape") this.clear();
        if (from < 0) return;
        const steps = { ArrowLeft: [-1, 0], ArrowRight: [1, 0], ArrowUp: [0, -1], ArrowDown: [0, 1] };
        const step = steps[/** @type {keyof typeof steps} */ (event.key)];
        const middle = (/** @type {Cell} */ cell) => ({ x: cell.x + cell.width / 2, y: cell.y + cell.height / 2 });
        if (event.key === "Enter" && this.anchor !== undefined && this.anchor !== from) {
            event.preventDefault();
            this.offer(middle(this.cells[this.anchor]), middle(this.cells[from]));
        }
        if (!step) return;
        event.preventDefault();
        const next = this.next(from, step[0], step[1]);
        if (next < 0) return;
        this.anchor = event.shiftKey ? (this.anchor ?? from) : undefined;
        const link = this.rects[next].closest("a");
        if (link instanceof SVGElement) link.focus();
        this.ways.hidden = true;
        if (this.anchor !== undefined) this.choose(middle(this.cells[this.anchor]), middle(this.cells[next]));
        else this.frame.setAttribute("visibility", "hidden");
    }

    /** Returns the nearest cell in a direction, or -1. @param {number} from @param {number} dx @param {number} dy */
    next(from, dx, dy) {
        const own = this.cells[from];
        let [best, least] = [-1, Infinity];
        for (const [at, cell] of this.cells.entries()) {
            const [x, y] = [(cell.x - own.x) / this.unit.width, (cell.y - own.y) / this.unit.height];
            const along = x * dx + y * dy;
            const aside = Math.abs(x * dy) + Math.abs(y * dx);
            if (along > 0.5 && along + 3 * aside < least) [best, least] = [at, along + 3 * aside];
        }
        return best;
    }
}

/** @param {SVGElement} rect @returns {Cell} */
function cellOf(rect) {
    /** @param {string} name */
    const number = (name) => Number(rect.getAttribute(name) ?? "0");
    const { fromNs, toNs, minNs, maxNs, count } = rect.dataset;
    return {
        x: number("x"),
        y: number("y"),
        width: Math.max(number("width"), 1e-6),
        height: Math.max(number("height"), 1e-6),
        from: whole(fromNs),
        to: whole(toNs),
        min: whole(minNs),
        max: whole(maxNs),
        count: Number(count ?? "0"),
    };
}

/** Returns the time and latency that cells cover together; null without cells. @param {Cell[]} cells */
function rangeOf(cells) {
    if (cells.length === 0) return null;
    return cells.slice(1).reduce(
        (range, cell) => ({
            from: cell.from < range.from ? cell.from : range.from,
            to: cell.to > range.to ? cell.to : range.to,
            min: cell.min < range.min ? cell.min : range.min,
            max: cell.max > range.max ? cell.max : range.max,
        }),
        { from: cells[0].from, to: cells[0].to, min: cells[0].min, max: cells[0].max },
    );
}

/** @param {ParentNode} root */
export function enhance(root) {
    for (const figure of root.querySelectorAll("figure.heatmap[data-select]")) {
        const svg = figure.querySelector("svg");
        const rects = [...figure.querySelectorAll("rect.cell")].filter((rect) => rect instanceof SVGElement);
        if (!(figure instanceof HTMLElement) || !svg || rects.length === 0 || figure.dataset.ready) continue;
        figure.dataset.ready = "";
        new Heatmap(figure, svg, rects);
    }
}

enhance(document);
document.addEventListener("fragment", (event) => event.target instanceof Element && enhance(event.target));
