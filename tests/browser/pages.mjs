// Looks at every page of a store in a real browser. Prints measurements, and asserts by node:assert what must hold. Makes pictures
// only if "pictures" names a directory.
//
// node pages.mjs '{"small": "http://…", "smallId": "ID", "large": "http://…", "largeId": "ID", "pictures": "DIR", "chromium": "…"}'
import assert from "node:assert/strict";
import { mkdirSync, readFileSync } from "node:fs";
import { createRequire } from "node:module";
import { join } from "node:path";

const asked = JSON.parse(process.argv[2]);
const require = createRequire(join(process.env.STROBOSCOPE_TEST_NODE_MODULES, "package.json"));
const { chromium } = require("playwright-core");
const axe = readFileSync(require.resolve("axe-core/axe.min.js"), "utf8");

const WIDTHS = [390, 1400, 2560];
const THEMES = /** @type {const} */ (["light", "dark"]);

if (asked.pictures) mkdirSync(asked.pictures, { recursive: true });

const browser = await chromium.launch({ executablePath: asked.chromium, args: ["--no-sandbox", "--disable-dev-shm-usage"] });
const context = await browser.newContext({ viewport: { width: 1400, height: 900 }, reducedMotion: "reduce" });
const page = await context.newPage();
// Programs are not optimised here, and others are at work.
page.setDefaultTimeout(120_000);
let origin = new URL(asked.small).origin;
/** @type {string[]} */
let wrong = [];
page.on("request", (request) => {
    const url = request.url();
    if (!url.startsWith(origin) && !url.startsWith("data:")) wrong.push(`asks elsewhere: ${url}`);
});
page.on("console", (message) => message.type() === "error" && wrong.push(`console: ${message.text()}`));
page.on("pageerror", (error) => wrong.push(`error: ${error.message}`));

/** Loads a page, and looks at what must hold of all of them. */
async function load(path, ...statuses) {
    wrong = [];
    const answer = await page.goto(origin + path, { waitUntil: "load" });
    const status = answer.status();
    assert.ok((statuses.length > 0 ? statuses : [200]).includes(status), `${path}: ${status}`);
    const policy = answer.headers()["content-security-policy"] ?? "";
    assert.match(policy, /default-src 'none'/, `${path}: ${policy}`);
    assert.doesNotMatch(policy, /unsafe/, path);
    const paint = await page.evaluate(
        () =>
            new Promise((done) => {
                const seen = (list) => list.getEntriesByName("first-contentful-paint").forEach((entry) => done(entry.startTime));
                new PerformanceObserver(seen).observe({ type: "paint", buffered: true });
            }),
    );
    if (status !== 200) wrong = wrong.filter((one) => !one.includes(`status of ${status}`));
    assert.deepEqual(wrong, [], path);
    assert.equal(await page.evaluate(() => "hacked" in window), false, `${path} executed a name`);
    return paint;
}

/** Problems that axe finds. With `rule`, axe checks only this rule. */
async function accessible(path, how, rule) {
    const only = rule ? `, runOnly: { type: "rule", values: ["${rule}"] }` : "";
    const result = await page.evaluate(`${axe}; axe.run(document, { resultTypes: ["violations"]${only} })`);
    const found = result.violations.map(({ id, nodes }) => `${id}: ${nodes.slice(0, 3).map((node) => `${node.target} ${node.failureSummary}`).join(" | ")}`);
    return found.map((one) => `${path} (${how}): ${one}`);
}

/** Tables that need more than the width of a window of 1,400 px. */
async function cutTables(path) {
    const cut = await page.evaluate(() => {
        const boxes = [...document.querySelectorAll(".answer .wide")];
        return boxes.filter((box) => box.scrollWidth > box.clientWidth + 1).map((box) => box.querySelector("caption")?.textContent);
    });
    return cut.map((table) => `${path}: table "${table}" is cut`);
}

const nameOf = (path) => path.replace(/[^a-z0-9]+/gi, "-").replace(/^-|-$/g, "") || "overview";

