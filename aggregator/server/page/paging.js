/** Rows by number, loaded a page at a time as users scroll; only the most recently used pages are kept. A page begins
 * at the time of the row before it, and skips the rows with that time that were loaded already. */

import { micros } from "./format.js";

export const PAGE = 200;
const KEPT = 20; // pages in memory

/** @typedef {Record<string, any>} Row */
/** @typedef {import("./time_range.js").Span} Span */
/** @typedef {{time: bigint | null, ties: number}} Cursor */
/** @typedef {(span: Span, limit: number, signal: AbortSignal) => Promise<Row[]>} Read */

export class Pages {
  /** @param {Read} read @param {Span} span @param {boolean} newest @param {boolean} whole the first page has all rows */
  constructor(read, span, newest, whole) {
    this.read = read;
    this.span = span;
    this.newest = newest;
    this.whole = whole;
    this.ended = false;
    this.length = 0;
    /** @type {Cursor[]} where each page begins */
    this.cursors = [{ time: null, ties: 0 }];
    /** @type {Map<number, Row[]>} the most recently used last */
    this.pages = new Map();
    /** @type {Map<number, Promise<void>>} */
    this.coming = new Map();
    this.stopping = new AbortController();
  }

  /** @param {number} place @returns {Row | undefined} */
  row(place) {
    const number = this.whole ? 0 : Math.floor(place / PAGE);
    const page = this.pages.get(number);
    if (!page) return undefined;
    this.pages.delete(number);
    this.pages.set(number, page);
    return page[this.whole ? place : place - number * PAGE];
  }

  /** Load the page of a row, unless it is loaded or loading. @param {number} place */
  async load(place) {
    const number = this.whole ? 0 : Math.min(Math.floor(place / PAGE), this.cursors.length - 1);
    if (this.pages.has(number)) return;
    let coming = this.coming.get(number);
    if (!coming) {
      coming = this.fetch(number).finally(() => this.coming.delete(number));
      this.coming.set(number, coming);
    }
    await coming;
  }

  /** @param {number} number */
  async fetch(number) {
    const { time, ties } = this.cursors[number];
    const span = { ...this.span };
    if (time !== null && this.newest) span.end = time + 1n;
    else if (time !== null) span.start = time;
    const found = (await this.read(span, PAGE + ties, this.stopping.signal)).slice(ties);
    const again = number < this.cursors.length - 1;
    this.pages.set(number, found);
    if (number === 0 && time === null && this.newest && found.length) // a reload excludes rows that arrived since
      this.cursors[0] = { time: micros(found[0].timestamp), ties: 0 };
    while (this.pages.size > KEPT) this.pages.delete(/** @type {number} */ (this.pages.keys().next().value));
    if (again) return;
    this.length = number * PAGE + found.length;
    if (this.whole || found.length < PAGE) this.ended = true;
    else this.cursors.push(behind(found, { time, ties }));
  }

  stop() {
    this.stopping.abort();
  }
}

/**
 * Where the page after some rows begins.
 * @param {Row[]} rows @param {Cursor} before
 * @returns {Cursor}
 */
function behind(rows, before) {
  const last = rows[rows.length - 1].timestamp;
  let ties = 0;
  while (ties < rows.length && rows[rows.length - 1 - ties].timestamp === last) ties++;
  const time = micros(last);
  return { time, ties: ties === rows.length && before.time === time ? ties + before.ties : ties };
}

/** Arriving rows, the newest first; a limited number is kept. */
export class Arriving {
  /** @param {number} most */
  constructor(most) {
    this.most = most;
    /** @type {Row[]} */
    this.rows = [];
    this.ended = true;
  }
  get length() {
    return this.rows.length;
  }
  /** @param {number} place @returns {Row | undefined} */
  row(place) {
    return this.rows[place];
  }
  async load() {}
  stop() {}
  /** @param {Row[]} rows oldest first */
  add(rows) {
    this.rows = [...rows.reverse(), ...this.rows].slice(0, this.most);
  }
}
