// @ts-check
// Draws a request: only the visible rows. The number of boxes in a row is bounded by its width.

import { KERNEL, NONE, PIECE, SPAN, after, duration, tickTexts } from "./timeline-columns.js";
import { SPAN_ROW, kernelRows, rowName } from "./timeline-rows.js";

/** @typedef {import("./timeline-columns.js").Trace} Trace */
/** @typedef {import("./timeline-rows.js").Rows} Rows */

/**
 * @typedef {object} Theme
 * @property {string} ink @property {string} faint @property {string} grid @property {string} paper
 * @property {string} band @property {string} critical @property {string} edge @property {string} beside
 * @property {string} slack @property {string} wait @property {string} around @property {string} select
 * @property {string} cpu @property {string} runnable @property {string} blocked @property {string} call
 * @property {string} lock @property {string} font
 */

/**
 * @typedef {object} Geometry
 * @property {number} width
 * @property {number} height
 * @property {number} names width of the names; 0 if they are above the bars
 * @property {number} row
 * @property {number} axis
 */

/**
 * @typedef {object} Scene
 * @property {Trace} trace
 * @property {Rows} rows
 * @property {boolean} raw
 * @property {number} from
 * @property {number} to
 * @property {number} top scroll position of the rows, in px
 * @property {number} selected
 * @property {number} hovered
 * @property {Set<number>} closed
 * @property {Set<number>} hits
 */

/** Height of the time axis, in px. */
export const AXIS = 30;

/** Converts between instants and positions.
 * @param {Scene} scene @param {Geometry} geometry */
export function scaleOf(scene, geometry) {
    const width = Math.max(1, geometry.width - geometry.names - 8);
    const pxPerNs = width / Math.max(1e-9, scene.to - scene.from);
    return {
        pxPerNs,
        /** @param {number} ns */
        x: (ns) => geometry.names + (ns - scene.from) * pxPerNs,
        /** @param {number} x */
        ns: (x) => scene.from + (x - geometry.names) / pxPerNs,
    };
}

/** Returns the start and end of a span's row. @param {Scene} scene @param {number} span */
export function boundsOf(scene, span) {
    const { trace, raw } = scene;
    const isRaw = raw && trace.rawStart !== null && trace.rawEnd !== null;
    const start = isRaw ? /** @type {Float64Array} */ (trace.rawStart)[span] : trace.start[span];
    const end = isRaw ? /** @type {Float64Array} */ (trace.rawEnd)[span] : trace.end[span];
    return { start, end, shift: start - trace.start[span] };
}

/** Draws one frame, and counts what it drew.
 * @param {CanvasRenderingContext2D} context @param {Scene} scene @param {Geometry} geometry @param {Theme} theme */
export function draw(context, scene, geometry, theme) {
    const painter = new Painter(context, scene, geometry, theme);
    painter.frame();
    return { boxes: painter.boxes, rows: painter.drawn };
}

class Painter {
    boxes = 0;
    drawn = 0;

    /** @param {CanvasRenderingContext2D} context @param {Scene} scene @param {Geometry} geometry @param {Theme} theme */
    constructor(context, scene, geometry, theme) {
        this.context = context;
        this.scene = scene;
        this.geometry = geometry;
        this.theme = theme;
        this.scale = scaleOf(scene, geometry);
    }

    frame() {
        const { context, scene, geometry, theme } = this;
        context.fillStyle = theme.paper;
        context.fillRect(0, 0, geometry.width, geometry.height);
        this.windows();
        this.grid();
        const first = Math.floor(scene.top / geometry.row);
        const seen = Math.ceil((geometry.height - geometry.axis) / geometry.row) + 1;
        const end = Math.min(first + seen, scene.rows.span.length);
        context.save();
        context.beginPath();
        context.rect(0, geometry.axis, geometry.width, geometry.height - geometry.axis);
        context.clip();
        for (let place = first; place < end; place += 1) {
            this.row(place, geometry.axis + place * geometry.row - scene.top);
            this.drawn += 1;
        }
        context.restore();
        this.axis();
    }

    /** @param {string} color @param {number} x @param {number} y @param {number} width @param {number} height */
    box(color, x, y, width, height) {
        const left = Math.max(x, this.geometry.names - 1);
        const right = Math.min(x + width, this.geometry.width + 1);
        if (right <= left) return;
        this.context.fillStyle = color;
        this.context.fillRect(left, y, right - left, height);
        this.boxes += 1;
    }

