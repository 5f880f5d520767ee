// How does something come onto the page, as text and nothing else?
//
// What a router tells has names in it that others have chosen. Here they become text nodes and attributes, and nowhere else is
// anything put on the page: no HTML is ever read.

export const one = (id) => document.getElementById(id);

/** An element. Attributes that are null or false are left out; a function listens to the event of its name; children are
 *  elements or text. */
export function h(tag, attributes, ...children) {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes ?? {})) {
    if (typeof value === "function") element.addEventListener(name, value);
    else if (value !== null && value !== undefined && value !== false) element.setAttribute(name, value === true ? "" : value);
  }
  element.append(...children.flat().filter((child) => child !== null && child !== undefined));
  return element;
}

/** Says another text, if it is another. */
export function say(element, text) {
  if (element.textContent !== text) element.textContent = text;
}

/** Builds what is in an element anew if what it shows has changed. `shown`: anything that JSON can hold. */
export function fill(element, shown, build) {
  const now = JSON.stringify(shown);
  if (element.shown === now) return;
  element.shown = now;
  element.replaceChildren(...[build()].flat().filter((child) => child !== null && child !== undefined));
}

/** Keeps one child for each item, in their order. A child stays while its item does: what has the focus keeps it. */
export function keep(parent, items, keyOf, make, update) {
  const before = parent.kept ?? new Map();
  const after = new Map();
  const focused = document.activeElement;
  const hadFocus = focused !== document.body && parent.contains(focused);
  let at = parent.firstElementChild;
  for (const item of items) {
    const key = keyOf(item);
    const child = before.get(key) ?? make(item);
    update(child, item);
    after.set(key, child);
    if (child === at) at = at.nextElementSibling;
    else parent.insertBefore(child, at);
  }
  for (const [key, child] of before) if (after.get(key) !== child) child.remove();
  parent.kept = after;
  if (hadFocus && focused.isConnected && document.activeElement !== focused) focused.focus({ preventScroll: true });
}

/** Makes a table of these columns: [{head, n, bars}], `n` for numbers, `bars` for shares; `head` may be an element. What is kept in it are its rows. The
 *  roles stay where a narrow screen lays it out as something else. */
export function table(id, columns) {
  const head = ({ head, n }) => h("th", { role: "columnheader", scope: "col", class: n ? "n" : null }, head);
  const rows = h("tbody", { role: "rowgroup" });
  const heads = h("tr", { role: "row" }, columns.map(head));
  one(id).setAttribute("role", "table");
  one(id).append(h("thead", { role: "rowgroup" }, heads), rows);
  return { rows, heads };
}

/** A row of cells that know the heads of their columns, which a narrow screen shows beside them. */
export function row(columns) {
  const cell = ({ head, n, bars }) => h("td", { role: "cell", class: n ? "n" : bars ? "bars" : null, "data-head": head });
  return h("tr", { role: "row" }, columns.map(cell));
}

/** A share as a bar. The number stands beside it as text. */
export function bar(share, level) {
  const inner = h("span", { class: `in ${level ?? ""}` });
  inner.style.width = `${Math.max(0, Math.min(1, share)) * 100}%`;
  return h("span", { class: "share", "aria-hidden": "true" }, inner);
}

/** A word that is also a colour. */
export const chip = (word, level) => h("span", { class: `chip ${level}` }, word);
