// Asks the proxy. The token, where one is needed, is kept for this tab alone and shown with every request.

const KEY = "mcp-routing-proxy.token";
const PATIENCE = 10_000; // milliseconds

let token = sessionStorage.getItem(KEY);

export class Refused extends Error {
  constructor(status, message, answer) {
    super(message);
    this.status = status;
    this.answer = answer;
  }
}

export const hasToken = () => token !== null;

export function setToken(text) {
  token = text;
  if (text === null) sessionStorage.removeItem(KEY);
  else sessionStorage.setItem(KEY, text);
}

// The JSON that is answered. Throws Refused with what the proxy says, or TypeError where nobody answers.
async function ask(path, options) {
  const headers = { Accept: "application/json", ...options.headers };
  if (token !== null) headers.Authorization = `Bearer ${token}`;
  const signal = AbortSignal.timeout(PATIENCE);
  const response = await fetch(path, { ...options, headers, signal, cache: "no-store", credentials: "omit" });
  const answer = await response.json().catch(() => null);
  if (!response.ok) throw new Refused(response.status, answer?.error ?? response.statusText, answer);
  return answer;
}

export const get = (path) => ask(path, {});

export const post = (path, value = {}) =>
  ask(path, { method: "POST", headers: { "Content-Type": "application/json" }, body: JSON.stringify(value) });

export const backendPath = (pool, id, verb) =>
  `api/backends/${encodeURIComponent(pool)}/${encodeURIComponent(id)}/${verb}`;

export const spreadPath = (pool, without) =>
  `api/pools/${encodeURIComponent(pool)}/spread${without == null ? "" : `?without=${encodeURIComponent(without)}`}`;
