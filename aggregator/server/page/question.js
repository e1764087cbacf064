/** Explore's queries: a topic by its keys and one index, or an LQL statement. Both return rows, counts and files. */

import { ApiError, ask, askJson, askLines } from "./api.js";
import { isExplain } from "./explain.js";
import { bounds } from "./time_range.js";

/** @typedef {import("./time_range.js").Span} Span */
/** @typedef {{kind: string, query: string, pages: boolean, warnings: string[]}} Told */

export const FILES = /** @type {Record<string, [string, string]>} */ ({
  "JSON lines": ["application/x-ndjson", "jsonl"],
  CSV: ["text/csv", "csv"],
  Arrow: ["application/vnd.apache.arrow.stream", "arrows"],
  Parquet: ["application/vnd.apache.parquet", "parquet"],
  ".esdb": ["application/vnd.esdb", "esdb"], // for events only
});

const BUCKETS = 80;

/** A text in LQL's notation. @param {string} text */
export const quoted = (text) =>
  `"${text.replace(/[\\"]/g, "\\$&").replace(/[\u0000-\u001f\u007f]/g, (c) => `\\x${c.charCodeAt(0).toString(16).padStart(2, "0")}`)}"`;

/** A name of a column, field or tag in LQL's notation. @param {string} name */
export const named = (name) => "`" + name.replaceAll("`", "``") + "`";

/** @typedef {{values: {value: any, events: number}[], different: number}} Values */

/**
 * The most frequent values of an index; none if they cannot be determined, for example if there are too many.
 * @param {string} topic @param {string} index @param {number} limit @param {AbortSignal} [signal] @returns {Promise<Values>}
 */
export async function valuesOf(topic, index, limit, signal) {
  try {
    return await askJson(`v1/topics/${encodeURIComponent(topic)}/values/${encodeURIComponent(index)}?limit=${limit}`, { signal });
  } catch (error) {
    if (!(error instanceof ApiError) || error.status < 400 || error.status === 401) throw error;
    return { values: [], different: 0 };
  }
}

/** The URL parameters that select an index value in Explore. @param {string} index @param {any} value */
export const withValue = (index, value) =>
  ({ index, value: String(value), type: typeof value === "string" ? "" : typeof value === "boolean" ? "boolean" : "integer" });

/** Events of one topic. */
export class TopicQuestion {
  /** @param {string} topic @param {URLSearchParams} params */
  constructor(topic, params) {
    this.topic = topic;
    this.params = params;
    this.space = params.get("space") ?? "";
    this.space64 = params.get("space64") ?? ""; // of a topic with binary keys
    this.grouping = params.get("grouping") ?? "";
    this.index = params.get("index") ?? "";
    this.value = params.get("value") ?? "";
  }

  /** @returns {Promise<Told>} */
  async check() {
    return { kind: "records", query: this.lql(), pages: true, warnings: [] };
  }

  /** The same query as a statement. */
  lql() {
    return `SELECT ${this.chosen(this.grouping)}`;
  }

  /** @param {string} grouping "" for all */
  chosen(grouping) {
    const keys = Object.entries({ topic: this.topic, space: this.space, grouping }).filter(([, key]) => key);
    const from = `FROM ${keys.map(([name, key]) => `${name} = ${quoted(key)}`).join(" AND ")}`;
    return `${from}${this.hasValue() ? ` WHERE ${named(this.index)} = ${this.number() ? this.value : quoted(this.value)}` : ""}`;
  }

  number() {
    return this.params.get("type") === "integer";
  }

  hasValue() {
    return this.index !== "" && this.params.has("value");
  }

  /** @param {Record<string, string>} more @param {boolean} [counting] */
  path(more, counting = false) {
    const asked = new URLSearchParams(more);
    if (this.space) asked.set("space", this.space);
    if (this.space64) asked.set("space_base64", this.space64);
    if (this.grouping) asked.set("grouping", this.grouping);
    if (this.hasValue()) {
      asked.set("value", this.value);
      const type = this.params.get("type");
      if (type) asked.set("type", type);
      if (counting) asked.set("index", this.index);
    }
    const topic = `v1/topics/${encodeURIComponent(this.topic)}`;
    const what = counting ? "histogram" : this.hasValue() ? `index/${encodeURIComponent(this.index)}` : "events";
    return `${topic}/${what}?${asked}`;
  }

