/** A dialog for the time range: the days of a month, coloured by their number of events, and two fields. */

import { h, replace, svg } from "./dom.js";
import { count, dateOf, fromField, midnight, moment, toField } from "./format.js";

const WEEKDAYS = ["Mo", "Tu", "We", "Th", "Fr", "Sa", "Su"];
const STEPS = /** @type {Record<string, number>} */ ({ ArrowLeft: -1, ArrowRight: 1, ArrowUp: -7, ArrowDown: 7 });

/** @typedef {{start_us: number, width_us: number, counts: number[]}} Counted */
/** @typedef {{from: number | null, to: number | null}} Times in µs, end exclusive */

/** The icon of the button that opens the dialog. */
export const calendarIcon = () => svg("svg", { viewBox: "0 0 16 16", width: 16, height: 16, "aria-hidden": "true", class: "icon" },
  svg("path", { d: "M2.5 3.5h11v10h-11zM2.5 6.5h11M5.5 1.5v3M10.5 1.5v3" }));

export class TimeDialog {
  /**
   * @param {Times} chosen @param {number} around a moment in the month that is shown first
   * @param {(start: number, end: number) => Promise<Counted>} events counts them by time
   * @param {(times: Times) => void} choose
   */
  constructor(chosen, around, events, choose) {
    this.year = this.month = 0; // the month that is shown
    this.events = events;
    [this.year, this.month] = dateOf(around);
    this.whole = true; // the next day that is chosen begins a new range
    const field = (/** @type {string} */ name, /** @type {number | null} */ us) =>
      h("input", { type: "datetime-local", step: 1, "aria-label": name, value: us === null ? "" : toField(us), oninput: () => this.shade() });
    this.from = field("From", chosen.from);
    this.to = field("To (excluded)", chosen.to);
    this.name = h("strong", { role: "status" });
    this.days = h("div", { class: "days", onkeydown: (/** @type {KeyboardEvent} */ event) => this.step(event) });
    const turn = (/** @type {string} */ sign, /** @type {string} */ name, /** @type {number} */ months) =>
      h("button", { type: "button", "aria-label": name, title: name, onclick: () => this.turn(months) }, sign);
    this.element = h("dialog", { class: "dialog times", "aria-labelledby": "times-title", onclose: () => {
      this.element.remove();
      if (this.element.returnValue === "show") choose({ from: fromField(this.from.value), to: fromField(this.to.value) });
    } },
    h("form", { method: "dialog" },
      h("h2", { id: "times-title" }, "Choose a time range"),
      h("div", { class: "month" }, turn("‹", "Previous month", -1), this.name, turn("›", "Next month", 1)),
      h("div", { class: "days", "aria-hidden": "true" }, ...WEEKDAYS.map((day) => h("span", { class: "aside" }, day))),
      this.days,
      h("p", { class: "aside" }, "Choose one day, or the first and the last day. Days with more events have a stronger colour."),
      h("div", { class: "between" }, h("label", {}, "From", this.from), h("label", {}, "To (excluded)", this.to)),
      h("div", { class: "dialog-acts" },
        h("button", { type: "submit", formnovalidate: true }, "Cancel"),
        h("button", { type: "submit", class: "primary", value: "show" }, "Show"))));
    document.body.append(this.element);
    this.turn(0);
    this.element.showModal();
  }

  /** @param {number} months */
  turn(months) {
    [this.year, this.month] = dateOf(midnight(this.year, this.month + months, 1));
    const start = midnight(this.year, this.month, 1), end = midnight(this.year, this.month + 1, 1);
    const length = Math.round((end - start) / 86_400e6);
    const before = (new Date(Date.UTC(this.year, this.month, 1)).getUTCDay() + 6) % 7;
    this.name.textContent = `${new Intl.DateTimeFormat("en", { month: "long", timeZone: "UTC" }).format(Date.UTC(this.year, this.month))} ${this.year}`;
    const [year, month, day] = dateOf(Date.now() * 1000);
    const today = midnight(year, month, day);
    replace(this.days, ...Array.from({ length: before }, () => h("span", {})), ...Array.from({ length }, (_, n) => {
      const at = midnight(this.year, this.month, n + 1);
      return h("button", { type: "button", class: at === today ? "today" : "", "data-at": at, "aria-label": moment(at).slice(0, 10),
        tabindex: n ? -1 : 0, onclick: () => this.pick(at) }, n + 1);
    }));
    this.shade();
    void this.count(start, end, `${this.year} ${this.month}`);
  }

  /** Show which days have many events. @param {number} start @param {number} end @param {string} shown */
  async count(start, end, shown) {
    const { start_us: first, width_us: width, counts } = await this.events(start, end).catch(() => ({ start_us: 0, width_us: 1, counts: [] }));
    if (shown !== `${this.year} ${this.month}`) return; // another month is shown by now
    const buttons = this.buttons();
    const sums = buttons.map(() => 0);
    counts.forEach((n, i) => {
      const place = buttons.findLastIndex((button) => Number(button.dataset.at) <= first + (i + 0.5) * width);
      if (place >= 0) sums[place] += n;
    });
    const most = Math.max(1, ...sums);
    buttons.forEach((button, i) => {
      button.style.setProperty("--part", `${Math.round((100 * sums[i]) / most)}%`);
      button.title = `${count(sums[i])} events`;
      button.setAttribute("aria-label", `${moment(Number(button.dataset.at)).slice(0, 10)}, ${button.title}`);
    });
  }

  buttons() {
    return [...this.days.querySelectorAll("button")];
  }

  /** @param {number} at where a day begins */
  pick(at) {
    const [year, month, day] = dateOf(at);
    const end = midnight(year, month, day + 1);
    const from = fromField(this.from.value), to = fromField(this.to.value);
    const more = !this.whole && from !== null && to !== null;
    this.from.value = toField(more ? Math.min(from, at) : at);
    this.to.value = toField(more ? Math.max(to, end) : end);
    this.whole = more;
    this.shade();
  }

  /** Mark the days in the time range. */
  shade() {
    const from = fromField(this.from.value) ?? -Infinity, to = fromField(this.to.value) ?? Infinity;
    const any = this.from.value !== "" || this.to.value !== "";
    for (const button of this.buttons()) {
      const at = Number(button.dataset.at);
      button.setAttribute("aria-pressed", String(any && at + 86_400e6 > from && at < to));
    }
  }

  /** Move from day to day with the arrow keys. @param {KeyboardEvent} event */
  step(event) {
    const buttons = this.buttons();
    const at = buttons.findIndex((button) => button === event.target);
    const next = event.key in STEPS ? buttons[at + STEPS[event.key]] : undefined;
    if (at < 0 || !next) return;
    event.preventDefault();
    buttons[at].tabIndex = -1;
    next.tabIndex = 0;
    next.focus();
  }
}
