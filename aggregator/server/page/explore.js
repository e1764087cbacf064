/** Explore: a query, its hits over time, its rows; all of its state is in the URL. */

import { go, link } from "./address.js";
import { ApiError, askJson, givenUp } from "./api.js";
import { AskForm } from "./ask_form.js";
import { columnsMenu, columnsOf } from "./columns.js";
import { h, replace } from "./dom.js";
import { explainPicture, isExplain } from "./explain.js";
import { exportMenu } from "./export.js";
import { count, seconds, visible } from "./format.js";
import { WIDTHS, bucketsFor, drawHistogram, layersOf } from "./histogram.js";
import { drawLanes, groupingsOf } from "./lanes.js";
import { Live } from "./live.js";
import { namesIn } from "./names.js";
import { Pages } from "./paging.js";
import { LqlQuestion, TopicQuestion, named, narrowed, quoted, valuesOf, withValue } from "./question.js";
import { RowList } from "./row_list.js";
import { resultTable } from "./result_table.js";
import { session } from "./session.js";
import { readTags } from "./tags.js";
import { shown, span } from "./time_range.js";

const MOST_FACETS = 4;

/** @typedef {import("./question.js").TopicQuestion | import("./question.js").LqlQuestion} Question */

export class Explore {
  constructor() {
    this.form = new AskForm((params) => go(link("explore", "", params)), (start, end) =>
      this.question.histogram({ start: BigInt(start), end: BigInt(end) }, "", this.asked.signal));
    this.chart = h("div", { class: "chart-box" });
    this.legend = h("p", { class: "legend", hidden: true });
    this.lanes = h("div", { class: "lanes", hidden: true });
    /** @type {import("./lanes.js").Grouping[]} of the chosen space */
    this.groupings = [];
    this.columns = h("span", {});
    /** @type {string[]} names in the first rows */
    this.names = [];
    this.stack = h("select", { "aria-label": "Break down by", onchange: () => this.change({ by: this.stack.value }) });
    this.bars = h("select", { "aria-label": "Bar width", onchange: () => this.change({ bars: this.bars.value }) },
      ...[["", "Automatic bar width"], ...WIDTHS.map(([value, , name]) => [value, name])].map(([value, name]) => h("option", { value }, name)));
    this.status = h("p", { class: "status", role: "status" });
    this.acts = h("div", { class: "acts" });
    this.facets = h("div", { class: "facets", hidden: true });
    this.warnings = h("p", { class: "warning", hidden: true });
    this.rows = new RowList({
      narrow: (condition, without) => void this.narrow(condition, without),
      history: (row) => this.history(row),
      tagged: false,
      binary: false,
    }, (error) => this.fail(error));
    this.table = h("div", { class: "result", hidden: true, tabindex: 0, role: "region", "aria-label": "Results as a table" });
    this.element = h("div", { class: "explore" }, this.form.element, this.form.error, this.warnings, this.facets, this.chart, this.legend, this.lanes,
      h("div", { class: "bar-line" }, this.status, this.acts), this.rows.head, this.rows.element, this.table);
    /** @type {Live | null} */
    this.live = null;
    this.params = new URLSearchParams();
    /** @type {Question} */
    this.question = new LqlQuestion("SELECT");
    this.asked = new AbortController();
    this.counted = /** @type {import("./histogram.js").Counted | null} */ (null);
    window.addEventListener("resize", () => {
      this.drawChart();
      this.drawLanes();
    });
  }

  title() {
    return this.params.get("topic") ?? "Explore";
  }

  get newest() {
    return this.params.get("order") !== "oldest";
  }

  /** @param {string} _ @param {URLSearchParams} params */
  async show(_, params) {
    this.leave();
    this.params = params;
    this.asked = new AbortController();
    const topic = params.get("topic");
    this.question = topic ? new TopicQuestion(topic, params) : new LqlQuestion(params.get("lql") ?? "SELECT");
    this.rows.acts.tagged = !topic;
    this.form.fail(null);
    this.status.textContent = "Searching …";
    try {
      await Promise.all([this.fillForm(params), this.answer(this.asked.signal)]);
    } catch (error) {
      this.fail(error);
    }
    if (params === this.params) this.element.dataset.answers = location.hash;
  }

