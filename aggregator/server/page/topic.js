/** A topic: its figures, its segments on a timeline, its policies, its columns; and upkeep, if permitted. */

import { link } from "./address.js";
import { ApiError, ask, askJson, givenUp } from "./api.js";
import { confirmed } from "./dialogs.js";
import { h, replace } from "./dom.js";
import { exportMenu } from "./export.js";
import { bytes, count, duration, moment, visible } from "./format.js";
import { figure } from "./overview.js";
import { valuesOf, withValue } from "./question.js";
import { retentionMeters } from "./retention.js";
import { session } from "./session.js";
import { drawTimeline } from "./timeline.js";
import { retentionForm, rollForm, upkeep } from "./upkeep.js";

const SHOWN = 8; // values of an index

/** @typedef {Record<string, any>} Facts */

export class TopicView {
  constructor() {
    this.element = h("div", { class: "page" });
    this.name = "";
    this.notice = ""; // result of the last action
    this.redraw = () => {};
    this.asked = new AbortController();
    window.addEventListener("resize", () => this.redraw());
  }

  title() {
    return this.name;
  }

  leave() {
    this.notice = "";
    this.redraw = () => {};
    this.asked.abort();
  }

  /** @param {string} name */
  async show(name) {
    if (name !== this.name) this.notice = "";
    this.name = name;
    const path = `v1/topics/${encodeURIComponent(name)}`;
    this.asked.abort();
    this.asked = new AbortController();
    const { signal } = this.asked;
    const [facts, { segments }] = await Promise.all([askJson(path, { signal }), askJson(`${path}/segments`, { signal })]);
    const line = h("div", { class: "timeline" });
    const changed = (/** @type {string} */ told) => {
      this.notice = told;
      void this.show(name);
    };
    const may = session.mayChange(name);
    replace(this.element,
      h("p", { class: "crumbs" }, h("a", { href: "#/overview" }, session.fixed ? "Files" : "Overview")),
      h("header", { class: "topic-head" }, h("h1", {}, h("bdi", {}, name)),
        h("div", { class: "acts" }, this.exports(path, facts),
          h("a", { class: "button primary", href: link("explore", "", { topic: name }) }, "Explore events"))),
      this.notice && h("p", { class: "sound", role: "status" }, this.notice),
      h("div", { class: "figures" },
        figure("Events", count(facts.rows), session.fixed ? "" : `${count(facts.unsealed_rows)} unsealed`),
        !session.fixed && figure("Size", bytes(facts.bytes), facts.rows ? `${(facts.bytes / facts.rows).toFixed(1)} bytes per event` : ""),
        figure(session.fixed ? "Files" : "Segments", count(facts.segments), session.fixed ? "" : partitions(facts)),
        facts.min_timestamp !== null && figure("Time", duration(facts.max_timestamp - facts.min_timestamp), `from ${moment(facts.min_timestamp)}`)),
      h("section", {}, h("h2", {}, `${session.fixed ? "Files" : "Segments"} by time`), line),
      !session.fixed && h("div", { class: "columns" },
        h("section", {}, h("h2", {}, "Retention"), ...retentionMeters(facts), may && retentionForm(path, facts, changed)),
        h("section", {}, h("h2", {}, "Sealing"), may ? rollForm(path, facts, changed) : policies(facts),
          ...(may ? [h("h2", {}, "Upkeep"), ...upkeep(path, facts, changed)] : []))),
      h("section", {}, h("h2", {}, "Columns"), columns(facts), h("div", { class: "indexes" }, ...facts.indexes.map((/** @type {string} */ index) => this.index(index)))));
    this.redraw = () => drawTimeline(line, segments, facts);
    this.redraw();
  }

  /** Export all of its events as a file, after confirmation. @param {string} path @param {Facts} facts */
  exports(path, facts) {
    const told = h("span", { class: "error", role: "alert" });
    const menu = exportMenu(true, (accept, signal) => ask(`${path}/events`, { accept, signal }), (error) => {
      if (!(error instanceof ApiError)) throw error;
      replace(told, error.message);
    }, () => confirmed(`Export all ${count(facts.rows)} events?`, `They take ${bytes(facts.bytes)} here; as text they are several times as large, and the browser keeps all of them in memory. To export some of them, use Explore.`, "Export", "primary"));
    return h("span", {}, menu, told);
  }

  /** The values of an index with their numbers of events, filled in when loaded. @param {string} index */
  index(index) {
    const box = h("div", { class: "index" }, h("h3", {}, "Index ", h("bdi", {}, index)));
    void valuesOf(this.name, index, SHOWN, this.asked.signal).then(({ values, different }) => {
      const most = Math.max(1, ...values.map(({ events }) => events));
      for (const { value, events } of values) {
        const bar = h("span", { class: "value-bar" });
        bar.style.inlineSize = `${(events / most) * 100}%`;
        const to = link("explore", "", { topic: this.name, ...withValue(index, value) });
        box.append(h("a", { class: "value-line", href: to }, bar, h("bdi", {}, visible(String(value).slice(0, 80))), h("span", { class: "n" }, count(events))));
      }
      const rest = different - values.length;
      if (rest > 0) box.append(h("p", { class: "aside" }, `and ${count(rest)} other values`));
    }).catch((error) => {
      if (error instanceof ApiError) box.append(h("p", { class: "aside" }, error.message));
      else if (!givenUp(error)) throw error;
    });
    return box;
  }
}

/** @param {Facts} facts */
function partitions(facts) {
  const names = Object.keys(facts.partitions);
  return names.length === 1 ? "in one partition" : `in ${count(names.length)} partitions`;
}

/** @param {Facts} facts */
function policies({ roll }) {
  return h("dl", { class: "facts" },
    h("div", {}, h("dt", {}, "Events"), h("dd", {}, count(roll.rows))),
    h("div", {}, h("dt", {}, "Size"), h("dd", {}, bytes(roll.bytes))),
    h("div", {}, h("dt", {}, "Age"), h("dd", {}, duration(roll.age_us))));
}

/** @param {Facts} facts */
function columns({ schema, keys }) {
  return h("p", { class: "column-list" }, ...Object.entries(schema).map(([name, type]) =>
    h("span", { class: "column" }, h("bdi", {}, name), " ", h("span", { class: "aside" }, String(type)))), h("span", { class: "aside" }, `keys are ${keys}`));
}
