// Asks where a request that nobody sent would go, and shows the answer.

import { post } from "./api.js";
import { byId, el, setText } from "./dom.js";
import { many, whole } from "./numbers.js";

const MODERN = "MCP-Protocol-Version: 2026-07-28";
const KINDS = {
  task: { label: "Task id", verb: "POST", fields: (name) => [MODERN, "Mcp-Method: tasks/get", field("Mcp-Name", name)] },
  tool: { label: "Tool name", verb: "POST", fields: (name) => [MODERN, "Mcp-Method: tools/call", field("Mcp-Name", name)] },
  session: { label: "Session id", verb: "POST", fields: (name) => [`Mcp-Session-Id: ${name}`] },
};
const WHY = {
  pin: "by the task's pin",
  tag: "by the tag in the id",
  search: "not known: these are asked",
  ring: "by the ring",
  balance: "any of these",
};

// A value that a header field cannot hold goes as the specification wraps it.
function field(name, value) {
  const plain = /^[\x21-\x7e]([\x20-\x7e]*[\x21-\x7e])?$/.test(value) && !/^=\?base64\?/i.test(value);
  if (plain || value === "") return `${name}: ${value}`;
  return `${name}: =?base64?${btoa(String.fromCharCode(...new TextEncoder().encode(value)))}?=`;
}

export function prepareExplain() {
  const form = byId("question");
  const [kind, name, verb, fields] = ["ask-kind", "ask-name", "ask-verb", "ask-fields"].map(byId);
  const write = () => {
    const chosen = KINDS[kind.value];
    name.parentElement.hidden = !chosen;
    form.querySelector("details").open ||= !chosen;
    if (!chosen) return;
    setText(byId("ask-name-label"), chosen.label);
    verb.value = chosen.verb;
    fields.value = chosen.fields(name.value.trim()).join("\n");
  };
  kind.addEventListener("change", write);
  name.addEventListener("input", write);
  write();
  form.addEventListener("submit", async (event) => {
    event.preventDefault();
    const place = byId("answer");
    try {
      const pairs = fields.value.split("\n").filter((line) => line.trim()).map(pair);
      const told = await post("api/explain", { method: verb.value, path: byId("ask-path").value, headers: pairs });
      place.replaceChildren(...answer(told));
    } catch (error) {
      place.replaceChildren(el("p", { class: "failure" }, error.message));
    }
  });
}

function pair(line) {
  const colon = line.indexOf(":");
  if (colon < 1) throw new Error(`“${line}” is no header field: a name, a colon, a value`);
  return [line.slice(0, colon).trim(), line.slice(colon + 1).trim()];
}

function answer(told) {
  const time = new Date().toLocaleTimeString("en-GB");
  const shown = [el("p", {}, el("span", { class: "verdict" }, headline(told)), el("span", { class: "under" }, `As of ${time}`))];
  for (const place of told.places) shown.push(...placed(place, told.places.length > 1));
  const facts = [];
  if (told.request?.task) facts.push(["Task", `${told.request.task} (a digest of its id)`]);
  for (const seen of told.routes) facts.push([`Route ${seen.route}`, seen.unmet ?? "matches"]);
  if (told.reachable) facts.push(["Reachable pools", told.reachable.join(", ") || "none"]);
  for (const note of told.notes) facts.push(["Note", note]);
  if (facts.length) shown.push(el("dl", { class: "facts" }, ...facts.map(([name, text]) =>
    el("div", {}, el("dt", {}, name), el("dd", {}, text)))));
  return shown;
}

function headline(told) {
  if (told.error) return `Refused: ${failure(told.error)}`;
  const places = told.places;
  if (!places.length) return "It goes nowhere.";
  if (told.search) {
    const count = places.reduce((sum, place) => sum + (place.policy ? 1 : place.backends.length), 0);
    return `The owner is not known. ${many(count, "backend is", "backends are")} asked at once; `
      + (told.search === "first result" ? "the first result is relayed." : "all answers are awaited.");
  }
  if (places.length > 1) return "One of several pools, by their shares.";
  const [place] = places;
  if (place.error) return `Refused: ${failure(place.error)}`;
  if (place.together) return `Pool ${place.pool}: all its backends serve it together.`;
  if (place.backends.length === 1) return `Backend ${place.backends[0].id} of pool ${place.pool}, ${why(place)}.`;
  return `Pool ${place.pool}: ${place.policy ? `${place.policy} picks one.` : `${why(place)}.`}`;
}

const why = (place) => (place.kind === "round" ? "since it asked back" : place.policy || (WHY[place.source] ?? "alone"));
const failure = (error) => `${error.status} ${error.reason}: ${error.message}`;

function placed(place, several) {
  const shown = [];
  const share = place.part === place.whole ? "" : `, ${place.part} of ${place.whole} requests`;
  const title = `Pool ${place.pool}${share}${several && place.error ? `: ${failure(place.error)}` : ""}`;
  if (place.backends.length) {
    const rows = place.backends.map((backend) => el("tr", {}, el("th", { scope: "row" }, backend.id), el("td", {}, backend.url),
      el("td", {}, states(backend)), el("td", { class: "number" }, whole(backend.in_flight))));
    shown.push(el("div", { class: "scroll short", role: "region", tabindex: "0", "aria-label": title }, el("table", {}, el("caption", {}, title), el("thead", {}, el("tr", {},
      el("th", { scope: "col" }, "Backend"), el("th", { scope: "col" }, "URL"), el("th", { scope: "col" }, "State"),
      el("th", { scope: "col", class: "number" }, "In flight"))), el("tbody", {}, ...rows))));
  } else if (several) shown.push(el("p", {}, title));
  if (place.ring) shown.push(el("p", { class: "quiet" }, `Ring key ${place.ring.key}; in its order: ${order(place.ring.order)}`));
  return shown;
}

function order(ids) {
  return ids.length > 8 ? `${ids.slice(0, 8).join(", ")} and ${whole(ids.length - 8)} more` : ids.join(", ");
}

function states(backend) {
  const words = [!backend.up && "down", backend.ejected && "ejected", backend.draining && "draining", backend.departed && "departed"];
  return words.filter(Boolean).join(", ") || "up";
}
