/** The segments of a topic over time: each is a bar from its first to its last event, with a lane per partition. */

import { link } from "./address.js";
import { h, replace, rove, svg } from "./dom.js";
import { bytes, count, moment, tick } from "./format.js";
import { session } from "./session.js";

const BAR = 12, GAP = 3, LANE_GAP = 12, MOST_ROWS = 24, MOST_BARS = 4_000;
const STATES = /** @type {Record<string, string>} */ ({ merging: "Being merged", erasing: "May contain erased events" });
const LEVELS = ["New", "Merged once", "Merged twice", "Merged more often"];

/** @typedef {Record<string, any>} Facts */

/** @param {HTMLElement} box @param {Facts[]} segments @param {Facts} facts figures of the topic */
export function drawTimeline(box, segments, facts) {
  const unsealed = Object.entries(facts.partitions).filter(([, mine]) => mine.unsealed_rows).map(([partition, mine]) => ({
    partition, rows: mine.unsealed_rows, bytes: mine.unsealed_bytes, min_timestamp: mine.oldest_unsealed_us ?? mine.max_timestamp,
    max_timestamp: mine.max_timestamp, unsealed: true,
  }));
  /** @type {Facts[]} */
  const shown = [...segments.slice(-MOST_BARS), ...unsealed.map(clipped)];
  if (!shown.length) return replace(box, h("p", { class: "aside" }, "No segments yet: events are sealed into one when a limit below is reached."));
  const start = Math.min(...shown.map((each) => each.min_timestamp));
  const end = Math.max(...shown.map((each) => each.max_timestamp), start + 1);
  const across = Math.max(280, box.clientWidth);
  const x = (/** @type {number} */ us) => 4 + ((us - start) / (end - start)) * (across - 8);
  const told = h("p", { class: "timeline-told", role: "status" }, `Point at a ${session.fixed ? "file" : "segment"} for details; click it to see its contents.`);
  const next = session.fixed ? new Set() : nextToGo(segments, facts.retention);
  const { bars, height, behind } = lanes(shown, x, told, facts, next);
  const labels = axis(start, end, x, height);
  const cut = facts.retention.age_us === null ? null : Date.now() * 1000 - facts.retention.age_us;
  const line = cut !== null && cut > start && cut < end
    ? [svg("line", { class: "cut", x1: x(cut), x2: x(cut), y1: 0, y2: height }), svg("text", { class: "cut-text", x: x(cut) + 5, y: 11 }, "older: removed")] : [];
  const picture = svg("svg", { class: "chart", viewBox: `0 0 ${across} ${height + 24}`, width: across, height: height + 24, role: "group",
    "aria-label": `${count(segments.length)} segments from ${moment(start)} to ${moment(end)}` },
    svg("line", { class: "axis", x1: 0, x2: across, y1: height, y2: height }), ...bars, ...line, ...labels);
  rove(picture, bars.filter((each) => each.tagName === "a"));
  replace(box, !session.fixed && legend(shown, next.size > 0), picture, told,
    segments.length > MOST_BARS && h("p", { class: "aside" }, `The newest ${count(MOST_BARS)} of ${count(segments.length)} segments.`),
    behind > 0 && h("p", { class: "aside" }, `More than ${MOST_ROWS} segments of a partition overlap in time: ${count(behind)} are hidden behind others in the last line.`, !session.fixed && " Merging reduces their number."));
}

/** For unsealed events only the time of arrival is known, which may be later than their own times. @param {Facts} each */
const clipped = (each) => Object.assign({}, each, { min_timestamp: Math.min(each.min_timestamp, each.max_timestamp) });

/** The segments that limits of size or number will remove first. @param {Facts[]} segments @param {Facts} retention */
function nextToGo(segments, { bytes: all, segments: most, partition_bytes: each, partition_segments: mostEach }) {
  const sealed = (/** @type {Facts} */ one) => [one.created_us, one.first_index, one.segment];
  const before = (/** @type {Facts} */ a, /** @type {Facts} */ b) => {
    const place = sealed(a).findIndex((value, i) => value !== sealed(b)[i]);
    return place >= 0 && sealed(a)[place] < sealed(b)[place];
  };
  /** @type {Map<string, Facts>} the first by partition, or of all */
  const first = new Map();
  if ([all, most, each, mostEach].every((limit) => limit === null)) return new Set();
  const apart = all === null && most === null;
  for (const one of segments) {
    const of = apart ? one.partition : "";
    const known = first.get(of);
    if (!known || before(one, known)) first.set(of, one);
  }
  return new Set(first.values());
}

