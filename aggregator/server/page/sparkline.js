/** Rates of growing figures from repeated readings, and a line of the last ones, without axes. */

import { svg } from "./dom.js";

const WIDTH = 160, HEIGHT = 28, KEPT = 60;

export class Rates {
  /** @type {Map<string, {at: number, sum: number, rates: number[]}>} */
  seen = new Map();

  /** The increase per second at the last readings, the newest last. @param {string} name @param {number} sum the current total */
  add(name, sum) {
    const now = performance.now(), seen = this.seen.get(name);
    const rates = seen && sum >= seen.sum ? [...seen.rates, (1000 * (sum - seen.sum)) / Math.max(1, now - seen.at)].slice(-KEPT) : [];
    this.seen.set(name, { at: now, sum, rates });
    return rates;
  }
}

/** @param {number[]} rates */
export const latest = (rates) => rates.at(-1) ?? 0;

/** @param {number[]} values the newest last */
export function sparkline(values) {
  const most = Math.max(1, ...values);
  const step = WIDTH / (KEPT - 1);
  const points = values.map((value, i) => {
    const x = WIDTH - (values.length - 1 - i) * step;
    return `${x.toFixed(1)},${(HEIGHT - 2 - (value / most) * (HEIGHT - 4)).toFixed(1)}`;
  });
  return svg("svg", { class: "spark", viewBox: `0 0 ${WIDTH} ${HEIGHT}`, width: WIDTH, height: HEIGHT, "aria-hidden": "true" },
    svg("line", { class: "axis", x1: 0, x2: WIDTH, y1: HEIGHT - 1, y2: HEIGHT - 1 }),
    svg("polyline", { class: "spark-line", points: points.join(" ") }));
}
