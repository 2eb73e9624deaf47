// @ts-check
// Opens a downloadable trace in Perfetto's own page on a click. The page is in another window, which gets the trace directly.
// The handshake is Perfetto's (perfetto.dev/docs/visualization/deep-linking-to-perfetto-ui): its page answers PONG to PING once
// it listens.

/** Interval of PINGs, in ms. */
const ASKED_EVERY_MS = 50;
/** Maximum wait for PONG, in ms. */
const PATIENCE_MS = 15_000;

/** Waits until a window of another site listens.
 * @param {Window} other @param {string} origin */
function listens(other, origin) {
    return new Promise((done, failed) => {
        const began = performance.now();
        /** @param {MessageEvent} event */
        const heard = (event) => {
            if (event.source === other && event.origin === origin && event.data === "PONG") end(() => done(undefined));
        };
        const asking = setInterval(() => {
            if (other.closed) return end(() => failed(new Error("its window was closed")));
            if (performance.now() - began > PATIENCE_MS) return end(() => failed(new Error(`${origin} does not answer; download the file, and open it there`)));
            other.postMessage("PING", origin);
        }, ASKED_EVERY_MS);
        /** @param {() => void} then */
        const end = (then) => {
            clearInterval(asking);
            removeEventListener("message", heard);
            then();
        };
        addEventListener("message", heard);
    });
}

/** @param {HTMLAnchorElement} link @param {HTMLElement} said */
async function hand(link, said) {
    const origin = new URL(link.dataset.perfetto ?? "").origin;
    // Opens the window before any wait, because browsers allow it only during the click.
    const other = open(origin);
    if (!other) throw new Error("the browser opened no window: allow it, or open the downloaded file there");
    said.textContent = `waiting for ${origin} …`;
    const [answer] = await Promise.all([fetch(link.href), listens(other, origin)]);
    if (!answer.ok) throw new Error((await answer.text()).trim());
    const buffer = await answer.arrayBuffer();
    const fileName = /filename="([^"]+)"/.exec(answer.headers.get("content-disposition") ?? "")?.[1] ?? "trace.pftrace";
    other.postMessage({ perfetto: { buffer, title: `Stroboscope ${fileName}`, fileName } }, origin, [buffer]);
    said.textContent = "opened there";
}

/** @param {HTMLAnchorElement} link */
function offer(link) {
    const button = document.createElement("button");
    button.type = "button";
    button.className = "hand";
    button.textContent = "Open in Perfetto";
    button.title = `Opens ${link.dataset.perfetto} in another window and hands it the trace; nothing is sent before the click`;
    const said = document.createElement("span");
    said.className = "said";
    said.setAttribute("role", "status");
    link.after(" ", button, " ", said);
    button.addEventListener("click", () => {
        hand(link, said).catch((error) => {
            said.textContent = `not opened: ${error.message}`;
        });
    });
}

for (const link of document.querySelectorAll("a[data-perfetto]")) if (link instanceof HTMLAnchorElement) offer(link);
