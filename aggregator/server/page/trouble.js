/** Problems that need attention, with what to do about them. Empty if all is well. */

import { h } from "./dom.js";
import { ago, bytes, count } from "./format.js";

/** @typedef {Record<string, any>} Facts */

/** @param {Facts | null} stats @param {Record<string, Facts>} topics @param {Facts | null} problems */
export function trouble(stats, topics, problems) {
  /** @type {HTMLElement[]} */
  const found = [];
  const say = (/** @type {string} */ what, /** @type {string} */ todo) => found.push(h("p", { class: "alert" }, h("strong", {}, `${what} `), todo));
  if (problems?.trouble) say(sentence(problems.trouble), "Appends or background work fail until this is fixed.");
  for (const { subject, message, action, found_us } of (problems?.problems ?? []).slice(0, 5))
    say(`${subject}: ${sentence(message)}`, `${sentence(action)} Found ${ago(found_us)}.`);
  const more = (problems?.problems.length ?? 0) - 5;
  if (more > 0) say(`${count(more)} more problems.`, "See `aggregator verify`.");
  if (stats) ofCatalog(stats, say);
  for (const mine of Object.values(topics))
    if (mine.quarantined_rows)
      say(`${count(mine.quarantined_rows)} events of ${mine.topic} are in quarantine.`, "They could not be sealed, and no query returns them. See `aggregator quarantine`.");
  return found;
}

/** @param {Facts} stats @param {(what: string, todo: string) => void} say */
function ofCatalog(stats, say) {
  const { memory, log, disk, clock } = stats;
  if (memory && memory.unsealed > 0.9 * memory.limit) say("Memory for unsealed events is nearly full.", "When it is full, appends are refused: send less at the same time, or raise catalog.memory_bytes.");
  if (log && log.bytes > 0.9 * log.limit) say("The write-ahead log is nearly full.", "When it is full, appends are refused: check why sealing is slow, or raise catalog.log_bytes.");
  if (disk.free < 0.05 * (disk.free + disk.total) || disk.free < 2 ** 29) say(`The disk has ${bytes(disk.free)} left.`, "Free some space, or lower the retention limits.");
  if (clock?.believed === false) say("The machine's clock looks wrong.", "Retention by age is paused: check the clock, then run `aggregator clock --believe`.");
}

/** @param {string} text */
const sentence = (text) => `${text[0]?.toUpperCase() ?? ""}${text.slice(1)}${/[.!?]$/.test(text) ? "" : "."}`;
