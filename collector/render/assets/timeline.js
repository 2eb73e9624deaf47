// @ts-check
// The timeline of one request: `<div class="timeline" data-source="/traces/ID/columns">`. The element's content is shown without
// scripts, and otherwise stays below as a table.

import { NONE, decode, duration, idOf } from "./timeline-columns.js";
import { asked, element, known, sentence } from "./timeline-details.js";
import { AXIS, boundsOf, draw, strip } from "./timeline-drawing.js";
import { build } from "./timeline-frame.js";
import { listenToPointers } from "./timeline-pointing.js";
import { SPAN_ROW, found, layOut, reveal, spansOfPath } from "./timeline-rows.js";
import { NEXT_KERNEL, read, written } from "./timeline-state.js";

/** @typedef {import("./timeline-columns.js").Trace} Trace */
/** @typedef {import("./timeline-drawing.js").Theme} Theme */

/** Width in px below which names are above their bars. */
const NARROW = 640;
const STRIP = 44;
/** @type {Record<import("./timeline-state.js").KernelRows, string>} */
const KERNEL_TEXTS = { threads: "Kernel by thread", spans: "Kernel under spans", none: "Kernel hidden" };
/** Minimum length of the visible part, in ns, unless the request is shorter. */
const SHORTEST = 20;

/** State and actions of a timeline. Keys, clicks and drags call its methods. */
export class Timeline {
    /** @type {Set<number>} */
    closed = new Set();
    /** @type {[number, number]} */
    range = [0, 1];
    hovered = -1;
    top = 0;
    frame = 0;
    piece = -1;
    stripOf = "";
    /** @type {HTMLCanvasElement | undefined} */
    stripImage;
    /** @type {Set<number> | undefined} */
    hitSet;
    /** @type {number | undefined} */
    noting;
    /** The view that the address states; undefined while the timeline follows the address.
     * @type {string | undefined} */
    place;

