/** The result of a statement that returns no records: groups, lists, EXPLAIN. */

import { h } from "./dom.js";
import { Exact } from "./exact_json.js";
import { plain } from "./row_summary.js";

const MOST = 2_000;
const MEASURED = /^count$|^(sum|min|max|avg)\(/i; // columns whose numbers are not identifiers

/** @param {Record<string, any>[]} rows */
export function resultTable(rows) {
  if (!rows.length) return h("p", { class: "chart-none" }, "No rows.");
  const names = [...new Set(rows.slice(0, MOST).flatMap((row) => Object.keys(row)))];
  const isNumber = (/** @type {string} */ name) => rows.every((row) => row[name] === null || typeof row[name] === "number" || row[name] instanceof Exact);
  const kinds = names.map((name) => (isNumber(name) ? "number" : "text"));
  const cell = (/** @type {any} */ value, /** @type {string} */ name) => {
    if (value === null || value === undefined) return "";
    return MEASURED.test(name) ? plain(value).replace(/^-?\d{5,}$/, (digits) => digits.replace(/\B(?=(\d{3})+$)/g, ",")) : plain(value);
  };
  return h("table", {},
    h("thead", {}, h("tr", {}, ...names.map((name, i) => h("th", { scope: "col", class: kinds[i] }, name)))),
    h("tbody", {}, ...rows.slice(0, MOST).map((row) => h("tr", {}, ...names.map((name, i) => h("td", { class: kinds[i] }, h("bdi", {}, cell(row[name], name))))))),
    rows.length > MOST && h("caption", {}, `The first ${MOST.toLocaleString("en-US")} of ${rows.length.toLocaleString("en-US")} rows; Export includes all.`));
}
