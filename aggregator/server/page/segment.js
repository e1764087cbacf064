/** A segment as a file: its bytes as areas, its columns, its data from the first space to the last, and verification. */

import { link } from "./address.js";
import { ApiError, askJson, givenUp } from "./api.js";
import { h, replace, rove, svg } from "./dom.js";
import { bytes, count, moment } from "./format.js";
import { figure } from "./overview.js";
import { resultTable } from "./result_table.js";
import { session } from "./session.js";
import { drawTreemap } from "./treemap.js";

const STRIP = 34;
const KINDS = /** @type {Record<string, string>} */ ({
  data: "Data of columns", directory: "Which rows are whose", index: "Indexes", filter: "Filter of spaces",
  dictionary: "Dictionaries of values", templates: "Templates of payloads", metadata: "Metadata", other: "The rest",
});

/** @typedef {Record<string, any>} Facts */

export class SegmentView {
  constructor() {
    this.element = h("div", { class: "page" });
    this.name = "";
    this.redraw = () => {};
    this.asked = new AbortController();
    window.addEventListener("resize", () => this.redraw());
  }

  title() {
    return this.name;
  }

  leave() {
    this.redraw = () => {};
    this.asked.abort(); // reading a whole segment takes a while
  }

  /** @param {string} place a topic and the number of a segment: `clicks/7` */
  async show(place) {
    const cut = place.lastIndexOf("/");
    const topic = place.slice(0, cut), number = place.slice(cut + 1);
    const path = `v1/topics/${encodeURIComponent(topic)}/segments/${encodeURIComponent(number)}`;
    this.name = session.fixed ? topic : `Segment ${number} of ${topic}`;
    this.asked.abort();
    this.asked = new AbortController();
    const found = await this.look(path);
    if (session.fixed && found) this.name = found.file;
    const map = h("div", { class: "timeline" }), strip = h("div", { class: "timeline" });
    const verdict = h("div", { class: "removal", role: "status" });
    const button = h("button", { type: "button", onclick: () => void this.verify(`${path}/verify`, verdict, button) }, "Verify");
    replace(this.element,
      h("p", { class: "crumbs" }, h("a", { href: "#/overview" }, session.fixed ? "Files" : "Overview"), " › ",
        h("a", { href: link("topic", topic) }, h("bdi", {}, topic))),
      h("header", { class: "topic-head" }, h("h1", {}, h("bdi", {}, this.name)), button), verdict,
      ...(found ? sections(found, map, strip) : [h("p", { class: "error", role: "alert" }, this.trouble)]));
    this.redraw = () => found && draw(found, map, strip);
    this.redraw();
    if (found) void this.holds(path);
  }

  trouble = "";

  /** Show statistics of its columns, once loaded. @param {string} path */
  async holds(path) {
    const box = h("section", {}, h("h2", {}, "Columns"), h("p", { class: "aside" }, "Reading …"));
    this.element.append(box);
    try {
      const { columns } = await askJson(`${path}/columns`, { signal: this.asked.signal });
      replace(box, h("h2", {}, "Columns"), h("div", { class: "result held", tabindex: 0, role: "region", "aria-label": "Columns" }, resultTable(columns.map(held))));
    } catch (error) {
      if (givenUp(error)) return;
      if (!(error instanceof ApiError)) throw error;
      replace(box, h("p", { class: "aside" }, `Statistics of the columns are not available: ${error.message}`));
    }
  }

  /** The structure of its bytes; null if it cannot be determined. @param {string} path @returns {Promise<Facts | null>} */
  async look(path) {
    try {
      return await askJson(path, { signal: this.asked.signal });
    } catch (error) {
      if (!(error instanceof ApiError) || error.status < 500) throw error;
      this.trouble = `${error.message} ${error.hint ?? ""}`;
      return null;
    }
  }

  /** @param {string} path @param {HTMLElement} box @param {HTMLButtonElement} button */
  async verify(path, box, button) {
    button.disabled = true;
    replace(box, h("p", {}, "Reading every byte …"));
    try {
      const report = await askJson(path, { method: "POST", signal: this.asked.signal });
      replace(box, h("p", { class: report.ok ? "sound" : "error" }, report.ok
        ? `All ${count(report.blocks)} blocks with ${count(report.events)} events are valid.`
        : `${count(report.problems.length)} problems:`),
      h("ul", {}, ...report.problems.slice(0, 50).map((/** @type {Facts} */ each) =>
        h("li", {}, `At byte ${count(each.offset)}: ${each.what}; ${each.hint}`))));
    } catch (error) {
      if (givenUp(error)) return;
      if (!(error instanceof ApiError)) throw error;
      replace(box, h("p", { class: "error" }, error.message, " ", error.hint));
    }
    button.disabled = false;
  }
}

