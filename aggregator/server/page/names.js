/** Names of columns, fields and tags in rows, to choose from. */

import { readTags } from "./tags.js";

/** @typedef {Record<string, any>} Row */

const APART = ["space", "timestamp", "data", "fields"]; // with their own places in a line
const MOST = 60;

/** @param {Iterable<Row>} rows @param {boolean} tagged rows have tags instead of the space @returns {string[]} */
export function namesIn(rows, tagged) {
  /** @type {Set<string>} */
  const found = new Set();
  for (const row of rows) {
    for (const [name, value] of Object.entries(row)) if (!APART.includes(name) && value !== null && value !== "") found.add(name);
    for (const name of Object.keys(fieldsOf(row))) found.add(name);
    if (tagged) for (const [name] of readTags(String(row.space)) ?? []) found.add(name);
    if (found.size > MOST) break;
  }
  return [...found].slice(0, MOST);
}

/** The value of a name in a row. @param {Row} row @param {string} name */
export function valueOf(row, name) {
  if ((name === "data" || !APART.includes(name)) && row[name] !== undefined) return row[name];
  const fields = fieldsOf(row);
  if (Object.hasOwn(fields, name)) return fields[name];
  return (readTags(String(row.space)) ?? []).find(([tag]) => tag === name)?.[1];
}

/** The fields of a stream's record. @param {Row} row @returns {Row} */
export const fieldsOf = (row) => (row.fields !== null && typeof row.fields === "object" ? row.fields : {});