    /** Draws the times in which the kernel was recorded. */
    windows() {
        const { scene, geometry, theme, scale } = this;
        for (const [from, to] of scene.trace.head.windows) {
            const x = scale.x(from);
            this.box(theme.band, x, geometry.axis - 4, Math.max(1, scale.x(to) - x), 4);
        }
    }

    ticks() {
        const { scene, geometry } = this;
        const wanted = Math.max(2, Math.floor((geometry.width - geometry.names) / 110));
        const rough = (scene.to - scene.from) / wanted;
        const power = 10 ** Math.floor(Math.log10(Math.max(rough, 1e-6)));
        const step = [1, 2, 5, 10].map((n) => n * power).find((n) => n >= rough) ?? power;
        const ticks = [];
        for (let at = Math.ceil(scene.from / step) * step; at <= scene.to; at += step) ticks.push(at);
        return { ticks, step };
    }

    grid() {
        const { context, geometry, theme, scale, scene } = this;
        context.fillStyle = theme.grid;
        for (const tick of this.ticks().ticks) {
            context.fillRect(Math.round(scale.x(tick)), geometry.axis - 6, 1, geometry.height);
        }
        const { answer_ns: answer, length_ns: length } = scene.trace.head;
        if (answer !== null && answer < length) {
            context.fillStyle = theme.ink;
            context.fillRect(Math.round(scale.x(answer)), geometry.axis - 6, 1, geometry.height);
        }
    }

    axis() {
        const { context, geometry, theme, scale, scene } = this;
        context.font = theme.font;
        context.textBaseline = "middle";
        context.fillStyle = theme.faint;
        const y = (geometry.axis - 4) / 2;
        const { ticks, step } = this.ticks();
        for (const [at, text] of tickTexts(ticks, step).entries()) {
            const x = scale.x(ticks[at]) + 4;
            if (x + context.measureText(text).width < geometry.width) context.fillText(text, x, y);
        }
        const { answer_ns: answer, length_ns: length } = scene.trace.head;
        if (answer !== null && answer < length) {
            const x = scale.x(answer);
            if (x >= geometry.names && x + 50 < geometry.width) {
                context.fillStyle = theme.paper;
                context.fillRect(x + 1, 0, 54, geometry.axis - 5);
                context.fillStyle = theme.ink;
                context.fillText("answer", x + 4, y);
            }
        }
        context.fillStyle = theme.grid;
        context.fillRect(0, geometry.axis - 1, geometry.width, 1);
    }

    /** @param {number} place @param {number} y */
    row(place, y) {
        const { scene, geometry, theme, context } = this;
        const span = scene.rows.span[place];
        const thread = scene.rows.thread[place];
        const isSelected = scene.selected === span && thread === SPAN_ROW;
        if (isSelected || scene.hovered === place) {
            context.fillStyle = isSelected ? theme.select : theme.band;
            context.fillRect(0, y, geometry.width, geometry.row);
        }
        const bar = this.barOf(y);
        context.save();
        context.beginPath();
        context.rect(geometry.names, y, geometry.width - geometry.names, geometry.row);
        context.clip();
        if (thread === SPAN_ROW) this.span(span, bar);
        else this.thread(span, thread, bar);
        context.restore();
        this.name(span, thread, y);
    }

    /** @param {number} y */
    barOf(y) {
        const { geometry } = this;
        return geometry.names === 0 ? { y: y + 19, height: 11 } : { y: y + 4, height: geometry.row - 8 };
    }

