/** A list of any number of rows; only visible ones have elements. A row opens to show all of its fields. */

import { h, replace } from "./dom.js";
import { Arriving } from "./paging.js";
import { details } from "./row_details.js";
import { summary } from "./row_summary.js";

const BEYOND = 12; // rows kept above and below the visible ones
const SPACE = "Who or what an event belongs to: a customer, a machine, a stream";

/** @typedef {import("./paging.js").Pages | import("./paging.js").Arriving} Source */
/** @typedef {import("./row_details.js").Acts} Acts */
/** @typedef {{node: HTMLElement, height: number}} Opened */

export class RowList {
  /** @param {Acts} acts @param {(error: unknown) => void} failed */
  constructor(acts, failed) {
    this.acts = acts;
    this.failed = failed;
    /** @type {Source | null} */
    this.source = null;
    /** @type {Map<number, Opened>} by the row's number */
    this.opened = new Map();
    /** @type {Map<number, {item: HTMLElement, row: Record<string, any> | undefined, open: Opened | undefined}>} */
    this.items = new Map();
    this.current = -1;
    this.height = 32; // of a closed row, as in the style sheet
    this.timed = false; // whether a time range was chosen
    /** @type {string[]} chosen for display, in this order */
    this.columns = [];
    this.head = h("div", { class: "row-names", hidden: true, "aria-hidden": "true" });
    this.space = h("div", { class: "rows-space", role: "list", "aria-label": "Events" });
    this.foot = h("p", { class: "rows-foot", role: "status" });
    this.element = h("div", { class: "rows", tabindex: "0", "aria-label": "Events, newest first", role: "region", onscroll: () => this.draw() },
      this.space, this.foot);
    this.sizes = new ResizeObserver(() => this.measure());
    new ResizeObserver(() => this.draw()).observe(this.element);
  }

  /** @param {string[]} columns none: each row shows all of its fields */
  choose(columns) {
    this.columns = columns;
    this.head.hidden = false;
    for (const part of [this.head, this.element]) {
      part.classList.toggle("in-columns", columns.length > 0);
      part.style.setProperty("--cells", String(columns.length));
    }
    replace(this.head, h("span", {}, "Time"), h("span", { title: SPACE }, "Space"), ...(columns.length ? columns : ["Event"]).map((name) => h("bdi", {}, name)));
  }

  /** @param {Source} source */
  show(source) {
    this.source?.stop();
    this.source = source;
    this.clear();
    this.opened.clear();
    this.current = -1;
    this.element.scrollTop = 0;
    return this.more(0);
  }

  /** @param {number} place where a row begins */
  top(place) {
    let top = place * this.height;
    for (const [other, { height }] of this.opened) if (other < place) top += height;
    return top;
  }

  /** @param {number} top position in pixels of the row that is returned */
  at(top) {
    let place = Math.floor(top / this.height);
    for (const [other, { height }] of [...this.opened].sort((a, b) => a[0] - b[0]))
      if (other < place) place = Math.max(other, place - Math.ceil(height / this.height));
    return Math.max(0, place);
  }

  /** Draw the visible rows, and load those that are missing. */
  draw() {
    const source = this.source;
    if (!source) return;
    this.height = Number.parseFloat(getComputedStyle(this.element).getPropertyValue("--row")) || this.height;
    const { scrollTop, clientHeight, offsetWidth, clientWidth } = this.element;
    this.head.style.paddingInlineEnd = `calc(${offsetWidth - clientWidth}px + var(--s3))`;
    const first = Math.max(0, this.at(scrollTop) - BEYOND);
    const end = Math.min(source.length, this.at(scrollTop + clientHeight) + BEYOND);
    this.space.style.height = `${this.top(source.length)}px`;
    this.arrange(first, end);
    this.foot.textContent = this.footText(source);
    if (!source.ended && end >= source.length) void this.more(source.length);
    for (const place of [first, end - 1]) if (place >= 0 && place < source.length && !source.row(place)) void this.more(place);
  }

