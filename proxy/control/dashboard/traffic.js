// Shows what goes through: figures, methods, decisions, searches, errors, how long requests take, and what is lost.

import { byId, el, fillTable, keyed, setAttribute, setText, svg } from "./dom.js";
import { LOSSES, verdict } from "./findings.js";
import { histogram, many, quantile, rate, seconds, span, total, totals, whole } from "./numbers.js";

const requests = (told) => total(told.requests);
const rejected = (told) => total(told.rejected);
const sum = (object, of) => Object.values(object).reduce((all, one) => all + of(one), 0);

// The quantile of what came in the last seconds; null where nothing came.
function lately(history, method, q) {
  const during = history.lately(60);
  const now = history.now && histogram(history.now.durations, method);
  if (!during || !now) return null;
  const then = histogram(during.then.durations, method);
  return quantile(history.now.buckets, then ? now.map((count, i) => Math.max(0, count - then[i])) : now, q);
}

function perSecond(history, count) {
  const during = history.lately();
  return during && Math.max(0, count(during.now) - count(during.then)) / during.seconds;
}

export function showFigures(place, pools, overview, history) {
  const backends = pools.flatMap((pool) => pool.backends);
  const held = backends.map((backend) => backend.unfinished_tasks);
  const p50 = lately(history, "", 0.5);
  const tiles = [
    ["Requests/s", rate(perSecond(history, requests)), `${whole(requests(overview))} in all`, history.rates(requests)],
    ["Errors/s", rate(perSecond(history, rejected)), `${whole(rejected(overview))} of the proxy's own`, history.rates(rejected)],
    ["p50, last minute", p50 === null ? "–" : seconds(p50), `p99 ${seconds(lately(history, "", 0.99))}`],
    ["In flight", whole(backends.reduce((all, one) => all + one.in_flight, 0)), many(overview.clients, "client connection")],
    ["Streams open", whole(sum(overview.pools, (pool) => pool.streams)), "event streams to clients"],
    ["Queued", whole(sum(overview.pools, (pool) => pool.queued)), "wait for a slot"],
    ["Tasks held", held.includes(null) ? "unknown" : whole(held.reduce((all, one) => all + one, 0)), "not known to have ended"],
    ["Pins", whole(overview.pins.remembered), "owners remembered"],
  ];
  keyed(place, tiles, ([name]) => name, makeTile, updateTile);
}

function makeTile([name, , , rates]) {
  const line = rates && svg("svg", { viewBox: "0 0 100 20", preserveAspectRatio: "none", class: "spark", "aria-hidden": "true" },
    svg("polyline"));
  return el("div", {}, el("dt", {}, name), el("dd", { class: "value" }), el("dd", { class: "under" }), line && el("dd", {}, line));
}

function updateTile(node, [, value, under, rates]) {
  setText(node.children[1], value);
  setText(node.children[2], under);
  if (!rates) return;
  const highest = Math.max(1e-9, ...rates.map((one) => one.value));
  const [first, last] = [rates[0]?.at ?? 0, rates.at(-1)?.at ?? 0];
  const points = rates.map((one) => `${((100 * (one.at - first)) / (last - first || 1)).toFixed(1)},${(19 - (18 * one.value) / highest).toFixed(1)}`);
  setAttribute(node.querySelector("polyline"), "points", points.join(" "));
}

export function showLosses(overview, history) {
  setText(byId("lost-window"), `Last ${span(Math.max(1, Math.round(history.reach)))}`);
  const { level, text } = verdict(overview, history);
  setText(byId("lost-verdict"), text);
  setAttribute(byId("lost-verdict"), "data-level", level);
  keyed(byId("lost-rows"), LOSSES, (loss) => loss.name,
    (loss) => el("tr", {}, el("th", { scope: "row" }, loss.name, el("span", { class: "under" }, loss.means)),
      el("td", { class: "number" }), el("td", { class: "number" })),
    (row, loss) => {
      const [grown, count] = [history.grown(loss.count), loss.count(overview)];
      row.classList.toggle("raised", grown > 0);
      row.querySelector(".under").hidden = count === 0; // what it means is of use where it happened
      setText(row.cells[1], whole(grown));
      setText(row.cells[2], whole(count));
    });
}

export function showTraffic(overview, history) {
  const all = totals(overview.requests, (row) => row.method);
  const methods = [...all.keys()].sort((one, other) => all.get(other) - all.get(one) || one.localeCompare(other));
  const kind = (digit) => totals(overview.requests, (row) => row.method, (row) => row.code[0] === digit);
  const [refused, failed] = [kind("4"), kind("5")];
  fillTable(byId("methods"), methods, (method) => method, (method) =>
    [method, rate(perSecond(history, (told) => total(told.requests, (row) => row.method === method))),
      whole(all.get(method)), whole(refused.get(method) ?? 0), whole(failed.get(method) ?? 0),
      seconds(lately(history, method, 0.5)), seconds(lately(history, method, 0.99))], "No request has come yet.");
  const named = (row) => `${row.source}\n${row.kind}\n${row.outcome}`;
  fillCounts("decisions", history, (told) => totals(told.decisions, named), (key) => {
    const [source, what, outcome] = key.split("\n");
    return [source, what === "none" ? "new work" : what, outcome];
  }, "No backend was named yet.");
  fillCounts("searches", history, (told) => totals(told.searches, (row) => `${row.pool}\n${row.outcome}`),
    (key) => key.split("\n"), "None so far: every owner was known.");
  fillCounts("errors", history, (told) => totals(told.rejected, (row) => row.reason), (reason) => [reason], "None so far.");
  fillCounts("others", history, others, (what) => [what], "Nothing so far.");
  showLatency(overview, methods);
}

