/** The complete result as a file. The browser keeps it in memory until it is complete: the command suits very large ones. */

import { lost } from "./api.js";
import { h, replace } from "./dom.js";
import { bytes } from "./format.js";
import { FILES } from "./question.js";

/** @typedef {(accept: string, signal: AbortSignal) => Promise<Response>} Get */

/**
 * @param {boolean} events rather than rows of a table @param {Get} get @param {(error: unknown) => void} failed
 * @param {() => Promise<boolean>} [may] asks for confirmation
 */
export function exportMenu(events, get, failed, may = async () => true) {
  const told = h("span", { role: "status" });
  const choices = Object.entries(FILES).filter(([, [, ending]]) => events || ending !== "esdb").map(([name, [media, ending]]) =>
    h("button", { type: "button", onclick: () => void run(media, ending) }, name));
  const menu = h("details", { class: "menu" }, h("summary", {}, "Export"), h("div", { class: "menu-box" },
    ...choices, told));
  /** @param {string} media @param {string} ending */
  async function run(media, ending) {
    if (!(await may())) return;
    const stopping = new AbortController();
    replace(told, "Reading … ");
    const stop = h("button", { type: "button", onclick: () => stopping.abort() }, "Stop");
    try {
      const answer = await get(media, stopping.signal);
      const pieces = await read(answer, (size) => replace(told, `${bytes(size)} `, stop));
      save(new Blob(pieces, { type: media }), `events.${ending}`);
      menu.open = false;
    } catch (error) {
      if (!stopping.signal.aborted) failed(lost(error));
    } finally {
      replace(told);
    }
  }
  return menu;
}

/** @param {Response} answer @param {(size: number) => void} told */
async function read(answer, told) {
  const reader = /** @type {ReadableStream<Uint8Array<ArrayBuffer>>} */ (answer.body).getReader();
  const pieces = [];
  let size = 0;
  for (;;) {
    const { done, value } = await reader.read();
    if (done) return pieces;
    pieces.push(value);
    size += value.length;
    told(size);
  }
}

/** @param {Blob} blob @param {string} name */
function save(blob, name) {
  const address = URL.createObjectURL(blob);
  h("a", { href: address, download: name }).click();
  setTimeout(() => URL.revokeObjectURL(address), 60_000);
}
