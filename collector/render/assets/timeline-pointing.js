// @ts-check
// Handles mouse, pen and touch on a timeline.

import { NONE, PIECE, duration } from "./timeline-columns.js";
import { sentence } from "./timeline-details.js";
import { AXIS, boundsOf, scaleOf } from "./timeline-drawing.js";
import { SPAN_ROW, kernelRows, rowName, spanAt } from "./timeline-rows.js";

/** @typedef {import("./timeline.js").Timeline} Timeline */

/** Horizontal distance in px up to which a movement is no drag. */
const STILL = 4;

/** @param {Timeline} timeline */
export function listenToPointers(timeline) {
    const turned = (/** @type {WheelEvent} */ event) => wheel(timeline, event);
    timeline.parts.view.addEventListener("wheel", turned, { passive: false });
    timeline.parts.stripCanvas.addEventListener("wheel", turned, { passive: false });
    dragRows(timeline);
    dragStrip(timeline);
}

/** @param {Timeline} timeline @param {WheelEvent} event */
function wheel(timeline, event) {
    const onStrip = event.currentTarget === timeline.parts.stripCanvas;
    const rect = timeline.parts.canvas.getBoundingClientRect();
    const onAxis = onStrip || event.clientY - rect.top < AXIS;
    const [from, to] = timeline.range;
    // Browsers report a pinch on a touchpad as a wheel with Ctrl.
    if (event.ctrlKey || event.metaKey || (onAxis && event.deltaY !== 0)) {
        const scale = scaleOf(timeline.scene(), timeline.geometry());
        const by = event.deltaY * (event.ctrlKey && Math.abs(event.deltaY) < 50 ? 0.01 : 0.003);
        timeline.zoom(Math.exp(Math.max(-1, Math.min(1, by))), onStrip ? undefined : scale.ns(event.clientX - rect.left));
    } else if (event.shiftKey || Math.abs(event.deltaX) > Math.abs(event.deltaY)) {
        const by = ((event.deltaX || event.deltaY) / Math.max(1, rect.width)) * (to - from);
        timeline.show(from + by, to + by);
    } else {
        return;
    }
    event.preventDefault();
}

/** Returns the position of a pointer on the canvas. @param {Timeline} timeline @param {MouseEvent} event */
function at(timeline, event) {
    const rect = timeline.parts.canvas.getBoundingClientRect();
    return { x: event.clientX - rect.left, y: event.clientY - rect.top };
}

/** @param {Timeline} timeline @param {number} y */
function placeAt(timeline, y) {
    const place = Math.floor((y - AXIS + timeline.parts.view.scrollTop) / timeline.geometry().row);
    return y < AXIS || place >= timeline.rows.span.length ? -1 : place;
}

/** Handles the rows: dragging moves in time, two fingers zoom, a click selects a span or folds it
 * at its triangle, and a double click zooms to the selected span.
 * @param {Timeline} timeline */
function dragRows(timeline) {
    const { view } = timeline.parts;
    /** @type {Map<number, number>} */
    const down = new Map();
    let moved = 0;
    view.addEventListener("pointerdown", (event) => {
        if (event.button !== 0) return;
        down.set(event.pointerId, event.clientX);
        moved = 0;
    });
    view.addEventListener("pointermove", (event) => {
        const before = down.get(event.pointerId);
        if (before === undefined) return hover(timeline, event);
        const [from, to] = timeline.range;
        const { pxPerNs, ns } = scaleOf(timeline.scene(), timeline.geometry());
        if (down.size === 1) {
            moved += Math.abs(event.clientX - before);
            if (moved > STILL) {
                view.setPointerCapture(event.pointerId);
                const by = (before - event.clientX) / pxPerNs;
                timeline.show(from + by, to + by);
            }
        } else {
            moved = STILL + 1;
            const other = [...down].find(([id]) => id !== event.pointerId)?.[1] ?? before;
            const [was, is] = [Math.abs(before - other), Math.abs(event.clientX - other)];
            if (was > 8 && is > 8) timeline.zoom(was / is, ns(other - timeline.parts.canvas.getBoundingClientRect().left));
        }
        down.set(event.pointerId, event.clientX);
    });
    const up = (/** @type {PointerEvent} */ event) => down.delete(event.pointerId);
    view.addEventListener("pointerup", up);
    view.addEventListener("pointercancel", up);
    view.addEventListener("pointerleave", () => hover(timeline, null));
    view.addEventListener("click", (event) => {
        const { x, y } = at(timeline, event);
        const place = placeAt(timeline, y);
        if (moved > STILL || place < 0) return;
        const { ns } = scaleOf(timeline.scene(), timeline.geometry());
        const thread = timeline.rows.thread[place];
        const isOfAll = timeline.rows.span[place] === NONE;
        const span = isOfAll ? spanAt(timeline.trace, thread, ns(x)) : timeline.rows.span[place];
        if (span === NONE) return;
        const { names } = timeline.geometry();
        const indent = Math.min(timeline.trace.depth[span], names > 0 ? 14 : 8) * (names > 0 ? 10 : 7);
        if (thread === SPAN_ROW && x < 22 + indent) timeline.openOrClose(span);
        else timeline.select(span, true);
    });
    view.addEventListener("dblclick", (event) => {
        if (placeAt(timeline, at(timeline, event).y) >= 0) timeline.zoomToSelected();
    });
}

