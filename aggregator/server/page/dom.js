/** Creation of elements. Text is only ever set as text: no content of an event can become markup. */

const SVG = "http://www.w3.org/2000/svg";

/** @typedef {Node | string | number | null | undefined | false} Child */

/**
 * Create an element. Properties named `on…` are listeners, `class` its classes; the others are attributes, where
 * `false`, null and undefined are left out.
 * @template {keyof HTMLElementTagNameMap} T
 * @param {T} tag
 * @param {Record<string, any>} [properties]
 * @param {...Child} children
 * @returns {HTMLElementTagNameMap[T]}
 */
export function h(tag, properties = {}, ...children) {
  return fill(document.createElement(tag), properties, children);
}

/**
 * Create an SVG element.
 * @param {string} tag
 * @param {Record<string, any>} [properties]
 * @param {...Child} children
 * @returns {SVGElement}
 */
export function svg(tag, properties = {}, ...children) {
  return fill(/** @type {SVGElement} */ (document.createElementNS(SVG, tag)), properties, children);
}

/**
 * @template {Element} E
 * @param {E} element
 * @param {Record<string, any>} properties
 * @param {Child[]} children
 * @returns {E}
 */
function fill(element, properties, children) {
  for (const [name, value] of Object.entries(properties)) {
    if (name.startsWith("on")) element.addEventListener(name.slice(2), value);
    else if (value !== false && value !== null && value !== undefined)
      element.setAttribute(name, value === true ? "" : String(value));
  }
  add(element, children);
  return element;
}

/**
 * @param {Element} element
 * @param {Child[]} children
 */
export function add(element, children) {
  for (const child of children)
    if (child !== null && child !== undefined && child !== false)
      element.append(typeof child === "number" ? String(child) : child);
}

/**
 * Replace the children of an element. If the focus is in an old one, it moves to its counterpart: the same element, one
 * with the same text, or the one at its position.
 * @param {Element} element
 * @param {...Child} children
 */
export function replace(element, ...children) {
  const held = /** @type {HTMLElement | null} */ (document.activeElement);
  const alike = () => /** @type {HTMLElement[]} */ ([...element.querySelectorAll(held?.tagName ?? "")]);
  const place = held && held !== element && element.contains(held) ? alike().indexOf(held) : -1;
  element.replaceChildren();
  add(element, children);
  if (!held || place < 0) return;
  const next = held.isConnected ? held : (alike().find((each) => each.textContent === held.textContent) ?? alike()[place]);
  next?.focus({ preventScroll: true });
}

/** Let Tab reach one of several elements, and the arrow keys the others. @param {Element} group @param {SVGElement[]} members */
export function rove(group, members) {
  members[0]?.setAttribute("tabindex", "0");
  group.addEventListener("keydown", (event) => {
    const { key, target } = /** @type {KeyboardEvent} */ (event);
    const step = { ArrowRight: 1, ArrowDown: 1, ArrowLeft: -1, ArrowUp: -1 }[key];
    const at = members.findIndex((member) => member === target);
    const next = step === undefined || at < 0 ? undefined : members[at + step];
    if (!next) return;
    event.preventDefault();
    members[at].setAttribute("tabindex", "-1");
    next.setAttribute("tabindex", "0");
    next.focus();
  });
}

/**
 * @param {number} ms
 * @param {() => void} call
 * @returns {() => void} runs `call` when it was not called again for this time
 */
export function later(ms, call) {
  let timer = 0;
  return () => {
    clearTimeout(timer);
    timer = window.setTimeout(call, ms);
  };
}