  /** @param {URLSearchParams} params */
  async fillForm(params) {
    await this.form.show(params);
    this.rows.acts.binary = !this.lql;
    if (!this.lql) for (const part of [this.stack, ...this.acts.querySelectorAll(".live, .explain")]) part.remove();
  }

  /** @param {AbortSignal} signal */
  async answer(signal) {
    const told = await this.question.check();
    if (!signal.aborted) await this.run(told);
  }

  leave() {
    this.asked.abort();
    this.live?.stop();
    this.live = null;
    this.rows.source?.stop();
  }

  /** @param {import("./question.js").Told} told */
  async run(told) {
    this.warnings.hidden = !told.warnings.length;
    this.warnings.textContent = told.warnings.map((text) => `${text[0].toUpperCase()}${text.slice(1)}.`).join(" ");
    if (told.kind === "change")
      throw new ApiError(400, "This statement changes stored data, but this page only reads.", "Run it with `aggregator query`.");
    const records = told.kind === "records";
    this.rows.element.hidden = !records;
    if (!records) this.rows.head.hidden = true;
    this.chart.hidden = !records;
    this.table.hidden = records;
    this.legend.hidden = this.lanes.hidden = true;
    this.groupings = [];
    this.offer(records, told.pages);
    const signal = this.asked.signal;
    if (!records) return this.showTable(told, signal);
    const read = (/** @type {any} */ part, /** @type {number} */ limit, /** @type {AbortSignal} */ stop) =>
      this.question.rows(part, this.newest, limit, stop);
    this.rows.element.setAttribute("aria-label", `Events, ${this.newest ? "newest" : "oldest"} first`);
    const asked = span(this.params);
    this.rows.timed = asked.start !== null || asked.end !== null;
    const pages = new Pages(read, asked, this.newest, !told.pages);
    this.rows.choose(columnsOf(this.params));
    this.listNames();
    const rows = this.rows.show(pages).then(() => {
      if (signal.aborted) return;
      this.names = namesIn(pages.pages.get(0) ?? [], this.rows.acts.tagged);
      this.form.completion.names = this.names;
      this.listNames();
    });
    await Promise.all([rows, this.count(signal), this.listGroupings(signal), this.listFacets(signal)]);
    this.drawLanes();
  }

  /** @param {import("./question.js").Told} told @param {AbortSignal} signal */
  async showTable(told, signal) {
    const began = performance.now();
    const rows = await this.question.rows(span(this.params), this.newest, 0, signal);
    this.facets.hidden = true;
    replace(this.table, isExplain(told.query) && explainPicture(rows), resultTable(rows));
    this.status.textContent = `${count(rows.length)} ${rows.length === 1 ? "row" : "rows"} in ${seconds(performance.now() - began)}`;
  }

  /** @param {AbortSignal} signal */
  async count(signal) {
    const began = performance.now();
    const counted = await this.counts(signal).catch((error) => {
      if (!(error instanceof ApiError) || error.status < 400 || error.status === 401) throw error;
      this.counted = null; // for example too many values: the rows are shown anyway
      replace(this.chart, h("p", { class: "chart-none error", role: "alert" }, error.message, " ", error.hint));
      this.status.textContent = "";
      return null;
    });
    if (!counted) return;
    this.counted = counted;
    if (counted.counts.length) this.form.newest = counted.start_us + counted.width_us * counted.counts.length - 1;
    this.drawChart();
    this.status.textContent = `${count(counted.events)} ${counted.events === 1 ? "event" : "events"}, counted in ` +
      seconds(performance.now() - began);
  }

  /** Count events by time, in bars of the chosen width unless there would be too many. @param {AbortSignal} signal */
  async counts(signal) {
    const asked = span(this.params);
    const [, width] = WIDTHS.find(([value]) => value === this.params.get("bars")) ?? ["", 0];
    if (!width) return this.question.histogram(asked, this.by, signal);
    let length = Number((asked.end ?? 0n) - (asked.start ?? 0n));
    if (asked.start === null || asked.end === null) {
      const found = await this.question.histogram(asked, "", signal);
      length = found.width_us * found.counts.length;
    }
    return this.question.histogram(asked, this.by, signal, bucketsFor(length, width));
  }

  /** Whether the query can be sent as LQL, which cannot read binary keys and needs a token for all topics. */
  get lql() {
    return !this.form.binary && !this.params.get("space64") && session.topics === null;
  }

