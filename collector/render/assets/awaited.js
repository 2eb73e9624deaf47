// @ts-check
// A page that lacks something is shown again when that is there: at once if nobody has touched it yet, otherwise on a click.

/** How long before who did not answer is asked again, ms. */
const AGAIN_AFTER_MS = 2_000;
/** So often at most. */
const ASKED_MAX = 30;

/** What is awaited takes the processor: the timeline is drawn first. */
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
            // The address alone would lead to a part of the page.
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
