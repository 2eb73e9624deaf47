// @ts-check
// Reads one request from /traces/ID/columns into typed arrays. docs/pages.md describes the format.

/** Version of the format that this module reads. */
export const VERSION = 1;
/** Index that means no span, text or request. */
export const NONE = 0xffffffff;

/** Bits of a span's flags. */
export const SPAN = {
    CUT_OPEN: 1,
    CUT_CLOSE: 2,
    UNFINISHED: 4,
    PANICKED: 32,
    CLIENT: 64,
    SERVER: 128,
    /** The span names a parent that was not recorded, or is in a cycle of parents. */
    ORPHAN: 256,
    /** The row is a task of an event log, not a span. */
    TASK: 512,
    FAILED: 1024,
};
/** Bits of a segment's flags. */
export const PIECE = { CRITICAL: 1, AFTER_ANSWER: 2 };
/** Kinds of kernel activity. */
export const KERNEL = { CALL: 0, ON_CPU: 1, RUNNABLE: 2, BLOCKED: 3, LOCK: 4 };

/** @typedef {Float64Array | Uint32Array | Uint16Array | Uint8Array | BigUint64Array} Column */
/** @typedef {Uint32Array | Uint16Array | Uint8Array} Indexes */
/** @typedef {{ name: string, error_ns: number, moved_ns: [number, number] | null, tied: boolean }} Host */
/** @typedef {{ name: string, host: number }} Thread */
/**
 * @typedef {object} Head
 * @property {string} trace
 * @property {string} origin_ns instant from which all offsets count, in ns since the Unix epoch
 * @property {number} length_ns
 * @property {number | null} answer_ns
 * @property {number | null} latency_ns
 * @property {boolean} has_path whether there is a critical path
 * @property {string[]} services
 * @property {[number, string][]} operations service and name
 * @property {Host[]} hosts
 * @property {string[]} boundaries
 * @property {string[]} events
 * @property {Thread[]} threads
 * @property {string[]} texts
 * @property {string[]} holders the parts of trace ids that the kernel's records contain
 * @property {string[]} locks names of locks and futexes, as in the sums over all requests
 * @property {number} kernel_left_out
 * @property {[number, number][]} windows times in which the kernel was recorded
 * @property {Record<string, { type: string, at: number, count: number }>} columns
 */

/**
 * @typedef {object} Trace
 * @property {Head} head
 * @property {number} spans number of spans
 * @property {Float64Array} start
 * @property {Float64Array} end
 * @property {Float64Array | null} rawStart as recorded, if clocks were corrected
 * @property {Float64Array | null} rawEnd
 * @property {BigUint64Array} id
 * @property {Uint32Array} parent
 * @property {Indexes} operation
 * @property {Indexes} host
 * @property {Indexes} flags
 * @property {Uint16Array} depth
 * @property {Uint32Array} last for each span, one past its last descendant
 * @property {Pieces} pieces
 * @property {Marks} events
 * @property {Kernel} kernel
 */

/**
 * Segments, grouped by span, in order of time.
 * @typedef {object} Pieces
 * @property {Uint32Array} first index of each span's first one, and the end
 * @property {Float64Array} start
 * @property {Float64Array} end
 * @property {Float64Array} wait
 * @property {Float64Array} slack
 * @property {Uint32Array} span
 * @property {Indexes} flags
 * @property {Indexes} from
 * @property {Indexes} to
 * @property {Uint32Array} criticalBefore number of critical segments before each one
 * @property {Uint32Array} path critical segments in order of time
 */

/** @typedef {{ first: Uint32Array, at: Float64Array, name: Indexes }} Marks */
/**
 * @typedef {object} Kernel
 * @property {Uint32Array} first index of each span's first one, and the end
 * @property {Float64Array} start
 * @property {Float64Array} end NaN if it is not within the window
 * @property {Uint32Array} span
 * @property {Indexes} kind
 * @property {Indexes} thread
 * @property {Map<number, Uint32Array>} lanes rows of each thread, in order of time
 * @property {Indexes} text
 * @property {Indexes} holder
 * @property {Indexes} lock
 */

const TYPES = { f64: Float64Array, u64: BigUint64Array, u32: Uint32Array, u16: Uint16Array, u8: Uint8Array };

