/** Events as they arrive over one connection, shown a few times a second; a pause loses none. */

import { ApiError, follow } from "./api.js";
import { parse } from "./exact_json.js";
import { Arriving } from "./paging.js";

const SHOWN_MS = 250, AGAIN_MS = 2_000, RATED_MS = 10_000, MOST = 5_000;

export class Live {
  /**
   * @param {string} query a SELECT
   * @param {{shown: (added: number) => void, told: (text: string) => void, failed: (error: unknown) => void}} to
   */
  constructor(query, to) {
    this.query = query;
    this.to = to;
    this.rows = new Arriving(MOST);
    this.paused = false;
    this.lost = false;
    this.position = ""; // the start, then the place after the last event: a reconnection continues there
    /** @type {Record<string, any>[]} */
    this.waiting = [];
    this.came = 0;
    this.before = [0]; // how many had arrived at the last updates
    this.stopping = new AbortController();
    this.timer = window.setInterval(() => this.show(), SHOWN_MS);
    void this.run();
  }

  async run() {
    while (!this.stopping.signal.aborted) {
      try {
        const asked = new URLSearchParams({ query: this.query, ...(this.position ? { position: this.position } : {}) });
        for await (const { name, data, id } of follow(`v1/tail?${asked}`, this.stopping.signal, () => { this.lost = false; })) {
          if (name === "end") break; // the token ended: the next request reports it
          if (data) this.take(parse(data));
          this.position = id;
        }
      } catch (error) {
        if (this.stopping.signal.aborted) return;
        if (!(error instanceof ApiError) || error.status === 0 || error.status >= 429) this.lost = true;
        else return this.to.failed(error);
      }
      await new Promise((resolve) => setTimeout(resolve, AGAIN_MS));
    }
  }

  /** @param {Record<string, any>} row */
  take(row) {
    this.came++;
    this.waiting.push(row);
    if (this.waiting.length > MOST) this.waiting.shift();
  }

  show() {
    this.before = [...this.before, this.came].slice(-RATED_MS / SHOWN_MS);
    const rate = ((1000 * (this.came - this.before[0])) / RATED_MS).toFixed(1);
    const waits = this.paused && this.waiting.length ? `, ${this.waiting.length.toLocaleString("en-US")} waiting` : "";
    if (this.lost) this.to.told("connection lost; reconnecting …");
    else this.to.told(`${this.came.toLocaleString("en-US")} arrived, ${rate} per second${waits}`);
    if (this.paused || !this.waiting.length) return;
    const rows = this.waiting;
    this.waiting = [];
    this.rows.add(rows);
    this.to.shown(rows.length);
  }

  stop() {
    clearInterval(this.timer);
    this.stopping.abort();
  }
}
