// @ts-check
// Sorts and filters tables, highlights neighbours in graphs, submits forms on changes, and refreshes fragments of pages. Without
// scripts, pages show the same tables, graphs, forms and fragments without these functions.

/** Number of rows above which a table gets a filter box. */
const FILTERED_FROM = 15;

/** @param {HTMLTableCellElement} cell */
function valueOf(cell) {
    const said = cell.dataset.value ?? (cell.textContent ?? "").trim();
    const number = said === "" ? NaN : Number(said);
    return { text: said, number };
}

/** Compares cells: numbers come first, then texts, then empty cells.
 * @param {{ text: string, number: number }} a @param {{ text: string, number: number }} b */
function compare(a, b) {
    const [x, y] = [Number.isNaN(a.number), Number.isNaN(b.number)];
    if (!x && !y) return a.number - b.number;
    if (x !== y) return x ? 1 : -1;
    if (a.text === "" || b.text === "") return Number(a.text === "") - Number(b.text === "");
    return a.text.localeCompare(b.text, undefined, { numeric: true });
}

/** @param {HTMLTableElement} table */
function sortable(table) {
    const heads = [...(table.tHead?.rows[table.tHead.rows.length - 1]?.cells ?? [])];
    for (const [column, head] of heads.entries()) {
        if ((head.textContent ?? "").trim() === "" || head.colSpan > 1) continue;
        const button = document.createElement("button");
        button.type = "button";
        button.className = "sort";
        button.append(...head.childNodes);
        head.append(button);
        button.addEventListener("click", () => {
            const isNumeric = [...(table.tBodies[0]?.rows ?? [])].some((row) => !Number.isNaN(cellAt(row, column).number));
            const was = head.getAttribute("aria-sort");
            // The first click shows the largest numbers or the first names.
            const first = isNumeric ? "descending" : "ascending";
            const other = isNumeric ? "ascending" : "descending";
            const order = was === first ? other : first;
            for (const each of heads) each.removeAttribute("aria-sort");
            head.setAttribute("aria-sort", order);
            sort(table, column, order === "ascending" ? 1 : -1);
        });
    }
}

/** @param {HTMLTableRowElement} row @param {number} column */
function cellAt(row, column) {
    const cell = row.cells[column];
    return cell ? valueOf(cell) : { text: "", number: NaN };
}

/** @param {HTMLTableElement} table @param {number} column @param {number} sign */
function sort(table, column, sign) {
    for (const body of table.tBodies) {
        const rows = [...body.rows].map((row) => ({ row, value: cellAt(row, column) }));
        rows.sort((a, b) => {
            const isEmpty = Number(a.value.text === "") - Number(b.value.text === "");
            return isEmpty || sign * compare(a.value, b.value);
        });
        body.append(...rows.map(({ row }) => row));
    }
}

let numbered = 0;

/** @param {HTMLTableElement} table */
function filtered(table) {
    const rows = [...table.tBodies].flatMap((body) => [...body.rows]);
    if (rows.length <= FILTERED_FROM) return;
    numbered += 1;
    const box = document.createElement("p");
    box.className = "filter";
    const label = document.createElement("label");
    const input = document.createElement("input");
    input.type = "search";
    input.id = `filter-${numbered}`;
    label.htmlFor = input.id;
    label.textContent = "Filter rows ";
    const said = document.createElement("span");
    said.setAttribute("role", "status");
    box.append(label, input, " ", said);
    (table.closest(".wide") ?? table).before(box);
    const texts = rows.map((row) => (row.textContent ?? "").toLowerCase());
    input.addEventListener("input", () => {
        const words = input.value.toLowerCase().split(/\s+/).filter((word) => word !== "");
        let shown = 0;
        for (const [at, row] of rows.entries()) {
            row.hidden = !words.every((word) => texts[at].includes(word));
            shown += Number(!row.hidden);
        }
        said.textContent = words.length === 0 ? "" : `${shown} of ${rows.length}`;
    });
}