/**
 * Reads a request. Throws an Error that describes a flaw of the data.
 * @param {ArrayBuffer} buffer
 * @returns {Trace}
 */
export function decode(buffer) {
    const view = new DataView(buffer);
    if (buffer.byteLength < 12 || view.getUint32(0, false) !== 0x53545243) {
        throw new Error("this is not a request in columns");
    }
    const version = view.getUint16(4, true);
    if (version !== VERSION) {
        throw new Error(`the request is in version ${version} of the format, and this page reads ${VERSION}: load it again`);
    }
    const bytes = view.getUint32(8, true);
    /** @type {Head} */
    const head = JSON.parse(new TextDecoder().decode(new Uint8Array(buffer, 12, bytes)));
    const base = Math.ceil((12 + bytes) / 8) * 8;
    /** @param {string} name @returns {any} */
    const column = (name) => {
        const known = head.columns[name];
        if (!known) return null;
        const type = TYPES[/** @type {keyof typeof TYPES} */ (known.type)];
        return new type(buffer, base + known.at, known.count);
    };
    const parent = /** @type {Uint32Array} */ (column("spans.parent"));
    const spans = parent.length;
    return {
        head,
        spans,
        start: column("spans.start"),
        end: column("spans.end"),
        rawStart: column("spans.raw_start"),
        rawEnd: column("spans.raw_end"),
        id: column("spans.id"),
        parent,
        operation: column("spans.operation"),
        host: column("spans.host"),
        flags: column("spans.flags"),
        ...tree(parent),
        pieces: pieces(spans, column),
        events: events(spans, column),
        kernel: kernel(spans, column),
    };
}

/** @param {Uint32Array} parent */
function tree(parent) {
    const depth = new Uint16Array(parent.length);
    const last = new Uint32Array(parent.length);
    for (let at = 0; at < parent.length; at += 1) {
        // Each span comes before its descendants.
        const above = parent[at];
        depth[at] = above === NONE ? 0 : Math.min(depth[above] + 1, 0xffff);
    }
    for (let at = parent.length - 1; at >= 0; at -= 1) {
        last[at] = Math.max(last[at], at + 1);
        const above = parent[at];
        if (above !== NONE) last[above] = Math.max(last[above], last[at]);
    }
    return { depth, last };
}

/**
 * Groups rows by span, and otherwise keeps their order. Leaves out rows without a span. Returns the
 * order, and the index of each span's first row.
 * @param {number} spans
 * @param {Uint32Array} owner
 */
function bySpan(spans, owner) {
    const first = new Uint32Array(spans + 1);
    for (const span of owner) if (span !== NONE) first[span + 1] += 1;
    for (let at = 0; at < spans; at += 1) first[at + 1] += first[at];
    const next = first.slice();
    const order = new Uint32Array(first[spans]);
    owner.forEach((span, row) => {
        if (span !== NONE) order[next[span]++] = row;
    });
    return { first, order };
}

/**
 * @template {Column} T
 * @param {T} column
 * @param {Uint32Array} order
 * @returns {T}
 */
function taken(column, order) {
    const of = /** @type {any} */ (column);
    const result = new of.constructor(order.length);
    for (let at = 0; at < order.length; at += 1) result[at] = of[order[at]];
    return result;
}

/**
 * @param {number} spans
 * @param {(name: string) => any} column
 * @returns {Pieces}
 */
function pieces(spans, column) {
    const owner = /** @type {Uint32Array} */ (column("segments.span"));
    const { first, order } = bySpan(spans, owner);
    /** @param {string} name */
    const of = (name) => taken(column(`segments.${name}`), order);
    const flags = /** @type {Indexes} */ (of("flags"));
    const start = /** @type {Float64Array} */ (of("start"));
    const criticalBefore = new Uint32Array(flags.length + 1);
    const path = [];
    for (let at = 0; at < flags.length; at += 1) {
        const isCritical = (flags[at] & PIECE.CRITICAL) !== 0;
        criticalBefore[at + 1] = criticalBefore[at] + Number(isCritical);
        if (isCritical) path.push(at);
    }
    path.sort((a, b) => start[a] - start[b]);
    return {
        first,
        start,
        end: of("end"),
        wait: of("wait"),
        slack: of("slack"),
        span: taken(owner, order),
        flags,
        from: of("from"),
        to: of("to"),
        criticalBefore,
        path: Uint32Array.from(path),
    };
}

