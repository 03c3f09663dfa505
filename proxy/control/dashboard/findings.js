// Decides what an operator should know first: how each backend stands in one word, and what needs a look. Pure.

import { many, span, total, whole } from "./numbers.js";

export const STATES = ["up", "draining", "empty", "ejected", "down", "departed"];

// The word for a backend, and what there is to say besides.
export function stateOf(backend) {
  if (backend.departed) return { word: "departed", more: backend.empty ? "holds nothing" : "left the configuration" };
  if (!backend.up) return { word: "down", more: backend.probe ?? "" };
  if (backend.empty) return { word: "empty", more: "can be stopped" };
  if (backend.draining) return { word: "draining", more: "" };
  if (backend.ejected !== null) return { word: "ejected", more: `${span(Math.ceil(backend.ejected))} left` };
  return { word: "up", more: "" };
}

export const takesWork = (backend) =>
  backend.up && !backend.draining && !backend.departed && backend.ejected === null;

export function holds(backend) {
  const tasks = backend.unfinished_tasks;
  return [
    tasks === null ? "tasks unknown" : tasks ? many(tasks, "task") : null,
    backend.recent_sessions ? many(backend.recent_sessions, "session") : null,
    backend.in_flight ? `${whole(backend.in_flight)} in flight` : null,
  ].filter(Boolean);
}

// What is lost, or may be: each with how to count it in an overview, and what it means.
export const LOSSES = [
  {
    name: "Tasks their owner did not know",
    count: (told) => total(told.decisions, (row) => row.outcome === "unknown" && row.source !== "search"),
  },
  { name: "Requests whose owner was down", count: (told) => total(told.decisions, (row) => row.outcome === "owner_down") },
  { name: "Task ids that two backends gave", count: (told) => total(told.decisions, (row) => row.outcome === "conflict") },
  { name: "Searches where nobody knew the task", count: (told) => total(told.searches, (row) => row.outcome === "unknown") },
  { name: "Searches that could not tell", count: (told) => total(told.searches, (row) => row.outcome === "failed") },
  { name: "Answers that left no pin", count: (told) => total(told.unlearned) },
  { name: "Pins dropped for want of room", count: (told) => told.pins.evicted },
  { name: "Worker processes that died", count: (told) => told.restarts },
];

const SHOWN = 12; // findings of one kind; more are summed up

// [{level: "bad" | "warn" | "ok" | "note", text}], the worst first.
export function findings(pools, overview, history) {
  const found = [];
  const say = (level, text) => found.push({ level, text });
  if (pools.every((pool) => pool.backends.every((backend) => backend.departed || takesWork(backend))))
    say("ok", "Every backend takes new work");
  for (const pool of pools) {
    const members = pool.backends.filter((backend) => !backend.departed);
    if (!members.some(takesWork)) say("bad", `Pool ${pool.name}: no backend takes new work`);
    const queued = overview.pools[pool.name]?.queued ?? 0;
    if (queued) say("warn", `Pool ${pool.name}: ${many(queued, "request waits", "requests wait")} for a slot`);
    if (pool.discovery?.failure) say("warn", `Pool ${pool.name}: its backends cannot be looked up: ${pool.discovery.failure}`);
    const several = (level, backends, one, all) => {
      if (backends.length > SHOWN) say(level, `Pool ${pool.name}: ${all(whole(backends.length))}`);
      else for (const backend of backends) say(level, `${pool.name}/${backend.id} ${one(backend)}`);
    };
    const of = (word) => pool.backends.filter((backend) => stateOf(backend).word === word);
    const holding = (backend) => (holds(backend).length ? `still holds ${holds(backend).join(", ")}` : "holds nothing");
    several("bad", of("down"), (one) => `is down${one.probe ? `: ${one.probe}` : ""}`, (n) => `${n} backends are down`);
    several("warn", of("ejected"), (one) => `is ejected after failures, for ${stateOf(one).more.replace(" left", "")} more`,
      (n) => `${n} backends are ejected`);
    several("note", of("draining"), (one) => `is draining and ${holding(one)}`, (n) => `${n} backends are draining`);
    several("note", of("empty"), () => "is empty and can be stopped", (n) => `${n} backends are empty and can be stopped`);
    several("note", of("departed"), (one) => `left the configuration and ${holding(one)}`,
      (n) => `${n} backends have left the configuration`);
  }
  if (overview.pins.store_up === 0) say("bad", "The pin store does not answer: owners are searched for");
  for (const loss of LOSSES) {
    const grown = history.grown(loss.count);
    if (grown) say("warn", `${loss.name}: ${whole(grown)} in the last ${span(Math.ceil(history.reach))}`);
  }
  if (!LOSSES.some((loss) => history.grown(loss.count)))
    say("ok", `Nothing was lost in the last ${span(Math.max(1, Math.ceil(history.reach)))}`);
  const refused = history.grown((told) => total(told.reloads, (row) => row.outcome === "refused"));
  if (refused) say("warn", "A changed configuration was refused: the one before is in force");
  const order = { bad: 0, warn: 1, ok: 2, note: 3 };
  return found.sort((one, other) => order[one.level] - order[other.level]);
}