/** Looks at a page in all sizes, light and dark: what axe says, and pictures for people. Of all that axe checks, only colours depend on the theme. */
async function look(path) {
    const found = [];
    // A path of somebody else's machine has no blank to break it at.
    await page.evaluate(() => {
        const long = document.createElement("p");
        long.id = "long-path";
        long.textContent = "/home/somebody/" + "long-directory/".repeat(12);
        document.querySelector("main .answer")?.prepend(long);
    });
    for (const theme of THEMES) {
        await page.emulateMedia({ colorScheme: theme });
        for (const width of WIDTHS) {
            await page.setViewportSize({ width, height: width === 390 ? 844 : 900 });
            await page.evaluate(() => new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done))));
            const wide = await page.evaluate(() => document.documentElement.scrollWidth - innerWidth);
            if (wide > 1) found.push(`${path} at ${width}: ${wide} px wider than the window`);
            await page.evaluate(() => document.getElementById("long-path")?.remove());
            if (width === 1400) found.push(...(await cutTables(path)));
            if (width < 2560 && theme === "light") found.push(...(await accessible(path, `${theme}, ${width}`)));
            if (width === 1400 && theme === "dark") found.push(...(await accessible(path, `${theme}, ${width}`, "color-contrast")));
            if (!asked.pictures) continue;
            const file = join(asked.pictures, `${nameOf(path)}-${width}-${theme}.png`);
            await page.screenshot({ path: file, clip: { x: 0, y: 0, width, height: width === 390 ? 844 : 900 } });
        }
    }
    await page.emulateMedia({ colorScheme: "light" });
    await page.setViewportSize({ width: 1400, height: 900 });
    return found;
}

/** The pages of the navigation, and a request's. */
async function everyPage() {
    await load("/");
    const paths = await page.evaluate(() =>
        [...document.querySelectorAll("header nav a")].map((link) => link.getAttribute("href") ?? ""),
    );
    assert.ok(paths.includes("/traces"), `the navigation has ${paths}`);
    // Asked for once before, so that answers are there, as they are for whoever comes after the first one.
    const found = [];
    for (const path of [...paths, `/traces/${asked.smallId}`]) {
        // Of a verb that this store has no answer for, such as one about the kernel, 422.
        await load(path, 200, 422);
        const paint = await load(path, 200, 422);
        if (path.startsWith("/traces/")) await page.waitForSelector("div.timeline[data-ready]");
        console.log(`first contentful paint of ${path}: ${paint.toFixed(0)} ms`);
        found.push(...(await look(path)));
    }
    assert.deepEqual(found, [], found.join("\n"));
}

/** Clear pages where there is nothing. */
async function nothingThere() {
    await load("/traces/ff", 404);
    assert.match(await page.textContent("main"), /no trace with this id/);
    await load(`/traces/${"f".repeat(40)}`, 400);
    await load("/traces?min=soon", 400);
    await load("/no-such-page", 404);
}

/** Names that are markup are texts, also in what scripts write. */
async function nothingExecuted() {
    await load(`/traces/${asked.smallId}`);
    await page.waitForSelector("div.timeline[data-ready]");
    await page.focus(".tl-view");
    for (let row = 0; row < 4; row += 1) {
        await page.keyboard.press("ArrowDown");
        await page.keyboard.press("Enter");
    }
    await page.waitForSelector(".tl-details .tl-id");
    await page.mouse.move(700, 400);
    assert.equal(await page.evaluate(() => "hacked" in window || document.querySelectorAll("main script").length > 0), false);
}

/** One click hands a request to Perfetto's page, here one that answers as that does, and says what it got. */
async function perfetto() {
    const theirs = `<!DOCTYPE html><title>theirs</title><script>
        addEventListener("message", ({ data, source, origin }) => {
            if (data === "PING") source.postMessage("PONG", origin);
            else if (data.perfetto) window.got = { bytes: [...new Uint8Array(data.perfetto.buffer)], name: data.perfetto.fileName };
        });</script>`;
    await context.route("https://ui.perfetto.dev/**", (route) => route.fulfill({ contentType: "text/html", body: theirs }));
    await load(`/traces/${asked.smallId}`);
    const links = page.locator("a[data-perfetto]");
    assert.ok((await links.count()) >= 2, "a request and its burst can be downloaded");
    const [other] = await Promise.all([context.waitForEvent("page"), page.click("button.hand >> nth=0")]);
    await other.waitForFunction(() => "got" in window);
    const got = await other.evaluate(() => window.got);
    const downloaded = await context.request.get(origin + (await links.nth(0).getAttribute("href")));
    assert.deepEqual(got.bytes, [...(await downloaded.body())]);
    assert.match(got.name, /^[0-9a-f]{32}\.pftrace$/);
    await page.waitForFunction(() => document.querySelector(".said")?.textContent === "opened there");
    await other.close();
    // What was imported was not recorded in bursts: that is said, in words.
    const [vain] = await Promise.all([context.waitForEvent("page"), page.click("button.hand >> nth=1")]);
    await page.waitForFunction(() => /^not opened: .*burst/.test([...document.querySelectorAll(".said")][1]?.textContent ?? ""));
    await vain.close();
    await context.unroute("https://ui.perfetto.dev/**");
}

