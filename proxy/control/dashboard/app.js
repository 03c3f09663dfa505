// The dashboard: asks the proxy again and again how things stand, and shows it.

import { Refused, get, hasToken, setToken, spreadPath } from "./api.js";
import { askDrain, askReload, askToken, prepareDialogs } from "./dialogs.js";
import { announce, byId, el, keyed, setAttribute, setText } from "./dom.js";
import { prepareExplain } from "./explain.js";
import { findings } from "./findings.js";
import { History, many, span } from "./numbers.js";
import { showIndex, showPools } from "./pools.js";
import { showFigures, showLosses, showTraffic } from "./traffic.js";

const PAUSE = 2_000; // milliseconds between two looks
const LONG_PAUSE = 5_000; // the same where an answer is large
const MANY = 200; // backends
const TITLE = document.title;
const WEIGHTS_CHANGE = 30; // seconds after which shares by weight are asked for again: those that came back warm up

const history = new History();
const spreads = new Map(); // by pool
const asked = new Map(); // by pool: what was true when its spread was asked for
let paused = false;
let timer = null;
let looking = false;
let pools = [];
let heard = null; // when the last answer came, by performance.now()
let tried = false;
let failing = false;
const LEVELS = { bad: "Trouble", warn: "Check", note: "Note", ok: "Fine" };
let told = new Set(); // findings that were announced

async function look() {
  clearTimeout(timer);
  timer = null;
  if (looking) return;
  looking = true;
  try {
    const [standing, overview] = await Promise.all([get("api/pools"), get("api/overview")]);
    heard = performance.now();
    failing = false;
    pools = standing.pools;
    history.add(heard / 1000, overview);
    setText(byId("note"), standing.note);
    byId("trouble").hidden = true;
    byId("forget").hidden = !hasToken();
    show();
    askSpreads(); // not awaited: a large ring takes its time
  } catch (error) {
    if (error instanceof Refused && error.status === 401) await askToken(hasToken());
    else fail(error);
  } finally {
    looking = false;
    tried = true;
  }
  freshness();
  again();
}

function again() {
  if (paused || document.hidden || timer !== null) return;
  const backends = pools.reduce((sum, pool) => sum + pool.backends.length, 0);
  timer = setTimeout(look, !tried ? 0 : backends > MANY ? LONG_PAUSE : PAUSE);
}

function fail(error) {
  const trouble = byId("trouble");
  const why = error instanceof Refused ? `it says ${error.status}, ${error.message}` : "nobody answers";
  const text = `The proxy cannot be asked: ${why}. ${heard === null ? "It is asked again and again." : "What is shown may be old."}`;
  failing = true;
  document.title = TITLE;
  trouble.hidden = false;
  if (trouble.textContent !== text) announce(text);
  setText(trouble, text);
}

function show() {
  const overview = history.now;
  byId("main").classList.remove("unknown");
  setText(byId("about"), [`version ${overview.version}`, many(overview.workers, "process", "processes"),
    overview.started && `up ${span(overview.now - overview.started)}`,
    overview.loaded && `configuration loaded ${span(overview.now - overview.loaded)} ago`].filter(Boolean).join(" · "));
  const found = findings(pools, overview, history);
  showFindings(found);
  const serious = found.filter(({ level }) => level === "bad" || level === "warn").length;
  document.title = serious ? `(${serious}) ${TITLE}` : TITLE;
  showFigures(byId("figures"), pools, overview, history);
  showBackends();
  showLosses(overview, history);
  showTraffic(overview, history);
}

function showBackends() {
  showIndex(byId("pool-index"), pools);
  showPools(byId("pools"), pools, history.now, history, spreads, (pool, backend) => askDrain(pool, backend, look));
}

function showFindings(found) {
  keyed(byId("findings"), found, ({ level, text }) => `${level} ${text.replace(/\d+/g, "")}`,
    () => el("li", {}, el("span", { class: "level" }), el("span")),
    (node, { level, text }) => {
      setAttribute(node, "data-level", level);
      setText(node.children[0], LEVELS[level]);
      setText(node.children[1], text);
    });
  // Only what is new, and not that a count has changed.
  const serious = found.filter(({ level }) => level === "bad" || level === "warn").map(({ text }) => text);
  const names = new Set(serious.map((text) => text.replace(/\d+/g, "")));
  const fresh = serious.filter((text) => !told.has(text.replace(/\d+/g, "")));
  told = names;
  if (fresh.length) announce(fresh.join(". "));
}

// Asks how new work is spread in each pool where that may have changed.
async function askSpreads() {
  for (const pool of pools) {
    const rule = history.now.pools[pool.name];
    const state = pool.backends.map((one) => [one.id, one.weight, one.up, one.draining, one.departed, one.ejected !== null]);
    const time = rule?.ring_key === null ? Math.floor(performance.now() / 1000 / WEIGHTS_CHANGE) : 0;
    const now = JSON.stringify([pool.ring_generation, rule?.policy, rule?.ring_key, time, state]);
    if (asked.get(pool.name) === now) continue;
    asked.set(pool.name, now);
    try {
      spreads.set(pool.name, await get(spreadPath(pool.name)));
      showBackends();
    } catch {
      asked.delete(pool.name); // it is asked for at the next look
    }
  }
}

function freshness() {
  if (heard === null) return setText(byId("freshness"), failing ? "No answer" : "Waiting for the proxy");
  const age = Math.round((performance.now() - heard) / 1000);
  setText(byId("freshness"), paused ? `Paused, ${span(age)} old` : age < 8 && !failing ? "Live" : `${span(age)} old`);
}

byId("pause").addEventListener("click", () => {
  paused = !paused;
  setAttribute(byId("pause"), "aria-pressed", String(paused));
  clearTimeout(timer);
  timer = null;
  freshness();
  if (!paused) look();
});
byId("reload").addEventListener("click", () => askReload(look));
byId("forget").addEventListener("click", () => {
  setToken(null);
  location.reload();
});
for (const name of ["latency-method", "latency-end"])
  byId(name).addEventListener("change", () => history.now && showTraffic(history.now, history));
document.addEventListener("visibilitychange", () => {
  if (!document.hidden && !paused) look();
});
prepareDialogs();
prepareExplain();
setInterval(freshness, 1000);
look();