    /** @param {HTMLElement} host @param {Trace} trace @param {string} source address of the columns */
    constructor(host, trace, source) {
        this.host = host;
        this.trace = trace;
        this.source = source;
        this.isOfPath = spansOfPath(trace);
        this.state = read(location.hash, this.trace);
        this.hits = found(trace, this.state.find);
        this.range = this.state.range ?? [0, this.length()];
        this.selected = this.spanOf(this.state.span);
        this.hasKernel = trace.kernel.start.length > 0;
        this.parts = build(host, trace, this);
        this.parts.search.value = this.state.find;
        this.rows = this.newRows();
        this.listen();
        this.layOut();
        if (this.selected !== NONE) this.select(this.selected, this.state.details);
        new ResizeObserver(() => this.draw()).observe(this.parts.view);
        matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => this.draw());
        new MutationObserver(() => this.draw()).observe(document.documentElement, { attributes: true });
    }

    length() {
        return Math.max(this.trace.head.length_ns, 1);
    }

    /** @param {string} id */
    spanOf(id) {
        if (!/^[0-9a-f]{1,16}$/i.test(id)) return NONE;
        const at = this.trace.id.indexOf(BigInt(`0x${id}`));
        return at < 0 ? NONE : at;
    }

    /** @param {"fold" | "raw" | "kernel"} what */
    toggle(what) {
        if (what === "kernel") this.state.kernel = NEXT_KERNEL[this.state.kernel];
        else this.state[what] = !this.state[what];
        this.layOut();
        if (this.selected !== NONE) this.intoSight();
    }

    newRows() {
        /** @type {import("./timeline-rows.js").Shown} */
        const shown = { closed: this.closed, fold: this.state.fold, kernel: this.hasKernel ? this.state.kernel : "none" };
        return layOut(this.trace, shown, this.isOfPath);
    }

    layOut() {
        this.rows = this.newRows();
        this.parts.foldButton.setAttribute("aria-pressed", String(this.state.fold));
        this.parts.rawButton.setAttribute("aria-pressed", String(this.state.raw));
        this.parts.kernelButton.textContent = KERNEL_TEXTS[this.state.kernel];
        this.stripOf = "";
        this.counted();
        this.draw();
    }

    counted() {
        const parts = [`${this.rows.placeOf.reduce((sum, place) => sum + Number(place >= 0), 0)} of ${this.trace.spans} spans`];
        if (this.state.find !== "") parts.push(`${this.hits.length} found`);
        this.parts.count.textContent = parts.join(", ");
    }

    geometry() {
        const width = this.parts.view.clientWidth;
        const isNarrow = width < NARROW;
        const names = isNarrow ? 0 : Math.round(Math.min(420, Math.max(220, width * 0.28)));
        return { width, height: this.parts.view.clientHeight, names, row: isNarrow ? 34 : 22, axis: AXIS };
    }

    scene() {
        const { trace, rows, closed, selected, hovered } = this;
        const [from, to] = this.range;
        const hits = (this.hitSet ??= new Set(this.hits));
        return { trace, rows, raw: this.state.raw, from, to, top: this.top, selected, hovered, closed, hits };
    }

    draw() {
        // Draws at most once per frame of the browser.
        if (this.frame === 0) this.frame = requestAnimationFrame(() => this.paint());
    }

    paint() {
        this.frame = 0;
        const began = performance.now();
        const geometry = this.geometry();
        const all = this.rows.span.length * geometry.row + AXIS;
        // Limits the height to that of the rows, and to a part of the window.
        this.parts.view.style.blockSize = `${Math.min(all + 2, Math.max(260, innerHeight * 0.62))}px`;
        geometry.height = this.parts.view.clientHeight;
        this.parts.spacer.style.blockSize = `${all}px`;
        this.top = this.parts.view.scrollTop;
        const theme = themeOf(this.host);
        const context = sized(this.parts.canvas, geometry.width, geometry.height);
        const drawn = context ? draw(context, this.scene(), geometry, theme) : { boxes: 0, rows: 0 };
        // Aligns the strip with the bars.
        this.parts.stripCanvas.style.marginInlineStart = `${geometry.names}px`;
        this.parts.stripCanvas.style.inlineSize = `calc(100% - ${geometry.names + (geometry.names > 0 ? 8 : 0)}px)`;
        this.paintStrip(theme);
        this.note();
        const took = performance.now() - began;
        this.host.dispatchEvent(new CustomEvent("timeline-frame", { detail: { ...drawn, took_ms: took, pixels: geometry.width } }));
    }

    /** Paints the strip, with the visible part.
     * @param {Theme} theme */
    paintStrip(theme) {
        const width = Math.max(1, Math.floor(this.parts.stripCanvas.clientWidth));
        const key = `${width} ${theme.paper} ${theme.critical}`;
        if (this.stripOf !== key || !this.stripImage) {
            this.stripOf = key;
            this.stripImage = stripImage(strip(this.trace, this.rows, width, STRIP), width, theme);
        }
        const context = sized(this.parts.stripCanvas, width, STRIP);
        if (!context) return;
        context.fillStyle = theme.band;
        context.fillRect(0, 0, width, STRIP);
        context.drawImage(this.stripImage, 0, 0, width, STRIP);
        const [x0, x1] = this.range.map((ns) => (ns / this.length()) * width);
        context.fillStyle = theme.paper;
        context.globalAlpha = 0.6;
        context.fillRect(0, 0, x0, STRIP);
        context.fillRect(x1, 0, width - x1, STRIP);
        context.globalAlpha = 1;
        context.strokeStyle = theme.ink;
        context.strokeRect(x0 + 0.5, 0.5, Math.max(2, x1 - x0) - 1, STRIP - 1);
    }

    /** Writes the state to the address once it rests, because browsers limit the rate of changes. Each view is a step of the
     * browser's history, but each letter of a search is not. */
    note() {
        clearTimeout(this.noting);
        this.noting = setTimeout(() => {
            const [from, to] = this.range;
            this.state.range = from <= 0 && to >= this.length() ? null : [from, to];
            this.state.span = this.selected === NONE ? "" : idOf(this.trace, this.selected);
            this.state.details = !this.parts.details.hidden;
            const [wanted, place] = [written(this.state), written({ ...this.state, find: "" })];
            const isStep = this.place !== undefined && this.place !== place;
            this.place = place;
            if (wanted !== location.hash) history[isStep ? "pushState" : "replaceState"](null, "", wanted || location.pathname + location.search);
        }, 200);
    }

    /** @param {number} from @param {number} to */
    show(from, to) {
        const length = this.length();
        const wide = Math.min(Math.max(to - from, Math.min(SHORTEST, length)), length);
        const begin = Math.min(Math.max(from, 0), length - wide);
        this.range = [begin, begin + wide];
        this.draw();
    }

    showAll() {
        this.show(0, this.length());
    }

    /** @param {number} by @param {number} [around] offset in ns */
    zoom(by, around) {
        const [from, to] = this.range;
        let center = around;
        if (center === undefined) {
            const bounds = this.selected === NONE ? null : boundsOf(this.scene(), this.selected);
            const middle = bounds ? (bounds.start + bounds.end) / 2 : NaN;
            center = middle > from && middle < to ? middle : (from + to) / 2;
        }
        this.show(center - (center - from) * by, center + (to - center) * by);
    }

    /** @param {number} span @param {boolean} [withDetails] */
    select(span, withDetails = !this.parts.details.hidden) {
        this.selected = span;
        if (this.rows.placeOf[span] < 0) {
            if (this.state.fold && !this.isOfPath[span]) this.state.fold = false;
            reveal(this.trace, { closed: this.closed, fold: false, kernel: "none" }, span);
            this.layOut();
        }
        this.parts.live.textContent = sentence(this.scene(), span);
        // Opens details first, because they narrow the timeline, and a narrow timeline has higher rows.
        if (withDetails) this.openDetails();
        this.intoSight();
        this.draw();
    }

    /** Follows the address. If it has a span, scrolls the page until the timeline is visible. */
    follow() {
        this.go();
        const { top, bottom } = this.parts.view.getBoundingClientRect();
        if (this.selected !== NONE && (top < 0 || bottom > innerHeight)) this.parts.stripCanvas.scrollIntoView({ block: "start" });
    }

    /** Scrolls until the selected row is visible. */
    intoSight() {
        const place = this.rows.placeOf[this.selected];
        if (place < 0) return;
        const { row, height } = this.geometry();
        const y = place * row;
        if (y < this.parts.view.scrollTop) this.parts.view.scrollTop = y;
        const bottom = y + row + AXIS - (height || row + AXIS);
        if (bottom > this.parts.view.scrollTop) {
            // Painting sets the heights, which are outdated at first and when the height of rows has changed.
            this.paint();
            this.parts.view.scrollTop = Math.max(bottom, y - this.parts.view.clientHeight / 2);
        }
    }

    openDetails() {
        const span = this.selected;
        if (span === NONE) return;
        const close = element("button", { type: "button", class: "tl-close", "aria-label": "Close details" }, "×");
        close.addEventListener("click", () => this.closeDetails());
        const waiting = element("p", { class: "tl-remark" }, "Attributes…");
        this.parts.details.replaceChildren(close, ...known(this.scene(), span), waiting);
        this.parts.details.hidden = false;
        this.draw();
        this.detailsIntoSight();
        if (this.trace.id[span] === 0n) {
            waiting.remove();
            return;
        }
        const address = this.source.replace("/columns", `/spans/${idOf(this.trace, span)}`);
        fetch(address, { headers: { accept: "application/json" } })
            .then((answer) => (answer.ok ? answer.json() : Promise.reject(new Error(`status ${answer.status}`))))
            .then((said) => waiting.replaceWith(...asked(this.trace, span, said)))
            .catch((error) => (waiting.textContent = `Its attributes could not be read: ${error.message}.`))
            .finally(() => this.detailsIntoSight());
    }

    /** Scrolls to the details on a narrow page, where they are below the rows. */
    detailsIntoSight() {
        if (matchMedia("(max-width: 800px)").matches) this.parts.details.scrollIntoView({ block: "nearest" });
    }

    closeDetails() {
        this.parts.details.hidden = true;
        this.parts.view.focus();
        this.draw();
    }

    /** Selects the next or the previous segment of the critical path. @param {number} by */
    step(by) {
        const { path, span, start, end } = this.trace.pieces;
        if (path.length === 0) {
            this.parts.live.textContent = "There is no critical path.";
            return;
        }
        const isThere = this.piece >= 0 && span[path[this.piece]] === this.selected;
        if (!isThere && this.selected !== NONE) {
            const own = path.findIndex((piece) => span[piece] === this.selected);
            this.piece = own >= 0 && by > 0 ? own - 1 : own;
        }
        this.piece = Math.min(Math.max(this.piece + by, 0), path.length - 1);
        const piece = path[this.piece];
        this.select(span[piece]);
        const took = end[piece] - start[piece];
        const [from, to] = this.range;
        if (end[piece] < from || start[piece] > to || took < (to - from) / 400) {
            const wide = Math.max(took * 20, SHORTEST * 5);
            this.show(start[piece] + took / 2 - wide / 2, start[piece] + took / 2 + wide / 2);
        }
        const text = `piece ${this.piece + 1} of ${path.length} of the critical path: ${duration(took)} in `;
        this.parts.live.textContent = text + sentence(this.scene(), span[piece]);
    }

    /** @param {string} text @param {boolean} isNext */
    find(text, isNext) {
        if (text !== this.state.find) {
            this.state.find = text;
            this.hits = found(this.trace, text);
            this.hitSet = new Set(this.hits);
            this.counted();
            this.draw();
        }
        if (!isNext || this.hits.length === 0) return;
        const next = this.hits.find((span) => this.selected === NONE || span > this.selected) ?? this.hits[0];
        this.select(next);
    }

    /** @param {number} by rows */
    move(by) {
        const { span, thread, placeOf } = this.rows;
        let place = this.selected === NONE ? (by > 0 ? -1 : 0) : placeOf[this.selected];
        const last = span.length - 1;
        place = Math.min(Math.max(place + by, 0), last);
        // Skips the rows of threads, which belong to the span above.
        while (thread[place] !== SPAN_ROW && place > 0 && place < last) place += Math.sign(by);
        while (place > 0 && thread[place] !== SPAN_ROW) place -= 1;
        if (span.length > 0) this.select(span[place]);
    }

    /** @param {number} span */
    openOrClose(span) {
        if (this.trace.last[span] === span + 1) return;
        if (!this.closed.delete(span)) this.closed.add(span);
        this.layOut();
    }

    listen() {
        this.parts.view.addEventListener("keydown", (event) => {
            if (event.altKey || event.ctrlKey || event.metaKey || !this.key(event.key)) return;
            event.preventDefault();
        });
        this.parts.view.addEventListener("scroll", () => this.draw(), { passive: true });
        this.parts.search.addEventListener("input", () => this.find(this.parts.search.value, false));
        this.parts.search.addEventListener("keydown", (event) => {
            if (event.key === "Enter") this.find(this.parts.search.value, true);
            else if (event.key === "Escape") this.parts.view.focus();
            else return;
            event.preventDefault();
        });
        this.parts.details.addEventListener("keydown", (event) => {
            if (event.key === "Escape") this.closeDetails();
        });
        addEventListener("hashchange", () => this.follow());
        // Otherwise browsers would go to the span's row in the table, or nowhere if the address already names the span.
        document.addEventListener("click", (event) => {
            const link = event.target instanceof Element ? event.target.closest("a[href^='#span=']") : null;
            if (!link || event.ctrlKey || event.metaKey || event.shiftKey) return;
            event.preventDefault();
            history.pushState(null, "", link.getAttribute("href"));
            this.follow();
        });
        listenToPointers(this);
    }

    /** Shows the state that the address contains. */
    go() {
        this.place = undefined;
        this.state = read(location.hash, this.trace);
        this.range = this.state.range ?? [0, this.length()];
        this.parts.search.value = this.state.find;
        this.hits = found(this.trace, this.state.find);
        this.hitSet = undefined;
        this.layOut();
        this.selected = this.spanOf(this.state.span);
        this.parts.details.hidden = true;
        if (this.selected === NONE) this.parts.live.textContent = "";
        else this.select(this.selected, this.state.details);
    }

    /** @param {string} key @returns {boolean} true if the key has a function */
    key(key) {
        const [from, to] = this.range;
        const page = Math.max(1, Math.floor(this.parts.view.clientHeight / this.geometry().row) - 2);
        const pan = (/** @type {number} */ share) => this.show(from + (to - from) * share, to + (to - from) * share);
        /** @type {Record<string, () => void>} */
        const keys = {
            ArrowDown: () => this.move(1),
            ArrowUp: () => this.move(-1),
            PageDown: () => this.move(page),
            PageUp: () => this.move(-page),
            Home: () => this.move(-this.rows.span.length),
            End: () => this.move(this.rows.span.length),
            ArrowLeft: () => pan(-0.15),
            ArrowRight: () => pan(0.15),
            "+": () => this.zoom(1 / 1.6),
            "=": () => this.zoom(1 / 1.6),
            "-": () => this.zoom(1.6),
            0: () => this.showAll(),
            z: () => this.zoomToSelected(),
            n: () => this.step(1),
            p: () => this.step(-1),
            f: () => this.toggle("fold"),
            r: () => this.trace.rawStart && this.toggle("raw"),
            k: () => this.hasKernel && this.toggle("kernel"),
            "/": () => this.parts.search.focus(),
            Enter: () => this.openDetails(),
            Escape: () => this.closeDetails(),
            " ": () => this.selected !== NONE && this.openOrClose(this.selected),
        };
        const act = Object.hasOwn(keys, key) ? keys[key] : undefined;
        act?.();
        return act !== undefined;
    }

    zoomToSelected() {
        if (this.selected === NONE) return;
        const { start, end } = boundsOf(this.scene(), this.selected);
        const margin = (end - start) * 0.05;
        this.show(start - margin, end + margin);
    }
}

