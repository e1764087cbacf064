/** The caller's permissions, from the server: actions that are not permitted are not offered. */

import { askJson } from "./api.js";

export const session = {
  /** Files are displayed, which receive no events. */
  fixed: false,
  readOnly: false,
  /** @type {string[]} */
  scopes: [],
  /** @type {string[] | null} names and patterns; null: all */
  topics: null,

  /** Whether a topic may be changed. @param {string} topic */
  mayChange(topic) {
    const fits = (/** @type {string} */ known) =>
      new RegExp(`^${known.split("*").map((part) => part.replace(/[^\w]/g, "\\$&")).join(".*")}$`, "s").test(topic);
    return !this.readOnly && this.scopes.includes("admin") && (this.topics === null || this.topics.some(fits));
  },
};

/** @type {Promise<void> | null} */
let asked = null;

/** Ask the server, once. */
export function learn() {
  asked ??= askJson("v1/access").then((told) => {
    Object.assign(session, { fixed: told.fixed, readOnly: told.read_only, scopes: told.scopes, topics: told.topics });
  }).catch((error) => {
    forget();
    throw error;
  });
  return asked;
}

/** Forget the permissions: another token may have others. */
export function forget() {
  asked = null;
}