/** Opens the large request, and zooms in it. */
async function large() {
    origin = new URL(asked.large).origin;
    const open = async () => {
        const began = Date.now();
        await load(`/traces/${asked.largeId}`);
        await page.waitForSelector("div.timeline[data-ready]");
        return Date.now() - began;
    };
    // Nobody has asked for anything yet: it is shown before the model is known, and by itself again when it is.
    const cold = await open();
    const isAwaited = (await page.locator("[data-awaits]").count()) > 0;
    await page.waitForFunction(() => !document.querySelector("[data-awaits]") && document.querySelector("#path"), null, { timeout: 120_000 });
    console.log(`the first page of all: open after ${cold} ms, ${isAwaited ? "before" : "with"} its critical path`);
    const opened = await open();
    const spans = await page.textContent(".tl-count");
    const read = await page.evaluate(() => document.querySelector("div.timeline").dataset.ready);
    console.log(`${spans}: open after ${opened} ms, of which ${read} ms for columns, layout and the first frame`);
    const zoomed = await page.evaluate(async () => {
        const host = document.querySelector("div.timeline");
        const canvas = document.querySelector(".tl-canvas");
        const frames = [];
        host.addEventListener("timeline-frame", (event) => frames.push(event.detail));
        const rect = canvas.getBoundingClientRect();
        const began = performance.now();
        for (let step = 0; step < 120; step += 1) {
            const deltaY = step % 60 < 30 ? -30 : 30;
            const at = { clientX: rect.left + rect.width * 0.7, clientY: rect.top + 120, ctrlKey: true, bubbles: true, cancelable: true };
            canvas.dispatchEvent(new WheelEvent("wheel", { deltaY, ...at }));
            await new Promise((done) => requestAnimationFrame(done));
        }
        return { frames, took: performance.now() - began };
    });
    const { frames, took } = zoomed;
    const boxes = Math.max(...frames.map((frame) => frame.boxes));
    const slowest = Math.max(...frames.map((frame) => frame.took_ms));
    console.log(
        `zoomed in ${frames.length} frames, ${((frames.length * 1000) / took).toFixed(0)} a second; a frame takes up to ` +
            `${slowest.toFixed(1)} ms and draws up to ${boxes} boxes in ${Math.max(...frames.map((frame) => frame.rows))} rows`,
    );
    assert.ok(frames.length >= 100, `${frames.length} frames for 120 turns of the wheel`);
    for (const { boxes, rows, pixels } of frames) {
        assert.ok(rows <= 100, `${rows} rows are drawn`);
        assert.ok(boxes <= rows * (pixels + 10), `${boxes} boxes in ${rows} rows of ${pixels} px`);
    }
    await keyboard();
    const found = await look(`/traces/${asked.largeId}`);
    assert.deepEqual(found, [], found.join("\n"));
}

/** What keys do is in the address, and what is in the address is shown. */
async function keyboard() {
    await page.focus(".tl-view");
    await page.keyboard.press("0");
    await page.keyboard.press("n");
    const first = await page.textContent(".tl-live");
    assert.match(first, /^piece 1 of \d+/);
    await page.keyboard.press("n");
    assert.match(await page.textContent(".tl-live"), /^piece 2 of \d+/);
    await page.keyboard.press("f");
    await page.keyboard.press("/");
    await page.keyboard.type("step 7");
    await page.keyboard.press("Enter");
    await page.waitForFunction(() => location.hash.includes("find=step") && location.hash.includes("span="));
    const address = page.url();
    const live = await page.textContent(".tl-live");
    await page.goto("about:blank");
    await page.goto(address);
    await page.waitForSelector("div.timeline[data-ready]");
    assert.equal(await page.textContent(".tl-live"), live);
    assert.equal(await page.inputValue(".tl-tools input"), "step 7");
}

