/** How much of its retention limits a topic has used, as labelled meters. */

import { h } from "./dom.js";
import { bytes, count, duration } from "./format.js";

/** @param {Record<string, any>} mine figures of a topic */
export function retentionMeters(mine) {
  const { bytes: most, age_us: age, segments, partition_bytes: each, partition_segments: eachSegments } = mine.retention;
  const parts = Object.values(mine.partitions);
  const largest = (/** @type {string} */ name) => Math.max(0, ...parts.map((part) => part[name]));
  const oldest = mine.min_timestamp === null ? 0 : Math.max(0, Date.now() * 1000 - mine.min_timestamp);
  const limits = [
    most !== null && meter("Kept by size", mine.sealed_bytes, most, bytes),
    age !== null && meter("Kept by age", oldest, age, duration),
    segments !== null && meter("Kept by segments", mine.segments, segments, count),
    each !== null && meter("Kept per partition", largest("sealed_bytes"), each, bytes),
    eachSegments !== null && meter("Segments per partition", largest("segments"), eachSegments, count),
  ].filter((limit) => limit !== false);
  return limits.length ? limits : [h("p", { class: "aside" }, "Everything is kept: no retention limits are set.")];
}

/** @param {string} name @param {number} used @param {number} limit @param {(value: number) => string} told */
function meter(name, used, limit, told) {
  const part = limit ? Math.min(1, used / limit) : 1;
  const bar = h("span", { class: `meter-bar${part > 0.9 ? " high" : ""}` });
  bar.style.inlineSize = `${(part * 100).toFixed(1)}%`;
  return h("div", { class: "meter" },
    h("span", { class: "meter-name" }, name),
    h("span", { class: "meter-told" }, `${told(used)} of ${told(limit)}, ${used < limit ? `${told(limit - used)} left` : "full"}`),
    h("span", { class: "meter-track", role: "meter", "aria-label": name, "aria-valuemin": 0, "aria-valuemax": 100,
      "aria-valuenow": Math.round(part * 100) }, bar));
}
