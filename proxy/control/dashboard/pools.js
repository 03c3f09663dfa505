// Shows the pools with their backends: tables that change in place, so that focus and scroll position stay.

import { el, keyed, setAttribute, setText, svg } from "./dom.js";
import { STATES, stateOf, takesWork } from "./findings.js";
import { many, percent, rate, span, totals, whole } from "./numbers.js";
import { drawSpread } from "./spread.js";

const LONG = 24; // backends; longer tables scroll, and can be searched and ordered
const INDEXED = 4; // pools; fewer are found by scrolling
const NAMED = 6; // backends in a sentence
const PALETTE = 8; // colours that are told apart, as many as backends whose places on the ring are drawn

const COLUMNS = [
  ["Backend", "name-column"],
  ["State", "state-column"],
  ["In flight", "number"],
  ["Tasks held", "number"],
  ["Sessions", "number wide-only"],
  ["New work", "number wide-only"],
  ["Answers/s", "number wide-only"],
  ["5xx", "number wide-only"],
  ["Action", "action-column"],
];

const TROUBLE = { down: 0, ejected: 1, departed: 2, draining: 3, empty: 4, up: 5 };
const ORDERS = {
  configured: ["as configured", null],
  trouble: ["trouble first", (one, other) => TROUBLE[one.state.word] - TROUBLE[other.state.word]],
  busy: ["most in flight", (one, other) => other.in_flight - one.in_flight],
  tasks: ["most tasks", (one, other) => (other.unfinished_tasks ?? 0) - (one.unfinished_tasks ?? 0)],
};

// Brings `place` up to date. `spreads`: by pool, what was told of its spread, as far as it was. `act(pool, backend)`
// is called for the button of a backend.
export function showPools(place, pools, overview, history, spreads, act) {
  const lately = history.lately();
  const answers = (told) => totals(told.responses ?? [], (row) => `${row.pool}\n${row.backend}`);
  const now = answers(overview);
  const then = lately && answers(lately.then);
  const failed = totals(overview.responses, (row) => `${row.pool}\n${row.backend}`, (row) => row.class === "5xx");
  const shown = pools.map((pool) => {
    const shares = new Map(spreads.get(pool.name)?.backends.map((part) => [part.id, part.now]));
    const told = overview.pools[pool.name] ?? { policy: "", ring_key: null, streams: 0, queued: 0, ejections: 0 };
    const backends = pool.backends.map((backend, index) => {
      const key = `${pool.name}\n${backend.id}`;
      const missing = pool.discovery?.missing.includes(backend.id) ?? false;
      return {
        ...backend,
        index,
        state: stateOf({ ...backend, missing }),
        share: shares.get(backend.id) ?? null,
        rate: then ? ((now.get(key) ?? 0) - (then.get(key) ?? 0)) / lately.seconds : null,
        failed: failed.get(key) ?? 0,
      };
    });
    const discovery = discovered(pool, overview);
    return { name: pool.name, generation: pool.ring_generation, discovery, told, backends };
  });
  keyed(place, shown, (pool) => pool.name, (pool) => makePool(pool, act), (node, pool) => {
    node.pool = pool;
    updatePool(node);
    drawSpread(node.spread, pool, spreads.get(pool.name) ?? null);
  });
}

// How a pool's discovery stands, in words; null where its configuration names all backends.
function discovered({ name, discovery, backends }, overview) {
  if (!discovery) return null;
  const { from, last_success: last, failures_in_a_row: row, missing } = discovery;
  const found = backends.filter((one) => one.discovered && !one.departed).length;
  const reasons = overview.discovery_failures.filter((one) => one.pool === name && one.count);
  const failures = reasons.reduce((sum, one) => sum + one.count, 0);
  return [
    `${many(found, "backend")} found by ${from}`,
    last === null ? "which has not answered yet" : `which answered ${span(overview.now - last)} ago`,
    failures ? `${many(failures, "failure")} since start: ${reasons.map((one) => `${one.reason} ${whole(one.count)}`).join(", ")}`
      : "no failure since start",
    row ? `${whole(row)} in a row now` : null,
    missing.length ? `not found lately, kept for now: ${missing.slice(0, NAMED).join(", ")}`
      + (missing.length > NAMED ? ` and ${whole(missing.length - NAMED)} more` : "") : null,
  ].filter(Boolean).join(" · ");
}

// Where pools are many: each with how many of its backends take new work, to go to.
export function showIndex(place, pools) {
  place.hidden = pools.length < INDEXED;
  if (place.hidden) return;
  keyed(place, pools, (pool) => pool.name, (pool) => el("a", { href: `#${encodeURIComponent(`pool-${pool.name}`)}` }), (link, pool) => {
    const fit = pool.backends.filter(takesWork).length;
    const all = pool.backends.filter((backend) => !backend.departed).length;
    setText(link, `${pool.name} ${whole(fit)} of ${whole(all)}`);
    setAttribute(link, "data-level", fit === 0 ? "bad" : fit < all ? "warn" : null);
  });
}

function makePool(pool, act) {
  const id = `pool-${pool.name}`;
  const head = el("tr", {}, ...COLUMNS.map(([name, kind]) => el("th", { scope: "col", class: kind || null }, name)));
  const body = el("tbody");
  const table = el("table", { class: "backends" }, el("caption", { class: "unseen" }, `Backends of pool ${pool.name}`),
    el("thead", {}, head), body);
  const scroll = el("div", { class: "scroll" }, table);
  const facts = el("p", { class: "quiet" });
  const source = el("p", { class: "quiet source" });
  const spread = el("div", { class: "spread" });
  const tools = makeTools(pool);
  const node = el("section", { class: "panel pool", "aria-labelledby": id },
    el("div", { class: "pool-head" }, el("h3", { id }, pool.name), facts), source, tools.node,
    el("div", { class: "pool-body" }, scroll, spread));
  Object.assign(node, { body, scroll, facts, source, spread, tools, act });
  tools.node.addEventListener("input", () => updatePool(node));
  body.addEventListener("click", (event) => {
    const row = event.target.closest("button")?.closest("tr");
    if (row) node.act(node.pool, row.backend);
  });
  return node;
}

