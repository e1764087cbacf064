/** The query form: an LQL statement, or a topic with a space and an index value; and a time range. */

import { askJson } from "./api.js";
import { TimeDialog, calendarIcon } from "./calendar.js";
import { Completion } from "./completion.js";
import { h, replace } from "./dom.js";
import { count, moment } from "./format.js";
import { valuesOf } from "./question.js";
import { shown, span, times } from "./time_range.js";

const MOST_VALUES = 100; // number of values offered

/** @typedef {Record<string, string | null | undefined>} Params of Explore's URL */

export class AskForm {
  /** @param {(params: Params) => void} send @param {(start: number, end: number) => Promise<any>} events by time, for the query */
  constructor(send, events) {
    this.send = send;
    this.events = events;
    this.newest = Date.now() * 1000; // the moment at which the calendar opens
    this.params = new URLSearchParams();
    this.box = h("textarea", { id: "box", class: "box", rows: "1", spellcheck: "false", autocapitalize: "off",
      "aria-label": "LQL statement", "aria-describedby": "box-error", placeholder: "SELECT FROM … WHERE …",
      onkeydown: (/** @type {KeyboardEvent} */ event) => this.typed(event), oninput: () => this.fit() });
    this.completion = new Completion(this.box);
    this.topic = h("select", { "aria-label": "What to search", onchange: () => this.pickTopic() });
    this.space = h("input", { type: "search", placeholder: "any space", "aria-label": "Space" });
    this.index = h("select", { "aria-label": "Index", onchange: () => void this.pickIndex() });
    this.values = h("datalist", { id: "values" });
    this.value = h("input", { type: "search", list: "values", placeholder: "any value", "aria-label": "Value of the index" });
    this.last = h("select", { "aria-label": "Time", onchange: () => this.pickTime() });
    this.places = h("div", { class: "ask-box" });
    this.error = h("p", { id: "box-error", class: "error", role: "alert" });
    this.element = h("form", { class: "ask", role: "search", onsubmit: (/** @type {Event} */ event) => { event.preventDefault(); this.submit(); } },
      this.topic, this.places, this.last,
      h("button", { type: "button", class: "calendar", "aria-label": "Choose a time", title: "Choose a time", onclick: () => this.openCalendar() }, calendarIcon()),
      h("button", { class: "primary", type: "submit" }, "Search"), this.values);
    /** @type {string[]} */
    this.topics = [];
    this.types = /** @type {Record<string, string>} */ ({});
    this.binary = false; // whether the topic's keys are binary
  }

  /** @param {URLSearchParams} params */
  async show(params) {
    this.params = params;
    const topic = params.get("topic") ?? "";
    this.box.value = params.get("lql") ?? "SELECT";
    this.space.value = params.get("space") ?? "";
    const encoded = params.get("space64");
    this.space.placeholder = encoded === null ? "any space" : `base64 ${encoded}`;
    this.binary = false;
    this.value.value = params.get("value") ?? "";
    this.listTimes();
    this.listTopics(topic);
    this.places.classList.toggle("of-topic", topic !== "");
    replace(this.places, ...(topic ? [this.space, this.index, this.value] : [this.box, this.completion.element]));
    this.fit();
    if (!this.topics.length) {
      this.topics = (await askJson("v1/topics")).topics.map((/** @type {{name: string}} */ each) => each.name);
      this.listTopics(topic);
    }
    if (topic) await this.listIndexes(topic, params.get("index") ?? "");
  }

  /** @param {string} chosen */
  listTopics(chosen) {
    const names = this.topics.includes(chosen) || !chosen ? this.topics : [...this.topics, chosen];
    replace(this.topic, h("option", { value: "" }, "LQL"),
      h("optgroup", { label: "Events of a topic" }, ...names.map((name) => h("option", { value: `t${name}` }, name))));
    this.topic.value = chosen ? `t${chosen}` : "";
  }

  listTimes() {
    const from = this.params.get("from"), to = this.params.get("to");
    const known = times(this.params.get("last") ?? "");
    const options = known.map(([value, name]) => h("option", { value }, name));
    if (from !== null || to !== null) {
      const name = [from, to].map((us) => (us === null ? "…" : moment(Number(us)))).join(" – ");
      options.push(h("option", { value: "between" }, name));
    }
    replace(this.last, ...options);
    const last = known.find(([value]) => value === this.params.get("last"));
    this.last.value = from !== null || to !== null ? "between" : (last?.[0] ?? "");
  }

