/** The time range of a query: relative, such as the last hour; a day; everything; or between two moments. */

import { dateOf, duration, midnight } from "./format.js";

/** @type {[string, string][]} */
const QUICK = [
  ["", "All time"], ["15m", "Last 15 minutes"], ["1h", "Last hour"], ["6h", "Last 6 hours"], ["24h", "Last 24 hours"],
  ["today", "Today"], ["yesterday", "Yesterday"], ["7d", "Last 7 days"], ["30d", "Last 30 days"], ["365d", "Last year"],
];

const UNITS = /** @type {Record<string, number>} */ ({ m: 60e6, h: 3_600e6, d: 86_400e6 });

/** @param {string} last @returns {number} in µs; 0 if it is not a duration */
function lengthOf(last) {
  const [, digits, unit] = /^(\d{1,6})([mhd])$/.exec(last) ?? ["", "0", "m"];
  return Number(digits) * UNITS[unit];
}

/** The choices, and the duration in the URL if it is another one. @param {string} last */
export function times(last) {
  const own = lengthOf(last);
  const known = !own || QUICK.some(([value]) => value === last);
  return known ? QUICK : [...QUICK, /** @type {[string, string]} */ ([last, `Last ${duration(own)}`])];
}

/** The parts of the URL that control the display of results, independent of the query. @param {URLSearchParams} params */
export function shown(params) {
  const { order, by, cols, bars } = Object.fromEntries(params);
  return { order, by, cols, bars };
}

/** @typedef {{start: bigint | null, end: bigint | null}} Span in µs, end exclusive; null: unbounded */

/**
 * The time range in a URL: `last`, which may be a day, or `from` and `to` in µs.
 * @param {URLSearchParams} params
 * @returns {Span}
 */
export function span(params) {
  const days = { today: 0, yesterday: 1 }[params.get("last") ?? ""];
  if (days !== undefined) {
    const [year, month, day] = dateOf(Date.now() * 1000);
    return { start: BigInt(midnight(year, month, day - days)), end: BigInt(midnight(year, month, day - days + 1)) };
  }
  const last = lengthOf(params.get("last") ?? "");
  if (last) return { start: BigInt(Math.round(Date.now() * 1000 - last)), end: null };
  return { start: number(params.get("from")), end: number(params.get("to")) };
}

/** @param {string | null} text */
const number = (text) => (text !== null && /^-?\d{1,19}$/.test(text) ? BigInt(text) : null);

/**
 * The members of a body or the parameters of a path that restrict a query to a span.
 * @param {Span} asked
 * @returns {Record<string, string>} numbers as their digits
 */
export function bounds(asked) {
  /** @type {Record<string, string>} */
  const found = {};
  if (asked.start !== null) found.start = String(asked.start);
  if (asked.end !== null) found.end = String(asked.end);
  if (asked.start !== null || asked.end !== null) found.time_unit = "us";
  return found;
}