    /** @param {number} span @param {number} thread @param {number} y */
    name(span, thread, y) {
        const { context, geometry, theme, scene } = this;
        const { trace } = scene;
        const isBeside = geometry.names > 0;
        const room = (isBeside ? geometry.names : geometry.width) - 10;
        const inside = thread === SPAN_ROW ? 0 : 1.6;
        const depth = span === NONE ? 0 : Math.min(trace.depth[span], isBeside ? 14 : 8) + inside;
        const x = 18 + depth * (isBeside ? 10 : 7);
        const middle = isBeside ? y + geometry.row / 2 : y + 10;
        context.font = theme.font;
        context.textBaseline = "middle";
        if (thread === SPAN_ROW && trace.last[span] > span + 1) {
            context.fillStyle = theme.faint;
            triangle(context, x - 9, middle, scene.closed.has(span));
        }
        context.fillStyle = thread === SPAN_ROW ? theme.ink : theme.faint;
        let text = rowName(trace, span, thread);
        if (scene.closed.has(span) && thread === SPAN_ROW) text += ` (+${trace.last[span] - span - 1})`;
        if (thread === SPAN_ROW && (trace.flags[span] & SPAN.FAILED) !== 0) text = `✕ ${text}`;
        if (scene.hits.has(span) && thread === SPAN_ROW) {
            const width = Math.min(context.measureText(text).width, room - x);
            context.fillRect(x, middle + 7, Math.max(0, width), 1.5);
        }
        context.fillText(fitted(context, text, room - x), x, middle);
    }

    /** @param {number} span @param {{ y: number, height: number }} bar */
    span(span, bar) {
        const { scene, theme, scale } = this;
        const { trace } = scene;
        const { start, end, shift } = boundsOf(scene, span);
        if (end < scene.from || start > scene.to) return this.elsewhere(end < scene.from, bar);
        const [x0, x1] = [scale.x(start), scale.x(end)];
        this.box(theme.around, x0, bar.y + bar.height / 2 - 2, Math.max(1, x1 - x0), 4);
        this.pieces(span, bar, shift);
        this.edges(trace.flags[span], x0, x1, bar);
        this.events(span, bar, shift);
        if (scene.closed.has(span)) this.inside(span, bar);
        this.took(duration(end - start), x0, x1, bar);
    }

    /** Writes a span's duration after its bar, before it if there is no space, or at the edge over a bar that fills the row.
     * @param {string} text @param {number} x0 @param {number} x1 @param {{ y: number, height: number }} bar */
    took(text, x0, x1, bar) {
        const { context, geometry, theme } = this;
        context.font = theme.font;
        const width = context.measureText(text).width + 6;
        const places = [x1 + 7, x0 - 7 - width, geometry.width - width - 4];
        const x = places.find((place) => place >= geometry.names && place + width <= geometry.width) ?? places[2];
        // Clears the background, because a bar of slack would cross the text.
        context.fillStyle = theme.paper;
        context.fillRect(x, bar.y, width, bar.height);
        context.fillStyle = theme.faint;
        context.textBaseline = "middle";
        context.fillText(text, x + 3, bar.y + bar.height / 2 + 1);
    }

    /** Draws an arrow towards a span that is not visible. @param {boolean} isLeft @param {{ y: number, height: number }} bar */
    elsewhere(isLeft, bar) {
        const { context, geometry, theme } = this;
        context.fillStyle = theme.slack;
        context.beginPath();
        const [x, tip] = isLeft ? [geometry.names + 9, -5] : [geometry.width - 9, 5];
        const middle = bar.y + bar.height / 2;
        context.moveTo(x, middle - 4);
        context.lineTo(x + tip, middle);
        context.lineTo(x, middle + 4);
        context.fill();
    }

    /** Draws the span's own segments. Adjacent segments narrower than two pixels form one box.
     * @param {number} span @param {{ y: number, height: number }} bar @param {number} shift */
    pieces(span, bar, shift) {
        const { scene, theme, scale } = this;
        const { pieces } = scene.trace;
        const end = pieces.first[span + 1];
        let at = after(pieces.end, pieces.first[span], end, scene.from - shift - 1 / scale.pxPerNs);
        // Starts one segment earlier, because its slack may reach into the visible part.
        at = Math.max(pieces.first[span], at - 1);
        const run = { x0: 0, x1: -1, critical: false };
        const flush = () => {
            if (run.x1 > run.x0) this.own(run.critical, run.x0, run.x1, bar, false);
            run.x1 = -1;
        };
        while (at < end && pieces.start[at] - pieces.wait[at] + shift <= scene.to) {
            const x0 = scale.x(pieces.start[at] + shift);
            const x1 = scale.x(pieces.end[at] + shift);
            const isCritical = (pieces.flags[at] & PIECE.CRITICAL) !== 0;
            if (isCritical && pieces.wait[at] * scale.pxPerNs > 1) {
                const from = scale.x(pieces.start[at] - pieces.wait[at] + shift);
                this.box(theme.wait, from, bar.y + bar.height / 2 - 1, x0 - from, 2);
            }
            if (x1 - x0 >= 2) {
                flush();
                this.own(isCritical, x0, x1, bar, true);
                if (!isCritical && pieces.slack[at] * scale.pxPerNs > 1) {
                    const to = scale.x(pieces.end[at] + pieces.slack[at] + shift);
                    this.box(theme.slack, x1, bar.y + bar.height / 2 - 0.5, to - x1, 1);
                }
                at += 1;
                continue;
            }
            const column = Math.floor(x0);
            const limit = scale.ns(column + 2) - shift;
            const next = Math.max(at + 1, after(pieces.start, at, end, limit));
            const critical = pieces.criticalBefore[next] > pieces.criticalBefore[at];
            const to = Math.max(column + 1, Math.ceil(Math.min(column + 2, scale.x(pieces.end[next - 1] + shift))));
            if (run.x1 >= column && run.critical === critical) {
                run.x1 = to;
            } else {
                flush();
                [run.x0, run.x1, run.critical] = [column, to, critical];
            }
            at = next;
        }
        flush();
    }

