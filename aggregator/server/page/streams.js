/** Streams grouped by one of their tags: records, bytes, and rates of arrival. Part of the overview. */

import { link } from "./address.js";
import { ApiError, askLines } from "./api.js";
import { h, replace } from "./dom.js";
import { bytes, count, rough } from "./format.js";
import { quoted } from "./question.js";
import { Rates, latest, sparkline } from "./sparkline.js";
import { readTags } from "./tags.js";

const MOST = 2_000, SHOWN = 12, EVERY_MS = 9_000, SLOW_MS = 1_000;

/** @typedef {{tag: string, value: string, streams: number, records: number, bytes: number}} Group */

/**
 * Group by the tag that most streams have; among several, by the one with the fewest values, but more than one.
 * @param {Record<string, any>[]} rows of SHOW PARTITIONS @returns {Group[]} the largest first
 */
export function groupsOf(rows) {
  const streams = rows.map((row) => ({ ...row, tags: new Map(readTags(row.tags) ?? []) }));
  /** @type {Map<string, Set<string>>} */
  const values = new Map();
  const have = (/** @type {string} */ tag) => streams.filter(({ tags }) => tags.has(tag)).length;
  for (const { tags } of streams) for (const [tag, value] of tags) values.set(tag, (values.get(tag) ?? new Set()).add(value));
  const rank = (/** @type {[string, Set<string>]} */ [tag, of]) => [-have(tag), of.size > 1 ? of.size : Infinity];
  const [best] = [...values].sort((a, b) => rank(a)[0] - rank(b)[0] || rank(a)[1] - rank(b)[1]);
  if (!best) return [];
  /** @type {Map<string, Group>} */
  const groups = new Map();
  for (const { tags, records, bytes: size } of /** @type {any[]} */ (streams)) {
    const value = tags.get(best[0]) ?? "";
    const known = groups.get(value) ?? { tag: best[0], value, streams: 0, records: 0, bytes: 0 };
    groups.set(value, { ...known, streams: known.streams + 1, records: known.records + records, bytes: known.bytes + size });
  }
  return [...groups.values()].sort((a, b) => b.records - a.records);
}

export class Streams {
  constructor() {
    this.element = h("section", { class: "streams", hidden: true });
    this.rates = new Rates();
    this.next = 0; // time of the next query
  }

  /** Query the streams, unless that was done recently. */
  async look() {
    const began = performance.now();
    if (began < this.next) return;
    this.next = Infinity;
    try {
      const rows = await askLines("v1/query", { body: JSON.stringify({ query: `SHOW PARTITIONS LIMIT ${MOST}` }) });
      const took = performance.now() - began;
      this.next = took < SLOW_MS ? began + EVERY_MS : Infinity; // do not repeat it for very many streams
      this.draw(groupsOf(rows), rows.length);
    } catch (error) {
      if (!(error instanceof ApiError)) throw error;
      this.next = error.status === 403 ? Infinity : began + EVERY_MS; // tokens for some topics only see no streams
    }
  }

  /** @param {Group[]} groups @param {number} streams */
  draw(groups, streams) {
    this.element.hidden = !groups.length;
    if (!groups.length) return;
    const rest = groups.length - SHOWN;
    const heads = [`By ${groups[0].tag}`, "Streams", "Records", "Bytes", "Arriving"];
    replace(this.element,
      h("h2", {}, "Streams ", h("span", { class: "aside" }, streams < MOST ? count(streams) : `the largest ${count(MOST)}`)),
      h("div", { class: "result" }, h("table", {},
        h("thead", {}, h("tr", {}, ...heads.map((head, i) => h("th", { scope: "col", class: i ? "number" : "" }, head)))),
        h("tbody", {}, ...groups.slice(0, SHOWN).map((group) => this.row(group))))),
      rest > 0 && h("p", { class: "aside" }, `and ${count(rest)} other groups`));
  }

  /** @param {Group} group */
  row({ tag, value, streams, records, bytes: size }) {
    const rates = this.rates.add(value, records);
    const name = value === "" ? h("span", { class: "none" }, `no ${tag}`)
      : h("a", { href: link("explore", "", { lql: `SELECT FROM ${tag} = ${quoted(value)}` }) }, h("bdi", {}, value.slice(0, 80)));
    return h("tr", {}, h("td", {}, name), ...[count(streams), count(records), bytes(size)].map((told) => h("td", { class: "number" }, told)),
      h("td", { class: "number" }, h("span", { class: "rate" }, sparkline(rates), `${rough(latest(rates))}/s`)));
  }
}