/** Sets a canvas' size in device pixels; the stylesheet sets its size in the page. @param {HTMLCanvasElement} canvas
 * @param {number} width @param {number} height */
function sized(canvas, width, height) {
    const dense = Math.min(window.devicePixelRatio || 1, 3);
    const [w, h] = [Math.max(1, Math.round(width * dense)), Math.max(1, Math.round(height * dense))];
    if (canvas.width !== w || canvas.height !== h) {
        [canvas.width, canvas.height] = [w, h];
    }
    const context = canvas.getContext("2d");
    context?.setTransform(dense, 0, 0, dense, 0, 0);
    return context;
}

/** @param {Uint8Array} cells @param {number} width @param {Theme} theme */
function stripImage(cells, width, theme) {
    const canvas = document.createElement("canvas");
    [canvas.width, canvas.height] = [width, STRIP];
    const context = canvas.getContext("2d");
    if (!context) return canvas;
    const image = context.createImageData(width, STRIP);
    const colors = [theme.beside, theme.critical].map((color) => {
        context.fillStyle = color;
        context.fillRect(0, 0, 1, 1);
        return context.getImageData(0, 0, 1, 1).data;
    });
    context.clearRect(0, 0, 1, 1);
    cells.forEach((cell, at) => {
        if (cell > 0) image.data.set(colors[cell - 1], at * 4);
    });
    context.putImageData(image, 0, 0);
    return canvas;
}

