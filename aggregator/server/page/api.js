/** Calls to the server: their token, and errors as text. */

import { parse } from "./exact_json.js";

const TOKEN = "aggregator token";

/** An error, for people. `place`: the invalid characters of a statement. */
export class ApiError extends Error {
  /**
   * @param {number} status 0: the server cannot be reached
   * @param {string} detail
   * @param {string} [hint]
   * @param {[number, number]} [place]
   */
  constructor(status, detail, hint, place) {
    super(detail);
    this.status = status;
    this.hint = hint;
    this.place = place;
  }
}

/** For this session only: it is deleted when the tab is closed. */
export const token = {
  get: () => sessionStorage.getItem(TOKEN),
  /** @param {string} value */
  set: (value) => sessionStorage.setItem(TOKEN, value),
  forget: () => sessionStorage.removeItem(TOKEN),
};

/** @type {() => void} */
let needed = () => {};

/** @param {() => void} call called when the server requires a token, or rejects the current one */
export function whenTokenIsNeeded(call) {
  needed = call;
}

/**
 * @param {string} path without a leading slash: the page may be served under a prefix
 * @param {{method?: string, body?: string, type?: string, accept?: string, signal?: AbortSignal}} [options]
 * @returns {Promise<Response>} a successful response
 */
export async function ask(path, options = {}) {
  /** @type {Record<string, string>} */
  const headers = { Accept: options.accept ?? "application/json" };
  const known = token.get();
  if (known) headers.Authorization = `Bearer ${known}`;
  if (options.body !== undefined) headers["Content-Type"] = options.type ?? "application/json";
  /** @type {Response} */
  let answer;
  try {
    answer = await fetch(path, {
      method: options.method ?? (options.body === undefined ? "GET" : "POST"),
      headers,
      body: options.body,
      signal: options.signal,
      cache: "no-store",
    });
  } catch (error) {
    throw lost(error);
  }
  if (answer.ok) return answer;
  const problem = await problemOf(answer);
  if (answer.status === 401) needed();
  throw problem;
}

/**
 * @param {string} path
 * @param {Parameters<typeof ask>[1]} [options]
 * @returns {Promise<any>} its JSON
 */
export async function askJson(path, options) {
  return parse(await textOf(await ask(path, options)));
}

/**
 * @param {string} path
 * @param {Parameters<typeof ask>[1]} [options]
 * @returns {Promise<any[]>} its lines of JSON
 */
export async function askLines(path, options) {
  const text = await textOf(await ask(path, { ...options, accept: "application/x-ndjson" }));
  return text.split("\n").filter(Boolean).map(parse);
}

/** Convert the error of a failed call: the server is unreachable, unless the call was cancelled. @param {unknown} error */
export function lost(error) {
  const away = error instanceof TypeError; // from `fetch`, and from reading a truncated response
  return away ? new ApiError(0, "The server cannot be reached.", "It may be stopped or starting.") : error;
}

/** @param {unknown} error @returns {error is DOMException} whether a call was cancelled */
export const givenUp = (error) => error instanceof DOMException && error.name === "AbortError";

/** @param {Response} answer */
const textOf = (answer) => answer.text().catch((error) => { throw lost(error); });

/** @param {Response} answer */
async function problemOf(answer) {
  try {
    const told = JSON.parse(await answer.text());
    return new ApiError(answer.status, told.detail ?? answer.statusText, told.hint, told.place);
  } catch {
    return new ApiError(answer.status, `The server answered ${answer.status} ${answer.statusText}.`);
  }
}

/**
 * Yield the server-sent events of a path until the stream ends or is aborted.
 * @param {string} path
 * @param {AbortSignal} signal
 * @param {() => void} opened called when the server responds
 * @returns {AsyncGenerator<{name: string, data: string, id: string}>}
 */
export async function* follow(path, signal, opened) {
  const answer = await ask(path, { accept: "text/event-stream", signal });
  opened();
  const reader = /** @type {ReadableStream<Uint8Array>} */ (answer.body).getReader();
  const decoder = new TextDecoder();
  let waiting = "";
  for (;;) {
    const { done, value } = await reader.read();
    if (done) return;
    const pieces = (waiting + decoder.decode(value, { stream: true })).split("\n\n");
    waiting = /** @type {string} */ (pieces.pop());
    for (const piece of pieces) {
      const event = { name: "message", data: "", id: "" };
      for (const line of piece.split("\n")) {
        if (line.startsWith("event: ")) event.name = line.slice(7);
        if (line.startsWith("id: ")) event.id = line.slice(4);
        if (line.startsWith("data: ")) event.data += line.slice(6);
      }
      if (event.data || event.id) yield event;
    }
  }
}
