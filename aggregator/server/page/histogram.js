/** Hits over time as bars. A drag, or a click on a bar, asks for that time. */

import { h, replace, svg } from "./dom.js";
import { count, duration, moment, tick } from "./format.js";

const HEIGHT = 104, FLOOR = 84, TOP = 16;
const STEPS = [1, 2, 5, 10, 15, 20, 30, 60];

/** @typedef {{start_us: number, width_us: number, events: number, counts: number[]}} Counted */

/**
 * @param {HTMLElement} box
 * @param {Counted} counted
 * @param {(from: number, to: number) => void} choose times in µs
 */
export function drawHistogram(box, counted, choose) {
  const { start_us: start, width_us: width, counts, events } = counted;
  if (!counts.length) return replace(box, h("p", { class: "chart-none" }, "No events in this time."));
  const across = Math.max(280, box.clientWidth);
  const most = Math.max(...counts, 1);
  const step = across / counts.length;
  const told = h("p", { class: "chart-told", "aria-hidden": "true" });
  const chosen = svg("rect", { class: "chosen", y: 0, height: FLOOR, width: 0, x: 0 });
  const bars = counts.map((n, i) => {
    const high = n ? Math.max(2, ((FLOOR - TOP) * n) / most) : 0;
    return svg("rect", { class: "bar", x: (i * step + 0.5).toFixed(2), width: Math.max(0.75, step - 1.5).toFixed(2),
      y: (FLOOR - high).toFixed(2), height: high.toFixed(2), rx: step > 8 ? 1.5 : 0 });
  });
  const picture = svg("svg", { class: "chart", viewBox: `0 0 ${across} ${HEIGHT}`, width: across, height: HEIGHT, role: "img",
      "aria-label": `${count(events)} events from ${moment(start)} to ${moment(start + width * counts.length)}, ` +
        `at most ${count(most)} in ${duration(width)}` },
    svg("line", { class: "axis", x1: 0, x2: across, y1: FLOOR, y2: FLOOR }), chosen, ...bars, ...ticks(start, width, counts.length, across));
  const scale = h("span", { class: "chart-most" }, `${count(most)} in ${duration(width)}`);
  replace(box, scale, picture, told);
  drag(picture, chosen, told, { start, width, counts, across, choose });
}

/** @param {number} start @param {number} width @param {number} buckets @param {number} across */
function ticks(start, width, buckets, across) {
  const wanted = Math.max(2, Math.floor(across / 110));
  const every = STEPS.find((each) => buckets / each <= wanted) ?? Math.ceil(buckets / wanted);
  const made = [];
  for (let i = every - (((start / width) % every) + every) % every; i < buckets; i += every) {
    const x = (i / buckets) * across;
    if (x < 34 || x > across - 34) continue;
    made.push(svg("line", { class: "axis", x1: x, x2: x, y1: FLOOR, y2: FLOOR + 4 }),
      svg("text", { class: "tick", x, y: FLOOR + 17, "text-anchor": "middle" }, tick(start + i * width, every * width, start + (i - every) * width)));
  }
  return made;
}

/**
 * @param {SVGElement} picture @param {SVGElement} chosen @param {HTMLElement} told
 * @param {{start: number, width: number, counts: number[], across: number, choose: (from: number, to: number) => void}} of
 */
function drag(picture, chosen, told, { start, width, counts, across, choose }) {
  const at = (/** @type {PointerEvent} */ event) => {
    const { left, width: shown } = picture.getBoundingClientRect();
    return Math.max(0, Math.min(counts.length - 1, Math.floor(((event.clientX - left) / shown) * counts.length)));
  };
  /** @type {number | null} */
  let from = null;
  const show = (/** @type {number} */ a, /** @type {number} */ b) => {
    const [low, high] = a < b ? [a, b] : [b, a];
    chosen.setAttribute("x", String((low / counts.length) * across));
    chosen.setAttribute("width", String(((high - low + 1) / counts.length) * across));
    const sum = counts.slice(low, high + 1).reduce((total, n) => total + n, 0);
    told.textContent = `${count(sum)} events from ${moment(start + low * width)} to ${moment(start + (high + 1) * width)}`;
    return [low, high];
  };
  picture.addEventListener("pointermove", (event) => show(from ?? at(event), at(event)));
  picture.addEventListener("pointerdown", (event) => {
    from = at(event);
    picture.setPointerCapture(event.pointerId);
  });
  picture.addEventListener("pointerup", (event) => {
    if (from === null) return;
    const [low, high] = show(from, at(event));
    from = null;
    choose(start + low * width, start + (high + 1) * width);
  });
  picture.addEventListener("pointerleave", () => {
    if (from !== null) return;
    chosen.setAttribute("width", "0");
    told.textContent = "";
  });
}