/**
 * @param {number} spans
 * @param {(name: string) => any} column
 * @returns {Marks}
 */
function events(spans, column) {
    const { first, order } = bySpan(spans, column("events.span"));
    return { first, at: taken(column("events.at"), order), name: taken(column("events.name"), order) };
}

/**
 * @param {number} spans
 * @param {(name: string) => any} column
 * @returns {Kernel}
 */
function kernel(spans, column) {
    const owner = /** @type {Uint32Array} */ (column("kernel.span"));
    const { first, order } = bySpan(spans, owner);
    /** @param {string} name */
    const of = (name) => taken(column(`kernel.${name}`), order);
    const start = /** @type {Float64Array} */ (of("start"));
    const thread = /** @type {Indexes} */ (of("thread"));
    return {
        first,
        start,
        end: of("end"),
        span: taken(owner, order),
        kind: of("kind"),
        thread,
        lanes: lanesOf(thread, start),
        text: of("text"),
        holder: of("holder"),
        lock: of("lock"),
    };
}

/**
 * Returns the rows of each thread in order of time. Threads are in order of their first row.
 * @param {Indexes} thread
 * @param {Float64Array} start
 */
export function lanesOf(thread, start) {
    const order = Uint32Array.from(thread, (_, at) => at).sort((a, b) => start[a] - start[b] || a - b);
    /** @type {Map<number, number[]>} */
    const lanes = new Map();
    for (const at of order) {
        const lane = lanes.get(thread[at]);
        if (lane) lane.push(at);
        else lanes.set(thread[at], [at]);
    }
    return new Map([...lanes].map(([of, rows]) => [of, Uint32Array.from(rows)]));
}

/**
 * Returns the first place in `[from, to)` whose value is larger than `limit`. The column must not decrease there.
 * @param {Float64Array} column
 * @param {number} from
 * @param {number} to
 * @param {number} limit
 */
export function after(column, from, to, limit) {
    while (from < to) {
        const middle = (from + to) >>> 1;
        if (column[middle] > limit) to = middle;
        else from = middle + 1;
    }
    return from;
}

/** @param {Trace} trace @param {number} span */
export function operationOf(trace, span) {
    const [service, name] = trace.head.operations[trace.operation[span]];
    return service < trace.head.services.length ? `${trace.head.services[service]}:${name}` : name;
}

/** @param {Trace} trace @param {number} span */
export function idOf(trace, span) {
    return trace.id[span].toString(16).padStart(16, "0");
}

/**
 * Formats a duration for users with a unit and at most two decimals.
 * @param {number} ns
 * @returns {string}
 */
export function duration(ns) {
    const size = Math.abs(ns);
    if (size < 999.5) return `${ns.toFixed(0)}\u00a0ns`;
    const [scaled, unit] = size < 999.5e3 ? [ns / 1e3, "µs"] : size < 999.5e6 ? [ns / 1e6, "ms"] : [ns / 1e9, "s"];
    const decimals = Math.abs(scaled) < 10 ? 2 : Math.abs(scaled) < 100 ? 1 : 0;
    return `${scaled.toFixed(decimals)}\u00a0${unit}`;
}

/** Formats the times of an axis. If texts would be equal, all but the first are distances from it.
 * @param {number[]} ticks @param {number} step between them, ns */
export function tickTexts(ticks, step) {
    const plain = ticks.map(tickText);
    if (new Set(plain).size === ticks.length) return plain;
    const [first] = ticks;
    const [unit, name] = first < 1e6 ? [1e3, "µs"] : first < 1e9 ? [1e6, "ms"] : [1e9, "s"];
    const decimals = Math.min(Math.max(Math.ceil(Math.log10(unit / step)), 0), 12);
    return ticks.map((tick, at) => (at === 0 ? `${(first / unit).toFixed(decimals)}\u00a0${name}` : `+${tickText(tick - first)}`));
}

/** Formats a duration at an axis, without trailing zeros after its point. @param {number} ns */
function tickText(ns) {
    return duration(ns).replace(/(\.\d*?)0+(?=\u00a0)/, "$1").replace(/\.(?=\u00a0)/, "");
}
