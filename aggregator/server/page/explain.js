/** The result of EXPLAIN as a chart: how many segments and blocks of each topic are read, and why the others are not. */

import { h } from "./dom.js";
import { count } from "./format.js";

/** @typedef {Record<string, any>} Facts */

/** Whether a statement is an EXPLAIN. @param {string} statement in its canonical text */
export const isExplain = (statement) => statement.startsWith("EXPLAIN ");

/** @param {Facts[]} rows @returns {HTMLElement} */
export function explainPicture(rows) {
  if (!rows.length) return h("p", { class: "chart-none" }, "Nothing is read: no topic can contain such records.");
  return h("div", { class: "explained" }, ...rows.map((row) => {
    const streams = row.streams > 0 && h("p", { class: "aside" }, `${count(row.streams)} ${row.streams === 1 ? "stream or space" : "streams or spaces"}`);
    return h("article", { class: "topic-card" },
      h("h2", {}, h("bdi", {}, row.topic)), streams,
      share("Segments", row.read, row.segments),
      share("Blocks of these segments", row["blocks read"], row.blocks),
      h("p", {}, ...how(row)));
  }));
}

/** @param {string} name @param {number} read @param {number} all */
function share(name, read, all) {
  const bar = h("span", { class: "meter-bar" });
  bar.style.inlineSize = `${all ? (100 * read) / all : 0}%`;
  const told = all ? `${count(read)} of ${count(all)} read` : "none";
  return h("div", { class: "meter" }, h("span", { class: "meter-name" }, name), h("span", { class: "meter-told" }, told),
    h("span", { class: "meter-track tall", role: "meter", "aria-label": `${name} read`, "aria-valuemin": 0, "aria-valuemax": all, "aria-valuenow": read, "aria-valuetext": told }, bar));
}

/** Describe how events are found. @param {Facts} row */
function how(row) {
  const { indexes, columns, "unsealed batches": batches } = row;
  const parts = [];
  parts.push(indexes.length ? `Found by ${indexes.length === 1 ? "the index" : "the indexes"} ${indexes.join(", ")}.` : "No index helps: everything that may contain such records is read.");
  if (columns.length) parts.push(` Conditions read ${columns.join(", ")}.`);
  if (batches) parts.push(` ${count(batches)} unsealed ${batches === 1 ? "batch" : "batches"} in memory.`);
  return parts;
}
