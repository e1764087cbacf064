/** Hits over time as bars, in colours if a name was chosen. A drag, or a click on a bar, selects that time range. */

import { h, replace, svg } from "./dom.js";
import { count, duration, moment, rough, tick } from "./format.js";

const HEIGHT = 104, FLOOR = 84, TOP = 16;
const STEPS = [1, 2, 5, 10, 15, 20, 30, 60];
const MOST_BARS = 1_000;

/** Widths of bars: in the URL, in µs, in words. */
export const WIDTHS = /** @type {[string, number, string][]} */ ([
  ["m", 60e6, "One bar per minute"], ["h", 3_600e6, "One bar per hour"], ["d", 86_400e6, "One bar per day"], ["w", 7 * 86_400e6, "One bar per week"],
]);

/** The number of bars of the chosen width, or of a larger one if they would be too many. @param {number} length @param {number} width in µs */
export const bucketsFor = (length, width) => Math.max(2, Math.min(MOST_BARS, Math.floor(length / width) + 2));

/** @typedef {{value: any, events: number, counts: number[]}} Series @typedef {{kind: string, name: string, series: Series}} Layer */
/** @typedef {{start_us: number, width_us: number, events: number, counts: number[], series?: Series[]}} Counted */

/** The most frequent values, and the remainder of the total. @param {Counted} counted @returns {Layer[]} */
export function layersOf(counted) {
  const { counts, events, series = [] } = counted;
  const layers = series.map((each, i) => ({ kind: `s${i}`, name: each.value === null ? "none" : String(each.value), series: each }));
  const sum = (/** @type {number} */ at) => series.reduce((total, each) => total + each.counts[at], 0);
  const rest = { value: undefined, events: series.reduce((left, each) => left - each.events, events), counts: counts.map((n, i) => n - sum(i)) };
  return rest.events || !series.length ? [...layers, { kind: series.length ? "rest" : "", name: "others", series: rest }] : layers;
}

/**
 * @param {HTMLElement} box
 * @param {Counted} counted
 * @param {(from: number, to: number) => void} choose times in µs
 */
export function drawHistogram(box, counted, choose) {
  const { start_us: start, width_us: width, counts, events } = counted;
  if (!counts.length) return replace(box, h("p", { class: "chart-none" }, "No events."));
  const across = Math.max(280, box.clientWidth);
  const most = Math.max(...counts, 1);
  const step = across / counts.length;
  const told = h("p", { class: "chart-told", "aria-hidden": "true" });
  const chosen = svg("rect", { class: "chosen", y: 0, height: FLOOR, width: 0, x: 0 });
  const layers = layersOf(counted);
  const scale = (/** @type {number} */ n) => ((FLOOR - TOP) * n) / most;
  const bars = counts.flatMap((n, i) => {
    let below = 0;
    return layers.filter(({ series }) => series.counts[i] || layers.length === 1).map(({ kind, series }) => {
      const high = series.counts[i] ? Math.max(layers.length === 1 ? 2 : 0.5, scale(series.counts[i])) : 0;
      below += high;
      return svg("rect", { class: `bar ${kind}`, x: (i * step + 0.5).toFixed(2), width: Math.max(0.75, step - 1.5).toFixed(2),
        y: (FLOOR - below).toFixed(2), height: high.toFixed(2), rx: step > 8 && layers.length === 1 ? 1.5 : 0 });
    });
  });
  const picture = svg("svg", { class: "chart", viewBox: `0 0 ${across} ${HEIGHT}`, width: across, height: HEIGHT, role: "img",
      "aria-label": `${count(events)} events from ${moment(start)} to ${moment(start + width * counts.length)}, ` +
        `at most ${count(most)} in ${duration(width)}` },
    svg("line", { class: "axis", x1: 0, x2: across, y1: FLOOR, y2: FLOOR }), chosen, ...bars, ...ticks(start, width, counts.length, across));
  const top = h("span", { class: "chart-most" }, `at most ${count(most)} in ${duration(width)}, ${rough(events / counts.length)} on average`);
  replace(box, top, picture, told);
  drag(picture, chosen, told, { start, width, counts, across, choose, layers });
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
 * @param {{start: number, width: number, counts: number[], across: number, layers: Layer[],
 *   choose: (from: number, to: number) => void}} of
 */
function drag(picture, chosen, told, { start, width, counts, across, choose, layers }) {
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
    const sum = (/** @type {number[]} */ of) => of.slice(low, high + 1).reduce((total, n) => total + n, 0);
    const parts = layers.filter(({ series }) => layers.length > 1 && sum(series.counts))
      .map(({ name, series }) => `${name.slice(0, 20)} ${count(sum(series.counts))}`);
    const span = `${count(sum(counts))} events from ${moment(start + low * width)} to ${moment(start + (high + 1) * width)}`;
    told.textContent = [span, parts.join(", ")].filter(Boolean).join(": ");
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