/** Back undoes the last zoom, and the last selection; ticks differ however far it is zoomed in. */
async function back() {
    await load(`/traces/${asked.smallId}`);
    await page.waitForSelector("div.timeline[data-ready]");
    await page.focus(".tl-view");
    const at = (/** @type {RegExp} */ hash) => page.waitForFunction((text) => new RegExp(text).test(location.hash), hash.source);
    await at(/^$/);
    await page.waitForTimeout(400);
    await page.keyboard.press("ArrowDown");
    await at(/^#span=\w+$/);
    await page.keyboard.press("+");
    await at(/^#t=.*&span=\w+$/);
    await page.goBack();
    await at(/^#span=\w+$/);
    assert.notEqual(await page.textContent(".tl-live"), "");
    await page.waitForTimeout(400);
    await page.goBack();
    await at(/^$/);
    assert.equal(await page.textContent(".tl-live"), "");
}

/** A drag over requests over time chooses a range, which the pages behind links have, too; All leads back. */
async function range() {
    await load("/traces");
    const listed = () => page.locator("table.data tbody tr").count();
    const all = await listed();
    const box = await page.locator("svg.rate").boundingBox();
    const drag = async (/** @type {number} */ from, /** @type {number} */ to) => {
        await page.mouse.move(box.x + box.width * from, box.y + box.height / 2);
        await page.mouse.down();
        await page.mouse.move(box.x + box.width * to, box.y + box.height / 2, { steps: 3 });
        await Promise.all([page.waitForURL(/since=.*&until=/), page.mouse.up()]);
        await page.waitForSelector("footer");
    };
    await drag(0, 1);
    assert.equal(await listed(), all);
    const chosen = new URL(page.url()).searchParams.get("since");
    await Promise.all([page.waitForURL(/\/operations/), page.click("header nav a[href^='/operations']")]);
    assert.equal(new URL(page.url()).searchParams.get("since"), chosen);
    const names = await page.locator("select[name=root] option").allInnerTexts();
    assert.ok(names.length > 1, names.join());
    await Promise.all([page.waitForURL(/root=/), page.selectOption("select[name=root]", names[1])]);
    await Promise.all([page.waitForURL((url) => !url.searchParams.has("since")), page.click(".presets a:text('All')")]);
    assert.equal(new URL(page.url()).searchParams.get("root"), names[1]);
}

/** Links to a span lead to it, from wherever they are; on a phone its details come into sight, too. */
async function oneRequest() {
    await load(`/traces/${asked.smallId}`);
    await page.waitForSelector("div.timeline[data-ready]");
    assert.match(await page.textContent(".tl-keys"), /wheel/);
    const link = page.locator(".answer > .wide a[href^='#span=']").first();
    // The second time the address says the span already.
    for (const turn of [1, 2]) {
        await link.scrollIntoViewIfNeeded();
        await page.evaluate(() => scrollTo(0, document.documentElement.scrollHeight));
        await link.evaluate((one) => one.click());
        await page.waitForTimeout(300);
        const { top, bottom, live } = await page.evaluate(() => {
            const { top, bottom } = document.querySelector(".tl-view").getBoundingClientRect();
            return { top, bottom: bottom - innerHeight, live: document.querySelector(".tl-live").textContent };
        });
        assert.ok(top >= 0 && bottom <= 1 && live !== "", `turn ${turn}: ${top}, ${bottom}, ${live}`);
    }
    await page.setViewportSize({ width: 390, height: 844 });
    await page.waitForTimeout(300);
    await page.evaluate(() => document.querySelector(".tl-view").scrollIntoView({ block: "start" }));
    await page.mouse.click(200, 60);
    await page.waitForFunction(() => !document.querySelector(".tl-details").hidden);
    await page.waitForTimeout(500);
    const box = await page.evaluate(() => {
        const { top, bottom } = document.querySelector(".tl-details").getBoundingClientRect();
        return { top, bottom, height: innerHeight };
    });
    assert.ok(box.top >= 0 && box.bottom <= box.height + 1, JSON.stringify(box));
    await page.setViewportSize({ width: 1400, height: 900 });
}

/** A drag over the heatmap offers the requests that are in it, and to compare them with those before. */
async function heatmap() {
    await load("/");
    const box = await page.evaluate(() => {
        document.querySelector("figure.heatmap svg")?.scrollIntoView({ block: "center" });
        const cells = [...document.querySelectorAll("figure.heatmap rect.cell")].map((cell) => cell.getBoundingClientRect());
        return cells.length && {
            left: Math.min(...cells.map((cell) => cell.left)),
            right: Math.max(...cells.map((cell) => cell.right)),
            top: Math.min(...cells.map((cell) => cell.top)),
            bottom: Math.max(...cells.map((cell) => cell.bottom)),
        };
    });
    if (!box) return console.log("SKIPPED: the heatmap (the overview has none)");
    await page.mouse.move(box.left + 1, box.top + 1);
    await page.mouse.down();
    await page.mouse.move((box.left + box.right) / 2, (box.top + box.bottom) / 2);
    await page.mouse.move(box.right - 1, box.bottom - 1);
    await page.mouse.up();
    const ways = page.locator("figure.heatmap .ways a");
    await ways.first().waitFor();
    await Promise.all([page.waitForURL(/\/traces\?from=\d+&to=\d+&min=\d+&max=\d+/), ways.first().click()]);
    const listed = await page.locator("table.data tbody tr").count();
    assert.ok(listed > 0, page.url());
    // The later half has a time before it.
    await page.goBack();
    await page.waitForSelector("figure.heatmap[data-ready] rect.cell");
    const later = await page.evaluate(() => {
        document.querySelector("figure.heatmap svg")?.scrollIntoView({ block: "center" });
        const cells = [...document.querySelectorAll("figure.heatmap rect.cell")].map((cell) => cell.getBoundingClientRect());
        const left = Math.min(...cells.map((cell) => cell.left));
        const right = Math.max(...cells.map((cell) => cell.right));
        const top = Math.min(...cells.map((cell) => cell.top));
        return right - left < 20 ? null : { left: (left + right) / 2, right, top, bottom: Math.max(...cells.map((cell) => cell.bottom)) };
    });
    if (!later) return;
    await page.mouse.move(later.left, later.top + 1);
    await page.mouse.down();
    await page.mouse.move(later.right - 1, later.bottom - 1, { steps: 3 });
    await page.mouse.up();
    assert.match(await page.locator("figure.heatmap .ways").innerText(), /Compare this time with (as long|all) before · Explain what changed/);
    await Promise.all([page.waitForURL(/\/compare\?before=.*&after=/), ways.nth(1).click()]);
    assert.match(await page.inputValue("#f-before"), /^\d{4}-\d\d-\d\dT.*Z\.\.\d{4}-.*Z$/);
    assert.equal(await page.locator(".notice.error").count(), 0, await page.innerText("main"));
}

/** A click on a head sorts, the other way with the next one. */
async function tables() {
    await load("/traces");
    const took = () => page.$$eval("table.data tbody tr td:nth-child(3)", (cells) => cells.map((cell) => Number(cell.dataset.value)));
    const down = await took();
    await page.click("table.data th:nth-child(3) button");
    assert.deepEqual(await took(), [...down].sort((a, b) => b - a));
    await page.click("table.data th:nth-child(3) button");
    assert.deepEqual(await took(), [...down].sort((a, b) => a - b));
    assert.equal(await page.getAttribute("table.data th:nth-child(3)", "aria-sort"), "ascending");
    await page.fill(".filter input", "no such request");
    assert.equal(await page.locator("table.data tbody tr:visible").count(), 0);
}

try {
    for (const part of [everyPage, nothingThere, nothingExecuted, tables, range, oneRequest, back, heatmap, perfetto, large]) {
        const began = Date.now();
        await part();
        console.log(`${part.name}: ${((Date.now() - began) / 1000).toFixed(1)} s`);
    }
} finally {
    await browser.close();
}