/** Draw bars in lanes; overlapping bars of a partition are stacked.
 * @param {Facts[]} shown @param {(us: number) => number} x @param {HTMLElement} told @param {Facts} facts @param {Set<any>} next */
function lanes(shown, x, told, facts, next) {
  const names = [...new Set(shown.map((each) => each.partition))].sort(new Intl.Collator("en", { numeric: true }).compare);
  const bars = [];
  let y = 16, behind = 0;
  for (const name of names) {
    /** @type {number[]} where each row of the lane ends */
    const ends = [];
    if (names.length > 1) bars.push(svg("text", { class: "tick", x: 4, y: y - 3 }, `partition ${name}`));
    for (const each of shown.filter((one) => one.partition === name)) {
      const left = x(each.min_timestamp);
      const width = Math.max(2, x(each.max_timestamp) - left);
      let row = ends.findIndex((end) => end <= left + 1); // bars that do not overlap share a row
      if (row < 0) {
        row = Math.min(ends.length, MOST_ROWS - 1);
        if (row < ends.length) behind++;
      }
      ends[row] = left + width;
      bars.push(bar(each, { x: left, y: y + row * (BAR + GAP), width }, told, facts, next.has(each)));
    }
    y += ends.length * (BAR + GAP) + LANE_GAP + (names.length > 1 ? 8 : 0);
  }
  return { bars, height: y, behind };
}

/** @param {Facts} each @param {{x: number, y: number, width: number}} at @param {HTMLElement} told @param {Facts} facts @param {boolean} goes next */
function bar(each, { x, y, width }, told, { topic, indexes }, goes) {
  const more = [STATES[each.state]?.toLowerCase(), indexes.length > 0 && `indexes on ${indexes.join(", ")}`, goes && "removed next when a limit is reached"].filter(Boolean);
  const times = `${moment(each.min_timestamp)} to ${moment(each.max_timestamp)}`;
  const text = each.unsealed ? `Unsealed: ${count(each.rows)} events, the newest from ${moment(each.max_timestamp)}`
    : session.fixed ? `${count(each.rows)} events, ${times}`
    : `Segment ${each.segment}: ${count(each.rows)} events, ${bytes(each.bytes)}, ${times}, record indexes ${count(each.first_index)} to ${count(each.last_index)}${more.map((text) => `, ${text}`).join("")}`;
  const kind = each.unsealed ? "unsealed" : each.state in STATES ? each.state : `level-${Math.min(each.level, LEVELS.length - 1)}`;
  const tells = () => { told.textContent = text; };
  const drawn = svg("rect", { class: `segment ${kind}${goes ? " next" : ""}`, x, y, width, height: BAR, rx: 2, onpointerenter: tells }, svg("title", {}, text));
  if (each.unsealed) return drawn;
  return svg("a", { href: link("segment", `${topic}/${each.segment}`), "aria-label": text, tabindex: -1, onfocus: tells }, drawn);
}

/** @param {Facts[]} shown @param {boolean} goes whether one is removed next */
function legend(shown, goes) {
  const levels = [...new Set(shown.filter((each) => !each.unsealed && !(each.state in STATES)).map((each) => Math.min(each.level, LEVELS.length - 1)))].sort();
  const entry = (/** @type {string} */ kind, /** @type {string} */ name) => h("span", { class: "legend-entry" }, h("span", { class: `swatch ${kind}` }), name);
  return h("p", { class: "legend" }, ...levels.map((level) => entry(`level-${level}`, LEVELS[level])), ...Object.keys(STATES).filter((state) => shown.some((each) => each.state === state)).map((state) => entry(state, STATES[state])),
    shown.some((each) => each.unsealed) && entry("unsealed", "Unsealed"),
    goes && entry("next", "Removed next when a limit is reached"));
}

/** @param {number} start @param {number} end @param {(us: number) => number} x @param {number} y */
function axis(start, end, x, y) {
  const parts = Math.max(1, Math.floor((x(end) - x(start)) / 130));
  const step = (end - start) / parts;
  return Array.from({ length: parts + 1 }, (_, i) => {
    const anchor = i === 0 ? "start" : i === parts ? "end" : "middle";
    const at = start + i * step;
    return svg("text", { class: "tick", x: x(at), y: y + 17, "text-anchor": anchor }, step >= 86_400e6 ? moment(at).split(" ")[0] : tick(at, step, at - step));
  });
}
