/** JSON whose numbers keep all digits: 9007199254740993 does not fit a JavaScript number, and is shown as it was sent. */

/** A number that JavaScript would change. */
export class Exact {
  /** @param {string} text */
  constructor(text) {
    this.text = text;
  }
  toString() {
    return this.text;
  }
}

/**
 * @param {string} text
 * @returns {any}
 */
export function parse(text) {
  // browsers provide the source of a number since 2023 to 2025; older ones show such a number rounded
  /** @type {any} three arguments; TypeScript's library declares two */
  const keep = (/** @type {string} */ _, /** @type {any} */ value, /** @type {any} */ context) =>
    typeof value === "number" && context?.source !== undefined && !same(value, context.source)
      ? new Exact(context.source)
      : value;
  return JSON.parse(text, keep);
}

/**
 * @param {number} value
 * @param {string} source
 */
function same(value, source) {
  return String(value) === source || (Number.isSafeInteger(value) && Math.abs(value) < 2 ** 53 && /^-?\d+$/.test(source));
}
