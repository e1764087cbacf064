/** Changing retention, merging segments, erasing spaces: if permitted, and after the consequences were shown. */

import { ApiError, askJson } from "./api.js";
import { confirmed } from "./dialogs.js";
import { h, replace } from "./dom.js";
import { bytes, count, moment } from "./format.js";

/** @typedef {Record<string, any>} Facts */

const SPANS = /** @type {[number, string][]} */ ([[86_400e6, "d"], [3_600e6, "h"], [60e6, "m"], [1e6, "s"]]);
const UNITS = /** @type {[number, string][]} */ ([[2 ** 30, "GiB"], [2 ** 20, "MiB"], [2 ** 10, "KiB"]]);

/** Format in the largest unit that represents it exactly. @param {number | null} value @param {[number, string][]} units @param {string} rest */
function inUnits(value, units, rest) {
  if (value === null) return "";
  const [size, name] = units.find(([each]) => value >= each && value % each === 0) ?? [1, rest];
  return `${value / size}${name && ` ${name}`}`;
}

/** @param {HTMLElement} box for errors @param {() => Promise<void>} act */
async function trying(box, act) {
  try {
    await act();
  } catch (error) {
    if (!(error instanceof ApiError)) throw error;
    replace(box, h("p", { class: "error" }, error.message, " ", error.hint));
  }
}

/** The result of a dry run. @param {Facts[]} removed */
export function wouldGo(removed) {
  if (!removed.length) return [h("p", {}, "Nothing would be removed: everything is within the limits.")];
  const sum = (/** @type {string} */ name) => removed.reduce((total, each) => total + each[name], 0);
  return [h("p", {}, h("strong", {}, `${count(removed.length)} segments with ${count(sum("rows"))} events and ${bytes(sum("size_bytes"))} would be removed:`)),
    h("ul", {}, ...removed.slice(0, 50).map((each) =>
      h("li", {}, `${count(each.rows)} events from ${moment(each.min_timestamp)} to ${moment(each.max_timestamp)}, by ${each.reason}`)))];
}

/** @param {string} label @param {string} value @param {string} example */
const field = (label, value, example) =>
  h("input", { type: "text", value, placeholder: "no limit", "aria-label": label, title: `such as ${example}, or empty` });

/** @param {[string, HTMLElement][]} fields */
const labelled = (fields) => fields.map(([name, input]) => h("label", {}, name, input));

/** @param {number | null} us */
const inSpans = (us) => inUnits(us && Math.floor(us / 1e6) * 1e6, SPANS, "s");

/**
 * A form for the roll policy. Changing it removes no stored events.
 * @param {string} path of the topic @param {Facts} facts @param {(told: string) => void} changed
 */
export function rollForm(path, { roll }, changed) {
  const rows = field("Events per segment", String(roll.rows), "500000"), size = field("Bytes per segment", inUnits(roll.bytes, UNITS, ""), "64 MiB");
  const age = field("Age of unsealed events", inSpans(roll.age_us), "5 m");
  const told = h("div", { class: "removal", role: "status" });
  const change = () => trying(told, async () => {
    const frames = roll.frame_bytes === null ? {} : { frame_bytes: roll.frame_bytes };
    const policy = { ...frames, rows: number(rows.value), bytes: number(size.value), age: age.value.trim() };
    const given = Object.fromEntries(Object.entries(policy).filter(([, value]) => value));
    if (!(await confirmed("Seal by these limits from now on?", "The limit reached first applies. Stored events do not change; empty limits become the defaults.", "Change", "primary"))) return;
    await askJson(path, { method: "PATCH", body: JSON.stringify({ roll: given }) });
    changed("The limits for sealing are changed.");
  });
  return h("form", { class: "policy", onsubmit: (/** @type {Event} */ event) => { event.preventDefault(); void change(); } },
    ...labelled([["Events", rows], ["Size", size], ["Age", age]]), h("button", { type: "submit" }, "Change …"), told);
}

/**
 * A form for the retention policy. It first shows what would be removed.
 * @param {string} path of the topic @param {Facts} facts @param {(told: string) => void} changed
 */
export function retentionForm(path, { retention }, changed) {
  const age = field("Keep at most, by age", inSpans(retention.age_us), "30 d");
  const size = field("Keep at most, by size", inUnits(retention.bytes, UNITS, ""), "10 GiB");
  const segments = field("Keep at most, by segments", inUnits(retention.segments, [], ""), "100");
  const told = h("div", { class: "removal", role: "status" });
  const asked = () => ({
    age: age.value.trim() || null, bytes: number(size.value), segments: number(segments.value),
    partition_bytes: retention.partition_bytes, partition_segments: retention.partition_segments,
  });
  const look = () => trying(told, async () => {
    const policy = asked();
    const { removed } = await askJson(`${path}/retain?dry_run=true`, { body: JSON.stringify({ retention: policy }) });
    const set = h("button", { type: "button", class: removed.length ? "danger" : "primary", onclick: () => trying(told, async () => {
      await askJson(path, { method: "PATCH", body: JSON.stringify({ retention: policy }) });
      changed("The retention is changed.");
    }) }, "Set this retention");
    replace(told, ...wouldGo(removed), h("p", {}, set));
  });
  return h("form", { class: "policy", onsubmit: (/** @type {Event} */ event) => { event.preventDefault(); void look(); },
    oninput: () => replace(told) },
  ...labelled([["Age", age], ["Size", size], ["Segments", segments]]),
  h("button", { type: "submit" }, "Preview"), told);
}

/** A number of bytes or segments as typed, or text with a unit. @param {string} text */
const number = (text) => (/^\s*\d+\s*$/.test(text) ? Number(text) : text.trim() || null);

/** @param {string} path of the topic @param {Facts} facts @param {(told: string) => void} changed */
export function upkeep(path, facts, changed) {
  const told = h("p", { role: "status" });
  const space = h("input", { type: "search", "aria-label": "Space to erase", placeholder: "space", required: true });
  const merge = () => trying(told, async () => {
    const size = bytes(facts.sealed_bytes);
    if (!(await confirmed("Merge the segments now?", `Up to ${size} are read and written. This also happens automatically, step by step. Erased events are removed from the disk.`, "Merge"))) return;
    replace(told, "Merging …");
    const { merged, made } = await askJson(`${path}/compact`, { method: "POST" });
    changed(merged ? `${count(merged)} segments were merged into ${count(made)}.` : "There was nothing to merge.");
  });
  const erase = () => trying(told, async () => {
    const name = space.value;
    const { events } = await askJson(`${path}/histogram?${new URLSearchParams({ space: name })}`);
    if (!events) return replace(told, "No event has this space.");
    if (!(await confirmed(`Erase all ${count(events)} events of this space?`, `${name}: hidden immediately, and removed from the disk soon. This cannot be undone.`, `Erase ${count(events)} events`))) return;
    const { erased } = await askJson(`${path}/erase`, { body: JSON.stringify({ spaces: [name] }) });
    changed(`${count(erased[0].events)} events were erased.`);
  });
  return [
    h("p", {}, h("button", { type: "button", onclick: merge }, "Merge segments …")),
    facts.keys === "text" && h("form", { class: "policy", onsubmit: (/** @type {Event} */ event) => { event.preventDefault(); void erase(); } },
      h("label", {}, "Erase a space", space), h("button", { type: "submit" }, "Erase …")),
    told,
  ];
}