// A row for each key of `counts(overview)`, the largest first; `texts(key)` stand before what came lately and in all.
function fillCounts(name, history, counts, texts, empty) {
  const [now, then] = [counts(history.now), counts(history.oldest)];
  const rows = [...now].filter(([, count]) => count).sort((one, other) => other[1] - one[1] || one[0].localeCompare(other[0]));
  fillTable(byId(name), rows, ([key]) => key,
    ([key, count]) => [...texts(key), whole(Math.max(0, count - (then.get(key) ?? 0))), whole(count)], empty);
}

// What is counted besides, by what it is.
function others(told) {
  const counts = new Map();
  const add = (what, count) => counts.set(what, (counts.get(what) ?? 0) + count);
  for (const { pool, reason, count } of told.retries) add(`Tried again in ${pool}: ${reason}`, count);
  for (const { pool, method, count } of told.retries_withheld) add(`Not tried again in ${pool}, it may do harm: ${method}`, count);
  for (const { reason, count } of told.unlearned) add(`Not learned from: ${reason}`, count);
  for (const { reason, count } of told.tls_handshake_failures) add(`TLS handshake failed: ${reason}`, count);
  for (const { outcome, count } of told.reloads) add(outcome === "ok" ? "Configurations put in force" : "Configurations refused", count);
  add("Clients that left before the end", told.hangups);
  for (const [pool, { ejections }] of Object.entries(told.pools)) add(`Ejections from ${pool}`, ejections);
  return counts;
}

function showLatency(overview, methods) {
  const choice = byId("latency-method");
  const options = ["", ...methods];
  if (choice.options.length !== options.length || options.some((name, i) => choice.options[i].value !== name)) {
    const chosen = choice.value;
    choice.replaceChildren(...options.map((name) => el("option", { value: name }, name || "all")));
    choice.value = options.includes(chosen) ? chosen : "";
  }
  const [place, end] = [byId("latency"), byId("latency-end").value];
  const counts = histogram(overview[end], choice.value);
  const key = `${end} ${choice.value} ${counts}`;
  if (place.drawn === key) return;
  place.drawn = key;
  const some = counts?.some(Boolean);
  place.replaceChildren(some ? latency(overview.buckets, counts) : el("p", { class: "quiet" }, "No request has come yet."));
}

const bound = (value) => (value < 1 ? `${+(1000 * value).toFixed(1)} ms` : value < 60 ? `${value} s` : value < 3600 ? `${value / 60} min` : `${value / 3600} h`);

// Bars from the first to the last bucket that holds something, and the same as a list for who cannot see them.
function latency(bounds, counts) {
  const first = counts.findIndex(Boolean);
  const last = counts.findLastIndex(Boolean);
  const from = Math.max(0, Math.min(first, last - 6));
  const to = Math.min(counts.length - 1, Math.max(last, from + 6));
  const shown = counts.slice(from, to + 1);
  const all = counts.reduce((sofar, count) => sofar + count, 0);
  const highest = Math.max(...shown);
  const width = 400 / shown.length;
  const name = (i) => (i < bounds.length ? `up to ${bound(bounds[i])}` : `above ${bound(bounds.at(-1))}`);
  const words = shown.map((count, i) => [name(from + i), count]).filter(([, count]) => count)
    .map(([where, count]) => `${where}: ${whole(count)}`).join("; ");
  const drawing = svg("svg", { viewBox: "0 0 400 150", role: "img", "aria-label": `Requests by duration. ${words}` });
  shown.forEach((count, i) => {
    const height = count ? Math.max(1.5, (112 * count) / highest) : 0;
    const x = i * width;
    drawing.append(svg("rect", { x: x + 1.5, y: 130 - height, width: width - 3, height, class: "slice colour-0" }));
    if (count) drawing.append(svg("text", { x: x + width / 2, y: 126 - height, class: "tick", "text-anchor": "middle" },
      count / all < 0.01 ? "< 1 %" : `${Math.round((100 * count) / all)} %`));
    drawing.append(svg("text", { x: x + width / 2, y: 145, class: "tick", "text-anchor": "middle" },
      from + i < bounds.length ? bound(bounds[from + i]) : "more"));
  });
  drawing.append(svg("line", { x1: 0, x2: 400, y1: 130.5, y2: 130.5, class: "axis" }));
  const facts = [0.5, 0.9, 0.99].map((q) => `p${100 * q} ${seconds(quantile(bounds, counts, q))}`).join(" · ");
  return el("div", {}, drawing, el("p", { class: "quiet" }, `${whole(all)} since start, each bar up to the time below it. ${facts}`));
}
