// Draws how a pool's new work is spread: around the ring, or for many backends as how their shares are distributed.

import { el, svg } from "./dom.js";
import { many, percent, whole } from "./numbers.js";

const AROUND = 24; // backends that have an arc of their own
const FEW = 3; // whose table is not higher than a small drawing
const NAMED = 0.04; // the least share whose arc gets a name
const PALETTE = 8;
const BARS = 24; // of the distribution

// Draws into `place`, again only where something has changed. `spread` is null as long as nobody has told it.
export function drawSpread(place, pool, spread) {
  if (spread === place.drawn) return;
  place.drawn = spread;
  if (spread === null) return;
  const members = spread.backends;
  place.classList.toggle("few", members.length <= FEW);
  const drawing = members.length > AROUND ? distribution(members) : around(pool, spread);
  place.replaceChildren(el("figure", {}, drawing, el("figcaption", { class: "quiet" }, caption(spread))));
}

function caption(spread) {
  if (spread.ring_key === null) return `New work by weight (${spread.policy}).`;
  const drawn = spread.slices.length > 0;
  return `New work by the ring, key: ${spread.ring_key}.${drawn ? " Outside: the places on the ring; grey ones are passed over." : ""}`;
}

const colour = (index) => `slice colour-${index < PALETTE ? index : index % 2 ? "odd" : "even"}`;

// The path of a piece of a ring between two parts of a full turn, which begins at the top.
function arc(from, to, inner, outer) {
  const end = Math.min(to, from + 0.9999); // a full turn would end where it begins, and show nothing
  const at = (part, radius) => {
    const angle = 2 * Math.PI * part;
    return `${(radius * Math.sin(angle)).toFixed(2)} ${(-radius * Math.cos(angle)).toFixed(2)}`;
  };
  const large = end - from > 0.5 ? 1 : 0;
  return `M${at(from, outer)}A${outer} ${outer} 0 ${large} 1 ${at(end, outer)}L${at(end, inner)}` +
    `A${inner} ${inner} 0 ${large} 0 ${at(from, inner)}Z`;
}

function around(pool, spread) {
  const members = spread.backends;
  const index = new Map(members.map((part, i) => [part.id, i]));
  const takes = new Set(members.filter((part) => part.now > 0).map((part) => part.id));
  const list = members.map((part) => `${part.id} ${percent(part.now)}`).join(", ");
  const drawing = svg("svg", { viewBox: "-142 -104 284 208", role: "img", "aria-label": `Shares of new work: ${list}` });
  let from = 0;
  for (const [i, part] of members.entries()) {
    if (part.now > 0) {
      drawing.append(svg("path", { d: arc(from, from + part.now, 44, 72), class: colour(i) }));
      if (part.now >= NAMED) drawing.append(...label(part, from + part.now / 2, spread.slices.length ? 90 : 78));
    }
    from += part.now;
  }
  if (from === 0) drawing.append(svg("circle", { r: 58, class: "nobody" }));
  for (const [start, end, id] of runs(spread.slices)) {
    const drawn = takes.has(id) ? colour(index.get(id)) : "slice passed";
    drawing.append(svg("path", { d: arc(start, end, 76, 84), class: drawn }));
  }
  const middle = spread.ring_key === null ? ["by", "weight"] : ["ring", `no. ${pool.generation}`];
  middle.forEach((text, i) => drawing.append(svg("text", { y: 15 * i - 3, class: "middle" }, text)));
  return drawing;
}

function label(part, at, radius) {
  const angle = 2 * Math.PI * at;
  const [x, y] = [radius * Math.sin(angle), -radius * Math.cos(angle)];
  const anchor = Math.abs(x) < 20 ? "middle" : x > 0 ? "start" : "end";
  const name = part.id.length > 9 ? `${part.id.slice(0, 8)}…` : part.id;
  const down = y > 60 ? 9 : y < -60 ? 0 : 4;
  return [svg("text", { x, y: y + down, "text-anchor": anchor, class: "slice-name" }, name)];
}

// Neighbouring places of one backend as [start, end, id], in parts of a full turn.
function runs(slices) {
  const found = [];
  slices.forEach((id, i) => {
    const last = found.at(-1);
    if (last && last[2] === id) last[1] = (i + 1) / slices.length;
    else found.push([i / slices.length, (i + 1) / slices.length, id]);
  });
  return found;
}

function distribution(members) {
  const shares = members.map((part) => part.now).filter((share) => share > 0).sort((one, other) => one - other);
  const idle = members.length - shares.length;
  if (!shares.length) return el("p", {}, `None of ${many(members.length, "backend")} takes new work.`);
  const [least, middle, most] = [shares[0], shares[Math.floor(shares.length / 2)], shares.at(-1)];
  const bars = new Array(BARS).fill(0);
  const place = (share) => Math.min(BARS - 1, Math.floor((BARS * (share - least)) / (most - least || 1)));
  for (const share of shares) bars[place(share)] += 1;
  const highest = Math.max(...bars);
  const text = `${many(shares.length, "backend")} ${shares.length === 1 ? "takes" : "take"} new work, from ${fine(least)} ` +
    `to ${fine(most)} each, half of them below ${fine(middle)}. ${idle ? `${whole(idle)} take none.` : "None is left out."}`;
  const drawing = svg("svg", { viewBox: "0 0 264 110", role: "img", "aria-label": `How shares are distributed. ${text}` });
  bars.forEach((count, i) => {
    const height = (90 * count) / highest;
    if (count) drawing.append(svg("rect", { x: 11 * i, y: 90 - height, width: 10, height, class: "slice colour-0" }));
  });
  drawing.append(svg("line", { x1: 0, x2: 264, y1: 90.5, y2: 90.5, class: "axis" }));
  drawing.append(svg("text", { x: 0, y: 105, class: "tick" }, fine(least)));
  drawing.append(svg("text", { x: 264, y: 105, class: "tick", "text-anchor": "end" }, fine(most)));
  return el("div", {}, drawing, el("p", {}, text));
}

const fine = (share) => `${(100 * share).toPrecision(2)} %`;
