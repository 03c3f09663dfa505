// Turns counters into rates, buckets into percentiles, and numbers into text. Pure.

const WINDOW = 300; // seconds that "lately" reaches back
const RATE = 20; // seconds over which rates are taken

const grouped = new Intl.NumberFormat("en", { maximumFractionDigits: 0 });

export const whole = (number) => (number == null ? "unknown" : grouped.format(number));

export function rate(number) {
  if (number == null) return "–";
  if (number === 0) return "0";
  return number < 0.1 ? "< 0.1" : number < 100 ? number.toFixed(1) : grouped.format(number);
}

// With a space that does not break.
export const percent = (share) =>
  share === 0 ? "0\u00a0%" : share < 0.001 ? "<\u00a00.1\u00a0%" : `${(100 * share).toFixed(1)}\u00a0%`;

export function seconds(value) {
  if (value == null) return "–";
  if (value < 0.001) return "<\u00a01\u00a0ms";
  if (value < 1) return `${(1000 * value).toFixed(value < 0.01 ? 1 : 0)}\u00a0ms`;
  return value < 60 ? `${value.toFixed(value < 10 ? 1 : 0)}\u00a0s` : span(value);
}

export function span(value) {
  for (const [unit, length] of [["d", 86400], ["h", 3600], ["min", 60]])
    if (value >= length) return `${Math.floor(value / length)}\u00a0${unit}`;
  return `${Math.max(0, Math.floor(value))}\u00a0s`;
}

export const many = (count, one, more = `${one}s`) => `${whole(count)} ${count === 1 ? one : more}`;

export function totals(rows, keyOf, counts = () => true) {
  const sums = new Map();
  for (const row of rows) if (counts(row)) sums.set(keyOf(row), (sums.get(keyOf(row)) ?? 0) + row.count);
  return sums;
}

export const total = (rows, counts = () => true) => rows.reduce((sum, row) => sum + (counts(row) ? row.count : 0), 0);

// All methods' histograms as one, or one method's. Null where there is none.
export function histogram(methods, method = "") {
  const chosen = method ? [methods[method]].filter(Boolean) : Object.values(methods);
  if (!chosen.length) return null;
  return chosen.map((one) => one.counts).reduce((sum, counts) => sum.map((count, i) => count + counts[i]));
}

// The quantile within its bucket, taken to be evenly filled; of the last bucket its lower bound.
export function quantile(bounds, counts, q) {
  const all = counts?.reduce((sum, count) => sum + count, 0);
  if (!all) return null;
  let rest = q * all;
  for (let i = 0; i < bounds.length; i += 1) {
    if (rest <= counts[i] && counts[i]) {
      const lower = i ? bounds[i - 1] : 0;
      return lower + ((bounds[i] - lower) * rest) / counts[i];
    }
    rest -= counts[i];
  }
  return bounds[bounds.length - 1];
}

// What was told before, as far back as "lately" reaches. A proxy that started anew begins a new history.
export class History {
  #samples = [];

  add(at, overview) {
    const last = this.#samples.at(-1);
    if (last && last.overview.started !== overview.started) this.#samples = [];
    // Those of each backend are many, and only asked for over a short while.
    for (const sample of this.#samples) if (at - sample.at > 2 * RATE) sample.overview.responses = null;
    this.#samples.push({ at, overview });
    while (at - this.#samples[0].at > WINDOW) this.#samples.shift();
  }

  get now() {
    return this.#samples.at(-1)?.overview ?? null;
  }

  // What "lately" is counted from.
  get oldest() {
    return this.#samples[0]?.overview ?? null;
  }

  // How long "lately" is so far, in seconds.
  get reach() {
    return this.#samples.length ? this.#samples.at(-1).at - this.#samples[0].at : 0;
  }

  // By how much a count has grown lately.
  grown(count) {
    return this.#samples.length ? Math.max(0, count(this.now) - count(this.#samples[0].overview)) : 0;
  }

  // By how much several counts grew over the last `length` seconds, as [then, now, seconds between].
  lately(length = RATE) {
    const last = this.#samples.at(-1);
    if (!last) return null;
    const first = this.#samples.find((sample) => last.at - sample.at <= length);
    return first === last ? null : { then: first.overview, now: last.overview, seconds: last.at - first.at };
  }

  // Growth a second between each two samples, the oldest first.
  rates(count) {
    return this.#samples.slice(1).map((sample, i) => {
      const before = this.#samples[i];
      return { at: sample.at, value: Math.max(0, count(sample.overview) - count(before.overview)) / (sample.at - before.at) };
    });
  }
}
