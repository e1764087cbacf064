/** The history of a space as a timeline: each grouping is a bar from its first event to its last. */

import { h, replace, rove, svg } from "./dom.js";
import { count, duration, micros, moment } from "./format.js";

const LANE = 26, BAR = 6, MOST = 50, LETTER = 6.6;

/** @typedef {{name: string, events: number, first: number, last: number}} Grouping times in µs */

/** @param {Record<string, any>[]} rows of COUNT, MIN(ts), MAX(ts) by grouping @param {boolean} newest first @returns {Grouping[]} */
export function groupingsOf(rows, newest) {
  const found = rows.map((row) => ({ name: row.grouping ?? "", events: row.count,
    first: Number(micros(row["MIN(ts)"])), last: Number(micros(row["MAX(ts)"])) }));
  return found.sort((a, b) => (newest ? b.last - a.last : a.first - b.first));
}

/**
 * @param {HTMLElement} box @param {Grouping[]} groupings
 * @param {{start: number, end: number}} within the time of the histogram above, µs
 * @param {string} chosen the selected grouping @param {(name: string) => void} choose
 */
export function drawLanes(box, groupings, { start, end }, chosen, choose) {
  const across = Math.max(280, box.clientWidth);
  const shown = groupings.slice(0, MOST);
  const x = (/** @type {number} */ us) => Math.max(0, Math.min(across - 3, ((us - start) / Math.max(1, end - start)) * across));
  const lanes = shown.map((each, i) => {
    const left = x(each.first), width = Math.max(3, x(each.last) - left);
    const name = each.name || "no grouping";
    const told = `${name}: ${count(each.events)} ${each.events === 1 ? "event" : "events"}, ${moment(each.first)} to ${moment(each.last)}, ${duration(each.last - each.first)}`;
    const words = `${name.length > 60 ? `${name.slice(0, 60)}…` : name}  ${count(each.events)}`;
    const atEnd = left + words.length * LETTER > across;
    return svg("g", { class: `lane${each.name && each.name === chosen ? " current" : ""}`, role: "button", tabindex: -1, "aria-label": told,
      onclick: () => choose(each.name), onkeydown: (/** @type {KeyboardEvent} */ event) => {
        if (event.key !== "Enter" && event.key !== " ") return;
        event.preventDefault();
        choose(each.name);
      } },
    svg("rect", { class: "lane-ground", x: 0, y: i * LANE, width: across, height: LANE }),
    svg("line", { class: "axis", x1: 0, x2: across, y1: (i + 1) * LANE - BAR / 2 - 2, y2: (i + 1) * LANE - BAR / 2 - 2 }),
    svg("rect", { class: "lane-bar", x: left, y: (i + 1) * LANE - BAR - 2, width, height: BAR, rx: 2 }),
    svg("text", { class: "lane-name", x: atEnd ? left + width : left, y: (i + 1) * LANE - BAR - 6, "text-anchor": atEnd ? "end" : "start" }, words),
    svg("title", {}, told));
  });
  const height = shown.length * LANE;
  const picture = svg("svg", { class: "chart", viewBox: `0 0 ${across} ${height}`, width: across, height, role: "group",
    "aria-label": `${count(groupings.length)} groupings of this space, from first to last event` }, ...lanes);
  rove(picture, lanes);
  const rest = groupings.length - shown.length;
  replace(box, picture, rest > 0 && h("p", { class: "aside" }, `and ${count(rest)} other groupings`));
}