  /** Show the rows [first, end) as elements, in order; existing elements are kept. @param {number} first @param {number} end */
  arrange(first, end) {
    for (const [place, { item }] of this.items)
      if (place < first || place >= end) {
        item.remove();
        this.items.delete(place);
      }
    let next = this.space.firstElementChild;
    for (let place = first; place < end; place++) {
      const row = this.source?.row(place), open = this.opened.get(place);
      let known = this.items.get(place);
      if (!known || known.row !== row || known.open !== open) {
        const item = this.item(place, row, open);
        if (known?.item === next) next = next?.nextElementSibling ?? null;
        known?.item.remove();
        known = { item, row, open };
        this.items.set(place, known);
      }
      known.item.style.top = `${this.top(place)}px`;
      if (known.item === next) next = next.nextElementSibling;
      else this.space.insertBefore(known.item, next);
    }
  }

  /** @param {Source} source */
  footText(source) {
    if (!source.ended) return source.length ? "Reading more …" : "Reading …";
    if (source.length) return "End of results.";
    return source instanceof Arriving ? "Waiting for events …" : this.timed ? "No events in this time range." : "No results.";
  }

  /** @param {number} place */
  async more(place) {
    const source = this.source;
    if (!source) return;
    try {
      await source.load(place);
      if (source === this.source) this.draw();
    } catch (error) {
      if (source === this.source) this.failed(error);
    }
  }

  /** @param {number} place @param {Record<string, any> | undefined} row @param {Opened | undefined} open */
  item(place, row, open) {
    const button = h("button", {
      class: "row-head", type: "button", "aria-expanded": String(open !== undefined), "data-place": place,
      onclick: () => this.toggle(place), onfocus: () => this.mark(place),
    }, ...(row ? summary(row, this.columns) : ["…"]));
    const item = h("div", { class: `row${place === this.current ? " current" : ""}`, role: "listitem", "aria-posinset": place + 1,
      "aria-setsize": this.source?.ended ? this.source.length : -1 }, button, open?.node);
    if (open) this.sizes.observe(open.node);
    return item;
  }

  /** @param {number} place @returns {HTMLElement | null} */
  button(place) {
    return this.space.querySelector(`[data-place="${place}"]`);
  }

  /** @param {number} place */
  toggle(place) {
    const row = this.source?.row(place);
    if (!row) return;
    if (!this.opened.delete(place)) this.opened.set(place, { node: details(row, this.acts), height: 0 });
    this.draw();
    this.measure();
  }

  /** Measure the heights of opened rows. */
  measure() {
    let changed = false;
    for (const open of this.opened.values()) {
      if (!open.node.isConnected) continue;
      const height = open.node.offsetHeight;
      changed ||= height !== open.height;
      open.height = height;
    }
    if (changed) this.draw();
  }

  /** @param {number} place */
  mark(place) {
    this.current = place;
    for (const item of this.space.querySelectorAll(".current")) item.classList.remove("current");
    this.button(place)?.parentElement?.classList.add("current");
  }

  /** Move to another row. @param {number} steps */
  move(steps) {
    if (!this.source?.length) return;
    const place = Math.max(0, Math.min(this.source.length - 1, this.current + steps));
    const top = this.top(place);
    const { scrollTop, clientHeight } = this.element;
    if (top < scrollTop) this.element.scrollTop = top;
    else if (top + this.height > scrollTop + clientHeight) this.element.scrollTop = top + 2 * this.height - clientHeight;
    this.draw();
    this.mark(place);
    this.button(place)?.focus({ preventScroll: true });
  }

  /** Insert rows before the first, without moving the visible ones. @param {number} added */
  shifted(added) {
    const moved = [...this.opened].map(([place, open]) => /** @type {const} */ ([place + added, open]));
    this.opened = new Map(moved);
    this.clear();
    if (this.current >= 0) this.current += added;
    if (this.element.scrollTop > 0) this.element.scrollTop += added * this.height;
    this.draw();
  }

  clear() {
    this.items.clear();
    this.space.replaceChildren();
  }

  /** Show why there are no rows. @param {...import("./dom.js").Child} why */
  empty(...why) {
    this.source?.stop();
    this.source = null;
    this.clear();
    this.space.style.height = "0";
    replace(this.foot, ...why);
  }
}
