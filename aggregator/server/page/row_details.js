/** All fields of an event, with JSON indented. Each value can be added to the query or excluded from it. */

import { h } from "./dom.js";
import { Exact, parse } from "./exact_json.js";
import { count, duration, micros } from "./format.js";
import { named, quoted } from "./question.js";
import { bytesOf } from "./row_summary.js";
import { readTags } from "./tags.js";

const MOST = 20_000; // limit of characters of a text,
const MOST_PARTS = 2_000; // of parts of JSON,
const MOST_FIELDS = 300; // and of fields, until the user asks for all

/**
 * Actions from a row. `narrow` takes an LQL condition. `tagged`: rows have tags instead of the space.
 * `binary`: the topic has binary keys, or LQL may not be used for it.
 * @typedef {{narrow: (condition: string, without: boolean) => void, history: (row: Record<string, any>) => void,
 *   tagged: boolean, binary: boolean}} Acts
 */

/**
 * @param {Record<string, any>} row
 * @param {Acts} acts
 * @returns {HTMLElement}
 */
export function details(row, acts) {
  const lines = fieldsIn(row, acts);
  const shown = (/** @type {typeof lines} */ of) => of.map(([name, value, operand]) => field(name, value, acts, operand));
  const rest = lines.length - MOST_FIELDS;
  const list = h("dl", {}, ...shown(lines.slice(0, MOST_FIELDS)));
  const more = h("button", { type: "button", class: "act", hidden: rest <= 0, onclick: () => {
    list.append(...shown(lines.slice(MOST_FIELDS)));
    more.hidden = true;
  } }, `Show ${count(rest)} more fields`);
  return h("div", { class: "row-details" },
    h("div", { class: "row-acts" },
      h("button", { type: "button", class: "act", onclick: () => acts.history(row) }, "History of this space"),
      "clipboard" in navigator && h("button", { type: "button", class: "act", onclick: (/** @type {Event} */ event) =>
        void copy(row, /** @type {HTMLElement} */ (event.currentTarget)) }, "Copy as JSON")),
    list, more);
}

/** The values of a row, each with its name in LQL, or "". @param {Record<string, any>} row @param {Acts} acts @returns {[string, any, string][]} */
function fieldsIn(row, acts) {
  return Object.entries(row).flatMap(([name, value]) => {
    if (name === "space" && acts.tagged) return (readTags(String(value)) ?? []).map(([tag, of]) => inLql(tag, of));
    if (name === "fields" && value !== null && typeof value === "object" && !bytesOf(value)) return Object.entries(value).map(([key, of]) => inLql(key, of));
    if (name === "grouping" && !value) return [];
    const nameless = acts.binary || name === "timestamp" || name === "data"; // LQL cannot query topics with binary keys
    return [nameless ? [name, value, ""] : inLql(name, value)];
  });
}

/** @param {string} name @param {any} value @returns {[string, any, string]} */
const inLql = (name, value) => [name, value, named(name)];

/** @param {string} name @param {any} value @param {Acts} acts @param {string} operand of LQL; "" if there is none */
function field(name, value, acts, operand) {
  const shown = h("dd", {});
  const condition = operand && conditionOf(operand, value);
  const json = typeof value === "string" ? laidOut(value) : undefined;
  const bytes = bytesOf(value);
  if (value === null || value === undefined) shown.append(h("span", { class: "none" }, "none"));
  else if (name === "timestamp") shown.append(h("span", { class: "value" }, String(value)), h("span", { class: "aside" }, age(value)));
  else if (bytes) shown.append(...binary(bytes, value.base64));
  else if (json !== undefined) shown.append(tree(json, "msg", acts, name === "data"));
  else if (typeof value === "object" && !(value instanceof Exact)) shown.append(tree(value, "", acts, false));
  else shown.append(long(String(value)));
  if (condition && String(value).length < 500) shown.append(narrowing(name, String(value), condition, acts));
  return h("div", { class: "field" }, h("dt", {}, name), shown);
}

/** Buttons to select only a value, or to exclude it.
 * @param {string} name @param {string} value @param {string} condition @param {Acts} acts */
function narrowing(name, value, condition, acts) {
  const short = value.length > 40 ? `${value.slice(0, 40)}…` : value;
  const button = (/** @type {string} */ sign, /** @type {string} */ told, /** @type {boolean} */ without) =>
    h("button", { type: "button", class: "narrow", title: told, "aria-label": `${told}: ${name} ${short}`,
      onclick: () => acts.narrow(condition, without) }, sign);
  return h("span", { class: "narrowing" }, button("=", "Only with this value", false), button("≠", "Without this value", true));
}

