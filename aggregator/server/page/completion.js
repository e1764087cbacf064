/** Completions of the query, listed below the field: chosen with the arrow keys and Tab or Enter, or with a click. */

import { ApiError, askJson } from "./api.js";
import { h, later, replace } from "./dom.js";

const PAUSE_MS = 120;

/** @typedef {{text: string, replaces: number}} Word */

export class Completion {
  /** @param {HTMLTextAreaElement} box */
  constructor(box) {
    this.box = box;
    /** @type {string[]} names of fields in the rows */
    this.names = [];
    /** @type {Word[]} */
    this.words = [];
    this.at = -1; // the one that Enter inserts
    this.asked = 0;
    this.may = true;
    this.element = h("div", { id: "words", class: "words", role: "listbox", "aria-label": "Suggestions", hidden: true });
    const ask = later(PAUSE_MS, () => void this.ask());
    for (const [name, value] of Object.entries({ "aria-autocomplete": "list", "aria-haspopup": "listbox", "aria-controls": "words" }))
      box.setAttribute(name, value);
    box.addEventListener("input", ask);
    box.addEventListener("blur", () => this.close());
  }

  async ask() {
    const before = this.box.value.slice(0, this.box.selectionStart);
    const number = ++this.asked;
    if (!this.may || !/[\w./:-]$|[={,]\s*$|\b(from|where|and|or|not|by)\s+$/i.test(before)) return this.close();
    try {
      const { completions } = await askJson("v1/completions", { body: JSON.stringify({ before, names: this.names }) });
      if (number === this.asked && document.activeElement === this.box) this.open(completions);
    } catch (error) {
      if (!(error instanceof ApiError)) throw error;
      this.may = error.status !== 403; // tokens for some topics only may not use statements
      this.close();
    }
  }

  /** @param {Word[]} words */
  open(words) {
    this.words = words;
    this.element.hidden = !words.length;
    replace(this.element, ...words.map(({ text }, i) => h("div", { id: `word-${i}`, role: "option", "aria-selected": "false",
      onpointerdown: (/** @type {Event} */ event) => { event.preventDefault(); this.take(i); } }, h("bdi", {}, text))));
    this.mark(-1);
  }

  close() {
    this.asked++;
    this.open([]);
  }

  /** @param {number} at */
  mark(at) {
    this.element.children[this.at]?.setAttribute("aria-selected", "false");
    this.at = at;
    const chosen = this.element.children[at];
    chosen?.setAttribute("aria-selected", "true");
    chosen?.scrollIntoView({ block: "nearest" });
    if (chosen) this.box.setAttribute("aria-activedescendant", chosen.id);
    else this.box.removeAttribute("aria-activedescendant");
  }

  /** @param {number} at */
  take(at) {
    const { text, replaces } = this.words[at];
    const end = this.box.selectionStart;
    this.box.setRangeText(text, end - replaces, end, "end");
    this.close();
  }

  /** Handle a key; whether it was used. @param {KeyboardEvent} event */
  key(event) {
    if (this.element.hidden) return false;
    const count = this.words.length;
    if (event.key === "ArrowDown") this.mark((this.at + 1) % count);
    else if (event.key === "ArrowUp") this.mark((this.at + count - 1 + (this.at < 0 ? 1 : 0)) % count);
    else if (event.key === "Tab" && !event.shiftKey) this.take(Math.max(0, this.at));
    else if (event.key === "Enter" && this.at >= 0) this.take(this.at);
    else if (event.key === "Escape") this.close();
    else return false;
    event.preventDefault();
    event.stopPropagation();
    return true;
  }
}
