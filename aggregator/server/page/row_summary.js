/** One event in a line: time, space, contents. */

import { h } from "./dom.js";
import { stamp, visible } from "./format.js";
import { fieldsOf, valueOf } from "./names.js";
import { readTags } from "./tags.js";

const MOST = 400; // limit of characters of a value in a line,
const MOST_PAIRS = 24; // and of values
const APART = new Set(["timestamp", "space", "grouping", "data", "fields"]);

/**
 * @param {Record<string, any>} row
 * @param {string[]} columns the chosen ones; none: all of the row's
 * @returns {HTMLElement[]}
 */
export function summary(row, columns) {
  const { day, time } = stamp(String(row.timestamp));
  const { space, grouping } = owner(row);
  const line = h("span", { class: `row-line${columns.length ? " cells" : ""}` });
  if (columns.length) line.append(...columns.map((name) => pair(name, valueOf(row, name) ?? "")));
  else inFull(row, line);
  return [
    h("time", { class: "when" }, h("span", { class: "day" }, day), h("span", {}, time)),
    h("span", { class: "who", title: cut(space) }, h("bdi", {}, cut(space)), grouping && h("span", { class: "group" }, cut(grouping))),
    line,
  ];
}

/** @param {Record<string, any>} row @param {HTMLElement} line */
function inFull(row, line) {
  const own = Object.entries(row).filter(([name, value]) => !APART.has(name) && isShown(value));
  const pairs = (/** @type {[string, any][]} */ of) => of.slice(0, MOST_PAIRS).map(([name, value]) => pair(name, value));
  line.append(...pairs(own));
  if (isShown(row.data)) line.append(h("span", { class: "msg" }, cut(plain(row.data))));
  line.append(...pairs(Object.entries(fieldsOf(row))));
}

/** The space or tags of an event. For one of a topic only its space, although LQL's results have all tags. @param {Record<string, any>} row */
function owner(row) {
  const space = keyOf(row, "space");
  const tags = new Map(readTags(space));
  const known = tags.has("topic") && tags.has("partition") ? tags.get("space") : undefined;
  return known === undefined
    ? { space: tags.size ? space.slice(1, -1) : space, grouping: keyOf(row, "grouping") }
    : { space: known, grouping: `${tags.get("topic")} ${keyOf(row, "grouping")}`.trim() };
}

/** @param {string} name @param {any} value */
function pair(name, value) {
  const text = cut(plain(value));
  return h("span", { class: "pair" }, h("span", { class: "key" }, name), h("bdi", {}, text && visible(text)));
}

/** @param {any} value */
const isShown = (value) => value !== null && value !== undefined && value !== "";

/** A space or grouping as text, even if the topic's keys are binary. @param {Record<string, any>} row @param {string} name */
const keyOf = (row, name) => plain(row[name] ?? "");

/** @param {string} text */
const cut = (text) => (text.length > MOST ? `${text.slice(0, MOST)}…` : text);

/**
 * A value as text; bytes that are not text are approximated.
 * @param {any} value
 * @returns {string}
 */
export function plain(value) {
  if (typeof value === "string") return value;
  const stored = bytesOf(value);
  if (stored) return new TextDecoder().decode(stored);
  return typeof value === "object" && value !== null && value.constructor !== Object && !Array.isArray(value)
    ? String(value)
    : JSON.stringify(value, (_, inner) => (inner?.constructor?.name === "Exact" ? String(inner) : inner));
}

/**
 * The bytes of a payload that is not text.
 * @param {any} value
 * @returns {Uint8Array | null}
 */
export function bytesOf(value) {
  const keys = value !== null && typeof value === "object" ? Object.keys(value) : [];
  if (keys.length !== 1 || keys[0] !== "base64" || typeof value.base64 !== "string") return null;
  try {
    return Uint8Array.from(atob(value.base64), (letter) => letter.charCodeAt(0));
  } catch {
    return null; // another text under that name
  }
}