/** @param {string} operand @param {any} value */
function conditionOf(operand, value) {
  if (typeof value === "string") return value === "" ? "" : `${operand} = ${quoted(value)}`;
  if (typeof value === "number" || typeof value === "boolean" || value instanceof Exact) return `${operand} = ${value}`;
  return "";
}

/** @param {any} value */
function age(value) {
  const us = Date.now() * 1000 - Number(micros(String(value)));
  return us >= 0 ? `${duration(us)} ago` : `in ${duration(-us)}`;
}

/** @param {Uint8Array} bytes @param {string} encoded */
function binary(bytes, encoded) {
  const shown = [...bytes.slice(0, 256)].map((byte) => byte.toString(16).padStart(2, "0"));
  const hex = shown.join(" ") + (bytes.length > 256 ? " …" : "");
  return [
    h("span", { class: "aside" }, `${count(bytes.length)} bytes that are not text. As text: `),
    long(new TextDecoder().decode(bytes)),
    h("pre", { class: "hex" }, hex),
    h("span", { class: "aside" }, `base64 ${encoded.slice(0, 80)}${encoded.length > 80 ? "…" : ""}`),
  ];
}

/** A text; a long one is shown completely on demand. @param {string} text */
function long(text) {
  const shown = h("span", { class: "value" }, text.slice(0, MOST));
  if (text.length <= MOST) return shown;
  const more = h("button", { type: "button", class: "act", onclick: () => { shown.textContent = text; } },
    `Show all ${count(text.length)} characters`);
  shown.append("… ", more);
  return shown;
}

/** @param {string} text @returns {any} its JSON value, if that has parts */
function laidOut(text) {
  if (!/^\s*[[{]/.test(text)) return undefined;
  try {
    const found = parse(text);
    return typeof found === "object" && found !== null ? found : undefined;
  } catch {
    return undefined;
  }
}

/**
 * JSON as indented lines, whose values can be selected.
 * @param {any} value @param {string} root its name in LQL @param {Acts} acts @param {boolean} asks whether LQL can select it
 */
function tree(value, root, acts, asks) {
  const box = h("div", { class: "json" });
  let left = MOST_PARTS;
  const line = (/** @type {number} */ depth, /** @type {import("./dom.js").Child[]} */ parts) => {
    const made = h("div", {}, ...parts);
    made.style.paddingInlineStart = `${depth * 1.25}em`;
    box.append(made);
  };
  /** @param {any} part @param {string} path @param {number} depth @param {import("./dom.js").Child[]} before @param {string} after */
  const walk = (part, path, depth, before, after) => {
    if (left-- <= 0) return;
    if (part !== null && typeof part === "object" && !(part instanceof Exact)) {
      const list = Array.isArray(part);
      const entries = Object.entries(part);
      if (!entries.length) return line(depth, [...before, list ? "[]" : "{}", after]);
      line(depth, [...before, list ? "[" : "{"]);
      entries.forEach(([key, inner], place) => {
        const named = list ? [] : [h("span", { class: "key" }, JSON.stringify(key)), ": "];
        const step = list ? `[${key}]` : /^[A-Za-z_]\w*$/.test(key) ? `.${key}` : `[${quoted(key)}]`;
        walk(inner, path + step, depth + 1, named, place < entries.length - 1 ? "," : "");
      });
      return line(depth, [list ? "]" : "}", after]);
    }
    const text = typeof part === "string" ? JSON.stringify(part) : String(part);
    const shown = text.length > MOST ? `${text.slice(0, MOST)}…` : text;
    const kind = part === null ? "null" : part instanceof Exact ? "number" : typeof part;
    const condition = asks ? conditionOf(path, typeof part === "boolean" ? String(part) : part) : "";
    return line(depth, [...before, h("bdi", { class: `is-${kind}` }, shown), after,
      condition && text.length < 500 && narrowing(path, text, condition, acts)]);
  };
  walk(value, root, 0, [], "");
  if (left <= 0) box.append(h("p", { class: "aside" }, `The first ${count(MOST_PARTS)} parts; “Copy as JSON” includes all.`));
  return box;
}

/** @param {Record<string, any>} row @param {HTMLElement} button that shows the result */
async function copy(row, button) {
  const text = JSON.stringify(row, (_, value) => (value instanceof Exact ? value.text : value), 1);
  button.textContent = await navigator.clipboard.writeText(text).then(() => "Copied", () => "The browser does not allow copying");
}
