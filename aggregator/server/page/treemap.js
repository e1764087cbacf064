/** Areas in proportion to sizes, as square as possible. Arrow keys move between them. */

import { h, replace, rove, svg } from "./dom.js";

const HEIGHT = 300, GAP = 1.5, LETTER = 7.2;

/** @typedef {{kind: string, name: string, size: number, told: string}} Area */
/** @typedef {{x: number, y: number, width: number, height: number}} Box */

/**
 * @param {HTMLElement} box
 * @param {Area[]} areas
 * @param {string} label
 */
export function drawTreemap(box, areas, label) {
  const across = Math.max(280, box.clientWidth);
  const told = h("p", { class: "area-told", role: "status" }, "Point at an area for details.");
  const sorted = areas.filter((area) => area.size > 0).sort((a, b) => b.size - a.size);
  const places = squarified(sorted.map((area) => area.size), { x: 0, y: 0, width: across, height: HEIGHT });
  const shown = sorted.map((area, i) => drawn(area, places[i], (text) => { told.textContent = text; }));
  const picture = svg("svg", { class: "treemap", viewBox: `0 0 ${across} ${HEIGHT}`, width: across, height: HEIGHT, role: "group", "aria-label": label }, ...shown);
  rove(picture, shown);
  replace(box, picture, told);
}

/** @param {Area} area @param {Box} at @param {(told: string) => void} tell */
function drawn(area, { x, y, width, height }, tell) {
  const wide = Math.max(0.5, width - GAP), high = Math.max(0.5, height - GAP);
  const fits = Math.floor((wide - 12) / LETTER);
  const text = area.name || area.kind;
  return svg("g", { class: `area kind-${area.kind}`, role: "img", "aria-label": area.told, tabindex: -1,
    onpointerenter: () => tell(area.told), onfocus: () => tell(area.told) },
  svg("rect", { x, y, width: wide, height: high, rx: 2 }), svg("title", {}, area.told),
  fits >= 3 && high > 22 ? svg("text", { x: x + 7, y: y + 17 }, text.length > fits ? `${text.slice(0, fits - 1)}…` : text) : null);
}

/**
 * Boxes that fill a box, with areas in proportion to sizes (squarified treemaps: Bruls, Huizing and van Wijk).
 * @param {number[]} sizes the largest first
 * @param {Box} inside
 * @returns {Box[]}
 */
export function squarified(sizes, inside) {
  const scale = (inside.width * inside.height) / Math.max(1, sizes.reduce((a, b) => a + b, 0));
  const left = sizes.map((size) => size * scale);
  const found = /** @type {Box[]} */ ([]);
  let { x, y, width, height } = inside;
  for (let first = 0; first < left.length; ) {
    const short = Math.max(1e-6, Math.min(width, height));
    let end = first + 1;
    while (end < left.length && worst(left.slice(first, end + 1), short) <= worst(left.slice(first, end), short)) end++;
    const row = left.slice(first, end);
    const thick = row.reduce((a, b) => a + b, 0) / short;
    let along = 0;
    for (const area of row) {
      const length = area / Math.max(1e-6, thick);
      found.push(width >= height ? { x, y: y + along, width: thick, height: length } : { x: x + along, y, width: length, height: thick });
      along += length;
    }
    if (width >= height) [x, width] = [x + thick, width - thick];
    else [y, height] = [y + thick, height - thick];
    first = end;
  }
  return found;
}

/** The worst aspect ratio in a row. @param {number[]} row @param {number} side */
function worst(row, side) {
  const sum = row.reduce((a, b) => a + b, 0);
  return Math.max((side * side * row[0]) / (sum * sum), (sum * sum) / (side * side * row[row.length - 1]));
}