/** A column as a row of a table. @param {Facts} column */
const held = ({ name, type, nulls, least, greatest, different, mean_bytes: mean }) => ({
  Column: name, Type: type, Empty: count(nulls), Different: different === null ? "" : count(different),
  Least: least, Greatest: greatest, "Mean length": mean === null ? "" : bytes(mean),
});

/** @param {Facts} found @param {HTMLElement} map @param {HTMLElement} strip */
function sections(found, map, strip) {
  const about = found.columns.some((/** @type {Facts} */ each) => each.sampled);
  return [
    h("div", { class: "figures" },
      figure("Events", count(found.events), `of ${count(found.spaces)} spaces`),
      figure("Size", bytes(found.size_bytes), found.events ? `${(found.size_bytes / found.events).toFixed(1)} bytes per event` : ""),
      figure("Compression", found.codec, "")),
    h("section", {}, h("h2", {}, "Contents by size"), map, summary(found)),
    h("section", {}, h("h2", {}, "Data, from the first space to the last"), strip),
    about && h("p", { class: "aside" }, "Shares of columns are estimated from some of the data blocks."),
  ];
}

/** @param {Facts} found @param {HTMLElement} map @param {HTMLElement} strip */
function draw(found, map, strip) {
  const areas = [
    ...found.columns.map((/** @type {Facts} */ each) => ({ kind: "data", name: each.name, size: each.bytes,
      told: `Data of ${each.name}${each.type ? ` (${each.type})` : ""}: ${each.sampled ? "about " : ""}${share(each.bytes, found.size_bytes)}` })),
    ...others(found).map((each) => ({ kind: each.kind, name: each.name, size: each.bytes, told: tell(each, found.size_bytes) })),
  ];
  drawTreemap(map, areas, `Contents of ${bytes(found.size_bytes)} by size`);
  drawStrip(strip, found);
}

/** @param {Facts} found @returns {Facts[]} */
const others = (found) => found.parts.filter((/** @type {Facts} */ part) => part.kind !== "data");

/** @param {number} size @param {number} all */
function share(size, all) {
  const percent = (100 * size) / Math.max(1, all);
  return `${bytes(size)}, ${percent < 0.05 ? "less than 0.1" : percent.toFixed(1)} %`;
}

/** A part as text. @param {Facts} part @param {number} all */
function tell(part, all) {
  const { values, events, templates, copy, of } = part.facts;
  const more = [values !== undefined && `${count(values)} values`, events !== undefined && `of ${count(events)} events`,
    templates !== undefined && `${count(templates)} templates`, of && `for ${of}`, copy && "a spare copy"].filter(Boolean);
  const name = part.name ? ` (${part.name})` : "";
  return `${KINDS[part.kind] ?? part.kind}${name}: ${share(part.bytes, all)}${more.length ? `; ${more.join(" ")}` : ""}`;
}

/** Each kind of part with its bytes, so that small ones are visible, too. @param {Facts} found */
function summary(found) {
  /** @type {Map<string, number>} */
  const sums = new Map();
  for (const part of found.parts) sums.set(part.kind, (sums.get(part.kind) ?? 0) + part.bytes);
  const rows = [...sums].sort((a, b) => b[1] - a[1]).map(([kind, size]) => h("div", {},
    h("dt", {}, h("span", { class: `swatch kind-${kind}` }), KINDS[kind] ?? kind), h("dd", {}, share(size, found.size_bytes))));
  return h("dl", { class: "kinds" }, ...rows);
}

/** The data blocks in the order of the file. @param {HTMLElement} box @param {Facts} found */
function drawStrip(box, found) {
  const parts = found.parts.filter((/** @type {Facts} */ part) => part.kind === "data");
  const told = h("p", { class: "area-told", role: "status" }, "Point at a part for details.");
  const across = Math.max(280, box.clientWidth);
  const whole = parts.reduce((/** @type {number} */ sum, /** @type {Facts} */ part) => sum + part.bytes, 0) || 1;
  let x = 0;
  const shown = parts.map((/** @type {Facts} */ part) => {
    const { events, first_space: space, min_timestamp: low, max_timestamp: high } = part.facts;
    const from = space === undefined ? "" : ` from ${space} on`;
    const text = `${count(events)} events${from}, ${moment(low)} to ${moment(high)}: ${count(part.blocks)} blocks, ${bytes(part.bytes)}`;
    const width = (part.bytes / whole) * across;
    const tells = () => { told.textContent = text; };
    const made = svg("rect", { class: "area kind-data", x, y: 0, width: Math.max(0.5, width - 1), height: STRIP, rx: 2, role: "img", "aria-label": text,
      tabindex: -1, onpointerenter: tells, onfocus: tells }, svg("title", {}, text));
    x += width;
    return made;
  });
  const picture = svg("svg", { class: "treemap", viewBox: `0 0 ${across} ${STRIP}`, width: across, height: STRIP, role: "group", "aria-label": "Data blocks in the order of the file" }, ...shown);
  rove(picture, shown);
  replace(box, picture, told);
}
