// Decides what an operator should know first: how each backend stands in one word, and what needs a look. Pure.

import { many, span, total, whole } from "./numbers.js";

export const STATES = ["up", "draining", "empty", "ejected", "down", "departed"];

// The word for a backend, and what there is to say besides.
export function stateOf(backend) {
  const left = backend.discovered ? "is found no more" : "left the configuration";
  if (backend.departed) return { word: "departed", more: `${left}, ${backend.empty ? "holds nothing" : holding(backend)}` };
  if (!backend.up) return { word: "down", more: backend.probe ?? "" };
  if (backend.empty) return { word: "empty", more: "can be stopped" };
  if (backend.draining) return { word: "draining", more: holding(backend) };
  if (backend.ejected !== null) return { word: "ejected", more: `${span(Math.ceil(backend.ejected))} left` };
  return { word: "up", more: backend.missing ? "not found lately" : "" };
}

export const takesWork = (backend) =>
  backend.up && !backend.draining && !backend.departed && backend.ejected === null;

// What a backend holds, for a sentence.
export const holding = (backend) => holds(backend).join(", ") || "nothing";

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
    means: "The backend restarted, or the task's time was over: clients were told that there is no such task.",
  },
  {
    name: "Requests whose owner was down",
    count: (told) => total(told.decisions, (row) => row.outcome === "owner_down"),
    means: "Clients were told to try again. What the backend keeps is there when it is back.",
  },
  {
    name: "Task ids that two backends gave",
    count: (told) => total(told.decisions, (row) => row.outcome === "conflict"),
    means: "Ids of the backends are not unique: the second task cannot be reached.",
  },
  {
    name: "Searches where nobody knew the task",
    count: (told) => total(told.searches, (row) => row.outcome === "unknown"),
    means: "Every backend was asked. The id was wrong or old, or its backend restarted.",
  },
  {
    name: "Searches that could not tell",
    count: (told) => total(told.searches, (row) => row.outcome === "failed"),
    means: "A backend was away, or too many searched: clients were told to try again.",
  },
  {
    name: "Answers that left no pin",
    count: (told) => total(told.unlearned),
    means: "Nothing is lost, but these tasks are searched for.",
  },
  {
    name: "Pins dropped for want of room",
    count: (told) => told.pins.evicted,
    means: "Nothing is lost, but these tasks are searched for. See pins.capacity.",
  },
  {
    name: "Worker processes that died",
    count: (told) => told.restarts,
    means: "Connections that they had were cut. Tasks live in backends and are found again.",
  },
];

// The answer in a sentence, as {level, text}.
export function verdict(overview, history) {
  const during = span(Math.max(1, Math.round(history.reach)));
  const since = overview.started ? span(overview.now - overview.started) : "some time";
  if (LOSSES.some((loss) => history.grown(loss.count)))
    return { level: "warn", text: `Perhaps: look at what came in the last ${during}.` };
  if (LOSSES.some((loss) => loss.count(overview)))
    return { level: "ok", text: `Nothing in the last ${during}. What came before that is counted below.` };
  return { level: "ok", text: `No: nothing that this proxy saw since it started, ${since} ago.` };
}

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
    if (pool.discovery?.missing.length)
      say("note", `Pool ${pool.name}: ${many(pool.discovery.missing.length, "backend is", "backends are")} not found lately, and may leave`);
    const several = (level, backends, one, all) => {
      if (backends.length > SHOWN) say(level, `Pool ${pool.name}: ${all(whole(backends.length))}`);
      else for (const backend of backends) say(level, `${pool.name}/${backend.id} ${one(backend)}`);
    };
    const of = (word) => pool.backends.filter((backend) => stateOf(backend).word === word);
    const still = (backend) => (holds(backend).length ? `still holds ${holding(backend)}` : "holds nothing");
    several("bad", of("down"), (one) => `is down${one.probe ? `: ${one.probe}` : ""}`, (n) => `${n} backends are down`);
    several("warn", of("ejected"), (one) => `is ejected after failures, for ${stateOf(one).more.replace(" left", "")} more`,
      (n) => `${n} backends are ejected`);
    several("note", of("draining"), (one) => `is draining and ${still(one)}`, (n) => `${n} backends are draining`);
    several("note", of("empty"), () => "is empty and can be stopped", (n) => `${n} backends are empty and can be stopped`);
    several("note", of("departed"), (one) => `has left and ${still(one)}`,
      (n) => `${n} backends have left`);
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
