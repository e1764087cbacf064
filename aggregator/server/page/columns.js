/** The columns that rows show, and their order: chosen in a menu, kept in the URL. */

import { h } from "./dom.js";

/** @param {URLSearchParams} params @returns {string[]} */
export function columnsOf(params) {
  try {
    const found = JSON.parse(params.get("cols") ?? "[]");
    return Array.isArray(found) ? found.filter((name) => typeof name === "string").slice(0, 20) : [];
  } catch {
    return [];
  }
}

/**
 * @param {string[]} chosen @param {string[]} names of all columns
 * @param {(columns: string[]) => void} choose
 */
export function columnsMenu(chosen, names, choose) {
  const button = (/** @type {string} */ sign, /** @type {string} */ told, /** @type {string[]} */ then) =>
    h("button", { type: "button", class: "narrow", title: told, "aria-label": told, onclick: () => choose(then) }, sign);
  const moved = (/** @type {number} */ at) => chosen.toSpliced(at, 1).toSpliced(at - 1, 0, chosen[at]);
  return h("details", { class: "menu columns-menu" }, h("summary", {}, "Columns"), h("div", { class: "menu-box" },
    ...chosen.map((name, at) => h("div", { class: "column-line" }, h("bdi", {}, name),
      at > 0 && button("↑", `Move ${name} before ${chosen[at - 1]}`, moved(at)), button("×", `Remove ${name}`, chosen.toSpliced(at, 1)))),
    chosen.length > 0 && h("button", { type: "button", onclick: () => choose([]) }, "All columns"),
    ...names.filter((name) => !chosen.includes(name)).map((name) =>
      h("button", { type: "button", title: "Show as a column", onclick: () => choose([...chosen, name]) }, "+ ", h("bdi", {}, name)))));
}