  /** The name by which the bars are stacked; "" for none. */
  get by() {
    return this.lql ? (this.params.get("by") ?? "") : "";
  }

  /** Show the groupings of a single space over time. @param {AbortSignal} signal */
  async listGroupings(signal) {
    if (!(this.question instanceof TopicQuestion) || !this.question.space || !this.lql) return;
    this.groupings = groupingsOf(await this.question.groupings(span(this.params), signal), this.newest);
  }

  drawLanes() {
    const any = this.groupings.some(({ name }) => name);
    this.lanes.hidden = !any || !this.counted?.counts.length;
    if (!any || !this.counted?.counts.length) return;
    const { start_us: start, width_us: width, counts } = this.counted;
    const chosen = this.params.get("grouping") ?? "";
    drawLanes(this.lanes, this.groupings, { start, end: start + width * counts.length }, chosen,
      (name) => this.change({ grouping: name === chosen ? "" : name }));
  }

  drawChart() {
    if (!this.counted || this.chart.hidden) return;
    drawHistogram(this.chart, this.counted, (from, to) => this.change({ from: String(from), to: String(to), last: "" }));
    this.legend.hidden = !this.counted.series?.length;
    replace(this.legend, ...layersOf(this.counted).map(({ kind, name, series: { value, events } }) => {
      const shown = [h("span", { class: `swatch ${kind}` }), h("bdi", {}, visible(name.slice(0, 60))), h("span", { class: "n" }, count(events))];
      if (value === null || value === undefined) return h("span", { class: "legend-entry" }, ...shown);
      const condition = `${named(this.by)} = ${typeof value === "string" ? quoted(value) : value}`;
      const whose = this.by === "space" && this.params.get("topic"); // a space of a topic is selected by its key
      const choose = () => (whose ? this.change({ space: String(value), by: "" }) : void this.narrow(condition, false));
      return h("button", { type: "button", class: "legend-entry", title: "Only with this value", onclick: choose }, ...shown);
    }));
  }

  /** Offer names for stacking, and for columns. */
  listNames() {
    const all = [...new Set([...(this.by ? [this.by] : []), ...(this.params.get("topic") ? ["space"] : []), ...this.names])].sort();
    replace(this.stack, h("option", { value: "" }, "Break down by …"), ...all.map((name) => h("option", { value: name }, `By ${name}`)));
    this.stack.value = this.by;
    const bars = this.params.get("bars") ?? "";
    this.bars.value = WIDTHS.some(([value]) => value === bars) ? bars : "";
    const chosen = columnsOf(this.params);
    const menu = columnsMenu(chosen, [...this.names, "data"], (columns) => this.change({ cols: columns.length ? JSON.stringify(columns) : "" }));
    menu.open = this.columns.querySelector("details")?.open ?? false; // stay open: users choose several in a row
    replace(this.columns, menu);
  }

  /** Show the query with some parts of its URL changed. @param {Record<string, string>} parts */
  change(parts) {
    go(link("explore", "", { ...Object.fromEntries(this.params), ...parts }));
  }

  /** @param {boolean} records @param {boolean} pages */
  offer(records, pages) {
    const orders = this.newest ? ["oldest", "Oldest first"] : ["", "Newest first"];
    replace(this.acts,
      records && this.lql && this.stack,
      records && this.bars,
      records && this.columns,
      records && pages && this.lql && !session.fixed && h("button", { type: "button", class: "live", "aria-pressed": "false", onclick: () => this.toggleLive() }, "Live"),
      records && pages && h("button", { type: "button", onclick: () => this.change({ order: orders[0] }) }, orders[1]),
      records && this.lql && h("button", { type: "button", class: "explain", onclick: () => this.explain() }, "Explain"),
      exportMenu(records, (accept, signal) => this.question.file(span(this.params), this.newest, accept, signal), (error) => this.fail(error)));
  }