/** Returns the colours of the page, light or dark. @param {HTMLElement} host @returns {Theme} */
function themeOf(host) {
    const style = getComputedStyle(host);
    /** @param {string} name */
    const of = (name) => style.getPropertyValue(`--tl-${name}`).trim() || "#888";
    return {
        ink: of("ink"),
        faint: of("faint"),
        grid: of("grid"),
        paper: of("paper"),
        band: of("band"),
        critical: of("critical"),
        edge: of("edge"),
        beside: of("beside"),
        slack: of("slack"),
        wait: of("critical"),
        around: of("around"),
        select: of("select"),
        cpu: of("cpu"),
        runnable: of("runnable"),
        blocked: of("blocked"),
        call: of("call"),
        lock: of("lock"),
        font: `12.5px ${style.fontFamily}`,
    };
}

/** @param {HTMLElement} host */
async function start(host) {
    const source = host.dataset.source;
    if (!source) return;
    const began = performance.now();
    try {
        const answer = await fetch(source);
        if (!answer.ok) throw new Error(`the request's columns could not be read: status ${answer.status}`);
        const trace = decode(await answer.arrayBuffer());
        const timeline = new Timeline(host, trace, source);
        timeline.paint();
        host.dispatchEvent(new CustomEvent("timeline-ready", { detail: { took_ms: performance.now() - began } }));
        host.dataset.ready = String(Math.round(performance.now() - began));
    } catch (error) {
        const said = error instanceof Error ? error.message : String(error);
        host.prepend(element("p", { class: "tl-error", role: "alert" }, `The timeline cannot be drawn: ${said}.`));
    }
}

document.querySelectorAll("div.timeline[data-source]").forEach((host) => {
    if (host instanceof HTMLElement) void start(host);
});
