/** The current view, in the part of the URL that is not sent to the server: Back works, and links can be shared. */

/** @typedef {{view: string, name: string, params: URLSearchParams}} Place */

/** @returns {Place} */
export function here() {
  const [path, query] = location.hash.replace(/^#\/?/, "").split(/\?(.*)/s, 2);
  const [view, ...rest] = path.split("/");
  return { view: view || "overview", name: decoded(rest.join("/")), params: new URLSearchParams(query ?? "") };
}

/** @param {string} text returned unchanged if it has a stray `%` */
function decoded(text) {
  try {
    return decodeURIComponent(text);
  } catch {
    return text;
  }
}

/**
 * @param {string} view
 * @param {string} [name]
 * @param {Record<string, string | null | undefined>} [params] empty ones are left out
 */
export function link(view, name = "", params = {}) {
  const given = new URLSearchParams();
  for (const [key, value] of Object.entries(params)) if (value) given.set(key, value);
  return `#/${view}${name ? `/${encodeURIComponent(name)}` : ""}${given.size ? `?${given}` : ""}`;
}

/** @param {string} address as `link` returns it */
export function go(address) {
  if (location.hash === address) window.dispatchEvent(new HashChangeEvent("hashchange"));
  else location.hash = address;
}
