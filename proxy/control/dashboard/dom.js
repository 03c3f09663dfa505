// Builds and changes parts of the page. Text is only ever set as text: what a server names cannot become markup.

export const byId = (id) => document.getElementById(id);

function filled(node, attributes, children) {
  for (const [name, value] of Object.entries(attributes)) {
    if (value === true) node.setAttribute(name, "");
    else if (value !== false && value != null) node.setAttribute(name, value);
  }
  node.append(...children.filter((child) => child != null));
  return node;
}

export const el = (tag, attributes = {}, ...children) => filled(document.createElement(tag), attributes, children);

export const svg = (tag, attributes = {}, ...children) =>
  filled(document.createElementNS("http://www.w3.org/2000/svg", tag), attributes, children);

// Sets text where it differs: screen readers, selections and the layout are left alone otherwise.
export function setText(node, text) {
  const value = String(text);
  if (node.textContent !== value) node.textContent = value;
}

export function setAttribute(node, name, value) {
  if (value == null || value === false) node.removeAttribute(name);
  else if (node.getAttribute(name) !== String(value)) node.setAttribute(name, value);
}

// Makes the children of `parent` stand for `items`, in this order, and keeps the node of an item that stays: focus,
// selection and scroll position survive. `make(item)` gives a node, `update(node, item)` brings it up to date.
export function keyed(parent, items, keyOf, make, update) {
  const had = parent.kept ?? new Map();
  const kept = new Map();
  const focused = document.activeElement;
  let next = parent.firstChild;
  const nodes = items.map((item) => {
    const key = keyOf(item);
    const node = had.get(key) ?? make(item);
    kept.set(key, node);
    update(node, item);
    return node;
  });
  const staying = new Set(nodes);
  while (next !== null && !staying.has(next)) next = dropped(next);
  for (const node of nodes) {
    if (node === next) next = next.nextSibling;
    else parent.insertBefore(node, next);
    while (next !== null && !staying.has(next)) next = dropped(next);
  }
  parent.kept = kept;
  if (focused !== document.activeElement && parent.contains(focused)) focused.focus({ preventScroll: true });
}

function dropped(node) {
  const next = node.nextSibling;
  node.remove();
  return next;
}

// Rows of a table: `cells(row)` gives the texts, the first one heads its row. Numbers are set to the right.
export function fillTable(body, rows, keyOf, cells, empty) {
  const shown = rows.length ? rows : [null];
  const columns = body.parentNode.tHead.rows[0].cells;
  keyed(
    body,
    shown,
    (row) => (row === null ? "" : `=${keyOf(row)}`),
    (row) => {
      if (row === null) return el("tr", {}, el("td", { colspan: columns.length, class: "quiet" }, empty));
      const made = Array.from(columns, (column, i) =>
        el(i ? "td" : "th", { scope: i ? null : "row", class: column.className || null }),
      );
      return el("tr", {}, ...made);
    },
    (node, row) => {
      if (row !== null) cells(row).forEach((text, i) => setText(node.cells[i], text));
    },
  );
}

// Says something to those who do not see the page change.
export function announce(text) {
  setText(byId("announcer"), text);
}