  /** @param {Span} span @param {boolean} newest @param {number} limit @param {AbortSignal} signal */
  rows(span, newest, limit, signal) {
    return askLines(this.path({ ...bounds(span), reverse: String(newest), limit: String(limit) }), { signal });
  }

  /** @param {Span} span @param {string} by a name, or "" @param {AbortSignal} signal @param {number} [buckets] at most */
  histogram(span, by, signal, buckets = BUCKETS) {
    if (by) return new LqlQuestion(this.lql()).histogram(span, by, signal, buckets);
    return askJson(this.path({ ...bounds(span), buckets: String(buckets) }, true), { signal });
  }

  /** The groupings of the space, with their numbers of events and first and last times. @param {Span} span @param {AbortSignal} signal */
  groupings(span, signal) {
    return new LqlQuestion(`SELECT COUNT, MIN(ts), MAX(ts) ${this.chosen("")} GROUP BY grouping`).rows(span, false, 0, signal);
  }

  /** @param {Span} span @param {boolean} newest @param {string} accept @param {AbortSignal} signal */
  file(span, newest, accept, signal) {
    return ask(this.path({ ...bounds(span), reverse: String(newest) }), { accept, signal });
  }
}

/** An LQL statement. */
export class LqlQuestion {
  /** @param {string} text */
  constructor(text) {
    this.text = text;
    this.told = /** @type {Told | null} */ (null);
  }

  /** @returns {Promise<Told>} */
  async check() {
    this.told = await askJson("v1/statement", { body: JSON.stringify({ query: this.text }) });
    return /** @type {Told} */ (this.told);
  }

  lql() {
    return this.text;
  }

  /** @param {Record<string, string>} digits @param {Record<string, unknown>} more */
  body(digits, more) {
    const { time_unit, ...times } = digits;  // as digits: JavaScript's JSON has no large numbers
    const plain = JSON.stringify({ query: this.text, ...(time_unit ? { time_unit } : {}), ...more });
    const numbers = Object.entries(times).map(([name, value]) => `,"${name}":${value}`);
    return plain.slice(0, -1) + numbers.join("") + "}";
  }

  /** @param {boolean} newest @param {number} [limit] */
  order(newest, limit) {
    const pages = this.told?.pages ?? true;
    return { ...(pages && newest ? { reverse: true } : {}), ...(pages && limit ? { limit } : {}) };
  }

  /** @param {Span} span */
  narrowed(span) {
    const takes = !this.told || ["records", "groups"].includes(this.told.kind) || isExplain(this.told.query);
    return takes ? bounds(span) : {};
  }

  /** @param {Span} span @param {boolean} newest @param {number} limit @param {AbortSignal} signal */
  rows(span, newest, limit, signal) {
    return askLines("v1/query", { body: this.body(this.narrowed(span), this.order(newest, limit)), signal });
  }

  /** @param {Span} span @param {string} by a name, or "" @param {AbortSignal} signal @param {number} [buckets] at most */
  histogram(span, by, signal, buckets = BUCKETS) {
    return askJson("v1/histogram", { body: this.body(bounds(span), { buckets, ...(by ? { by: named(by) } : {}) }), signal });
  }

  /** @param {Span} span @param {boolean} newest @param {string} accept @param {AbortSignal} signal */
  file(span, newest, accept, signal) {
    return ask("v1/query", { body: this.body(this.narrowed(span), this.order(newest)), accept, signal });
  }
}

/**
 * A statement with one more condition.
 * @param {string} text @param {string} condition @param {boolean} without
 * @returns {Promise<string>}
 */
export async function narrowed(text, condition, without) {
  const body = JSON.stringify({ query: text, [without ? "without" : "where"]: condition });
  return (await askJson("v1/statement", { body })).query;
}
