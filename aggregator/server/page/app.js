/** The page: selects the view by the URL, handles the token and keys, and sets the time zone. */

import { here } from "./address.js";
import { ApiError, givenUp, token, whenTokenIsNeeded } from "./api.js";
import { h, replace } from "./dom.js";
import { helpDialog, leaveDialogs, tokenDialog } from "./dialogs.js";
import { Explore } from "./explore.js";
import { zone } from "./format.js";
import { Overview } from "./overview.js";
import { SegmentView } from "./segment.js";
import { forget, learn, session } from "./session.js";
import { TopicView } from "./topic.js";

/** @typedef {{element: HTMLElement, show: (name: string, params: URLSearchParams) => Promise<void>, leave: () => void,
 *   title: () => string, key?: (key: string) => boolean}} View */

const main = /** @type {HTMLElement} */ (document.getElementById("main"));
const brand = /** @type {HTMLElement} */ (document.getElementById("brand"));
const zoneButton = /** @type {HTMLElement} */ (document.getElementById("zone"));
const MAKERS = /** @type {Record<string, () => View>} */ ({
  overview: () => new Overview(), explore: () => new Explore(), topic: () => new TopicView(),
  segment: () => new SegmentView(),
});
/** @type {Record<string, View>} */
let made = {};
/** @type {View | null} */
let current = null;

async function route() {
  const { view: asked, name, params } = here();
  const kind = asked in MAKERS ? asked : "overview";
  for (const anchor of document.querySelectorAll("[data-view]"))
    anchor.toggleAttribute("aria-current", anchor.getAttribute("data-view") === kind);
  try {
    await learn();
    if (session.fixed) nameFiles();
    const view = (made[kind] ??= MAKERS[kind]());
    if (view !== current) {
      current?.leave();
      current = view;
      replace(main, view.element);
    }
    await view.show(name, params);
    if (view === current) document.title = `${view.title()} · ${brand.textContent}`;
  } catch (error) {
    if (givenUp(error)) return; // cancelled for another view
    if (!(error instanceof ApiError)) throw error;
    current?.leave();
    current = null;
    replace(main, h("div", { class: "notice", role: "alert" }, h("p", {}, error.message, " ", error.hint),
      h("button", { type: "button", onclick: () => void route() }, "Try again")));
  }
}

/** Adapt the page to files: there is no catalog. */
function nameFiles() {
  brand.textContent = "esdb view";
  const overview = /** @type {HTMLElement} */ (document.querySelector("[data-view=overview]"));
  overview.textContent = "Files";
}

/** Take the token from the URL that `esdb view` prints, and remove it there: the URL might be shared. */
function takeToken() {
  const found = /^#token=([\w-]+)$/.exec(location.hash);
  if (!found) return;
  token.set(found[1]);
  history.replaceState(null, "", "#/overview");
}

/** @param {KeyboardEvent} event */
function pressed(event) {
  const target = /** @type {HTMLElement} */ (event.target);
  if (event.ctrlKey || event.metaKey || event.altKey || document.querySelector("dialog[open]")) return;
  if (event.key === "Escape") leaveMenus(null);
  if (target.matches("input, textarea, select")) {
    if (event.key === "Escape") target.blur();
    return;
  }
  if (event.key === "?") helpDialog();
  else if (event.key === "g") location.hash = "#/overview";
  else if (event.key === "e" || (event.key === "/" && !current?.key)) location.hash = "#/explore";
  else if (!current?.key?.(event.key)) return;
  event.preventDefault();
}

/** Close all menus except the one in use. Focus in a closing menu moves to its button. @param {Node | null} used */
function leaveMenus(used) {
  for (const menu of /** @type {NodeListOf<HTMLDetailsElement>} */ (document.querySelectorAll("details.menu[open]"))) {
    if (menu.contains(used)) continue;
    if (menu.contains(document.activeElement)) menu.querySelector("summary")?.focus();
    menu.open = false;
  }
}

function showZone() {
  const name = zone.name();
  zoneButton.textContent = name;
  zoneButton.title = `Times are in ${name}. Change to ${zone.isLocal() ? "UTC" : "local time"}.`;
  zoneButton.setAttribute("aria-label", zoneButton.title);
}

zoneButton.addEventListener("click", () => {
  zone.swap();
  showZone();
  void route();
});
document.getElementById("keys")?.addEventListener("click", helpDialog);
document.addEventListener("keydown", pressed);
document.addEventListener("pointerdown", ({ target }) => {
  if (target instanceof Element && !target.closest("dialog")) leaveMenus(target); // the dialog may belong to a menu
});
window.addEventListener("hashchange", () => {
  leaveDialogs();
  void route();
});
whenTokenIsNeeded(() => tokenDialog(() => {
  forget();
  current?.leave();
  [made, current] = [{}, null]; // do not show what another token could see
  replace(main);
  void route();
}));
takeToken();
showZone();
void route();
