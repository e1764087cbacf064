/** A line without axes: how a figure went over the last looks. */

import { svg } from "./dom.js";

const WIDTH = 160, HEIGHT = 28;

/** @param {number[]} values the newest last */
export function sparkline(values) {
  const most = Math.max(1, ...values);
  const step = WIDTH / 59;
  const points = values.map((value, i) => {
    const x = WIDTH - (values.length - 1 - i) * step;
    return `${x.toFixed(1)},${(HEIGHT - 2 - (value / most) * (HEIGHT - 4)).toFixed(1)}`;
  });
  return svg("svg", { class: "spark", viewBox: `0 0 ${WIDTH} ${HEIGHT}`, width: WIDTH, height: HEIGHT, "aria-hidden": "true" },
    svg("line", { class: "axis", x1: 0, x2: WIDTH, y1: HEIGHT - 1, y2: HEIGHT - 1 }),
    svg("polyline", { class: "spark-line", points: points.join(" ") }));
}
