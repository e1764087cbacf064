/** The tags of a stream, or of an event of a topic, which LQL's results have instead of the space. */

const TAG = /\s*("(?:[^"\\]|\\.)*"|[^=,{}"]+)\s*=\s*("(?:[^"\\]|\\.)*"|[^=,{}"]*)\s*(?:,|$)/y;

/**
 * @param {string} text such as `{app=web,zone=eu}`
 * @returns {[string, string][] | null} null if it is something else
 */
export function readTags(text) {
  if (!text.startsWith("{") || !text.endsWith("}")) return null;
  const inner = text.slice(1, -1);
  /** @type {[string, string][]} */
  const found = [];
  TAG.lastIndex = 0;
  while (TAG.lastIndex < inner.length) {
    const tag = TAG.exec(inner);
    if (!tag) return null;
    found.push([plain(tag[1]), plain(tag[2])]);
  }
  return found;
}

/** @param {string} word quoted if necessary, as the server writes it */
function plain(word) {
  if (!word.startsWith('"')) return word;
  return word.slice(1, -1).replace(/\\(?:x([\da-f]{2})|(.))/gs, (_, x, c) =>
    x ? String.fromCharCode(Number.parseInt(x, 16)) : ({ n: "\n", r: "\r", t: "\t" }[/** @type {string} */ (c)] ?? c));
}