/** @typedef {{ x: number, y: number, width: number, height: number }} Box */

/** @param {SVGSVGElement} svg */
function graph(svg) {
    const nodes = [...svg.querySelectorAll(".node")].filter((node) => node instanceof SVGElement);
    const edges = [...svg.querySelectorAll("path.edge")].filter((edge) => edge instanceof SVGElement);
    /** @param {string | null} name */
    const show = (name) => {
        svg.classList.toggle("focused", name !== null);
        const near = new Set(name === null ? [] : [name]);
        for (const edge of edges) {
            const { from = "", to = "" } = edge.dataset;
            const isNear = name !== null && (from === name || to === name);
            edge.classList.toggle("near", isNear);
            edge.classList.toggle("into", isNear && to === name);
            if (isNear) near.add(from).add(to);
        }
        for (const node of nodes) node.classList.toggle("near", near.has(node.dataset.node ?? ""));
    };
    for (const node of nodes) {
        const name = node.dataset.node ?? "";
        node.addEventListener("pointerenter", () => show(name));
        node.addEventListener("pointerleave", () => show(null));
        node.addEventListener("focusin", () => show(name));
        node.addEventListener("focusout", () => show(null));
    }
    if (svg.viewBox.baseVal.width > 0) movable(svg);
}

/** Lets users zoom by Ctrl and the wheel or by keys, and move a zoomed graph by dragging or by
 * arrow keys. @param {SVGSVGElement} svg */
function movable(svg) {
    const { x, y, width, height } = svg.viewBox.baseVal;
    const whole = { x, y, width, height };
    let box = { ...whole };
    /** @param {Box} next */
    const set = (next) => {
        const share = Math.min(Math.max(next.width / whole.width, 0.05), 1);
        const [w, h] = [whole.width * share, whole.height * share];
        box = {
            x: Math.min(Math.max(next.x, whole.x), whole.x + whole.width - w),
            y: Math.min(Math.max(next.y, whole.y), whole.y + whole.height - h),
            width: w,
            height: h,
        };
        svg.setAttribute("viewBox", `${box.x} ${box.y} ${box.width} ${box.height}`);
    };
    /** @param {number} by @param {number} px @param {number} py */
    const zoom = (by, px, py) => {
        const at = { x: box.x + box.width * px, y: box.y + box.height * py };
        set({ x: at.x - box.width * by * px, y: at.y - box.height * by * py, width: box.width * by, height: box.height * by });
    };
    svg.addEventListener("wheel", (event) => {
        if (!event.ctrlKey && !event.metaKey) return;
        event.preventDefault();
        const rect = svg.getBoundingClientRect();
        const by = Math.exp(Math.max(-1, Math.min(1, event.deltaY * 0.005)));
        zoom(by, (event.clientX - rect.left) / rect.width, (event.clientY - rect.top) / rect.height);
    }, { passive: false });
    /** @type {{ x: number, y: number } | null} */
    let held = null;
    let moved = 0;
    svg.addEventListener("pointerdown", (event) => {
        if (event.button !== 0 || event.pointerType === "touch" || box.width >= whole.width) return;
        [held, moved] = [{ x: event.clientX, y: event.clientY }, 0];
    });
    svg.addEventListener("pointermove", (event) => {
        if (!held) return;
        const rect = svg.getBoundingClientRect();
        const [dx, dy] = [event.clientX - held.x, event.clientY - held.y];
        moved += Math.abs(dx) + Math.abs(dy);
        if (moved > 4) svg.setPointerCapture(event.pointerId);
        set({ ...box, x: box.x - (dx / rect.width) * box.width, y: box.y - (dy / rect.height) * box.height });
        held = { x: event.clientX, y: event.clientY };
    });
    const drop = () => (held = null);
    svg.addEventListener("pointerup", drop);
    svg.addEventListener("pointercancel", drop);
    svg.addEventListener("dragstart", (event) => event.preventDefault());
    svg.addEventListener("click", (event) => moved > 4 && event.preventDefault(), true);
    svg.addEventListener("keydown", (event) => {
        if (event.ctrlKey || event.metaKey || event.altKey) return;
        const step = box.width / 8;
        /** @type {Record<string, () => void>} */
        const keys = {
            "+": () => zoom(0.8, 0.5, 0.5),
            "=": () => zoom(0.8, 0.5, 0.5),
            "-": () => zoom(1.25, 0.5, 0.5),
            0: () => set(whole),
            ArrowLeft: () => set({ ...box, x: box.x - step }),
            ArrowRight: () => set({ ...box, x: box.x + step }),
            ArrowUp: () => set({ ...box, y: box.y - step }),
            ArrowDown: () => set({ ...box, y: box.y + step }),
        };
        const isArrow = event.key.startsWith("Arrow");
        if (!Object.hasOwn(keys, event.key) || (isArrow && box.width >= whole.width)) return;
        event.preventDefault();
        keys[event.key]();
    });
}

