// Elements, and lists of them that keep what is still there: so focus and selection survive updates.

const SVG = "http://www.w3.org/2000/svg";

/** An element with attributes and children; strings become text. */
export function el(name, attributes = {}, ...children) {
  return filled(document.createElement(name), attributes, children);
}

/** The same in SVG. */
export function svg(name, attributes = {}, ...children) {
  return filled(document.createElementNS(SVG, name), attributes, children);
}

function filled(made, attributes, children) {
  for (const [key, value] of Object.entries(attributes)) {
    if (value !== null && value !== undefined && value !== false) made.setAttribute(key, value);
  }
  made.append(...children);
  return made;
}

/** Sets text where it differs: what has not changed is not read out again. */
export function say(element, text) {
  if (element.textContent !== text) element.textContent = text;
}

/** Has `parent` hold one child per item, in order. `make(item)` once for each key, and
 * `update(child, item)` each time. */
export function keep(parent, items, keyOf, make, update) {
  const old = new Map([...parent.children].map((child) => [child.dataset.key, child]));
  let place = parent.firstElementChild;
  for (const item of items) {
    const key = String(keyOf(item));
    let child = old.get(key);
    old.delete(key);
    if (!child) {
      child = make(item);
      child.dataset.key = key;
    }
    if (child === place) place = place.nextElementSibling;
    else parent.insertBefore(child, place);
    update(child, item);
  }
  for (const child of old.values()) child.remove();
}

export const byId = (id) => document.getElementById(id);