  /** @param {string} topic @param {string} chosen */
  async listIndexes(topic, chosen) {
    const facts = await askJson(`v1/topics/${encodeURIComponent(topic)}`);
    this.types = facts.schema;
    this.binary = facts.keys === "binary";
    replace(this.index, h("option", { value: "" }, "no index"), ...facts.indexes.map((/** @type {string} */ name) => h("option", { value: name }, name)));
    this.index.value = chosen;
    this.value.disabled = !chosen;
    if (chosen) await this.listValues(topic, chosen);
    else replace(this.values);
  }

  /** @param {string} topic @param {string} index */
  async listValues(topic, index) {
    const { values } = await valuesOf(topic, index, MOST_VALUES);
    replace(this.values, ...values.map(({ value, events }) => h("option", { value: String(value), label: `${count(events)} events` })));
  }

  pickTopic() {
    const topic = this.topic.value.slice(1);
    this.send(topic ? { ...this.time(), topic } : { ...this.time(), lql: this.params.get("lql") ?? "SELECT" });
  }

  async pickIndex() {
    this.value.value = "";
    this.value.disabled = !this.index.value;
    if (this.index.value) await this.listValues(this.topic.value.slice(1), this.index.value);
    else this.submit();
  }

  pickTime() {
    if (this.last.value !== "between") this.submit();
  }

  openCalendar() {
    const { start, end } = span(this.params);
    const [from, to] = [start, end].map((us) => (us === null ? null : Number(us)));
    new TimeDialog({ from, to }, to === null ? this.newest : to - 1, this.events, (times) => {
      const [low, high] = [times.from, times.to].map((us) => (us === null ? null : String(us)));
      this.send({ ...Object.fromEntries(this.params), from: low, to: high, last: "" });
    });
  }

  /** @returns {Params} */
  time() {
    if (this.last.value !== "between") return { last: this.last.value };
    return { from: this.params.get("from"), to: this.params.get("to") };
  }

  submit() {
    for (const field of [this.box, this.space, this.value]) field.blur(); // `j` and `k` move on, a phone's keyboard closes
    const topic = this.topic.value.slice(1);
    const looks = shown(this.params);
    if (!topic) return this.send({ lql: this.box.value.trim() || "SELECT", ...looks, ...this.time() });
    const index = this.value.value !== "" ? this.index.value : "";
    const type = /^u?int|^bool/.test(this.types[index] ?? "") ? (this.types[index] === "bool" ? "boolean" : "integer") : "";
    const same = topic === this.params.get("topic") && this.space.value === (this.params.get("space") ?? "");
    this.send({ topic, space: this.space.value, grouping: same ? this.params.get("grouping") : "", index, value: index && this.value.value, type, ...looks, ...this.time() });
  }

  /** @param {KeyboardEvent} event */
  typed(event) {
    if (this.completion.key(event)) return;
    if (event.key === "Enter" && !event.shiftKey) {
      event.preventDefault();
      this.completion.close();
      this.submit();
    }
  }

  fit() {
    this.box.rows = Math.min(8, this.box.value.split("\n").length);
  }

  focus() {
    const target = this.box.isConnected ? this.box : this.space;
    target.focus();
    target.select();
  }

  /** Show the query's error next to its field. @param {import("./api.js").ApiError | null} error */
  fail(error) {
    this.box.setAttribute("aria-invalid", String(error !== null));
    if (!error) return replace(this.error);
    const place = error.place && this.box.isConnected ? this.marked(error.place) : null;
    const hint = error.hint ? `${error.hint[0].toUpperCase()}${error.hint.slice(1).replace(/[^.?!]$/, "$&.")}` : "";
    replace(this.error, h("strong", {}, error.message.replace(/\.?$/, ". ")), hint, place);
  }

  /** Show the line of the statement with the invalid place. @param {[number, number]} place */
  marked([start, end]) {
    const letters = [...this.box.value.trim()];
    const part = (/** @type {number} */ from, /** @type {number} */ to) => letters.slice(from, to).join("");
    return h("code", {}, part(Math.max(0, start - 60), start), h("mark", {}, part(start, end) || " "), part(end, end + 60));
  }
}