/** @param {Timeline} timeline @param {PointerEvent | null} event */
function hover(timeline, event) {
    const where = event && event.pointerType !== "touch" ? at(timeline, event) : null;
    const place = where ? placeAt(timeline, where.y) : -1;
    if (place !== timeline.hovered) {
        timeline.hovered = place;
        timeline.draw();
    }
    timeline.parts.hover.hidden = place < 0;
    if (place < 0 || !where || !event) return;
    const instant = scaleOf(timeline.scene(), timeline.geometry()).ns(where.x);
    timeline.parts.hover.textContent = textAt(timeline, place, instant);
    const box = timeline.host.getBoundingClientRect();
    const left = Math.min(event.clientX - box.left + 14, box.width - timeline.parts.hover.offsetWidth - 4);
    timeline.parts.hover.style.transform = `translate(${Math.max(0, left)}px, ${event.clientY - box.top + 16}px)`;
}

/** Describes the row and instant under the pointer. @param {Timeline} timeline @param {number} place @param {number} instant */
function textAt(timeline, place, instant) {
    const { trace, rows } = timeline;
    const span = rows.span[place];
    if (rows.thread[place] !== SPAN_ROW) return kernelAt(timeline, place, instant);
    const { first, start, end, slack, wait, flags, from, to } = trace.pieces;
    const text = sentence(timeline.scene(), span);
    const ns = instant - boundsOf(timeline.scene(), span).shift;
    for (let piece = first[span]; piece < first[span + 1]; piece += 1) {
        if (start[piece] > ns || end[piece] < ns) continue;
        const name = `${trace.head.boundaries[from[piece]]} … ${trace.head.boundaries[to[piece]]}`;
        const waited = wait[piece] > 0 ? `, after waiting ${duration(wait[piece])}` : "";
        const isCritical = (flags[piece] & PIECE.CRITICAL) !== 0;
        const beside = Number.isNaN(slack[piece]) ? "" : `, slack ${duration(slack[piece])}`;
        const rest = isCritical ? `, critical${waited}` : beside;
        return `${text}. Here: ${name}, ${duration(end[piece] - start[piece])}${rest}`;
    }
    return text;
}

/** @param {Timeline} timeline @param {number} place @param {number} instant */
function kernelAt(timeline, place, instant) {
    const { trace, rows } = timeline;
    const [span, thread] = [rows.span[place], rows.thread[place]];
    const { start, end, text } = trace.kernel;
    const said = [];
    for (const row of kernelRows(trace, span, thread)) {
        if (said.length === 4) break;
        const until = Number.isNaN(end[row]) ? Infinity : end[row];
        if (start[row] <= instant && instant <= until) said.push(trace.head.texts[text[row]]);
    }
    return [rowName(trace, span, thread), ...said].join(": ");
}

/** Handles the strip: a drag selects the visible part, and a click moves it. @param {Timeline} timeline */
function dragStrip(timeline) {
    const { stripCanvas } = timeline.parts;
    let begin = NaN;
    const instant = (/** @type {PointerEvent} */ event) => {
        const rect = stripCanvas.getBoundingClientRect();
        const share = (event.clientX - rect.left) / Math.max(1, rect.width);
        return Math.min(Math.max(share, 0), 1) * timeline.length();
    };
    stripCanvas.addEventListener("pointerdown", (event) => {
        begin = instant(event);
        stripCanvas.setPointerCapture(event.pointerId);
    });
    const isDrag = (/** @type {number} */ end) => Math.abs(end - begin) >= timeline.length() / 400;
    stripCanvas.addEventListener("pointermove", (event) => {
        const end = instant(event);
        if (isDrag(end)) timeline.show(Math.min(begin, end), Math.max(begin, end));
    });
    stripCanvas.addEventListener("pointerup", (event) => {
        const end = instant(event);
        const [from, to] = timeline.range;
        if (!isDrag(end)) timeline.show(end - (to - from) / 2, end + (to - from) / 2);
        begin = NaN;
    });
}
