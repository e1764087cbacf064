/** Overview: the catalog's contents and resources by topic, below problems that need attention. Refreshes itself. */

import { link } from "./address.js";
import { ApiError, askJson } from "./api.js";
import { h, replace } from "./dom.js";
import { ago, bytes, count, moment, rough } from "./format.js";
import { retentionMeters } from "./retention.js";
import { session } from "./session.js";
import { Rates, latest, sparkline } from "./sparkline.js";
import { Streams } from "./streams.js";
import { trouble } from "./trouble.js";

const EVERY_MS = 3_000;

/** @typedef {Record<string, any>} Facts */

export class Overview {
  constructor() {
    this.alerts = h("div", { class: "alerts", role: "status" });
    this.figures = h("div", { class: "figures" });
    this.topics = h("div", { class: "topics" });
    this.streams = new Streams();
    this.element = h("div", { class: "page" }, h("h1", {}, session.fixed ? "Files" : "Overview"), this.alerts, this.figures, this.topics,
      this.streams.element);
    this.rates = new Rates();
    this.timer = 0;
    this.on = false;
  }

  title() {
    return session.fixed ? "Files" : "Overview";
  }

  async show() {
    clearTimeout(this.timer);
    this.on = true;
    await this.look();
  }

  leave() {
    this.on = false;
    clearTimeout(this.timer);
  }

  async look() {
    try {
      this.draw(...(await facts()));
      if (!session.fixed && session.topics === null) void this.streams.look();
    } catch (error) {
      if (!(error instanceof ApiError)) throw error;
      replace(this.alerts, h("p", { class: "alert" }, h("strong", {}, `${error.message} `), error.hint));
      if (error.status === 401) return;
    }
    clearTimeout(this.timer); // of an earlier refresh that ended meanwhile
    if (this.on && !session.fixed) this.timer = window.setTimeout(() => void this.look(), EVERY_MS);
  }

  /** @param {Facts | null} stats @param {Record<string, Facts>} topics @param {Facts | null} problems */
  draw(stats, topics, problems) {
    replace(this.alerts, ...trouble(stats, topics, problems));
    const all = Object.values(topics);
    const sum = (/** @type {string} */ name) => all.reduce((total, mine) => total + mine[name], 0);
    const ends = (/** @type {Facts} */ mine) => Object.values(mine.partitions).reduce((total, each) => total + each.end_index, 0);
    const rates = all.map((mine) => this.rates.add(mine.topic, ends(mine)));
    replace(this.figures,
      figure("Events", count(sum("rows")), session.fixed ? "" : `${count(sum("unsealed_rows"))} unsealed`),
      !session.fixed && figure("Arriving", `${rough(rates.reduce((total, mine) => total + latest(mine), 0))}/s`, "in the last seconds"),
      stats && !session.fixed && figure("On disk", bytes(stats.disk.total), `${bytes(stats.disk.free)} free`),
      stats?.memory && figure("In memory", bytes(stats.memory.unsealed), `of ${bytes(stats.memory.limit)}`),
      !session.fixed && figure("Segments", count(sum("segments")), all.length === 1 ? "in one topic" : `in ${count(all.length)} topics`));
    replace(this.topics, ...(all.length ? all.map((mine, i) => card(mine, rates[i])) : [empty()]));
  }
}

/** @returns {Promise<[Facts | null, Record<string, Facts>, Facts | null]>} of the catalog, or of the visible topics */
async function facts() {
  try {
    const [stats, problems] = await Promise.all([askJson("v1/stats"), askJson("v1/problems")]);
    return [stats, stats.topics, problems];
  } catch (error) {
    if (!(error instanceof ApiError) || error.status !== 403) throw error;
  }
  const names = (await askJson("v1/topics")).topics.map((/** @type {Facts} */ each) => each.name);
  const found = await Promise.all(names.map((/** @type {string} */ name) => askJson(`v1/topics/${encodeURIComponent(name)}`)));
  return [null, Object.fromEntries(found.map((mine) => [mine.topic, mine])), null];
}

/** @param {string} name @param {string} value @param {string} more */
export const figure = (name, value, more) =>
  h("div", { class: "figure" }, h("span", { class: "figure-name" }, name), h("span", { class: "figure-value" }, value), h("span", { class: "aside" }, more));

/** @param {Facts} mine @param {number[]} rates */
function card(mine, rates) {
  const facts = [
    ["Events", count(mine.rows)], [session.fixed ? "Files" : "Segments", count(mine.segments)],
    ...(session.fixed ? [] : [["Size", bytes(mine.bytes)], ["Unsealed", count(mine.unsealed_rows)]]),
  ];
  return h("article", { class: "topic-card", "data-topic": mine.topic },
    h("header", {},
      h("h2", {}, h("a", { href: link("topic", mine.topic) }, h("bdi", {}, mine.topic))),
      h("a", { class: "button", href: link("explore", "", { topic: mine.topic }) }, "Explore")),
    h("dl", { class: "facts" }, ...facts.map(([name, value]) => h("div", {}, h("dt", {}, name), h("dd", {}, value)))),
    h("p", { class: "spanned" }, mine.min_timestamp === null ? "No events yet."
      : [moment(mine.min_timestamp), " to ", moment(mine.max_timestamp), " · newest ", ago(mine.max_timestamp)].join("")),
    ...(session.fixed ? [] : [
      h("div", { class: "rate" }, sparkline(rates), h("span", { class: "aside" }, `${rough(latest(rates))} events/s now`)),
      ...retentionMeters(mine)]));
}

function empty() {
  return h("div", { class: "notice" }, h("h2", {}, "Nothing here yet"),
    h("p", {}, "Send an event, and it appears here immediately:"),
    h("pre", {}, `curl '${location.origin}/v1/streams?tags=app%3Dweb' -H 'Content-Type: application/json' -d '{"msg": "hello"}'`));
}