function makeTools(pool) {
  const search = el("input", { type: "search", spellcheck: "false" });
  const state = el("select", {}, el("option", { value: "" }, "any state"), ...STATES.map((word) => el("option", {}, word)));
  const order = el("select", {}, ...Object.entries(ORDERS).map(([value, [name]]) => el("option", { value }, name)));
  const count = el("p", { class: "quiet", role: "status" });
  const node = el("div", { class: "tools", role: "search", "aria-label": `Backends of ${pool.name}` },
    el("label", {}, "Id or address", search), el("label", {}, "State", state), el("label", {}, "Order", order), count);
  return { node, search, state, order, count };
}

function updatePool(node) {
  const { pool, tools } = node;
  const { told, backends } = pool;
  const long = backends.length > LONG;
  const busy = backends.reduce((sum, backend) => sum + backend.in_flight, 0);
  const fit = backends.filter(takesWork).length;
  setText(node.facts, [
    `${whole(fit)} of ${many(backends.length, "backend")} ${fit === 1 || backends.length === 1 ? "takes" : "take"} new work`,
    told.ring_key === null ? `spread by ${told.policy}` : `spread by the ring, key: ${told.ring_key}`,
    `${whole(busy)} in flight`, `${many(told.streams, "stream")} open`, `${whole(told.queued)} queued`,
    many(told.ejections, "ejection"),
    ...(told.state === "shared" ? ["tasks are shared"] : []),
  ].join(" · "));
  node.source.hidden = pool.discovery === null;
  setText(node.source, pool.discovery ?? "");
  tools.node.hidden = !long;
  setAttribute(node.scroll, "tabindex", long ? "0" : null);
  setAttribute(node.scroll, "role", long ? "region" : null);
  setAttribute(node.scroll, "aria-label", long ? `Backends of ${pool.name}` : null);
  node.scroll.classList.toggle("long", long);
  const shown = long ? chosen(backends, tools) : backends;
  if (long) setText(tools.count, `${whole(shown.length)} of ${whole(backends.length)} shown`);
  keyed(node.body, shown, (backend) => backend.id, () => makeRow(long), updateRow);
}

function chosen(backends, { search, state, order }) {
  const text = search.value.trim().toLowerCase();
  const found = backends.filter((backend) =>
    (!text || backend.id.toLowerCase().includes(text) || backend.address.includes(text)) &&
    (!state.value || backend.state.word === state.value));
  const compare = ORDERS[order.value][1];
  return compare === null ? found : found.sort(compare);
}

function makeRow(long) {
  const name = el("span", { class: "name" });
  const address = el("span", { class: "under" });
  const held = el("span", { class: "under narrow-only" });
  const word = el("span", { class: "word" });
  const more = el("span", { class: "under" });
  const share = el("span");
  const bar = long ? null : svg("rect", { height: 4, rx: 1 }); // of a thousandth nothing would be seen
  const button = el("button", { type: "button" });
  const cells = COLUMNS.map(([, kind], i) => el(i ? "td" : "th", { scope: i ? null : "row", class: kind || null }));
  const swatch = long ? null : el("span", { class: "swatch", "aria-hidden": "true" });
  cells[0].append(long ? name : el("span", { class: "first" }, swatch, name), address, held);
  cells[1].append(el("span", { class: "state" }, el("span", { class: "mark", "aria-hidden": "true" }), word), more);
  cells[5].append(share);
  if (bar) cells[5].append(svg("svg", { viewBox: "0 0 60 4", class: "bar", "aria-hidden": "true" }, bar));
  cells[8].append(button);
  const row = el("tr", {}, ...cells);
  return Object.assign(row, { parts: { name, address, held, word, more, share, bar, button, swatch } });
}

function updateRow(row, backend) {
  const { parts, cells } = row;
  const { word, more } = backend.state;
  row.backend = backend;
  setText(parts.name, backend.id);
  setText(parts.address, [backend.address, backend.weight === 1 ? null : `weight ${backend.weight}`,
    backend.discovered ? "discovered" : null].filter(Boolean).join(", "));
  setText(parts.held, [backend.share === null ? null : `${percent(backend.share)} of work`,
    backend.recent_sessions ? many(backend.recent_sessions, "session") : null].filter(Boolean).join(", "));
  if (parts.swatch) setAttribute(parts.swatch, "data-colour", backend.index < PALETTE ? backend.index : null);
  setAttribute(row, "data-state", word);
  setText(parts.word, word);
  setText(parts.more, more);
  setText(cells[2], whole(backend.in_flight));
  setText(cells[3], whole(backend.unfinished_tasks));
  setText(cells[4], whole(backend.recent_sessions));
  setText(parts.share, backend.share === null ? "–" : percent(backend.share));
  if (parts.bar) setAttribute(parts.bar, "width", Math.round(60 * (backend.share ?? 0)));
  setText(cells[6], rate(backend.rate));
  setText(cells[7], whole(backend.failed));
  const verb = backend.draining ? "Undrain" : "Drain";
  parts.button.hidden = backend.departed;
  setText(parts.button, verb);
  setAttribute(parts.button, "aria-label", `${verb} ${backend.id}`);
}