    /** @param {boolean} isCritical @param {number} x0 @param {number} x1 @param {{ y: number, height: number }} bar @param {boolean} isEdged */
    own(isCritical, x0, x1, bar, isEdged) {
        const { context, theme, geometry } = this;
        this.box(isCritical ? theme.critical : theme.beside, x0, bar.y, x1 - x0, bar.height);
        if (isCritical && isEdged && x1 - x0 > 3) {
            // The edge distinguishes critical segments by more than colour.
            const left = Math.max(x0, geometry.names - 4);
            context.strokeStyle = theme.edge;
            context.lineWidth = 1;
            context.strokeRect(left + 0.5, bar.y + 0.5, Math.min(x1, geometry.width + 4) - left - 1, bar.height - 1);
        }
    }

    /** Draws a torn edge where the recording cut the span, or where the span's end is unknown.
     * @param {number} flags @param {number} x0 @param {number} x1 @param {{ y: number, height: number }} bar */
    edges(flags, x0, x1, bar) {
        if ((flags & SPAN.CUT_OPEN) !== 0) this.torn(x0, -1, bar);
        if ((flags & (SPAN.CUT_CLOSE | SPAN.UNFINISHED)) !== 0) this.torn(x1, 1, bar);
    }

    /** @param {number} x @param {number} outwards @param {{ y: number, height: number }} bar */
    torn(x, outwards, bar) {
        const { context, theme } = this;
        const step = bar.height / 4;
        context.strokeStyle = theme.ink;
        context.lineWidth = 1.5;
        context.beginPath();
        for (let tooth = 0; tooth <= 4; tooth += 1) {
            context.lineTo(x + outwards * (tooth % 2 === 0 ? 1 : 5), bar.y + tooth * step);
        }
        context.stroke();
        this.boxes += 1;
    }

    /** @param {number} span @param {{ y: number, height: number }} bar @param {number} shift */
    events(span, bar, shift) {
        const { scene, theme, scale } = this;
        const { first, at } = scene.trace.events;
        let last = -1;
        for (let mark = after(at, first[span], first[span + 1], scene.from - shift); mark < first[span + 1]; ) {
            const x = Math.round(scale.x(at[mark] + shift));
            if (x > this.geometry.width) break;
            if (x > last) this.box(theme.edge, x, bar.y - 2, 1, 5);
            last = x;
            mark = Math.max(mark + 1, after(at, mark, first[span + 1], scale.ns(x + 1) - shift));
        }
    }

    /** Marks where descendants of a closed span are critical. @param {number} span @param {{ y: number, height: number }} bar */
    inside(span, bar) {
        const { scene, theme, scale, geometry } = this;
        const { trace } = scene;
        const { path, span: owner, start, end } = trace.pieces;
        let last = -1;
        for (const piece of path) {
            if (owner[piece] <= span || owner[piece] >= trace.last[span]) continue;
            const [x0, x1] = [scale.x(start[piece]), scale.x(end[piece])];
            if (x1 < Math.max(last, geometry.names) || x0 > geometry.width) continue;
            const from = Math.max(x0, last);
            this.box(theme.critical, from, bar.y + bar.height - 3, Math.max(1, x1 - from), 3);
            last = Math.max(x1, from + 1);
        }
    }

