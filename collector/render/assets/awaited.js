// @ts-check
// Reloads a page that lacks a result when the result is available: at once, or on a click if the user has touched the page.

/** Time between two requests for the result, in ms. */
const AGAIN_AFTER_MS = 2_000;
/** Maximum number of requests. */
const ASKED_MAX = 30;

/** Maximum wait until the timeline is drawn, in ms. Computing the result takes the processor, so the timeline is drawn first. */
const DRAWN_WITHIN_MS = 10_000;

async function drawn() {
    const began = performance.now();
    const isBeingDrawn = () => document.querySelector("div.timeline[data-source]:not([data-ready])");
    while (isBeingDrawn() && performance.now() - began < DRAWN_WITHIN_MS) await new Promise((done) => setTimeout(done, 50));
}

/** @param {HTMLElement} notice */
async function show(notice) {
    let isTouched = false;
    for (const kind of ["pointerdown", "keydown", "wheel"]) addEventListener(kind, () => (isTouched = true), { passive: true });
    await drawn();
    for (let asked = 0; asked < ASKED_MAX; asked++) {
        const answer = await fetch(notice.dataset.awaits ?? "").catch(() => null);
        if (answer?.ok) {
            if (!isTouched) return location.reload();
            const again = document.createElement("a");
            again.href = location.href;
            again.textContent = "Show it";
            // Following the address alone would only scroll to a part of the page.
            again.addEventListener("click", (event) => {
                event.preventDefault();
                location.reload();
            });
            notice.replaceChildren("A newer result is available. ", again);
            return;
        }
        await new Promise((done) => setTimeout(done, AGAIN_AFTER_MS));
    }
}

for (const notice of document.querySelectorAll("[data-awaits]")) if (notice instanceof HTMLElement) show(notice);