  /** Show the values of the topic's indexes, with their numbers of events. @param {AbortSignal} signal */
  async listFacets(signal) {
    const topic = this.params.get("topic");
    const none = !topic || this.params.get("space") || this.params.get("space64");
    if (none || this.facets.dataset.topic !== topic) this.facets.hidden = true; // until they arrive
    this.facets.dataset.topic = topic ?? "";
    if (none) return;
    const { indexes } = await askJson(`v1/topics/${encodeURIComponent(topic)}`, { signal });
    const first = this.params.get("index") ?? "";
    const shown = [...new Set([...(indexes.includes(first) ? [first] : []), ...indexes])].slice(0, MOST_FACETS);
    const found = await Promise.all(shown.map((index) => valuesOf(topic, index, 12, signal)));
    const whole = this.rows.timed || first || this.params.get("grouping");
    replace(this.facets, ...shown.map((index, i) => this.facet(index, found[i])).filter(Boolean),
      whole && h("p", { class: "aside" }, "Counted over the whole topic."));
    this.facets.hidden = !this.facets.querySelector(".facet");
  }

  /** The values of an index, with their numbers of events in the topic. @param {string} index @param {import("./question.js").Values} found */
  facet(index, { values, different }) {
    if (!values.length) return null;
    const chosen = index === this.params.get("index") ? this.params.get("value") : null;
    const chips = values.map(({ value, events }) => {
      const on = String(value) === chosen;
      const to = on ? { index: "", value: "", type: "" } : withValue(index, value);
      return h("button", { type: "button", class: "chip", "aria-pressed": String(on), onclick: () => this.change(to) },
        h("bdi", {}, visible(String(value).slice(0, 60))), h("span", { class: "n" }, count(events)));
    });
    const rest = different - values.length;
    return h("div", { class: "facet", role: "group", "aria-label": `Values of ${index}, with their events in the whole topic` },
      h("span", { class: "facet-name" }, index), ...chips, rest > 0 && h("span", { class: "aside" }, `and ${count(rest)} others`));
  }

  /** What the query reads, and what it skips. */
  explain() {
    const { last, from, to } = Object.fromEntries(this.params);
    go(link("explore", "", { lql: `EXPLAIN ${this.question.lql()}`, last, from, to }));
  }

  /** @param {string} condition @param {boolean} without */
  async narrow(condition, without) {
    try {
      const lql = await narrowed(this.question.lql(), condition, without);
      const { last, from, to } = Object.fromEntries(this.params);
      go(link("explore", "", { lql, last, from, to, ...shown(this.params) }));
    } catch (error) {
      this.fail(error);
    }
  }

  /** @param {Record<string, any>} row */
  history(row) {
    const topic = this.params.get("topic");
    const key = typeof row.space === "object" ? { space64: row.space.base64 } : { space: row.space };
    if (topic) return go(link("explore", "", { topic, ...key }));
    const tags = new Map(readTags(String(row.space)));
    const [of, space] = [tags.get("topic"), tags.get("space")];
    return go(link("explore", "", of !== undefined && space !== undefined ? { topic: of, space } : { lql: `SELECT FROM ${row.space}` }));
  }

  toggleLive() {
    const button = /** @type {HTMLElement} */ (this.acts.querySelector(".live"));
    if (this.live && !this.live.paused) {
      this.live.paused = true;
      button.textContent = "Resume";
    } else if (this.live) {
      this.live.paused = false;
      button.textContent = "Pause";
    } else {
      button.textContent = "Pause";
      button.setAttribute("aria-pressed", "true");
      this.goLive();
    }
  }

  goLive() {
    this.chart.hidden = this.legend.hidden = this.lanes.hidden = true;
    const live = new Live(this.question.lql(), {
      shown: (added) => this.rows.shifted(added),
      told: (text) => { this.status.textContent = `Live: ${text}`; },
      failed: (error) => this.fail(error),
    });
    this.live = live;
    void this.rows.show(live.rows);
  }

  /** @param {unknown} error */
  fail(error) {
    if (givenUp(error)) return;
    if (!(error instanceof ApiError)) throw error;
    this.leave(); // else other results would appear beside it
    this.status.textContent = "";
    this.counted = null;
    for (const part of [this.chart, this.legend, this.lanes, this.table, this.facets, this.rows.head, this.rows.element]) part.hidden = true;
    replace(this.acts);
    this.rows.empty();
    this.form.fail(error);
  }

  /** @param {string} key @returns {boolean} whether it was used */
  key(key) {
    if (key === "/") this.form.focus();
    else if (key === "j") this.rows.move(1);
    else if (key === "k") this.rows.move(-1);
    else if (key === "l" && this.acts.querySelector(".live")) this.toggleLive();
    else return false;
    return true;
  }
}