    /** Draws the kernel activity of a thread for one span or for all: the thread's state above,
     * calls and waits for locks below.
     * @param {number} span @param {number} thread @param {{ y: number, height: number }} bar */
    thread(span, thread, bar) {
        const { scene, theme, scale } = this;
        const { kernel } = scene.trace;
        const color = {
            [KERNEL.CALL]: theme.call,
            [KERNEL.ON_CPU]: theme.cpu,
            [KERNEL.RUNNABLE]: theme.runnable,
            [KERNEL.BLOCKED]: theme.blocked,
            [KERNEL.LOCK]: theme.lock,
        };
        const half = bar.height / 2;
        /** @type {Record<number, number>} */
        const last = {};
        for (const at of kernelRows(scene.trace, span, thread)) {
            if (kernel.start[at] > scene.to) continue;
            const kind = kernel.kind[at];
            const end = Number.isNaN(kernel.end[at]) ? scene.trace.head.length_ns : kernel.end[at];
            const x0 = scale.x(kernel.start[at]);
            const x1 = Math.max(x0 + 1, scale.x(end));
            // Skips what would only cover pixels that another row of the same kind covers already.
            if (end < scene.from || x1 <= (last[kind] ?? -1)) continue;
            const isBelow = kind === KERNEL.CALL || kind === KERNEL.LOCK;
            const isThin = kind === KERNEL.BLOCKED;
            const y = isBelow ? bar.y + half + 1 : isThin ? bar.y + half / 2 : bar.y;
            this.box(color[kind], x0, y, x1 - x0, isThin ? 2 : half);
            last[kind] = Math.ceil(x1);
        }
    }
}

/** @param {CanvasRenderingContext2D} context @param {number} x @param {number} y @param {boolean} isClosed */
function triangle(context, x, y, isClosed) {
    context.beginPath();
    if (isClosed) {
        context.moveTo(x - 2, y - 4);
        context.lineTo(x + 3, y);
        context.lineTo(x - 2, y + 4);
    } else {
        context.moveTo(x - 4, y - 2);
        context.lineTo(x + 4, y - 2);
        context.lineTo(x, y + 3);
    }
    context.fill();
}

/** Shortens a text to a width. @param {CanvasRenderingContext2D} context @param {string} text @param {number} room */
function fitted(context, text, room) {
    if (room <= 0) return "";
    const short = text.length > 300 ? text.slice(0, 300) : text;
    if (context.measureText(short).width <= room) return short;
    let [low, high] = [0, short.length];
    while (low < high) {
        const middle = (low + high + 1) >> 1;
        if (context.measureText(`${short.slice(0, middle)}…`).width <= room) low = middle;
        else high = middle - 1;
    }
    return low === 0 ? "" : `${short.slice(0, low)}…`;
}

/** Computes the strip of the whole request: 1 for segments of spans, 2 for critical ones.
 * @param {Trace} trace @param {Rows} rows @param {number} width @param {number} height */
export function strip(trace, rows, width, height) {
    const cells = new Uint8Array(width * height);
    const count = Math.max(1, rows.span.length);
    const pxPerNs = width / Math.max(1, trace.head.length_ns);
    const { pieces } = trace;
    for (let place = 0; place < rows.span.length; place += 1) {
        if (rows.thread[place] !== SPAN_ROW) continue;
        const span = rows.span[place];
        const top = Math.floor((place * height) / count);
        const bottom = Math.max(top + 1, Math.min(Math.floor(((place + 1) * height) / count) - 1, top + 4));
        for (let at = pieces.first[span]; at < pieces.first[span + 1]; at += 1) {
            const x0 = Math.min(width - 1, Math.max(0, Math.floor(pieces.start[at] * pxPerNs)));
            const x1 = Math.min(width, Math.max(x0 + 1, Math.ceil(pieces.end[at] * pxPerNs)));
            const isCritical = (pieces.flags[at] & PIECE.CRITICAL) !== 0;
            for (let y = top; y < Math.min(bottom, height); y += 1) {
                if (isCritical) cells.fill(2, y * width + x0, y * width + x1);
                else for (let x = y * width + x0; x < y * width + x1; x += 1) cells[x] ||= 1;
            }
        }
    }
    return cells;
}
