/** Numbers, bytes, durations and times, formatted for people. */

const whole = new Intl.NumberFormat("en-US");
const short = new Intl.NumberFormat("en-US", { notation: "compact", maximumFractionDigits: 1 });

/** @param {number} value */
export const count = (value) => whole.format(value);

const fine = new Intl.NumberFormat("en-US", { maximumFractionDigits: 1 });

/** @param {number} value */
export const rough = (value) => (value < 100 ? fine.format(value) : value < 10_000 ? whole.format(Math.round(value)) : short.format(value));

/** @param {number} value */
export function bytes(value) {
  const units = ["B", "KiB", "MiB", "GiB", "TiB", "PiB"];
  let place = 0;
  while (value >= 1024 && place < units.length - 1) {
    value /= 1024;
    place++;
  }
  return `${place && value < 100 ? value.toFixed(1) : whole.format(Math.round(value))} ${units[place]}`;
}

const LENGTHS = /** @type {[number, string][]} */ ([
  [365 * 86_400e6, "year"], [86_400e6, "day"], [3_600e6, "hour"], [60e6, "minute"], [1e6, "second"],
  [1e3, "millisecond"], [1, "microsecond"],
]);

/** @param {number} us */
export function duration(us) {
  for (const [length, name] of LENGTHS)
    if (us >= length) {
      const value = us / length;
      const shown = value < 10 ? Number(value.toFixed(1)) : Math.round(value);
      return `${whole.format(shown)} ${name}${shown === 1 ? "" : "s"}`;
    }
  return "no time";
}

/** A waiting time. @param {number} ms */
export const seconds = (ms) => `${(ms / 1000).toFixed(ms < 995 ? 2 : 1)} s`;

/** @param {number} us a moment; @param {number} [nowUs] */
export function ago(us, nowUs = Date.now() * 1000) {
  const length = nowUs - us;
  if (Math.abs(length) < 2e6) return "now";
  return length > 0 ? `${duration(length)} ago` : `in ${duration(-length)}`;
}

/** A value made visible: empty text and invisible characters appear by name. @param {string} text */
export function visible(text) {
  if (/[^\p{Cc}\p{Cf}\p{Z}]/u.test(text)) return text;
  return text ? [...text].map((sign) => `U+${sign.codePointAt(0)?.toString(16).toUpperCase().padStart(4, "0")}`).join(" ") : "empty";
}

const ZONE = "aggregator zone";

export const zone = {
  isLocal: () => localStorage.getItem(ZONE) === "local",
  swap: () => localStorage.setItem(ZONE, zone.isLocal() ? "utc" : "local"),
  name: () => (zone.isLocal() ? Intl.DateTimeFormat().resolvedOptions().timeZone : "UTC"),
};

/**
 * Microseconds since 1970 for a time from the server: ISO 8601 in UTC or, outside the calendar, the number itself.
 * @param {string} text
 * @returns {bigint}
 */
export function micros(text) {
  const found = /^(\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d)(?:\.(\d{1,6}))?Z$/.exec(text);
  if (!found) return BigInt(text);
  return BigInt(Date.parse(`${found[1]}Z`)) * 1000n + BigInt((found[2] ?? "").padEnd(6, "0"));
}

/** @param {number} value @param {number} [length] */
const two = (value, length = 2) => String(value).padStart(length, "0");

/**
 * @param {number} us
 * @returns {{day: string, time: string, fraction: string}} in the chosen zone
 */
function parts(us) {
  const ms = Math.floor(us / 1000);
  const at = new Date(ms);
  if (Number.isNaN(at.getTime())) return { day: String(us), time: "", fraction: "" };
  const local = zone.isLocal();
  const get = (/** @type {string} */ name) => /** @type {any} */ (at)[`get${local ? "" : "UTC"}${name}`]();
  return {
    day: `${two(get("FullYear"), 4)}-${two(get("Month") + 1)}-${two(get("Date"))}`,
    time: `${two(get("Hours"))}:${two(get("Minutes"))}:${two(get("Seconds"))}`,
    fraction: two(us - Math.floor(us / 1e6) * 1e6, 6),
  };
}

/**
 * The day of a moment.
 * @param {number} us
 * @returns {[number, number, number]} year, month from 0, day; in the chosen zone
 */
export function dateOf(us) {
  const at = new Date(Math.floor(us / 1000));
  return zone.isLocal() ? [at.getFullYear(), at.getMonth(), at.getDate()] : [at.getUTCFullYear(), at.getUTCMonth(), at.getUTCDate()];
}

/** The beginning of a day in µs; days outside the month continue into its neighbours. @param {number} year @param {number} month @param {number} day */
export const midnight = (year, month, day) => 1000 * (zone.isLocal() ? new Date(year, month, day).getTime() : Date.UTC(year, month, day));

/** A moment in the format of time fields. @param {number} us */
export const toField = (us) => moment(us).replace(" ", "T");

/** @param {string} text of such a field @returns {number | null} */
export function fromField(text) {
  const ms = Date.parse(zone.isLocal() ? text : `${text}Z`);
  return Number.isNaN(ms) ? null : ms * 1000;
}

/** @param {number} us a moment, to the second */
export function moment(us) {
  const { day, time } = parts(us);
  return `${day} ${time}`.trim();
}

/**
 * A time of an event, with its fraction of a second.
 * @param {string} text as the server wrote it
 */
export function stamp(text) {
  const us = Number(micros(text));
  if (!/^\d{4}-/.test(text)) return { day: "", time: text };
  const { day, time, fraction } = parts(us);
  const kept = fraction.endsWith("000") ? fraction.slice(0, 3) : fraction;
  return { day, time: /^0*$/.test(fraction) ? time : `${time}.${kept}` };
}

/**
 * The label of an axis tick.
 * @param {number} us @param {number} stepUs @param {number} before the previous tick; its day is not repeated
 */
export function tick(us, stepUs, before) {
  const { day, time, fraction } = parts(us);
  if (stepUs >= 86_400e6 * 300) return day.replace(/-\d\d-\d\d$/, "");
  if (stepUs >= 86_400e6 * 27) return day.slice(0, -3);
  if (stepUs >= 86_400e6) return day.slice(-5);
  if (stepUs >= 60e6) return parts(before).day === day ? time.slice(0, 5) : `${day.slice(-5)} ${time.slice(0, 5)}`;
  return stepUs >= 1e6 ? time : `${time.slice(6)}.${fraction}`;
}
