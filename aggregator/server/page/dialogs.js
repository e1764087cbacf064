/** Dialogs: for a token, before irreversible actions, and for help. */

import { token } from "./api.js";
import { h } from "./dom.js";

/** @type {HTMLDialogElement | null} */
let asking = null;

/** Ask for a token, unless that dialog is open. @param {() => void} then */
export function tokenDialog(then) {
  if (asking) return;
  const known = token.get() !== null;
  const field = h("input", { id: "token", type: "password", autocomplete: "off", required: true, pattern: "\\s*[!-~]+\\s*", title: "letters, digits and signs, without spaces" });
  const dialog = h("dialog", { class: "dialog", "aria-labelledby": "token-title" },
    h("form", { method: "dialog", onsubmit: () => token.set(field.value.trim()) },
      h("h2", { id: "token-title" }, known ? "This token is not accepted" : "This server requires a token"),
      h("p", {}, known ? "It may have expired or been revoked. " : "", "An administrator of the server creates one with ",
        h("code", {}, "aggregator token create"), ". The browser keeps it until this tab is closed."),
      h("label", { for: "token" }, "Token"), field,
      h("div", { class: "dialog-acts" }, h("button", { type: "submit", class: "primary" }, "Use token"))));
  token.forget();
  dialog.addEventListener("close", () => {
    asking = null;
    dialog.remove();
    if (token.get()) then();
  });
  asking = dialog;
  document.body.append(dialog);
  dialog.showModal();
}

/**
 * Ask for confirmation.
 * @param {string} question @param {string} told @param {string} action the button's label
 * @param {string} [kind] of button: `danger` for irreversible actions
 * @returns {Promise<boolean>}
 */
export function confirmed(question, told, action, kind = "danger") {
  return new Promise((resolve) => {
    const dialog = h("dialog", { class: "dialog", "aria-labelledby": "confirm-title" },
      h("form", { method: "dialog" },
        h("h2", { id: "confirm-title" }, question), h("p", {}, told),
        h("div", { class: "dialog-acts" },
          h("button", { type: "submit", autofocus: true }, "Cancel"),
          h("button", { type: "submit", class: kind, value: "yes" }, action))));
    dialog.addEventListener("close", () => {
      dialog.remove();
      resolve(dialog.returnValue === "yes");
    });
    document.body.append(dialog);
    dialog.showModal();
  });
}

/** Cancel the confirmation of a view that is left. The token dialog stays: every view needs it. */
export function leaveDialogs() {
  for (const dialog of document.querySelectorAll("dialog")) if (dialog !== asking) dialog.close();
}

const KEYS = [
  ["/", "go to the query"], ["j", "next event"], ["k", "previous event"], ["Enter", "open or close an event; in the query: search"],
  ["l", "live, pause, resume"], ["g", "overview"], ["e", "explore"], ["Esc", "leave a field or dialog"], ["?", "this help"],
];

const SHOWN = [
  ["SELECT FROM {app=web} WHERE msg CONTAINS \"error\"", "records of some streams that contain a text"],
  ["SELECT FROM topic = clicks WHERE type = purchase", "events of a topic with a value"],
  ["SELECT FROM space = \"customer-1\"", "the history of one space"],
  ["SELECT WHERE msg.user.id = 42", "a field inside a JSON message"],
  ["SELECT COUNT GROUP BY level, ts EVERY \"1h\"", "counts, as a table"],
  ["SHOW PARTITIONS LIMIT 20", "the largest streams"],
];

export function helpDialog() {
  const dialog = h("dialog", { class: "dialog", "aria-labelledby": "help-title", onclose: () => dialog.remove() },
    h("form", { method: "dialog" },
      h("h2", { id: "help-title" }, "Keyboard shortcuts"),
      h("dl", { class: "keys" }, ...KEYS.flatMap(([key, told]) => [h("dt", {}, h("kbd", {}, key)), h("dd", {}, told)])),
      h("h2", {}, "Queries in LQL"),
      h("dl", { class: "examples" }, ...SHOWN.flatMap(([text, told]) => [h("dt", {}, h("code", {}, text)), h("dd", {}, told)])),
      h("p", {}, "Everything here is also available over HTTP: ", h("a", { href: "docs" }, "the API"), "."),
      h("div", { class: "dialog-acts" }, h("button", { type: "submit", class: "primary", autofocus: true }, "Close"))));
  document.body.append(dialog);
  dialog.showModal();
}