/** @param {HTMLFormElement} form */
function sendsItself(form) {
    let waiting = 0;
    form.addEventListener("change", () => form.requestSubmit());
    form.addEventListener("input", (event) => {
        // Shows a slider's value while it moves, and submits it when it rests.
        if (!(event.target instanceof HTMLInputElement) || event.target.type !== "range") return;
        const output = form.querySelector(`output[for="${CSS.escape(event.target.id)}"]`);
        if (output) output.textContent = event.target.value;
        clearTimeout(waiting);
        waiting = setTimeout(() => form.requestSubmit(), 600);
    });
}

/** @param {HTMLElement} place */
function refreshed(place) {
    const address = place.dataset.live;
    const seconds = Math.max(1, Number(place.dataset.liveSeconds ?? "5") || 5);
    if (!address || !address.startsWith("/")) return;
    const ask = async () => {
        // Does not replace a fragment under the pointer or with the focus, and skips hidden pages.
        if (document.hidden || place.contains(document.activeElement) || place.matches(":hover")) return;
        const answer = await fetch(address, { headers: { accept: "text/html" } });
        if (!answer.ok) throw new Error(`status ${answer.status}`);
        const text = await answer.text();
        const page = new DOMParser().parseFromString(text, "text/html");
        place.replaceChildren(...[...page.body.childNodes].map((node) => document.adoptNode(node)));
        enhance(place);
        place.dispatchEvent(new CustomEvent("fragment", { bubbles: true }));
    };
    const again = () =>
        setTimeout(async () => {
            try {
                await ask();
                place.classList.remove("stale");
            } catch {
                // Keeps the fragment, and shows that it is old.
                place.classList.add("stale");
            }
            if (place.isConnected) again();
        }, seconds * 1000);
    again();
}

/** Enhances the tables, graphs, forms and fragments below `root`. Refreshed fragments are enhanced again.
 * @param {ParentNode} root */
export function enhance(root) {
    /** @param {string} selector */
    const all = (selector) =>
        [...root.querySelectorAll(selector)].filter((one) => {
            if (one.hasAttribute("data-enhanced")) return false;
            one.setAttribute("data-enhanced", "");
            return true;
        });
    for (const table of all("table.data")) {
        if (!(table instanceof HTMLTableElement)) continue;
        sortable(table);
        filtered(table);
    }
    for (const svg of all("svg.graph")) if (svg instanceof SVGSVGElement) graph(svg);
    for (const form of all("form[data-auto-submit]")) if (form instanceof HTMLFormElement) sendsItself(form);
    for (const place of all("[data-live]")) if (place instanceof HTMLElement) refreshed(place);
}

enhance(document);

// In a narrow window, the links form one line that scrolls. Scrolls it to the link of this page, in the next frame, so that the
// page is laid out once, after all modules have changed it.
const here = document.querySelector("header nav [aria-current]");
const links = here?.closest("nav");
requestAnimationFrame(() => {
    if (here && links) links.scrollLeft += here.getBoundingClientRect().left - links.getBoundingClientRect().left - links.clientWidth / 3;
});
